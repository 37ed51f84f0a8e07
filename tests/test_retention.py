"""Retention: what policies keep, that nothing kept changes, and that deletes stick."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import operator
import os
import pickle
import random
import signal
import sqlite3
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import backends
import pytest
import servers
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, Send, interrupt

from langgraph_durable import (
    CheckpointRemoved,
    ConfigurationError,
    CorruptionError,
    Deleted,
    DropIdle,
    Finished,
    KeepInterrupted,
    KeepLast,
    KeepTagged,
    MaxAge,
    MaxBytes,
    Milestones,
    PrunePlan,
    Thin,
    ThreadBusy,
    ThreadDeleted,
    UnsafeTypeError,
    automatic,
)
from langgraph_durable._core import pruning, shortening
from langgraph_durable._redis import reading, removing
from langgraph_durable._sqlite import schema, tombs, watching
from langgraph_durable.saver import DurableSaver
from langgraph_durable.testing.model import checkpoint, numbered

CONFIG: Any = {"configurable": {"thread_id": "t"}}
POLICIES = [
    KeepLast(2),
    MaxAge("0s"),
    Thin(every="1h", after="0s"),
    MaxBytes("1 B"),
    KeepTagged(),
    Milestones(),
    KeepInterrupted(),
    Finished(),
    KeepLast(1) | KeepTagged("a"),
    KeepLast(3) & MaxBytes("10 MB"),
    ~KeepLast(2),
]


@pytest.fixture(params=[*backends.EVERYWHERE, "scriptless"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with backends.ALL[request.param](tmp_path) as opened:
        yield opened


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def extend(log: list[str], writes: list[list[str]]) -> list[str]:
    return [*log, *(entry for write in writes for entry in write)]


@dataclasses.dataclass
class Unknown:
    """To who prunes."""

    number: int


class Often(TypedDict):
    """A DeltaChannel that makes a snapshot now and then."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]


class Rare(TypedDict):
    """Everything is rebuilt from the writes of ancestors."""

    log: Annotated[list[str], DeltaChannel(extend)]


class RareAndNote(Rare):
    note: str


FAMILIES: dict[str, tuple[Any, Any, Any]] = {
    "plain": (State, State, None),
    "deltas": (Often, Rare, None),
    "deltas and a memory": (Rare, Often, True),
}
"""Of the graph, of its sub-graph, and whether that has a memory of its own."""
TWINS = [
    pytest.param(kind, policy, id=f"{kind}-{policy!r}")
    for kind in FAMILIES
    for policy in (POLICIES if kind == "plain" else [KeepLast(2), Milestones(), ~KeepLast(2)])
]


def family(kind: str = "plain") -> Any:
    """A graph with a sub-graph, two parallel questions, and a last word."""
    above, below, memory = FAMILIES[kind]
    inner = StateGraph(below)
    inner.add_node("think", lambda state: {"log": ["thought"]})
    inner.add_node("ask", lambda state: {"log": [f"inner {interrupt('inner?')}"]})
    inner.add_edge(START, "think")
    inner.add_edge("think", "ask")
    outer = StateGraph(above)
    outer.add_node("a", lambda state: {"log": ["a"]})
    outer.add_node("sub", inner.compile(checkpointer=memory))
    outer.add_node("other", lambda state: {"log": [f"other {interrupt('other?')}"]})
    outer.add_node("end", lambda state: {"log": ["end"]})
    outer.add_edge(START, "a")
    outer.add_edge("a", "sub")
    outer.add_edge("a", "other")
    outer.add_edge(["sub", "other"], "end")
    outer.add_edge("end", END)
    return outer


def chat(saver: DurableSaver, turns: int, thread: str = "t") -> None:
    graph = StateGraph(State)
    graph.add_node("a", lambda state: {"log": ["a"]})
    graph.add_edge(START, "a")
    compiled = graph.compile(checkpointer=saver)
    for turn in range(turns):
        words = f"{turn}: {'word ' * 20}"
        compiled.invoke({"log": [words]}, {"configurable": {"thread_id": thread}})


def everything(saver: DurableSaver) -> dict[Any, Any]:
    return {
        tuple(sorted(t.config["configurable"].items())): (
            t.checkpoint,
            t.metadata,
            t.pending_writes,
        )
        for t in saver.list(None)
    }


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_what_a_policy_keeps_reads_back_as_before(saver: DurableSaver, policy: Any) -> None:
    chat(saver, 4)
    saver.tag(CONFIG, "a")
    before = everything(saver)
    plan = saver.prune(["t"], strategy=policy, dry_run=True)
    assert isinstance(plan, PrunePlan)
    assert everything(saver) == before
    report: Any = saver.apply_prune(plan)
    after = everything(saver)
    assert after.items() <= before.items()
    assert report.checkpoints == len(before) - len(after) == plan.removed
    assert saver.get_tuple(CONFIG) is not None
    chat(saver, 1)


@pytest.mark.parametrize("mode", ["sync", "exit"])
@pytest.mark.parametrize(("kind", "policy"), TWINS)
def test_an_interrupted_thread_resumes_as_its_twin_that_was_never_pruned(
    saver: DurableSaver, policy: Any, mode: Any, kind: str
) -> None:
    graph = family(kind).compile(checkpointer=saver)
    ends = []
    for thread, pruned in (("t", True), ("twin", False)):
        config: Any = {"configurable": {"thread_id": thread}}
        seen: list[Any] = []
        for turn in range(2):
            graph.invoke({"log": [f"{turn}"]}, config, durability=mode)
            while asked := graph.get_state(config).tasks:
                if pruned:
                    saver.prune([thread], strategy=policy)
                answers = {i.id: "yes" for task in asked for i in task.interrupts}
                first = dict(list(answers.items())[:1])
                seen.append(graph.invoke(Command(resume=first), config, durability=mode)["log"])
                seen.append(graph.get_state(config).next)
            if pruned:
                saver.prune([thread], strategy=policy)
            seen.append(graph.get_state(config).values)
        ends.append(seen)
    assert ends[0] == ends[1]
    assert "end" in ends[0][-1]["log"]


@pytest.mark.parametrize(("kind", "policy"), TWINS)
def test_time_travel_to_any_kept_checkpoint_ends_as_in_the_twin_that_was_never_pruned(
    saver: DurableSaver, policy: Any, kind: str
) -> None:
    graph = family(kind).compile(checkpointer=saver)
    for turn in range(2):
        graph.invoke({"log": [f"{turn}"]}, CONFIG)
        answers = {i.id: "y" for task in graph.get_state(CONFIG).tasks for i in task.interrupts}
        graph.invoke(Command(resume=answers), CONFIG)
    graph.invoke({"log": ["open"]}, CONFIG)
    saver.copy_thread("t", "twin")
    saver.prune(["t"], strategy=policy)
    kept = [t.config["configurable"]["checkpoint_id"] for t in saver.list(root("t"))]
    assert kept
    for id in kept:
        ends = []
        for thread in ("t", "twin"):
            saver.copy_thread(thread, f"{thread} {id}")
            config: Any = root(f"{thread} {id}", checkpoint_id=id)
            before = graph.get_state(config, subgraphs=True)
            forked = graph.update_state(config, {"log": ["forked"]}, as_node="a")
            said = graph.invoke(None, forked)
            ends.append((before.values, before.next, said["log"], len(said["__interrupt__"])))
        assert ends[0] == ends[1]


class Remembering(TypedDict):
    """A sub-graph's, which knows its calls."""

    log: list[str]
    memory: Annotated[list[str], DeltaChannel(extend)]


@pytest.mark.parametrize("goes_back", ["at once", "later"])
def test_a_return_to_an_edit_finds_what_sub_graphs_remembered_before_it(
    saver: DurableSaver, goes_back: str
) -> None:
    """LangGraph looks for that from the checkpoint that was edited, however old that is."""
    prunes: list[Any] = []

    def prune_now(state: State) -> Any:
        for strategy in prunes:
            servers.wait_until(is_back, "the fork to be stored")  # which LangGraph does meanwhile
            saver.prune(["t"], strategy=strategy)

    def is_back() -> bool:
        parent = found.parent_config if (found := saver.get_tuple(CONFIG)) else None
        return parent is not None and parent["configurable"] == old["configurable"]

    def count(state: Any) -> Any:
        return {"memory": ["called"], "log": [f"{len(state.get('memory', []))} calls before"]}

    inner = StateGraph(Remembering).add_node("count", count).add_edge(START, "count")
    outer = StateGraph(State).add_node("a", prune_now)
    outer.add_node("mem", inner.compile(checkpointer=True))
    graph = outer.add_edge(START, "a").add_edge("a", "mem").compile(checkpointer=saver)
    for _ in range(4):
        graph.invoke({"log": []}, CONFIG)
    old = [state.config for state in graph.get_state_history(CONFIG) if state.next == ("a",)][2]
    before = graph.invoke(None, old)["log"]
    assert before == ["0 calls before", "1 calls before"]
    if goes_back == "later":
        edited = graph.update_state(old, {"log": []}, as_node="__start__")
        saver.tag(edited, "here")
        for _ in range(2):
            graph.invoke({"log": []}, CONFIG)
        saver.prune(["t"], strategy=KeepTagged("here") | KeepLast(1))
        old = edited
    else:
        prunes.append(KeepLast(1))
    assert graph.invoke(None, old, durability="sync")["log"] == before


@pytest.mark.parametrize("how", ["update", "sync", "async", "exit"])
def test_nothing_goes_on_without_the_past_that_was_pruned_meanwhile(
    saver: DurableSaver, how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DeltaChannel would come out empty. Under "exit" nothing is stored until the end."""
    builder = StateGraph(RareAndNote)
    builder.add_node("a", lambda state: {"log": ["a"]})
    builder.add_node("b", lambda state: {"note": prune()})
    graph = builder.add_edge(START, "a").add_edge("a", "b").compile(checkpointer=saver)
    prunes: list[Any] = []

    def prune() -> str:
        if prunes:
            saver.prune(["t"], strategy=prunes.pop())
        return "b"

    def put(*args: Any) -> Any:
        prune()
        return plain(*args)

    for turn in range(3):
        graph.invoke({"log": [f"{turn}"]}, CONFIG)
    old = [state.config for state in graph.get_state_history(CONFIG) if state.next == ("b",)][-1]
    prunes.append(KeepLast(1))
    plain = saver.put
    if how != "exit":
        monkeypatch.setattr(saver, "put", put)
    with pytest.raises(CheckpointRemoved, match="DeltaChannels"):
        if how == "update":
            graph.update_state(old, {"note": "edited"}, as_node="a")
        else:
            graph.invoke(None, old, durability=how)
    values = {"log": ["0", "a", "1", "a", "2", "a"], "note": "b"}
    assert graph.get_state(CONFIG).values == values
    assert graph.invoke({"log": ["3"]}, CONFIG)["log"] == [*values["log"], "3", "a"]


def root(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


async def test_everything_works_async(saver: DurableSaver) -> None:
    for thread in ("t", "u"):
        chat(saver, 3, thread)
    await saver.atag(CONFIG, "a")
    plan = await saver.aplan_prune(strategy=Milestones())
    assert await saver.aprune(strategy=Milestones(), dry_run=True) == plan
    done: list[tuple[int, int]] = []
    report = await saver.aapply_prune(plan, progress=lambda *each: done.append(each))
    assert report.checkpoints == plan.removed == done[-1][1]
    assert (await saver.astats()).checkpoints == 2
    [found] = [t async for t in saver.alist(CONFIG)]
    assert found.metadata["checkpoint_tags"] == ["a"]  # type: ignore[typeddict-item]
    assert (await saver.adelete_thread("t")).checkpoints == 1
    assert (await saver.adelete_threads(["u"])).checkpoints == 1
    assert (await saver.astats()).threads == {}


def test_a_thread_that_grows_beyond_the_threshold_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for backend in ("sqlite", "valkey"):
        caplog.clear()
        with backends.ALL[backend](tmp_path, warn_bytes="1 kB") as saver:
            chat(saver, 40)
        assert any("above warn_bytes=1.0 kB" in record.message for record in caplog.records)


def test_a_long_thread_is_pruned_in_the_background(tmp_path: Path) -> None:
    for backend in ("sqlite", "valkey"):
        with backends.ALL[backend](tmp_path) as saver:
            chat(saver, 100)
        with backends.ALL[backend](tmp_path, retention=KeepLast(5)) as saver:
            while len(list(saver.list(CONFIG))) > 100:
                chat(saver, 5)


def test_a_child_that_was_forked_while_the_queue_was_locked_is_not_held_up(tmp_path: Path) -> None:
    with backends.hasty_sqlite(tmp_path, retention=KeepLast(3)) as saver:
        queue = saver._steps._queue  # type: ignore[union-attr]
        with queue._lock:
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                queue.stop()
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_sub_graphs_namespace_goes_with_the_checkpoint_that_called_it(
    saver: DurableSaver,
) -> None:
    graph = family().compile(checkpointer=saver)
    for turn in range(3):
        graph.invoke({"log": [f"{turn}"]}, CONFIG)
        answers = {i.id: "y" for task in graph.get_state(CONFIG).tasks for i in task.interrupts}
        graph.invoke(Command(resume=answers), CONFIG)
    assert {t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)} != {""}
    saver.prune(["t"], strategy=KeepLast(1))
    assert [t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)] == [""]


def test_what_was_written_after_the_plan_stays(saver: DurableSaver) -> None:
    chat(saver, 2)
    plan = saver.plan_prune(strategy=KeepLast(1))
    planned = {id for each in plan.threads for ids in each.removed.values() for id in ids}
    before = {t.config["configurable"]["checkpoint_id"] for t in saver.list(CONFIG)}
    chat(saver, 1)
    newer = {t.config["configurable"]["checkpoint_id"] for t in saver.list(CONFIG)} - before
    saver.apply_prune(plan)
    left = {t.config["configurable"]["checkpoint_id"] for t in saver.list(CONFIG)}
    assert newer <= left
    assert not left & planned
    assert str(plan).splitlines()[0].split() == ["thread", "namespace", "kept", "removed", "bytes"]


def test_what_was_tagged_or_answered_after_the_plan_stays(saver: DurableSaver) -> None:
    chat(saver, 2)
    plan = saver.plan_prune(strategy=KeepLast(1) | KeepTagged())
    oldest = list(saver.list(CONFIG))[-1].config
    saver.tag(oldest, "after all")
    assert saver.apply_prune(plan).checkpoints == plan.removed - 1
    assert saver.get_tuple(oldest) is not None

    graph = family().compile(checkpointer=saver)
    config = graph.invoke({"log": ["hi"]}, root("u")) and graph.get_state(root("u")).config
    plan = saver.plan_prune(["u"], strategy=DropIdle("0s", waiting="drop"))
    saver.put_writes(config, [("__resume__", "yes")], str(uuid6()))
    saver.apply_prune(plan)
    assert saver.get_tuple(root("u")) is not None
    saver.prune(["u"], strategy=DropIdle("0s", waiting="drop"))
    assert saver.get_tuple(root("u")) is None


def test_nothing_goes_that_a_plan_does_not_name(saver: DurableSaver) -> None:
    """LangGraph's word keeps the last of each call of a sub-graph, and not who called it."""
    inner = StateGraph(State).add_node("b", lambda state: {"log": ["b"]}).add_edge(START, "b")
    graph = StateGraph(State).add_node("a", inner.compile()).add_edge(START, "a")
    graph.compile(checkpointer=saver).invoke({"log": []}, CONFIG)
    plan = saver.plan_prune(strategy="keep_latest")
    planned = {(ns, id) for ns, ids in plan.threads[0].removed.items() for id in ids}
    before = set(history(saver, "t"))
    saver.apply_prune(plan)
    assert before - set(history(saver, "t")) == planned


def test_tags_show_in_metadata_and_keep_their_checkpoint(saver: DurableSaver) -> None:
    chat(saver, 3)
    oldest = list(saver.list(CONFIG))[-1].config
    saver.tag(oldest, "milestone", "first")
    saver.prune(["t"], strategy=Milestones())
    assert len(list(saver.list(CONFIG))) == 2
    [found] = saver.list(CONFIG, filter={"checkpoint_tags": ["milestone", "first"]})
    assert found.config == oldest
    asyncio.run(saver.auntag(oldest))
    saver.prune(["t"], strategy=Milestones())
    assert len(list(saver.list(CONFIG))) == 1
    with pytest.raises(ConfigurationError):
        saver.tag({"configurable": {"thread_id": "unknown"}}, "x")


@pytest.mark.parametrize("found", ["text", 5, {"a": 1}])
def test_what_else_stands_where_tags_do_is_no_tag(saver: DurableSaver, found: Any) -> None:
    graph = StateGraph(State).add_node("a", lambda state: {"log": ["a"]}).add_edge(START, "a")
    config: Any = {**CONFIG, "metadata": {"checkpoint_tags": found}}
    graph.compile(checkpointer=saver).invoke({"log": []}, config)
    saver.tag(CONFIG, "x")
    tagged: Any = saver.get_tuple(CONFIG)
    assert tagged.metadata["checkpoint_tags"] == ["x"]
    assert cast("Any", saver.prune(strategy=KeepTagged())).checkpoints == 2


def test_names_do_not_draw_on_the_terminal(saver: DurableSaver) -> None:
    chat(saver, 1, "a\nb\x1b[31m")
    for shown in (saver.plan_prune(strategy=KeepLast(1)), saver.stats()):
        assert len(str(shown).splitlines()) == 3
        assert str(shown).replace("\n", "").isprintable()


def test_threads_that_are_over_go_whole(saver: DurableSaver) -> None:
    chat(saver, 1, "done")
    graph = family().compile(checkpointer=saver)
    graph.invoke({"log": ["hi"]}, CONFIG)
    saver.prune(strategy=Finished(keep="nothing"))
    assert saver.stats().threads.keys() == {"t"}
    saver.prune(strategy=DropIdle("0s"))
    assert saver.stats().threads.keys() == {"t"}
    saver.prune(strategy=KeepLast(5) & DropIdle("0s", waiting="drop"))
    assert saver.stats().threads.keys() == set()


def joining() -> Any:
    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, lambda state, name=name: {"log": [name]}, defer=name == "c")
    graph.add_node("d", lambda state: {"log": ["d"]})
    graph.add_edge(START, "a").add_edge(START, "b").add_edge(["a", "b"], "c")
    return graph.add_edge(["b", "c"], "d")


def sending() -> Any:
    graph = StateGraph(State)
    graph.add_node("c", lambda state: {"log": ["c"]})
    graph.add_node("d", lambda state: {"log": ["d"]})
    graph.add_conditional_edges(START, lambda state: [Send("c", state)] * 2, ["c"])
    return graph.add_conditional_edges("c", lambda state: [Send("d", state)], ["d"])


def remembering() -> Any:
    inner = joining().compile(checkpointer=True)
    return StateGraph(State).add_node("sub", inner).add_edge(START, "sub")


@pytest.mark.parametrize("built", [joining, sending])
@pytest.mark.parametrize("node", ["c", "d"])
def test_a_thread_that_has_stopped_before_a_node_is_not_over(
    saver: DurableSaver, built: Any, node: str
) -> None:
    graph = built().compile(checkpointer=saver, interrupt_before=[node])
    graph.invoke({"log": []}, CONFIG)
    assert node in graph.get_state(CONFIG).next
    for policy in (Finished(keep="nothing"), DropIdle("0s")):
        saver.prune(strategy=policy)
    graph.invoke(None, CONFIG)
    assert graph.get_state(CONFIG).next == ()
    saver.prune(strategy=Finished(keep="nothing"))
    assert saver.stats().threads == {}


@pytest.mark.parametrize("built", [joining, sending, remembering])
@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
@pytest.mark.parametrize("backend", backends.EVERYWHERE)
def test_no_run_is_cleared_away_before_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, mode: Any, built: Any
) -> None:
    monkeypatch.setattr(automatic, "STEP", 1)
    with backends.ALL[backend](tmp_path, retention=Finished(keep="nothing")) as saver:
        graph = built().compile(checkpointer=saver)
        for _ in range(3):
            assert graph.invoke({"log": []}, CONFIG, durability=mode)["log"][-1] == "d"
            asyncio.run(graph.ainvoke({"log": []}, CONFIG, durability=mode))


def test_deletes_say_what_they_removed_and_stats_agree(saver: DurableSaver) -> None:
    for thread in ("t", "u", "v"):
        chat(saver, 2, thread)
    stats = saver.stats(channels=True)
    assert set(stats.threads) == {"t", "u", "v"}
    one = stats.threads["t"]
    log = one.channels["log"]
    assert log.writes == 4
    assert log.items >= 3
    assert 0 < log.checkpoints <= one.checkpoints
    assert 0 < log.bytes <= one.bytes
    assert "" not in one.channels  # what the saver notes for itself is nobody's channel
    shown = [line.split() for line in str(stats).splitlines()]
    assert ["log", f"{log.checkpoints}", "4", f"{log.items}"] in [line[:4] for line in shown]
    assert one.oldest
    assert one.newest
    assert log.oldest
    assert log.newest
    assert one.oldest <= log.oldest <= log.newest <= one.newest
    assert stats.oldest == one.oldest
    assert stats.newest == stats.threads["v"].newest
    gone = saver.delete_thread("t")
    assert (gone.checkpoints, gone.items) == (one.checkpoints, one.items)
    assert gone.bytes > 0
    assert saver.delete_thread("t") == Deleted()
    assert saver.delete_threads(["u", "nobody"]).checkpoints == one.checkpoints
    assert asyncio.run(saver.adelete_threads(filter={"source": "loop"})).checkpoints
    assert list(saver.list(None)) == []


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
@pytest.mark.parametrize("again", [False, True], ids=["gone", "begun anew"])
@pytest.mark.parametrize("where", ["before the sub-graph", "in the sub-graph"])
@pytest.mark.parametrize("memory", [None, True], ids=["plain", "with a memory"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_late_write_of_a_deleted_thread_is_refused(
    saver: DurableSaver, mode: Any, again: bool, where: str, memory: Any, colour: str
) -> None:
    """Those of a sub-graph too, also if the root saves nothing in between."""
    chat(saver, 1)

    def late(state: Any) -> dict[str, Any]:
        return {"log": ["late"]}

    def work(state: Any) -> dict[str, Any]:
        def delete() -> None:
            saver.delete_thread("t")
            if again:
                chat(saver, 1)

        thread = threading.Thread(target=delete)
        thread.start()
        thread.join()
        return late(state)

    inner = StateGraph(State)
    inner.add_node("work", work if where == "in the sub-graph" else late)
    inner.add_node("more", late)
    inner.add_edge(START, "work")
    inner.add_edge("work", "more")
    outer = StateGraph(State)
    outer.add_node("first", work if where == "before the sub-graph" else late)
    outer.add_node("sub", inner.compile(checkpointer=memory))
    outer.add_edge(START, "first")
    outer.add_edge("first", "sub")
    graph = outer.compile(checkpointer=saver)
    with pytest.raises(ThreadDeleted):
        if colour == "sync":
            graph.invoke({"log": ["old"]}, CONFIG, durability=mode)
        else:
            asyncio.run(graph.ainvoke({"log": ["old"]}, CONFIG, durability=mode))
    kept = list(saver.list(CONFIG))
    if not again:
        assert kept == []
        assert saver.stats().threads == {}  # nor are there writes without a checkpoint
    assert all("late" not in str(t.checkpoint) + str(t.pending_writes) for t in kept)
    chat(saver, 1)
    assert {t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)} == {""}


def test_tombstones_do_not_become_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombs, "MOST_TOMBS", 2)
    monkeypatch.setattr(tombs, "SWEEP", 1)
    with backends.sqlite(tmp_path) as saver:
        for n in range(5):
            chat(saver, 1, f"{n}")
            saver.delete_thread(f"{n}")
        with sqlite3.connect(tmp_path / "agent.db") as conn:
            assert len(conn.execute("SELECT * FROM lgd_tombs").fetchall()) == 2


def test_direct_use_after_a_delete_is_not_refused(saver: DurableSaver) -> None:
    chat(saver, 1)
    old = saver.get_tuple(CONFIG)
    assert old
    saver.delete_thread("t")
    saver.put(old.config, {**old.checkpoint, "id": str(uuid6())}, {}, {})  # type: ignore[typeddict-item]
    assert len(list(saver.list(CONFIG))) == 1


def test_pages_go_back_to_the_file_system(tmp_path: Path) -> None:
    with backends.sqlite(tmp_path) as saver:
        graph = StateGraph(State)
        graph.add_node("a", lambda state: {"log": [random.randbytes(50_000).hex()]})
        graph.add_edge(START, "a")
        compiled = graph.compile(checkpointer=saver)
        for n in range(40):
            compiled.invoke({"log": []}, {"configurable": {"thread_id": f"{n}"}})
        report: Any = saver.prune(strategy=Finished(keep="nothing"))
        assert report.reclaimed > 0
        free = saver._backend.finish(_pragma("freelist_count"))  # type: ignore[attr-defined]
        assert free == 0


def test_a_delete_gives_its_pages_back_to_the_file_system(tmp_path: Path) -> None:
    graph = StateGraph(State)
    graph.add_node("a", lambda state: {"log": [random.randbytes(15_000).hex()]})
    graph.add_edge(START, "a")

    def fill(saver: DurableSaver) -> None:
        for _ in range(30):
            graph.compile(checkpointer=saver).invoke({"log": []}, CONFIG)

    with backends.hasty_sqlite(tmp_path) as saver:
        for delete in (
            lambda: saver.delete_thread("t"),
            lambda: asyncio.run(saver.adelete_thread("t")),
            lambda: saver.delete_threads(["t"]),
            lambda: asyncio.run(saver.adelete_threads(filter={"source": "loop"})),
        ):
            fill(saver)
            assert delete().bytes > 400_000
            free = saver._backend.finish(_pragma("freelist_count"))  # type: ignore[attr-defined]
            assert free == 0


def test_the_log_of_a_large_removal_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LARGEST_LOG", 100_000)
    with backends.hasty_sqlite(tmp_path) as saver:
        graph = StateGraph(State)
        graph.add_node("a", lambda state: {"log": [random.randbytes(20_000).hex()]})
        graph.add_edge(START, "a")
        for _ in range(150):
            graph.compile(checkpointer=saver).invoke({"log": []}, CONFIG, durability="exit")
        saver.delete_thread("t")
        with contextlib.closing(sqlite3.connect(tmp_path / "agent.db")) as conn:
            conn.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        chat(saver, 1)
        assert (tmp_path / "agent.db-wal").stat().st_size < 1_000_000


@pytest.mark.parametrize("column", ["refs", "body"])
def test_a_damaged_thread_is_left_as_it_is_and_the_others_are_pruned(
    column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph = StateGraph(State).add_node("a", lambda state: {"log": ["x"]})
    graph.add_edge(START, "a")
    with backends.sqlite(tmp_path) as saver:
        compiled = graph.compile(checkpointer=saver)
        for name in ("bad", "good", "sound"):
            compiled.invoke({"log": []}, {"configurable": {"thread_id": name}})
        damage = f"UPDATE lgd_checkpoints SET {column} = x'ff' WHERE tid = 1 AND id = ("
        damage += "SELECT id FROM lgd_heads WHERE thread_id = 'bad')"
        saver._backend.finish(_execute(damage))  # type: ignore[attr-defined]
        before = saver.stats(["bad"])
        with pytest.raises(CorruptionError, match="'bad'"):
            saver.prune(["bad"], strategy=KeepLast(1))
        plan: Any = saver.plan_prune(strategy=KeepLast(1))
        assert [each.thread_id for each in plan.threads] == ["good", "sound"]
        report: Any = saver.prune(strategy=KeepLast(1))
        assert (report.threads, report.checkpoints) == (2, 4)
        assert saver.stats(["bad"]) == before
    assert caplog.text.count("left out of the pruning: thread 'bad'") == 2


@pytest.mark.parametrize("long", [False, True])
def test_a_thread_that_is_written_all_the_time_keeps_no_other_from_being_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    """On a server nothing goes of a thread that somebody has written to since it was looked at."""
    plain = removing.apply

    async def apply(context: Any, thread_id: str, *rest: Any) -> Any:
        return None if thread_id == "busy" else await plain(context, thread_id, *rest)

    monkeypatch.setattr(removing, "apply", apply)
    monkeypatch.setattr(reading, "PATIENCE", 0)
    monkeypatch.setattr(pruning, "PATIENCE", 0.1)
    if long:
        in_steps_of(monkeypatch, 2)
    with backends.ALL["valkey"](tmp_path) as saver:
        for thread in ("a", "busy", "c"):
            chat(saver, 2, thread)
        report: Any = saver.prune(strategy=KeepLast(1))
        left = {name: stats.checkpoints for name, stats in saver.stats().threads.items()}
        assert left == {"a": 1, "busy": 6, "c": 1}
        assert report.checkpoints == 10
        with pytest.raises(ThreadBusy, match="busy"):
            saver.prune(["a", "busy"], strategy=KeepLast(1))


@pytest.mark.parametrize("column", ["refs", "body"])
def test_a_damaged_thread_keeps_no_other_from_being_found_counted_and_pruned(
    column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with backends.hasty_sqlite(tmp_path) as saver:
        for name in ("bad", "good", "sound"):
            chat(saver, 1, name)
        damage = f"UPDATE lgd_checkpoints SET {column} = x'ff' WHERE tid = 1"
        saver._backend.finish(_execute(damage))  # type: ignore[attr-defined]
        shown = saver.stats(channels=True).threads
        assert shown["good"].channels
        assert shown["bad"].checkpoints == shown["good"].checkpoints
        for policy in (MaxBytes("1 B"), Finished(keep="nothing")):
            plan = saver.plan_prune(strategy=policy)
            assert [each.thread_id for each in plan.threads] == ["good", "sound"]
        assert saver.delete_threads(filter={"source": "loop"}).checkpoints == 6
        assert saver.stats().threads.keys() == {"bad"}
    assert "'bad'" in caplog.text


def test_threads_are_found_and_deleted_where_their_classes_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backends.hasty_sqlite(tmp_path) as saver:
        graph = StateGraph(State)
        graph.add_node("a", lambda state: {"log": [Unknown(1)]})
        graph.add_edge(START, "a")
        graph.compile(checkpointer=saver).invoke({"log": []}, CONFIG)
    monkeypatch.delitem(sys.modules, __name__)
    with backends.hasty_sqlite(tmp_path) as saver:
        with pytest.raises(UnsafeTypeError):
            saver.get_tuple(CONFIG)
        assert saver.delete_threads(filter={"source": "input"}).checkpoints == 3


def test_what_is_damaged_can_go_from_a_long_thread_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that stays needs it."""
    with backends.hasty_sqlite(tmp_path) as saver:
        graph = family().compile(checkpointer=saver)
        graph.invoke({"log": []}, CONFIG)
        answers = {i.id: "y" for task in graph.get_state(CONFIG).tasks for i in task.interrupts}
        graph.invoke(Command(resume=answers), CONFIG)
        damage = "UPDATE lgd_checkpoints SET refs = x'ff' WHERE id = ("
        damage += "SELECT min(id) FROM lgd_checkpoints WHERE ns LIKE 'sub:%')"
        saver._backend.finish(_execute(damage))  # type: ignore[attr-defined]
        in_steps_of(monkeypatch, 3)
        saver.prune(["t"], strategy=KeepLast(1))
        assert len(history(saver, "t")) == 1


def test_a_run_can_be_taken_back_though_what_it_wrote_is_damaged(tmp_path: Path) -> None:
    """Nothing that stays needs it: the child has values for all its channels."""
    with backends.hasty_sqlite(tmp_path) as saver:
        config: Any = root("t")
        for n in (1, 2):
            config = saver.put(config, checkpoint(numbered(n), {"a": n}, {"a": n}), {}, {"a": n})
        by_run: Any = {**root("t", checkpoint_id=numbered(1)), "metadata": {"run_id": "drop"}}
        saver.put_writes(by_run, [("a", "late")], "task")
        before = [found.checkpoint for found in saver.list(root("t"))]
        damage = "UPDATE lgd_writes SET body = x'ff' WHERE run = 'drop'"
        saver._backend.finish(_execute(damage))  # type: ignore[attr-defined]
        saver.delete_for_runs(["drop"])
        assert [found.checkpoint for found in saver.list(root("t"))] == before


async def _execute(sql: str) -> None:
    from langgraph_durable._sqlite.storage import Transaction

    await Transaction(lambda conn, notes: conn.execute(sql), writes=True, about="")


async def _pragma(name: str) -> Any:
    from langgraph_durable._sqlite.storage import Transaction

    return await Transaction(
        lambda conn, notes: conn.execute(f"PRAGMA {name}").fetchone()[0], writes=False, about=""
    )


def test_retention_is_applied_as_threads_are_written(tmp_path: Path) -> None:
    for backend in ("sqlite", "valkey"):
        with backends.ALL[backend](tmp_path, retention=KeepLast(5), warn_bytes="1 GB") as saver:
            chat(saver, 60)
            assert len(list(saver.list(CONFIG))) <= 5 + 32 + 1


def test_pruning_in_the_background_meets_writers(tmp_path: Path) -> None:
    for backend in ("sqlite", "valkey"):
        with backends.ALL[backend](tmp_path) as saver:
            saver.start_pruning(interval="0s", strategy=KeepLast(2))
            chat(saver, 40)
            saver.stop_pruning()
            saver.prune(strategy=KeepLast(2))
            assert len(list(saver.list(CONFIG))) == 2
            assert next(iter(saver.list(CONFIG))).checkpoint["channel_values"]["log"]


def test_planning_and_pruning_hold_one_thread_at_a_time(tmp_path: Path) -> None:
    threads, limit = 40, 2_000_000
    for backend in ("sqlite", "valkey"):
        with backends.ALL[backend](tmp_path) as saver:
            for turn in range(10):
                config: Any = {**CONFIG, "metadata": {"note": random.randbytes(10_000).hex()}}
                graph = StateGraph(State)
                graph.add_node("a", lambda state: {"log": ["a"]})
                graph.add_edge(START, "a")
                graph.compile(checkpointer=saver).invoke({"log": [f"{turn}"]}, config)
            for n in range(1, threads):
                saver.copy_thread("t", f"t{n}")
            assert saver.stats().bytes > 5 * limit
            for act, count in (
                (lambda: saver.plan_prune(strategy=KeepLast(2)).removed, 28 * threads),
                (lambda: cast("Any", saver.prune(strategy=KeepLast(2))).checkpoints, 28 * threads),
            ):
                tracemalloc.start()
                try:
                    assert act() == count
                    assert tracemalloc.get_traced_memory()[1] < limit
                finally:
                    tracemalloc.stop()


def test_nothing_is_removed_for_a_call_that_makes_no_sense(saver: DurableSaver) -> None:
    chat(saver, 2)
    before, wrong = everything(saver), cast("Any", 5)
    plan = saver.plan_prune(strategy=KeepLast(1))
    for call in (
        lambda: saver.prune(progress=wrong),
        lambda: saver.prune(strategy=wrong),
        lambda: saver.apply_prune(wrong),
        lambda: saver.apply_prune(plan, progress=wrong),
        lambda: saver.untag(CONFIG, wrong),
        lambda: saver.delete_threads(),
        lambda: saver.delete_threads(filter={}),
        lambda: saver.delete_threads([""]),
        lambda: asyncio.run(saver.aprune(progress=wrong)),
        lambda: asyncio.run(saver.aapply_prune(plan, progress=wrong)),
        lambda: asyncio.run(saver.auntag(CONFIG, wrong)),
    ):
        with pytest.raises(ConfigurationError):
            call()
    assert everything(saver) == before


def test_a_server_gets_its_memory_back(tmp_path: Path) -> None:
    with backends.ALL["valkey"](tmp_path) as saver, servers.shared("valkey").client() as client:
        key = saver._engine.storage.context.keys.thread("t").hash  # type: ignore[attr-defined]
        graph = StateGraph(State)
        graph.add_node("a", lambda state: {"log": [random.randbytes(5_000).hex()]})
        graph.add_edge(START, "a")
        for _ in range(10):
            graph.compile(checkpointer=saver).invoke({"log": []}, CONFIG)
        graph.compile(checkpointer=saver).update_state(CONFIG, {"log": Overwrite([])})
        before = client.memory_usage(key, samples=0)
        report: Any = saver.prune(["t"], strategy=KeepLast(1))
        assert report.bytes > 50_000
        assert before - (client.memory_usage(key, samples=0) or 0) > 50_000


@pytest.mark.parametrize("policy", [*POLICIES, DropIdle("90d"), Finished("1h", "nothing")])
def test_a_policy_can_be_pickled_compared_and_pasted_back(policy: Any) -> None:
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert eval(repr(policy)) == policy
    assert hash(policy) == hash(eval(repr(policy)))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: KeepLast(0),
        lambda: KeepLast("5"),
        lambda: MaxAge("soon"),
        lambda: MaxAge(-1),
        lambda: Thin("0s"),
        lambda: MaxBytes("2 apples"),
        lambda: KeepTagged(""),
        lambda: Finished(keep="all"),
        lambda: DropIdle("90d", waiting="maybe"),
    ],
)
def test_nonsense_is_a_configuration_error(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        wrong()


def test_who_prunes_all_threads_says_how_or_has_said_so_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for backend in ("sqlite", "valkey"):
        with backends.ALL[backend](tmp_path) as saver:
            chat(saver, 2)
            for call in (saver.prune, lambda: asyncio.run(saver.aprune())):
                with pytest.raises(ConfigurationError):
                    call()
            assert len(list(saver.list(CONFIG))) == 6
        with backends.ALL[backend](tmp_path, retention=KeepLast(4)) as saver:
            assert cast("Any", saver.prune(dry_run=True)).removed == 2
            assert cast("Any", asyncio.run(saver.aprune())).checkpoints == 2
            saver.prune(["t"])  # LangGraph's own call, and what it stands for there
            assert len(list(saver.list(CONFIG))) == 1


def in_steps_of(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for module in (pruning, shortening):
        monkeypatch.setattr(module, "MOST", count)
    monkeypatch.setattr(pruning, "SHORTEST", 0)


def history(saver: DurableSaver, thread: str) -> dict[Any, Any]:
    """All that is stored of a thread, read to the last item."""
    found = {}
    for each in saver.list({"configurable": {"thread_id": thread}}):
        place = each.config["configurable"]
        log: Any = each.checkpoint["channel_values"].get("log")
        if log is None:
            log = saver.get_delta_channel_history(config=each.config, channels=["log"])
        parent = (each.parent_config or {"configurable": {}})["configurable"].get("checkpoint_id")
        told = each.checkpoint, each.metadata, each.pending_writes, parent, log
        found[place["checkpoint_ns"], place["checkpoint_id"]] = told
    return found


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("policy", [KeepLast(2), Thin("1h"), KeepInterrupted()], ids=repr)
def test_many_steps_leave_what_one_would_have_left(
    saver: DurableSaver, kind: str, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = family(kind).compile(checkpointer=saver)
    for turn in range(3):
        graph.invoke({"log": [f"{turn}"]}, CONFIG)
        answers = {i.id: "y" for task in graph.get_state(CONFIG).tasks for i in task.interrupts}
        graph.invoke(Command(resume=answers), CONFIG)
    old = list(saver.list(root("t")))[7]
    graph.update_state(old.config, {"log": ["forked"]}, as_node="a")
    before = {place: told[:3] + told[4:] for place, told in history(saver, "t").items()}
    saver.copy_thread("t", "twin")
    once: Any = saver.prune(["twin"], strategy=policy)
    in_steps_of(monkeypatch, 3)
    seen: list[int] = []

    def look(threads: int, checkpoints: int) -> None:
        seen.append(checkpoints)
        now = {place: told[:3] + told[4:] for place, told in history(saver, "t").items()}
        assert now.items() <= before.items()
        assert len(now) == len(before) - checkpoints

    told: Any = saver.prune(["t"], strategy=policy, progress=look)
    assert len(seen) > 2
    assert (told.checkpoints, told.writes, told.items) == (
        once.checkpoints,
        once.writes,
        once.items,
    )
    assert history(saver, "t") == history(saver, "twin")
    left = saver.stats().threads
    assert left["t"].items == left["twin"].items


def in_three_layers() -> Any:
    """A graph that calls a sub-graph, which has one with a memory, and asks."""

    def layer(inner: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node("before", lambda state: {"log": ["before"]})
        graph.add_node("inner", inner)
        graph.add_node("after", lambda state: {"log": ["after"]})
        graph.add_edge(START, "before").add_edge("before", "inner").add_edge("inner", "after")
        return graph

    deepest = layer(lambda state: {"log": ["deep"]}).compile(checkpointer=True)
    middle = layer(deepest)
    middle.add_node("ask", lambda state: {"log": [interrupt("go on?")]})
    middle.add_edge("after", "ask")
    return layer(middle.compile())


def test_what_a_call_has_stored_goes_in_one_step_with_the_caller(
    saver: DurableSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = in_three_layers().compile(checkpointer=saver)
    for _ in range(2):
        graph.invoke({"log": []}, CONFIG)
        graph.invoke(Command(resume="y"), CONFIG)

    def states() -> dict[str, Any]:
        configs = [state.config for state in graph.get_state_history(CONFIG)]
        found = [graph.get_state(config, subgraphs=True) for config in configs]
        return {
            state.config["configurable"]["checkpoint_id"]: [
                task.state and (task.state.values, task.state.next) for task in state.tasks
            ]
            for state in found
        }

    before = states()
    in_steps_of(monkeypatch, 1)
    seen: list[int] = []

    def look(threads: int, checkpoints: int) -> None:
        seen.append(checkpoints)
        assert states().items() <= before.items()

    saver.prune(["t"], strategy=KeepLast(1), progress=look)
    assert len(seen) > 2


def test_a_call_that_goes_on_is_shortened_in_steps(
    saver: DurableSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = StateGraph(State)
    inner.add_sequence([(f"n{n}", lambda state: {"log": ["n"]}) for n in range(8)])
    inner.add_node("ask", lambda state: {"log": [interrupt("go on?")]})
    inner.add_edge(START, "n0").add_edge("n7", "ask")
    outer = StateGraph(State).add_node("sub", inner.compile()).add_edge(START, "sub")
    graph = outer.compile(checkpointer=saver)
    graph.invoke({"log": []}, CONFIG)
    in_steps_of(monkeypatch, 3)
    seen: list[int] = []
    saver.prune(["t"], strategy=KeepLast(1), progress=lambda _, count: seen.append(count))
    assert seen == [3, 6, 9, 10]
    assert graph.invoke(Command(resume="y"), CONFIG)["log"] == [*"nnnnnnnn", "y"]


def test_a_step_leaves_what_others_have_begun_to_need(
    saver: DurableSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New turns, and going back to what was about to go."""
    graph = family("deltas").compile(checkpointer=saver)
    for turn in range(4):
        graph.invoke({"log": [f"{turn}"]}, CONFIG)
        answers = {i.id: "y" for task in graph.get_state(CONFIG).tasks for i in task.interrupts}
        graph.invoke(Command(resume=answers), CONFIG)
    ids = [t.config["configurable"]["checkpoint_id"] for t in saver.list(root("t"))]
    in_steps_of(monkeypatch, 2)
    made: list[tuple[Any, Any]] = []
    plain = saver._engine.storage.trim

    async def trim(watched: Any, step: Any, *, last: bool) -> Any:
        if len(made) < 2:
            monkeypatch.setattr(saver._engine.storage, "trim", plain)
            for base in (root("t"), root("t", checkpoint_id=ids[-2 - len(made)])):
                forked = graph.update_state(base, {"log": ["meanwhile"]}, as_node="a")
                made.append((forked, graph.get_state(forked).values))
        return await plain(watched, step, last=last)

    monkeypatch.setattr(saver._engine.storage, "trim", trim)
    saver.prune(["t"], strategy=KeepLast(2))
    assert len(made) == 2
    for forked, values in made:
        assert graph.get_state(forked).values == values
        place = root("t", checkpoint_id=forked["configurable"]["checkpoint_id"])
        assert saver.get_tuple(place) is not None
    assert history(saver, "t")
    chat(saver, 1)


def test_of_two_who_prune_a_long_thread_the_later_finds_nothing_left(
    saver: DurableSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat(saver, 5)
    in_steps_of(monkeypatch, 4)

    def overtake(threads: int, checkpoints: int) -> None:
        saver.prune(["t"], strategy=KeepLast(1))

    told: Any = saver.prune(["t"], strategy=KeepLast(1), progress=overtake)
    assert told.checkpoints == 4
    assert len(history(saver, "t")) == 1


def test_notes_for_somebody_who_was_killed_do_not_become_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps_of(monkeypatch, 2)
    monkeypatch.setattr(watching, "MOST_NOTED", 5)
    most: list[int] = []

    def noted() -> tuple[int, int]:
        with contextlib.closing(sqlite3.connect(tmp_path / "agent.db")) as conn:
            count = conn.execute("SELECT count(*) FROM lgd_touched").fetchone()[0]
            return count, conn.execute("SELECT watched FROM lgd_threads").fetchone()[0]

    def stop(threads: int, checkpoints: int) -> None:
        raise KeyboardInterrupt

    def write(threads: int, checkpoints: int) -> None:
        if len(most) < 6:
            chat(saver, 1)
            most.append(noted()[0])

    with backends.hasty_sqlite(tmp_path) as saver:
        chat(saver, 3)
        with pytest.raises(KeyboardInterrupt):
            saver.prune(["t"], strategy=KeepLast(1), progress=stop)
        assert noted()[1]
        chat(saver, 3)
        assert noted() == (0, 0)
        saver.prune(["t"], strategy=KeepLast(1), progress=write)
        assert 0 < max(most) <= 5
        saver.prune(["t"], strategy=KeepLast(1))
        assert noted() == (0, 0)
        assert len(history(saver, "t")) == 1


def test_a_long_thread_goes_in_steps_that_a_callback_can_end(
    saver: DurableSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat(saver, 5)
    in_steps_of(monkeypatch, 4)
    plan = saver.plan_prune(strategy=KeepLast(1))

    def stop(threads: int, checkpoints: int) -> None:
        raise KeyboardInterrupt

    for left in (11, 7, 3):
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(saver.aapply_prune(plan, progress=stop))
        assert len(history(saver, "t")) == left
    assert saver.apply_prune(plan).checkpoints == 2
    assert len(history(saver, "t")) == 1
