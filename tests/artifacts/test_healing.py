"""Objects that were broken where they lie: who stores the same content makes them whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import backends
import pytest
from shelves import NOISE, config, made, objects, put, values

from langgraph_durable import (
    Artifact,
    ArtifactCorrupt,
    ArtifactMissing,
    FileArtifacts,
    MemoryArtifacts,
    SqliteSaver,
)
from langgraph_durable.artifacts.stores import ArtifactStore, Opener
from langgraph_durable.saver import DurableSaver
from langgraph_durable.testing.model import Coloured, finish

Harm = Callable[[bytes], bytes | None]
TEXT = NOISE.hex()
"""It is compressed, and no part of it may stand for another."""


def cut(data: bytes) -> bytes:
    return data[:-1]


def extend(data: bytes) -> bytes:
    return data + b"x"


def empty(data: bytes) -> bytes:
    return b""


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def remove(data: bytes) -> None:
    return None


def harm(store: ArtifactStore, saver: DurableSaver, how: Harm) -> None:
    for one in objects(store, saver):
        with store.open(one.key) as file:
            data = how(file.read())
        if data is None:
            store.delete(one.key)
        else:
            store.put(one.key, data)


@pytest.mark.parametrize("content", [NOISE, TEXT], ids=["plain", "compressed"])
@pytest.mark.parametrize("how", [cut, extend, empty])
def test_an_object_of_another_size_is_written_anew(
    content: Any, how: Harm, store: ArtifactStore, tmp_path: Path
) -> None:
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "t", {"a": content})
        harm(store, saver, how)
        with pytest.raises(ArtifactCorrupt):
            values(saver, "t")
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "u", {"a": content})
        assert values(saver, "u") == values(saver, "t") == {"a": content}
        assert len(objects(store, saver)) == 1


@pytest.mark.parametrize("text", [b"\0noise" + NOISE, b"words " * 100_000], ids=["pdf", "text"])
def test_a_file_heals_the_object_of_its_content(
    text: bytes, store: ArtifactStore, tmp_path: Path
) -> None:
    path = tmp_path / ("a.txt" if text.startswith(b"words") else "a.pdf")
    path.write_bytes(text)
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "t", {"a": Artifact.from_file(path)})
        harm(store, saver, cut)
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        put(saver, "u", {"a": Artifact.from_file(path)})
        assert values(saver, "t")["a"].read() == text


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("verb", ["put", "put_writes"])
@pytest.mark.parametrize("how", [flip, cut, remove])
def test_what_was_found_broken_is_healed_by_its_own_thread_too(
    backend: backends.Open, colour: Any, verb: str, how: Harm, files: FileArtifacts, tmp_path: Path
) -> None:
    state = {"a": NOISE, "b": TEXT}

    async def work() -> None:
        with backend(tmp_path, artifacts=files) as saver:
            either = Coloured(saver, colour)
            at = await either.put(config("t"), *made(state))
            harm(files, saver, how)
            found = saver.check_artifacts("t")
            assert {one.problem for one in found} == {"missing" if how is remove else "altered"}
            assert len(found) == 2
            if verb == "put":
                await either.put(at, *made(state, 2))
            else:
                await either.put_writes(at, list(state.items()), "task")
            assert saver.check_artifacts("t") == []
            read = await either.get_tuple(at)
            assert read.checkpoint["channel_values"] == state

    finish(colour, work(), asyncio.run)


@pytest.mark.parametrize("how", [flip, remove])
@pytest.mark.parametrize("open_", [lambda a: a.open(), lambda a: a.read()], ids=["open", "read"])
def test_a_handle_whose_content_was_found_broken_is_healed_by_one_with_the_content(
    backend: backends.Open, how: Harm, open_: Any, files: FileArtifacts, tmp_path: Path
) -> None:
    def handle() -> Artifact:
        return Artifact.from_bytes(NOISE, name="a.bin")

    with backend(tmp_path, artifacts=files) as saver:
        at = put(saver, "t", {"a": handle()})
        harm(files, saver, how)
        loaded = values(saver, "t")["a"]
        with pytest.raises((ArtifactCorrupt, ArtifactMissing)):
            open_(loaded)
        put(saver, "t", {"a": handle()}, after=at)
        assert loaded.read() == NOISE
        assert saver.check_artifacts("t") == []


def test_what_was_found_broken_is_healed_where_it_lies(tmp_path: Path) -> None:
    old, new = (FileArtifacts(tmp_path / name) for name in ("old", "new"))
    with SqliteSaver(tmp_path / "a.db", artifacts=old) as saver:
        put(saver, "t", {"a": NOISE, "b": Artifact.from_text(TEXT)})
        harm(old, saver, flip)
    with SqliteSaver(tmp_path / "a.db", artifacts=[new, old]) as saver:
        assert len(saver.check_artifacts("t")) == 2
        put(saver, "u", {"a": NOISE, "b": Artifact.from_text(TEXT)})
        assert saver.check_artifacts("t") == saver.check_artifacts("u") == []
        assert len(objects(new, saver)) == 2


def test_an_altered_object_cannot_heal_itself(files: FileArtifacts, tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "a.db", artifacts=files) as saver:
        put(saver, "t", {"a": Artifact.from_bytes(NOISE)})
    with SqliteSaver(tmp_path / "a.db", artifacts=files) as saver:
        loaded = values(saver, "t")["a"]
        harm(files, saver, cut)
        with pytest.raises(ArtifactCorrupt):
            put(saver, "u", {"a": loaded})
        assert saver.get_tuple(config("u")) is None


def test_what_was_brought_back_is_not_written_again(
    files: FileArtifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteSaver(tmp_path / "a.db", artifacts=files) as saver:
        put(saver, "t", {"a": NOISE})
        harm(files, saver, flip)
        assert len(saver.check_artifacts("t")) == 1
        harm(files, saver, flip)
        monkeypatch.setattr(files, "create", None)
        put(saver, "u", {"a": NOISE})
        assert saver.check_artifacts("t") == []


class Counting(MemoryArtifacts):
    """Counts what is sent to it and what is read, without marks."""

    sent = read = 0

    def put(self, key: str, content: bytes | Opener) -> None:
        self.sent += "." not in key.removesuffix(".zst") and not key.endswith("clock")
        super().put(key, content)

    def open(self, key: str) -> Any:
        self.read += 1
        return super().open(key)


@pytest.mark.parametrize("content", [NOISE, TEXT], ids=["plain", "compressed"])
def test_an_object_of_the_right_size_is_neither_sent_nor_read(
    content: Any, backend: backends.Open, tmp_path: Path
) -> None:
    store = Counting(f"memory://{tmp_path.name}-{os.urandom(4).hex()}")
    for thread in "tu":
        with backend(tmp_path, artifacts=store) as saver:
            put(saver, thread, {"a": content})
    assert (store.sent, store.read) == (1, 0)


def test_an_object_that_another_way_of_compressing_made_is_read_and_stays(tmp_path: Path) -> None:
    store, text = Counting("memory://another-way"), b"words " * 100_000
    path = tmp_path / "a.txt"
    path.write_bytes(text)
    for n, handle in enumerate((Artifact.from_file(path), Artifact.from_text(text.decode()))):
        with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
            put(saver, f"t{n}", {"a": handle})
    assert (store.sent, store.read) == (1, 1)


@pytest.mark.parametrize("content", [NOISE, TEXT], ids=["plain", "compressed"])
@pytest.mark.parametrize("how", [flip, cut, remove])
def test_moving_again_heals_what_was_broken_in_the_new_place(
    content: Any, how: Harm, backend: backends.Open, tmp_path: Path
) -> None:
    old, new = (FileArtifacts(tmp_path / name) for name in ("old", "new"))
    with backend(tmp_path, artifacts=old) as saver:
        put(saver, "t", {"a": content})
        saver.move_artifacts(new)
        harm(new, saver, how)
        assert saver.move_artifacts(new).copied == 1
        harm(old, saver, remove)
        assert values(saver, "t") == {"a": content}


@pytest.mark.parametrize("content", [NOISE, TEXT], ids=["plain", "compressed"])
@pytest.mark.parametrize("how", [cut, flip, remove])
def test_a_copy_left_behind_stays_while_the_new_one_is_not_whole(
    content: Any, how: Harm, tmp_path: Path
) -> None:
    old, new = (FileArtifacts(tmp_path / name) for name in ("old", "new"))
    with SqliteSaver(tmp_path / "a.db", artifacts=old) as saver:
        put(saver, "t", {"a": content})
        saver.move_artifacts(new)
        harm(new, saver, how)
        assert saver.collect_artifacts(grace=0).removed == 0
        assert values(saver, "t") == {"a": content}
        saver.move_artifacts(new)
        assert saver.collect_artifacts(grace=0).removed == 1
        assert objects(old, saver) == []
        assert values(saver, "t") == {"a": content}


@pytest.mark.parametrize("read", [lambda a: a.open().read(), lambda a: a.read()])
def test_a_content_is_read_from_the_store_that_has_it_whole(read: Any, tmp_path: Path) -> None:
    old, new = (FileArtifacts(tmp_path / name) for name in ("old", "new"))
    with SqliteSaver(tmp_path / "a.db", artifacts=old) as saver:
        put(saver, "t", {"a": Artifact.from_bytes(NOISE)})
        saver.move_artifacts(new)
        harm(new, saver, flip)
        assert read(values(saver, "t")["a"]) == NOISE
        assert saver.check_artifacts("t") == []
