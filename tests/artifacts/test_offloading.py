"""Large values leave the row: what is read is what was written."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import backends
import objectstore
import pytest
from langchain_core.messages import HumanMessage
from shelves import BIG, NOISE, config, made, objects, put, values

from langgraph_durable import (
    Artifact,
    ArtifactMissing,
    ConfigurationError,
    FileArtifacts,
    MemoryArtifacts,
    SqliteSaver,
    open_saver,
)
from langgraph_durable.artifacts import sweeping
from langgraph_durable.artifacts.stores import ArtifactStore
from langgraph_durable.testing.model import Coloured, finish


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


@pytest.mark.parametrize("size", [0, 1, 100_000, 3 << 20, 9 << 20])
def test_a_stream_gives_all_of_an_object_and_then_nothing(size: int, store: ArtifactStore) -> None:
    content = os.urandom(size)
    store.put("lgd-x/a/b", content)
    with store.open("lgd-x/a/b") as stream:
        first = stream.read(7)
        assert first == content[: len(first)]
        assert first + stream.read() == content
        assert (stream.read(), stream.read(7)) == (b"", b"")
    with store.open("lgd-x/a/b") as stream:
        assert b"".join(iter(lambda: stream.read(1000), b"")) == content


def test_the_folder_moves_with_the_database(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with SqliteSaver(tmp_path / "old" / "agent.db") as saver:
        put(saver, "t", {"a": NOISE})
    (tmp_path / "old").rename(tmp_path / "new")
    with SqliteSaver(tmp_path / "new" / "agent.db") as saver:
        assert values(saver, "t") == {"a": NOISE}


def test_a_link_to_a_database_leads_to_its_artifacts(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.db"
    link.symlink_to(tmp_path / "agent.db")
    with SqliteSaver(link) as saver:
        put(saver, "t", {"a": NOISE})
    with SqliteSaver(tmp_path / "agent.db") as saver:
        put(saver, "u", {"b": BIG})
        assert values(saver, "t") == {"a": NOISE}
    with SqliteSaver(link) as saver:
        assert values(saver, "u") == {"b": BIG}


def test_artifacts_left_behind_by_a_renamed_database_are_told_where_to_be(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "agent.db") as saver:
        put(saver, "t", {"a": NOISE})
    (tmp_path / "agent.db").rename(tmp_path / "other.db")
    with SqliteSaver(tmp_path / "other.db") as saver:
        folder = (tmp_path / "other.db-artifacts").as_uri()
        with pytest.raises(ArtifactMissing, match=f"is not in {re.escape(folder)}\\."):
            values(saver, "t")
        assert [problem.store for problem in saver.check_artifacts("t")] == [folder]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_artifacts_are_as_private_as_the_database(mode: int, tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "agent.db") as saver:
        saver.setup()
        (tmp_path / "agent.db").chmod(mode)
        put(saver, "t", {"a": NOISE})
        assert modes(tmp_path / "agent.db-artifacts") == {mode | (mode & 0o444) >> 2, mode}


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
@pytest.mark.parametrize("mode", [0o700, 0o750, 0o2770])
def test_artifacts_are_as_private_as_their_folder(
    mode: int, files: FileArtifacts, tmp_path: Path
) -> None:
    files.folder.mkdir()
    files.folder.chmod(mode)
    with SqliteSaver(tmp_path / "agent.db", artifacts=files) as saver:
        put(saver, "t", {"a": NOISE})
        assert modes(files.folder) == {mode, mode & 0o666}


def modes(folder: Path) -> set[int]:
    """Of a folder, and of all in it."""
    return {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


def test_a_store_of_somebody_elses_is_asked_for(tmp_path: Path) -> None:
    own = MemoryArtifacts()
    own.url = "vault://documents"
    with SqliteSaver(tmp_path / "agent.db", artifacts=own) as saver:
        put(saver, "t", {"a": NOISE})
    with (
        SqliteSaver(tmp_path / "agent.db") as saver,
        pytest.raises(ConfigurationError, match="in vault://documents, and this saver has no such"),
    ):
        values(saver, "t")
    with SqliteSaver(tmp_path / "agent.db", artifacts=["default", own]) as saver:
        assert values(saver, "t") == {"a": NOISE}


def test_options_come_from_urls(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db?artifacts=file://{tmp_path}/art&offload_above=64KiB"
    with open_saver(url) as saver:
        put(saver, "t", {"a": NOISE[:70_000]})
        assert len(objects(FileArtifacts(tmp_path / "art"), saver)) == 1


@pytest.mark.parametrize("start", ["", "file:", "file://", "FILE://localhost"])
def test_a_folder_has_a_path_and_urls(start: str, tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "agent.db", artifacts=f"{start}{tmp_path}/art") as saver:
        put(saver, "t", {"a": NOISE})
        assert len(objects(FileArtifacts(tmp_path / "art"), saver)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"artifacts": 5},
        {"artifacts": "ftp://host/x"},
        {"artifacts": "s3://key:secret@bucket"},
        {"artifacts": []},
        {"artifacts": [None, None]},
        {"artifacts": True},
        {"artifacts": b"/tmp/artifacts"},
        {"artifacts": "a\0b"},
        {"artifacts": "file://host/folder"},
        {"artifacts": "file://"},
        {"artifacts": "file:folder"},
        {"artifacts": "s3:/bucket/prefix"},
        {"artifacts": "S3:bucket"},
        {"artifacts": "memory:"},
        {"artifacts": "http://[host/x"},
        {"artifacts": "s3:///prefix"},
        {"artifacts": "s3://bucket/a//b"},
        {"artifacts": "s3://bucket/../b"},
        {"artifacts": "s3://bucket/a\\b"},
        {"artifacts": "s3://bucket/a\nb"},
        {"artifacts": "s3://bucket/a?b"},
        {"artifacts": "s3://bucket/a#b"},
        {"offload_above": -1},
        {"offload_above": True},
        {"offload_above": None},
        {"offload_above": 1.5},
        {"offload_above": float("inf")},
        {"offload_above": "much"},
        {"on_missing_artifact": "ignore"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SqliteSaver(":memory:", **options)


@pytest.mark.parametrize("prefix", ["ü x/ä", "a%20b", "a+b;c,d", "*[x]{y}|'~$", "☃"])
def test_a_prefix_of_odd_characters_is_one_place(prefix: str, tmp_path: Path) -> None:
    store = objectstore.shared().store(f"{tmp_path.name}/{prefix}")
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "t", {"a": NOISE})
        assert values(saver, "t") == {"a": NOISE}
        assert len(objects(store, saver)) == 1
        saver.delete_thread("t")
        assert saver.collect_artifacts(grace=0).removed == 1


@pytest.mark.parametrize("above", [0, "0", 1, "1 KiB"])
def test_small_thresholds_are_kept(above: Any, backend: backends.Open, tmp_path: Path) -> None:
    state = {"a": "x" * 2000, "b": [1, "y" * 60], "c": "", "d": {}, "e": Artifact.from_text("")}
    with backend(tmp_path, artifacts=tmp_path / "artifacts", offload_above=above) as saver:
        put(saver, "t", state)
    with backend(tmp_path, artifacts=tmp_path / "artifacts") as saver:
        assert values(saver, "t") == state


def test_a_store_in_memory_offloads_to_memory() -> None:
    with SqliteSaver(":memory:") as saver:
        put(saver, "t", {"a": NOISE, "b": Artifact.from_bytes(b"x")})
        assert values(saver, "t")["a"] == NOISE
        assert values(saver, "t")["b"].read() == b"x"


# ---- threads and loops -------------------------------------------------------------------------


class Watched(MemoryArtifacts):
    """Two uploads must meet, off the main thread."""

    def __init__(self) -> None:
        super().__init__("memory://watched", private=True)
        self.met = threading.Barrier(2, timeout=120)
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


@pytest.mark.parametrize("options", [{}, {"conditional_put": "disabled"}], ids=["can", "cannot"])
def test_of_many_writers_of_one_object_one_is_first_where_the_store_can_tell(
    options: dict[str, Any], tmp_path: Path
) -> None:
    store = objectstore.shared().store(tmp_path.name, **options)
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda _: store.create("lgd-x/a/b", NOISE), range(8)))
    assert created.count(True) == (8 if options else 1)
    with store.open("lgd-x/a/b") as stream:
        assert stream.read() == NOISE


def test_who_is_second_renews_the_object_of_the_first(
    backend: backends.Open, tmp_path: Path
) -> None:
    store = objectstore.shared().store(tmp_path.name)
    with backend(tmp_path, artifacts=store) as saver, backend(tmp_path, artifacts=store) as second:
        put(saver, "small", {"a": Artifact.from_text("x")})
        put(second, "small too", {"a": Artifact.from_text("x")})
        real, created = store.create, []

        def create(key: str, content: Any) -> bool:
            store.create = real  # type: ignore[method-assign]
            put(second, "u", {"a": NOISE})
            created.append(real(key, content))
            return created[0]

        store.create = create  # type: ignore[method-assign]
        put(saver, "t", {"a": NOISE})
        assert created == [False]
        second.delete_thread("u")
        second.collect_artifacts(grace=0)
        assert values(saver, "t") == {"a": NOISE}
        [key] = [one.key for one in objects(store, saver) if one.size > 1000]
        assert store.stat(key + sweeping.USED) is not None
