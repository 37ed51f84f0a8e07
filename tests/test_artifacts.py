"""Large values leave the row: what is read is what was written, nothing is left dangling."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backends
import objectstore
import pytest
import servers
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from langgraph_durable import (
    Artifact,
    ArtifactCorrupt,
    ArtifactMissing,
    ArtifactsUnreachable,
    ConfigurationError,
    FileArtifacts,
    MemoryArtifacts,
    MissingArtifact,
    SerializationError,
    SqliteSaver,
    StorageError,
    StorageReadOnly,
    open_saver,
)
from langgraph_durable.artifacts import sweeping
from langgraph_durable.artifacts.stores import ArtifactStore, Found
from langgraph_durable.saver import DurableSaver
from langgraph_durable.testing.model import Coloured, finish

BIG = "a long tool result " * 30_000
NOISE = os.urandom(400_000)


@pytest.fixture(params=backends.EVERYWHERE)
def backend(request: pytest.FixtureRequest) -> backends.Open:
    return backends.EVERYWHERE[request.param]


@pytest.fixture(params=["files", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "files":
        return FileArtifacts(tmp_path / "artifacts")
    return objectstore.shared().store(tmp_path.name)


@pytest.fixture
def files(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(tmp_path / "artifacts")


def config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def made(values: dict[str, Any], version: int = 1) -> tuple[Any, Any, Any]:
    versions = dict.fromkeys(values, f"{version:032}.0")
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    return checkpoint, {"step": version}, versions


def put(saver: DurableSaver, thread: str, values: dict[str, Any], *, after: Any = None) -> Any:
    return saver.put(after or config(thread), *made(values))


def values(saver: DurableSaver, thread: str) -> dict[str, Any]:
    found = saver.get_tuple(config(thread))
    assert found is not None
    return found.checkpoint["channel_values"]


def objects(store: ArtifactStore, saver: DurableSaver) -> list[Found]:
    """What the store holds for a saver, without marks."""
    ids = saver._shelf.names
    return [one for id in ids for one, _ in sweeping.objects(store, id)]


# ---- what is read is what was written --------------------------------------------------------


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_large_values_leave_the_row_and_come_back(
    backend: backends.Open, colour: Any, store: ArtifactStore, tmp_path: Path
) -> None:
    state = {"text": BIG, "list": [1, NOISE, HumanMessage(BIG)], "dict": {"a": NOISE, "b": 2}}

    async def work() -> None:
        with backend(tmp_path, artifacts=store) as saver:
            either = Coloured(saver, colour)
            await either.put(config("t"), *made(state))
            found = await either.get_tuple(config("t"))
            assert found.checkpoint["channel_values"] == state
        with backend(tmp_path, artifacts=store) as another:
            found = await Coloured(another, colour).get_tuple(config("t"))
            assert found.checkpoint["channel_values"] == state
            assert another.stats().bytes < 20_000
            assert len(objects(store, another)) == 3

    finish(colour, work(), asyncio.run)


def test_pending_writes_and_histories_are_offloaded_too(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        at = put(saver, "t", {"a": 1})
        saver.put_writes(at, [("a", NOISE), ("b", BIG)], "task")
        [found] = saver.list(config("t"))
        assert found.pending_writes == [("task", "a", NOISE), ("task", "b", BIG)]
        assert len(objects(files, saver)) == 2


def test_a_value_unchanged_over_50_steps_is_one_object(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        at = None
        for step in range(50):
            at = saver.put(at or config("t"), *made({"image": NOISE, "step": step}, step + 1))
        put(saver, "another thread", {"elsewhere": [NOISE]})
        assert len(objects(files, saver)) == 1


def test_a_cold_writer_recognises_offloaded_items_without_fetching_them(
    backend: backends.Open, tmp_path: Path
) -> None:
    store = MemoryArtifacts(f"memory://{tmp_path}")
    with backend(tmp_path, artifacts=store) as saver:
        at = put(saver, "t", {"image": NOISE})
    with backend(tmp_path, artifacts=store) as cold:
        before = cold.stats().items
        cold._shelf.fetch = None  # type: ignore[method-assign,assignment]
        cold.put(at, *made({"image": NOISE, "more": 1}, 2))
        assert cold.stats().items == before


def test_the_memory_holds_no_large_values(backend: backends.Open, tmp_path: Path) -> None:
    with backend(tmp_path, artifacts=tmp_path / "artifacts") as saver:
        put(saver, "t", {"image": NOISE})
        values(saver, "t")
        assert saver._engine.memory.size < 10_000


# ---- handles ---------------------------------------------------------------------------------


@dataclass
class Report:
    title: str
    file: Artifact


def test_artifacts_survive_at_any_depth(
    backend: backends.Open, store: ArtifactStore, tmp_path: Path
) -> None:
    source = tmp_path / "report.pdf"
    source.write_bytes(NOISE)
    file = Artifact.from_file(source)
    note = Artifact.from_text("hello", name="note.txt")
    state = {
        "bare": file,
        "deep": [{"x": (file, Report("r", note))}],
        "messages": [HumanMessage("see", additional_kwargs={"file": note})],
    }
    with backend(tmp_path, artifacts=store) as saver:
        put(saver, "t", state)
    source.unlink()
    with backend(tmp_path, artifacts=store) as another:
        found = values(another, "t")
        assert found == state
        loaded = found["deep"][0]["x"][0]
        assert (loaded.name, loaded.media_type, loaded.size) == (
            *("report.pdf", "application/pdf"),
            len(NOISE),
        )
        assert loaded.sha256 == file.sha256
        assert loaded.read() == NOISE
        assert asyncio.run(loaded.aread()) == NOISE
        assert loaded.path().read_bytes() == NOISE
        with loaded.open() as stream:
            assert stream.read(10) == NOISE[:10]
            stream.seek(0)
            assert stream.read() == NOISE
        assert found["deep"][0]["x"][1].file.text() == "hello"
        assert len(objects(store, another)) == 2


def test_a_loaded_handle_can_be_stored_elsewhere(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with (
        backend(tmp_path, artifacts=files) as saver,
        SqliteSaver(tmp_path / "other.db") as other,
    ):
        put(saver, "t", {"a": Artifact.from_bytes(NOISE)})
        loaded = values(saver, "t")["a"]
        put(saver, "second", {"b": loaded})
        put(other, "t", {"c": loaded})
        saver.delete_thread("t")
        saver.collect_artifacts(grace=0)
        assert values(saver, "second")["b"].read() == NOISE
        saver.delete_thread("second")
        saver.collect_artifacts(grace=0)
        assert values(other, "t")["c"].read() == NOISE


def test_an_artifact_whose_content_is_gone_cannot_be_stored_again(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        put(saver, "t", {"a": Artifact.from_bytes(NOISE)})
        loaded = values(saver, "t")["a"]
        saver.delete_thread("t")
        saver.collect_artifacts(grace=0)
        with pytest.raises(ArtifactMissing):
            put(saver, "second", {"b": loaded})
        assert saver.get_tuple(config("second")) is None


def test_a_file_that_changes_while_it_is_stored_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "growing.log"
    source.write_text("one")
    growing = Artifact.from_file(source)
    assert growing.sha256
    source.write_text("two")
    with SqliteSaver(tmp_path / "agent.db") as saver:
        with pytest.raises(SerializationError, match="has changed"):
            put(saver, "t", {"a": growing})
        assert saver.get_tuple(config("t")) is None


def test_an_artifact_without_a_store_says_what_to_do(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "agent.db", artifacts=None) as saver:
        with pytest.raises(SerializationError, match=r"channel 'a'\[\"b\"\].*pass artifacts="):
            put(saver, "t", {"a": {"b": Artifact.from_bytes(b"x")}})
        put(saver, "t", {"large": NOISE})
        assert values(saver, "t") == {"large": NOISE}
    assert not (tmp_path / "agent.db-artifacts").exists()


def test_artifacts_show_themselves_and_go_into_messages() -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"0" * 20
    image = Artifact.from_bytes(png, name="<x>.png")
    assert 'src="data:image/png;base64,' in image._repr_mimebundle_()["text/html"]
    assert "<x>" not in image._repr_mimebundle_()["text/html"]
    table = Artifact.from_text("a,b\n1,<b>\n", name="t.csv", media_type="text/csv")
    assert "<td>&lt;b&gt;</td>" in table._repr_mimebundle_()["text/html"]
    assert repr(Artifact.from_bytes(b"12345", name="x.bin")) == (
        "<Artifact x.bin, application/octet-stream, 5 B>"
    )
    assert image.as_content()["type"] == "image"
    message = HumanMessage([{"type": "text", "text": "what is it?"}, image.as_content()])
    assert message.content_blocks[1]["mime_type"] == "image/png"
    assert image.data_url().startswith("data:image/png;base64,")


# ---- configurations ---------------------------------------------------------------------------


def test_old_claims_are_read_under_another_configuration(
    backend: backends.Open, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", FileArtifacts(tmp_path / "second")
    with backend(tmp_path, artifacts=first) as saver:
        at = put(saver, "t", {"a": NOISE})
    with backend(tmp_path, artifacts=second) as saver:
        saver.put(at, *made({"a": NOISE, "b": BIG}, 2))
        assert values(saver, "t") == {"a": NOISE, "b": BIG}
    with backend(tmp_path, artifacts=None) as saver:
        assert values(saver, "t") == {"a": NOISE, "b": BIG}


def test_the_folder_moves_with_the_database(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with SqliteSaver(tmp_path / "old" / "agent.db") as saver:
        put(saver, "t", {"a": NOISE})
    (tmp_path / "old").rename(tmp_path / "new")
    with SqliteSaver(tmp_path / "new" / "agent.db") as saver:
        assert values(saver, "t") == {"a": NOISE}


def test_options_come_from_urls(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db?artifacts=file://{tmp_path}/art&offload_above=64KiB"
    with open_saver(url) as saver:
        put(saver, "t", {"a": NOISE[:70_000]})
        assert len(objects(FileArtifacts(tmp_path / "art"), saver)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"artifacts": 5},
        {"artifacts": "ftp://host/x"},
        {"artifacts": "s3://key:secret@bucket"},
        {"artifacts": []},
        {"offload_above": "much"},
        {"on_missing_artifact": "ignore"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SqliteSaver(":memory:", **options)


def test_a_store_in_memory_offloads_to_memory() -> None:
    with SqliteSaver(":memory:") as saver:
        put(saver, "t", {"a": NOISE, "b": Artifact.from_bytes(b"x")})
        assert values(saver, "t")["a"] == NOISE
        assert values(saver, "t")["b"].read() == b"x"


# ---- the end of artifacts ---------------------------------------------------------------------


def test_copies_share_and_deleting_one_keeps_the_others(
    backend: backends.Open, store: ArtifactStore, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=store) as saver:
        put(saver, "t", {"a": NOISE, "b": Artifact.from_text("b")})
        saver.copy_thread("t", "copy")
        assert len(objects(store, saver)) == 2
        assert saver.delete_thread("t").artifacts == 2
        assert saver.collect_artifacts(grace=0).removed == 0
        found = values(saver, "copy")
        assert (found["a"], found["b"].text()) == (NOISE, "b")
        assert saver.delete_thread("copy").artifacts == 2
        plan = saver.collect_artifacts(grace=0, dry_run=True)
        assert (plan.removed, len(objects(store, saver))) == (2, 2)
        assert saver.collect_artifacts(grace="1h").removed == 0
        assert saver.collect_artifacts(grace=0).removed == 2
        assert objects(store, saver) == []


def test_references_end_with_retention(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        at = None
        for step in range(4):
            image = NOISE + bytes([step])
            at = saver.put(at or config("t"), *made({"image": image}, step + 1))
        assert saver.prune(["t"], strategy="keep_latest").artifacts == 3
        assert asyncio.run(saver.acollect_artifacts(grace=0)).removed == 3
        assert values(saver, "t") == {"image": image}
        assert saver.check_artifacts("t") == []


def test_collecting_touches_nothing_of_others(
    backend: backends.Open, store: ArtifactStore, tmp_path: Path
) -> None:
    with (
        backend(tmp_path, artifacts=store) as saver,
        SqliteSaver(tmp_path / "other.db", artifacts=store) as other,
    ):
        put(saver, "t", {"a": NOISE})
        put(other, "t", {"a": NOISE})
        id = saver._shelf.store
        theirs = ["precious.txt", f"lgd-{id}/aa/notes.txt", f"lgd-{id}/aa/{'b' * 64}", "lgd-x/aa/y"]
        for key in theirs:
            store.put(key, b"mine")
        saver.delete_thread("t")
        assert saver.collect_artifacts(grace=0).removed == 1
        assert [store.stat(key) is not None for key in theirs] == [True] * 4
        assert values(other, "t") == {"a": NOISE}


class Meddling(MemoryArtifacts):
    """Lets something happen just before an object is deleted, or just after its mark is set."""

    def __init__(self) -> None:
        super().__init__("memory://meddling", private=True)
        self.before_delete: Callable[[str], None] | None = None
        self.after_doom: Callable[[], None] | None = None

    def delete(self, key: str) -> None:
        act, self.before_delete = self.before_delete, None
        if act is not None:
            act(key)
        super().delete(key)

    def put(self, key: str, content: Any) -> None:
        super().put(key, content)
        if key.endswith(sweeping.DOOMED) and self.after_doom:
            act, self.after_doom = self.after_doom, None
            act()


def test_what_is_used_while_it_is_collected_stays(tmp_path: Path) -> None:
    store = Meddling()
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "t", {"a": NOISE})
        [one] = objects(store, saver)
        store.after_doom = lambda: store.put(one.key + sweeping.USED, b"")
        assert not sweeping.Doom(store, one.key).carry_out(one.time)
        assert store.stat(one.key) is not None


def test_a_writer_that_meets_a_collector_uploads_again(tmp_path: Path) -> None:
    """The collector has made up its mind when the writer comes: it must not believe its eyes."""
    store = Meddling()
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "t", {"a": NOISE})
        saver.delete_thread("t")
        saver._shelf.forget()
        writer = threading.Thread(target=put, args=(saver, "t2", {"a": NOISE}))
        renewed = threading.Event()
        real = store.put

        def watched(key: str, content: Any) -> None:
            real(key, content)
            if key.endswith(sweeping.USED):
                renewed.set()

        store.put = watched  # type: ignore[method-assign]

        def meanwhile(key: str) -> None:
            writer.start()
            assert renewed.wait(10)

        store.before_delete = meanwhile
        assert saver.collect_artifacts(grace=0).removed == 1
        writer.join()
        assert values(saver, "t2") == {"a": NOISE}


@pytest.mark.parametrize("how", ["files", "s3"])
def test_moving_is_verified_resumable_and_leaves_nothing_behind(
    backend: backends.Open, how: str, tmp_path: Path
) -> None:
    old = FileArtifacts(tmp_path / "old")
    new: ArtifactStore = FileArtifacts(tmp_path / "new")
    if how == "s3":
        new = objectstore.shared().store(tmp_path.name)
    state = {"a": NOISE, "b": Artifact.from_text("text " * 100), "c": BIG}
    with backend(tmp_path, artifacts=old) as saver:
        put(saver, "t", state)
        real, count = new.put, 0

        def breaking(key: str, content: Any) -> None:
            nonlocal count
            count += 1
            if count == 3:
                raise ArtifactsUnreachable("cut off")
            real(key, content)

        new.put = breaking  # type: ignore[method-assign]
        with pytest.raises(ArtifactsUnreachable):
            saver.move_artifacts(new)
        new.put = real  # type: ignore[method-assign]
        assert values(saver, "t") == state
        seen: list[tuple[int, int]] = []
        moved = saver.move_artifacts(new, progress=lambda *at: seen.append(at))
        assert (moved.copied + moved.there, moved.copied < 3, seen[-1]) == (3, True, (3, 3))
        assert values(saver, "t") == state
        saver.collect_artifacts(grace=0)
        assert objects(old, saver) == []
        assert values(saver, "t") == state
    with backend(tmp_path, artifacts=[new, old]) as saver:
        assert values(saver, "t") == state
        put(saver, "u", {"later": NOISE + b"!"})
        assert len(objects(new, saver)) == 4


# ---- trouble -----------------------------------------------------------------------------------


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
        signal.alarm(30)
        try:
            store.stat("lgd-x/a/b")
        except StorageError:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


CHILD = """
import os, resource, signal, sys
from langgraph_durable import FileArtifacts, SqliteSaver, StorageFull
sys.path.insert(0, {tests!r})
import test_artifacts as here
path, what = {path!r}, {what!r}
files = FileArtifacts(path + "-files")
saver = SqliteSaver(path, artifacts=files)
if what == "after upload":
    real = saver._shelf.keep
    def keep(uploads):
        real(uploads)
        os.kill(os.getpid(), signal.SIGKILL)
    saver._shelf.keep = keep
    here.put(saver, "t", {{"a": b"x" * 300_000}})
elif what == "before delete":
    here.put(saver, "t", {{"a": b"x" * 300_000}})
    saver.delete_thread("t")
    files.delete = lambda key: os.kill(os.getpid(), signal.SIGKILL)
    saver.collect_artifacts(grace=0)
else:
    saver.setup()
    here.put(saver, "small", {{"a": 1}})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))
    try:
        here.put(saver, "t", {{"a": os.urandom(600_000)}})
    except StorageFull as error:
        print(error)
    else:
        sys.exit("it was stored")
"""


def child(path: Path, what: str) -> subprocess.CompletedProcess[str]:
    code = CHILD.format(tests=str(Path(__file__).parent), path=str(path), what=what)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


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


def test_a_full_disk_is_a_typed_error_and_nothing_is_written(tmp_path: Path) -> None:
    done = child(tmp_path / "a.db", "full disk")
    assert done.returncode == 0, done.stderr
    assert "there is no room left" in done.stdout
    files = FileArtifacts(f"{tmp_path}/a.db-files")
    with SqliteSaver(tmp_path / "a.db", artifacts=files) as saver:
        assert saver.get_tuple(config("t")) is None
        assert values(saver, "small") == {"a": 1}
        assert [one for one in files.folder.rglob("*") if one.is_file()] == []


# ---- threads and loops -------------------------------------------------------------------------


class Watched(MemoryArtifacts):
    """Two uploads must meet, off the main thread."""

    def __init__(self) -> None:
        super().__init__("memory://watched", private=True)
        self.met = threading.Barrier(2, timeout=20)
        self.threads: set[int] = set()

    def put(self, key: str, content: Any) -> None:
        self.threads.add(threading.get_ident())
        self.met.wait()
        super().put(key, content)


async def test_uploads_of_one_put_run_together_and_off_the_loop(
    backend: backends.Open, tmp_path: Path
) -> None:
    store = Watched()
    async with backend(tmp_path, artifacts=store) as saver:
        await saver.aput(config("t"), *made({"a": NOISE, "b": BIG}))
        assert threading.get_ident() not in store.threads
        assert len(store.threads) == 2


def test_threads_may_store_the_same_content_at_once(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        work = [
            threading.Thread(target=put, args=(saver, f"t{n}", {"a": NOISE, "n": n}))
            for n in range(8)
        ]
        for one in work:
            one.start()
        for one in work:
            one.join()
        assert [values(saver, f"t{n}")["n"] for n in range(8)] == list(range(8))
        assert len(objects(files, saver)) == 1


# ---- other libraries ---------------------------------------------------------------------------


def tables() -> Iterator[Any]:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from PIL import Image

    index = pd.Index(["p", "q"], name="key")
    yield pd.DataFrame(
        {"n": [1, 2], "t": ["x", None], "c": pd.Categorical(["u", "v"])}, index=index
    )
    yield pd.DataFrame({"when": pd.to_datetime(["2024-01-01", None]), "f": [1.5, float("nan")]})
    yield pd.Series([1, 2], name="s")
    yield pl.DataFrame({"a": [1, None], "b": [["x"], []]})
    yield pl.Series("s", [1.5, None])
    yield pa.table({"a": [1, 2], "b": [{"x": 1}, None]})
    yield pa.RecordBatch.from_pylist([{"a": 1}])
    for mode in ("RGB", "RGBA", "L", "P", "1"):
        yield Image.new("RGB", (5, 4), (10, 200, 30)).convert(mode)


@pytest.mark.parametrize("number", range(12))
def test_tables_and_pictures_come_back_equal(number: int, tmp_path: Path) -> None:
    value = list(tables())[number]
    with SqliteSaver(tmp_path / "a.db", offload_above=100) as saver:
        put(saver, "t", {"a": [value], "b": {"x": value}})
    with SqliteSaver(tmp_path / "a.db") as saver:
        found = values(saver, "t")
    for one in (found["a"][0], found["b"]["x"]):
        assert type(one).__name__ == type(value).__name__
        assert one.equals(value) if hasattr(value, "equals") else one == value


def test_tables_that_would_not_come_back_equal_are_refused(tmp_path: Path) -> None:
    import pandas as pd
    from PIL import Image

    with SqliteSaver(tmp_path / "a.db") as saver:
        for value in (pd.DataFrame({"a": [1, "x"]}), Image.new("CMYK", (2, 2))):
            with pytest.raises(SerializationError, match="exact"):
                put(saver, "t", {"a": value})


def test_a_timeline_shows_an_artifact_as_itself(tmp_path: Path) -> None:
    from langgraph_durable.timeline import html

    with SqliteSaver(tmp_path / "a.db") as saver:
        png = b"\x89PNG\r\n\x1a\n" + NOISE[:1000]
        put(saver, "t", {"image": Artifact.from_bytes(png, name="x.png")})
        shown = html.value(values(saver, "t"))
        assert 'src="data:image/png;base64,' in shown
        assert "x.png, image/png" in shown
