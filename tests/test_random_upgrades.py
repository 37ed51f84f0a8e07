"""Random steps over random threads: it does not matter when, and how often, a thread is upgraded.

A thread of several checkpoints with pending writes is read lazily, rewritten ahead of time at once
or version by version, and continued by each version of the program; all must agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from backends import EVERYWHERE
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schema import schema_of

from langgraph_durable import StateSchema

names = st.sampled_from(["a", "b", "c", "d", "e"])
ops = st.one_of(
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("add"), names, st.integers()),
    st.tuples(st.just("transform"), names, st.just(str)),
    st.tuples(st.just("rename_node"), names, names),
)
steps = st.lists(ops, max_size=4)
some = st.one_of(st.integers(), st.lists(st.integers(), max_size=6))
written = st.lists(st.tuples(names, st.integers()), max_size=3)


class Stored(NamedTuple):
    """One checkpoint: what changed in it, and what two tasks wrote after it."""

    changed: dict[str, Any]
    writes: tuple[list[Any], list[Any]]


several = st.lists(
    st.builds(Stored, st.dictionaries(names, some, min_size=1), st.tuples(written, written)),
    min_size=1,
    max_size=4,
)


def step_of(actions: list[Any]) -> Callable[[Any], None]:
    def step(state: Any) -> None:
        for verb, *args in actions:
            if verb != "rename" or args[1] not in state:
                getattr(state, verb)(*args)

    return step


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def go_on(saver: Any, thread: str, stored: Stored) -> None:
    """Read the newest checkpoint, change some channels, and store it as the next one."""
    found = saver.get_tuple(config(thread))
    old: Any = found.checkpoint if found else {"channel_values": {}, "channel_versions": {}}
    n = 1 + (found.metadata["step"] if found else 0)
    versions = dict.fromkeys(stored.changed, f"{n:032}.0")
    checkpoint: Any = {
        "v": 4,
        "ts": "2026-01-01T00:00:00+00:00",
        "versions_seen": {},
        **old,
        "id": f"1f0c0000-0000-6000-8000-{n:012}",
        "channel_values": {**old["channel_values"], **stored.changed},
        "channel_versions": {**old["channel_versions"], **versions},
        "updated_channels": sorted(stored.changed),
    }
    checkpoint["versions_seen"] = {**checkpoint["versions_seen"], "a": versions}
    at = found.config if found else config(thread)
    at = saver.put(at, checkpoint, {"source": "loop", "step": n}, versions)
    write(saver, at, stored)


def write(saver: Any, at: Any, stored: Stored, name: str = "task") -> None:
    for k, writes in enumerate(stored.writes):
        if writes:
            saver.put_writes(at, writes, f"{name} {k}")


def late_writes_of(stored: Stored) -> list[Any]:
    return [(f"late {k}", *pair) for k, pairs in enumerate(stored.writes) for pair in pairs]


def late_writes(saver: Any, thread: str) -> list[Any]:
    found = saver.get_tuple(config(thread)).pending_writes
    return [each for each in found if each[0].startswith("late")]


def everything(saver: Any, thread: str) -> list[Any]:
    listed = [(t.checkpoint, t.pending_writes) for t in saver.list(config(thread))]
    newest = saver.get_tuple(config(thread))
    assert (newest.checkpoint, newest.pending_writes) == listed[0]
    return listed


def upgrade(saver: Any, colour: str, *threads: str) -> None:
    if colour == "sync":
        report = saver.upgrade_threads(threads)
    else:
        report = asyncio.run(saver.aupgrade_threads(threads))
    assert not report.failed


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
@settings(max_examples=40, deadline=None)
@given(
    thread=several,
    later=several,
    first=steps,
    second=steps,
    colour=st.sampled_from(["sync", "async"]),
)
def test_lazy_eager_and_continued_upgrades_agree(
    tmp_path_factory: pytest.TempPathFactory,
    backend: str,
    thread: list[Stored],
    later: list[Stored],
    first: Any,
    second: Any,
    colour: str,
) -> None:
    place = tmp_path_factory.mktemp("random")
    both = {"to2": step_of(first), "to3": step_of(second)}

    def opened(schema: StateSchema | None = None) -> Any:
        return EVERYWHERE[backend](place, schema=schema)

    with opened() as saver:
        for stored in thread:
            go_on(saver, "lazy", stored)
        for copy in ("eager", "stepwise", "continued", "mixed"):
            saver.copy_thread("lazy", copy)
    with opened(schema_of(2, to2=both["to2"])) as saver:
        upgrade(saver, colour, "stepwise")
        write(saver, saver.get_tuple(config("mixed")).config, later[0], "late")
        assert late_writes(saver, "mixed") == late_writes_of(later[0])  # this version's own
        go_on(saver, "mixed", later[0])
        saver.copy_thread("mixed", "mixed eager")
    with opened(schema_of(3, **both)) as saver:
        expected = everything(saver, "lazy")
        mixed = everything(saver, "mixed")
        upgrade(saver, colour, "eager", "stepwise", "mixed eager")
        for stored in later:
            go_on(saver, "continued", stored)
        continued = everything(saver, "continued")
        assert continued[len(later) :] == expected
        saver.copy_thread("continued", "continued eager")
        upgrade(saver, colour, "continued eager")
    with opened(StateSchema(version=3)) as saver:  # it has no steps: all must be stored as they are
        assert everything(saver, "eager") == everything(saver, "stepwise") == expected
        assert everything(saver, "mixed eager") == mixed
        assert everything(saver, "continued eager") == continued
        newest = saver.get_tuple(config("continued"))
        assert (newest.checkpoint, newest.pending_writes) == continued[0]
