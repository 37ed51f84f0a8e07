"""Artifacts that are missing or altered, stores that fail: typed errors, nothing dangling."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import backends
import objectstore
import pytest
import servers
from shelves import BIG, NOISE, config, full_disk, made, objects, put, values

from langgraph_durable import (
    Artifact,
    ArtifactCorrupt,
    ArtifactMissing,
    ArtifactsUnreachable,
    FileArtifacts,
    MissingArtifact,
    SerializationError,
    SqliteSaver,
    StorageError,
    StorageFull,
    StorageReadOnly,
)
from langgraph_durable.artifacts import sweeping
from langgraph_durable.saver import DurableSaver
from langgraph_durable.testing.model import Coloured, finish


def spoil(store: FileArtifacts, saver: DurableSaver, how: Callable[[Path], None]) -> str:
    [one] = objects(store, saver)
    how(store.folder / one.key)
    return one.key


def test_a_missing_artifact_is_named_and_can_be_looked_past(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        at = put(saver, "t", {"image": NOISE, "rest": [1, 2]})
        key = spoil(files, saver, Path.unlink)
        with pytest.raises(ArtifactMissing) as raised:
            values(saver, "t")
        for part in ("'t'", at["configurable"]["checkpoint_id"], "'image'", key, files.url):
            assert part in str(raised.value)
        [problem] = saver.check_artifacts("t")
        assert (problem.problem, problem.key, problem.channels) == ("missing", key, ("image",))
        assert problem.checkpoints == (at["configurable"]["checkpoint_id"],)
    with backend(tmp_path, artifacts=files, on_missing_artifact="placeholder") as saver:
        found = values(saver, "t")
        assert found["rest"] == [1, 2]
        assert isinstance(found["image"], MissingArtifact)
        with pytest.raises(SerializationError):
            put(saver, "u", found)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize("content", [NOISE, BIG], ids=["plain", "compressed"])
@pytest.mark.parametrize("how", [_flip, _cut, _extend])
def test_an_altered_artifact_is_an_error(
    content: Any, how: Callable[[Path], None], tmp_path: Path
) -> None:
    store = FileArtifacts(tmp_path / "artifacts")
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "t", {"a": content})
        spoil(store, saver, how)
        with pytest.raises(ArtifactCorrupt, match=r"'t'.*'a'.*lgd-"):
            values(saver, "t")
        assert [one.problem for one in saver.check_artifacts("t")] == ["altered"]


def test_decompression_stops_at_the_recorded_size(tmp_path: Path) -> None:
    import zstandard

    store = FileArtifacts(tmp_path / "artifacts")
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "t", {"a": BIG})
        bomb = zstandard.ZstdCompressor().compress(bytes(500_000_000))
        spoil(store, saver, lambda path: path.write_bytes(bomb))
        with pytest.raises(ArtifactCorrupt, match="longer"):
            values(saver, "t")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"secret_access_key": "wrong"}, StorageReadOnly),
        ({"endpoint": "http://127.0.0.1:9"}, ArtifactsUnreachable),
    ],
    ids=["wrong credentials", "nobody there"],
)
def test_when_the_store_does_not_take_it_nothing_is_written(
    backend: backends.Open, options: dict[str, Any], error: type[StorageError], tmp_path: Path
) -> None:
    store = objectstore.shared().store(tmp_path.name, retry_config={"max_retries": 1}, **options)
    with backend(tmp_path, artifacts=store) as saver:
        with pytest.raises(error, match="artifact store s3://lgd/"):
            put(saver, "t", {"a": NOISE})
        assert saver.get_tuple(config("t")) is None
        put(saver, "t", {"a": "small"})


def test_a_bucket_that_is_missing_is_an_error(tmp_path: Path) -> None:
    store = objectstore.shared().store(tmp_path.name, bucket="nowhere")
    with pytest.raises(StorageError, match="bucket"):
        store.open("lgd-x/aa/b")


def test_a_server_that_comes_back_is_waited_for(tmp_path: Path) -> None:
    server = objectstore.S3()
    try:
        with SqliteSaver(tmp_path / "a.db", artifacts=server.store("x")) as saver:
            put(saver, "t", {"a": NOISE})
            server.signal(signal.SIGSTOP)
            threading.Timer(1.0, server.signal, (signal.SIGCONT,)).start()
            put(saver, "u", {"b": BIG})
            assert values(saver, "u") == {"b": BIG}
            server.kill()
            quick = server.store("x", retry_config={"max_retries": 0})
            with (
                SqliteSaver(tmp_path / "a.db", artifacts=quick) as hasty,
                pytest.raises(ArtifactsUnreachable, match=r"'t'.*'a'"),
            ):
                values(hasty, "t")
            server.start()

            def is_back() -> bool:
                try:
                    return values(saver, "t") == {"a": NOISE}
                except ArtifactsUnreachable:  # it finds its volumes one after another
                    return False

            servers.wait_until(is_back, "reading from the server that was started again")
    finally:
        server.end()


def test_a_fork_after_the_first_use_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    store = objectstore.shared().store(tmp_path.name)
    store.put("lgd-x/a/b", b"")
    child = os.fork()
    if child == 0:
        signal.alarm(200)
        try:
            store.stat("lgd-x/a/b")
        except StorageError:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


CHILD = """
import os, signal, stat, sys
from langgraph_durable import FileArtifacts, SqliteSaver
sys.path[:0] = [{tests!r}, {tests!r} + "/.."]
import shelves as here
path, what = {path!r}, {what!r}
files = FileArtifacts(path + "-files")
saver = SqliteSaver(path, artifacts=files)
if what == "in the middle":
    real = os.fsync
    def fsync(handle):
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.kill(os.getpid(), signal.SIGKILL)
        real(handle)
    os.fsync = fsync
    here.put(saver, "t", {{"a": b"x" * 300_000}})
elif what == "after upload":
    real = saver._shelf.keep
    def keep(uploads):
        real(uploads)
        os.kill(os.getpid(), signal.SIGKILL)
    saver._shelf.keep = keep
    here.put(saver, "t", {{"a": b"x" * 300_000}})
else:
    here.put(saver, "t", {{"a": b"x" * 300_000}})
    saver.delete_thread("t")
    files.delete = lambda key: os.kill(os.getpid(), signal.SIGKILL)
    saver.collect_artifacts(grace=0)
"""


def child(path: Path, what: str) -> subprocess.CompletedProcess[str]:
    code = CHILD.format(tests=str(Path(__file__).parent), path=str(path), what=what)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("when", ["after upload", "before delete"])
def test_a_process_killed_on_the_way_leaves_an_orphan_that_is_collected(
    when: str, tmp_path: Path
) -> None:
    done = child(tmp_path / "a.db", when)
    assert done.returncode == -signal.SIGKILL, done.stderr
    files = FileArtifacts(f"{tmp_path}/a.db-files")
    with SqliteSaver(tmp_path / "a.db", artifacts=files) as saver:
        assert saver.get_tuple(config("t")) is None
        saver.collect_artifacts(grace=0, dry_run=True)
        assert len(objects(files, saver)) == 1
        assert saver.collect_artifacts(grace=0).removed == 1
        assert [one.name for one in files.folder.rglob("*") if one.is_file()] == ["clock"]
        put(saver, "t", {"a": b"x" * 300_000})
        assert values(saver, "t") == {"a": b"x" * 300_000}


def test_what_a_killed_writer_has_left_half_written_is_collected(tmp_path: Path) -> None:
    done = child(tmp_path / "a.db", "in the middle")
    assert done.returncode == -signal.SIGKILL, done.stderr
    files = FileArtifacts(f"{tmp_path}/a.db-files")

    def left() -> list[Path]:
        return [one for one in files.folder.rglob("*") if one.suffix == ".tmp"]

    with SqliteSaver(tmp_path / "a.db", artifacts=files) as saver:
        assert saver.get_tuple(config("t")) is None
        put(saver, "t", {"a": NOISE})
        [file] = left()
        size = file.stat().st_size
        assert size > 0
        saver.collect_artifacts(grace=0)
        assert left() == [file]  # its writer may live: nobody else need be slower than an hour
        os.utime(file, (1, 1))
        assert saver.collect_artifacts(grace=0, dry_run=True).bytes == size
        assert saver.collect_artifacts(grace=0).bytes == size
        assert left() == []
        assert values(saver, "t") == {"a": NOISE}


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_full_disk_is_a_typed_error_and_nothing_is_written(
    backend: backends.Open, colour: Any, files: FileArtifacts, tmp_path: Path
) -> None:
    async def work() -> None:
        with backend(tmp_path, artifacts=files) as saver:
            put(saver, "small", {"a": 1})
            either = Coloured(saver, colour)
            with full_disk(), pytest.raises(StorageFull, match="no room left") as raised:
                await either.put(config("t"), *made({"a": NOISE}))
            assert str(files.folder) in str(raised.value)
            assert saver.get_tuple(config("t")) is None
            assert [one for one in files.folder.rglob("*") if one.is_file()] == []
            await either.put(config("t"), *made({"a": NOISE}))
            assert values(saver, "t") == {"a": NOISE}

    finish(colour, work(), asyncio.run)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_collecting_makes_room_on_a_disk_that_is_full_to_the_last_byte(
    backend: backends.Open, colour: Any, files: FileArtifacts, tmp_path: Path
) -> None:
    async def work() -> None:
        with backend(tmp_path, artifacts=files) as saver:
            either = Coloured(saver, colour)
            put(saver, "t", {"a": NOISE})
            put(saver, "gone", {"b": BIG, "c": Artifact.from_text("c")})
            saver.delete_thread("gone")
            with full_disk(0):
                assert (await either.collect_artifacts(grace=0)).removed == 2
            assert len(objects(files, saver)) == 1
            assert values(saver, "t") == {"a": NOISE}
            assert saver.collect_artifacts(grace=0).removed == 0

    finish(colour, work(), asyncio.run)


def test_of_two_collectors_on_a_full_disk_the_first_leaves_an_object_to_the_second(
    files: FileArtifacts,
) -> None:
    files.put(key := "lgd-x/a/b", b"content")
    first, second = sweeping.Doom(files, key), sweeping.Doom(files, key)
    with full_disk(0):
        first.put()
        second.put()
        assert not first.carry_out(math.inf)
        first.lift()
        assert files.stat(key + sweeping.DOOMED) is not None
        assert second.carry_out(math.inf)
        second.lift()
    assert [one for one in files.folder.rglob("*") if not one.is_dir()] == []


def test_a_database_opened_on_a_full_disk_says_so(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "a.db") as saver:
        put(saver, "t", {"a": 1})
    with SqliteSaver(tmp_path / "a.db") as saver:
        with full_disk(10_000), pytest.raises(StorageFull, match="no room left"):
            values(saver, "t")
        assert values(saver, "t") == {"a": 1}


def in_the_way(folder: Path) -> Path:
    """A file where the folder should be."""
    folder.write_text("mine")
    return folder


@pytest.mark.parametrize(
    ("place", "error"),
    [(lambda _: Path("/sys/lgd-artifacts"), StorageReadOnly), (in_the_way, ArtifactsUnreachable)],
    ids=["not allowed", "a file"],
)
def test_a_folder_that_cannot_be_written_is_named_and_nothing_is_written(
    backend: backends.Open, place: Callable[[Path], Path], error: type[StorageError], tmp_path: Path
) -> None:
    folder = place(tmp_path / "artifacts")
    with backend(tmp_path, artifacts=folder) as saver:
        with pytest.raises(error, match=f"artifact store {folder}"):
            put(saver, "t", {"a": NOISE})
        assert saver.get_tuple(config("t")) is None
        put(saver, "t", {"a": "small"})
