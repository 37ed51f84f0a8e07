"""Collecting beside writers in other processes, some of them killed: what is needed stays."""

from __future__ import annotations

import asyncio
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import backends
import pytest
import servers
import sweepers
from langgraph.checkpoint.base import empty_checkpoint
from shelves import NOISE, objects, put

from langgraph_durable.artifacts import FileArtifacts, MemoryArtifacts, sweeping
from langgraph_durable.saver import DurableSaver
from langgraph_durable.testing.model import Coloured, finish

WRITERS = 3


@pytest.fixture(params=["sqlite", "valkey"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return f"{servers.shared('valkey').url}#{servers.prefix_for(tmp_path)}"


class Child:
    def __init__(self, where: str, folder: Path, *role: object) -> None:
        command = [sys.executable, sweepers.__file__, where, str(folder), *map(str, role)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def rounds(self, count: int) -> None:
        """Wait until it has done so many."""
        assert self._process.stdout is not None
        for _ in range(count):
            assert self._process.stdout.readline() == "round\n", self._process.communicate()[1]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        """Let it come to its end, which must be a good one."""
        errors = self._process.communicate(timeout=300)[1]
        assert self._process.returncode == 0, errors


def check(saver: DurableSaver, threads: list[str]) -> int:
    """Everything that is left reads back; how many threads that are."""
    there = 0
    for thread in threads:
        assert saver.check_artifacts(thread) == []
        for found in saver.list({"configurable": {"thread_id": thread}}):
            values = found.checkpoint["channel_values"]
            assert values["content"] == sweepers.content(values["number"])
            there += 1
    return there


def orphans(saver: DurableSaver, folder: Path, threads: list[str]) -> int:
    """How many objects there are beyond those that the threads need."""
    store = FileArtifacts(folder / "artifacts")
    needed = set()
    for thread in threads:
        for found in saver.list({"configurable": {"thread_id": thread}}):
            needed.add(found.checkpoint["channel_values"]["number"])
    listed = [one for id in saver._shelf.names for one, _ in sweeping.objects(store, id)]
    return len(listed) - len(needed)


def test_what_is_needed_stays_and_what_is_not_goes(where: str, tmp_path: Path, long: bool) -> None:
    rounds, kills = (3000, 60) if long else (300, 6)
    with sweepers.opened(where, tmp_path) as saver:
        # So that the store has its id: of processes that begin at once each may give it one, and
        # a content that is needed lies there once for each.
        put(saver, "first", {"a": NOISE})
        saver.delete_thread("first")
        [_] = saver._shelf.names
    chance = random.Random(7)
    collectors = [Child(where, tmp_path, "collect", grace) for grace in (0, 0.2)]
    writers = [Child(where, tmp_path, "write", seed, rounds) for seed in range(WRITERS)]
    for n in range(kills):  # beside those that live on
        victim = Child(where, tmp_path, *(("collect", 0) if n % 3 else ("write", 100 + n, 10**6)))
        victim.rounds(chance.randrange(1, 40))
        victim.kill()
    for each in writers:
        each.end()
    for each in collectors:
        each.end()
    seeds = [*range(WRITERS), *(100 + n for n in range(kills))]
    threads = [f"{seed}-{n}" for seed in seeds for n in range(sweepers.THREADS)]
    with sweepers.opened(where, tmp_path) as saver:
        assert check(saver, threads) > 0
        saver.collect_artifacts(grace=0)
        assert check(saver, threads) > 0
        assert orphans(saver, tmp_path, threads) == 0


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("name", backends.EVERYWHERE)
@pytest.mark.parametrize("verb", ["put", "put_writes"])
def test_what_was_collected_before_its_row_was_written_is_stored_again(
    name: str, colour: Any, verb: str, tmp_path: Path
) -> None:
    files = FileArtifacts(tmp_path / "artifacts")
    options: Any = {"artifacts": files, "offload_above": 100}
    opened = backends.EVERYWHERE[name]
    removed: list[int] = []

    async def work() -> None:
        with opened(tmp_path, **options) as saver, opened(tmp_path, **options) as another:
            either, real = Coloured(saver, colour), saver._shelf.keep

            def keep(uploads: Sequence[Any]) -> None:
                real(uploads)
                removed.append(another.collect_artifacts(grace=0).removed)

            saver._shelf.keep = keep  # type: ignore[method-assign]
            config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            value, versions = sweepers.content(1), {"a": "1"}
            first = value if verb == "put" else 1
            state: Any = {"channel_values": {"a": first}, "channel_versions": versions}
            at = await either.put(config, {**empty_checkpoint(), **state}, {}, versions)
            if verb == "put_writes":
                await either.put_writes(at, [("a", value)], "task")
            found = await either.get_tuple(config)
            assert value in (found.checkpoint["channel_values"]["a"], *_written(found))
            assert another.check_artifacts("t") == []

    finish(colour, work(), asyncio.run)
    assert removed == [1]


def _written(found: Any) -> list[Any]:
    return [value for _, _, value in found.pending_writes]


@pytest.mark.parametrize("age", ["young", "old"])
def test_the_mark_of_a_killed_collector_holds_writers_up_once_at_most(
    age: str, backend: backends.Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileArtifacts(tmp_path / "artifacts")
    waited: list[float] = []
    watched = SimpleNamespace(  # whoever waits finds that ten seconds are over
        monotonic=lambda: time.monotonic() + 10 * len(waited), time=time.time, sleep=waited.append
    )
    monkeypatch.setattr(sweeping, "time", watched)
    with backend(tmp_path, artifacts=store, offload_above=100) as saver:
        put(saver, "t", {"a": NOISE})
        [one] = objects(store, saver)
        mark = store.folder / (one.key + sweeping.DOOMED)
        mark.write_bytes(b"of a collector that was killed")
        if age == "old":
            os.utime(mark, (1, 1))
        saver._shelf.forget()
        put(saver, "u", {"a": NOISE})
        assert bool(waited) == (age == "young")
        assert not mark.exists()
        waited.clear()
        put(saver, "v", {"a": NOISE})
        assert not waited


def test_a_collector_whose_mark_was_taken_away_leaves_the_object() -> None:
    store = MemoryArtifacts("memory://taken", private=True)
    store.put("x", b"content")
    doom = sweeping.Doom(store, "x")
    doom.put()
    store.delete("x" + sweeping.DOOMED)
    assert not doom.carry_out(math.inf)
    assert store.stat("x") is not None


def test_of_two_collectors_the_first_leaves_an_object_to_the_second() -> None:
    store = MemoryArtifacts("memory://two", private=True)
    store.put("x", b"content")
    first, second = sweeping.Doom(store, "x"), sweeping.Doom(store, "x")
    first.put()
    second.put()
    assert not first.carry_out(math.inf)
    first.lift()
    assert store.stat("x") is not None
    assert store.stat("x" + sweeping.DOOMED) is not None
    assert second.carry_out(math.inf)
    second.lift()
    assert list(store.list("")) == []
