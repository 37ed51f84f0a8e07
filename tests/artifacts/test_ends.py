"""The end of artifacts: references, collecting, moving."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import backends
import objectstore
import pytest
from shelves import BIG, NOISE, config, made, objects, put, values

from langgraph_durable import (
    Artifact,
    ArtifactsUnreachable,
    FileArtifacts,
    MemoryArtifacts,
    SqliteSaver,
    StorageFull,
)
from langgraph_durable.artifacts import sweeping
from langgraph_durable.artifacts.stores import ArtifactStore


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
        doom = sweeping.Doom(store, one.key)
        doom.put()
        assert not doom.carry_out(one.time)
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
            assert renewed.wait(120)

        store.before_delete = meanwhile
        assert saver.collect_artifacts(grace=0).removed == 1
        writer.join()
        assert values(saver, "t2") == {"a": NOISE}


class Crowded(MemoryArtifacts):
    """Takes a number of objects."""

    room = 1000

    def put(self, key: str, content: Any) -> None:
        if key not in self._objects and len(self._objects) >= self.room:
            raise StorageFull("no room")
        super().put(key, content)


def test_collecting_needs_room_for_one_mark_and_makes_that_for_the_others(tmp_path: Path) -> None:
    store = Crowded("memory://crowded", private=True)
    with SqliteSaver(tmp_path / "a.db", artifacts=store) as saver:
        for n in range(6):
            put(saver, f"{n}", {"a": NOISE + bytes([n])})
            saver.delete_thread(f"{n}")
        saver.collect_artifacts(dry_run=True)
        store.room = len(store._objects)
        with pytest.raises(StorageFull):
            saver.collect_artifacts(grace=0)
        assert len(objects(store, saver)) == 6
        store.room += 1
        assert saver.collect_artifacts(grace=0).removed == 6
        assert len(store._objects) == 1  # the clock


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


def test_moving_to_the_same_place_under_another_name_loses_nothing(
    backend: backends.Open, store: ArtifactStore, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=store) as saver:
        put(saver, "t", {"a": NOISE})
        put(saver, "gone", {"b": BIG})
        alias = copy.copy(store)
        alias.url = f"{store.url}-by-another-name"
        saver.move_artifacts(alias)
        saver.delete_thread("gone")
        collected = saver.collect_artifacts(grace=0)
        assert (collected.removed, collected.kept) == (1, 1)
        asyncio.run(saver.acollect_artifacts(grace=0))
        assert values(saver, "t") == {"a": NOISE}
        assert len(objects(store, saver)) == 1
