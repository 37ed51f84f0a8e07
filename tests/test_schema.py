"""Threads that outlive changes of the program that made them: renamed, dropped, retyped state.

Each program here exists in two versions. The first stores a thread and is gone; the second reads it
through a `StateSchema` and goes on, on every backend, in both colours.
"""

from __future__ import annotations

import asyncio
import collections
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from backends import EVERYWHERE, Open, hasty_sqlite
from langgraph.channels.delta import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import create_model

from langgraph_durable import (
    ConfigurationError,
    SchemaVersionError,
    SerializationError,
    StateSchema,
    UnsafeTypeError,
)

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=EVERYWHERE)
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    opens: Open = EVERYWHERE[request.param]
    return lambda **options: opens(tmp_path, **options)


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Invoke a graph in one colour."""
    if request.param == "sync":
        return lambda graph, given, config=CONFIG, **more: graph.invoke(given, config, **more)
    return lambda graph, given, config=CONFIG, **more: asyncio.run(
        graph.ainvoke(given, config, **more)
    )


def schema_of(version: int, **steps: Callable[[Any], object]) -> StateSchema:
    """A schema with steps named `to2`, `to3` ..."""
    schema = StateSchema(version=version)
    for name, step in steps.items():
        schema.upgrade(to=int(name[2:]))(step)
    return schema


# ---- programs ------------------------------------------------------------------------------------


def approving(node: str, channel: str, saver: Any) -> Any:
    """A node asks, and writes the answer."""
    State = TypedDict("State", {channel: Annotated[list, operator.add], "log": str})  # type: ignore[misc]

    def ask(state: Any) -> Any:
        first = interrupt("first?")
        second = interrupt("second?")
        return {channel: [first, second]}

    builder = StateGraph(State)
    builder.add_node("begin", lambda state: {channel: ["begun"]})
    builder.add_node(node, ask)
    builder.add_node("end", lambda state: {"log": "/".join(state[channel])})
    builder.add_edge(START, "begin")
    builder.add_edge("begin", node)
    builder.add_edge(node, "end")
    builder.add_edge("end", END)
    return builder.compile(checkpointer=saver)


RENAMED = {
    "to2": lambda state: state.rename("docs", "documents"),
    "to3": lambda state: state.rename_node("research", "researcher"),
}


def test_an_interrupt_saved_two_versions_ago_is_resumed(open_saver: Any, run: Any) -> None:
    with open_saver() as saver:
        run(approving("research", "docs", saver), {"docs": ["in"]})
    with open_saver(schema=schema_of(3, **RENAMED)) as saver:
        graph = approving("researcher", "documents", saver)
        assert graph.get_state(CONFIG).next == ("researcher",)
        assert graph.get_state(CONFIG).values["documents"] == ["in", "begun"]
        run(graph, Command(resume="a"))
    with open_saver(schema=schema_of(3, **RENAMED)) as saver:
        graph = approving("researcher", "documents", saver)
        found = run(graph, Command(resume="b"))
        assert found == {"documents": ["in", "begun", "a", "b"], "log": "in/begun/a/b"}
        assert [s.metadata["schema_version"] for s in graph.get_state_history(CONFIG)] == [
            *(3, 3, 0, 0, 0)
        ]


def test_an_interrupt_is_resumed_by_the_id_of_today(open_saver: Any, run: Any) -> None:
    with open_saver() as saver:
        graph = approving("research", "docs", saver)
        run(graph, {"docs": []})
        old = graph.get_state(CONFIG).interrupts[0].id
    with open_saver(schema=schema_of(3, **RENAMED)) as saver:
        graph = approving("researcher", "documents", saver)
        new = graph.get_state(CONFIG).interrupts[0].id
        assert saver.interrupt_ids(CONFIG) == {old: new}
        assert old != new
        run(graph, Command(resume={new: "a"}))
        run(graph, Command(resume="b"))
        assert graph.get_state(CONFIG).values["documents"] == ["begun", "a", "b"]


def test_a_version_in_between_is_upgraded_from_there(open_saver: Any, run: Any) -> None:
    with open_saver() as saver:
        run(approving("research", "docs", saver), {"docs": ["in"]})
    with open_saver(schema=schema_of(2, to2=RENAMED["to2"])) as saver:
        run(approving("research", "documents", saver), Command(resume="a"))
    with open_saver(schema=schema_of(3, **RENAMED)) as saver:
        found = run(approving("researcher", "documents", saver), Command(resume="b"))
        assert found["documents"] == ["in", "begun", "a", "b"]


def test_reading_never_writes_back(open_saver: Any, run: Any) -> None:
    with open_saver() as saver:
        run(approving("research", "docs", saver), {"docs": ["in"]})
        before = [found.checkpoint for found in saver.list(CONFIG)]
    with open_saver(schema=schema_of(3, **RENAMED)) as saver:
        list(saver.list(CONFIG))
        saver.get_tuple(CONFIG)
    with open_saver() as saver:
        assert [found.checkpoint for found in saver.list(CONFIG)] == before


def nested(outer: str, inner: str, saver: Any, **options: Any) -> Any:
    """A sub-graph asks; both its own node and the node that it is may be renamed."""

    class State(TypedDict):
        said: Annotated[list, operator.add]

    def ask(state: Any) -> Any:
        return {"said": [interrupt(f"{len(state['said'])}?")]}

    below = StateGraph(State)
    below.add_node("prepare", lambda state: {"said": ["prepared"]})
    below.add_node(inner, ask)
    below.add_node("again", ask)
    below.add_edge(START, "prepare")
    below.add_edge("prepare", inner)
    below.add_edge(inner, "again")
    above = StateGraph(State)
    above.add_node(outer, below.compile(**options))
    above.add_edge(START, outer)
    return above.compile(checkpointer=saver)


NESTED = {"to2": lambda state: state.rename_node("research", "researcher")}


@pytest.mark.parametrize("stateful", [False, True], ids=["per call", "stateful"])
def test_a_sub_graph_of_a_renamed_node_goes_on(open_saver: Any, run: Any, stateful: bool) -> None:
    options = {"checkpointer": True} if stateful else {}
    with open_saver() as saver:
        run(nested("research", "ask", saver, **options), {"said": []})
    for answer in "ab":
        with open_saver(schema=schema_of(2, **NESTED)) as saver:
            graph = nested("researcher", "ask", saver, **options)
            found = run(graph, Command(resume=answer))
    assert found == {"said": ["prepared", "a", "b"]}


def test_a_sub_graph_and_its_own_node_are_renamed(open_saver: Any, run: Any) -> None:
    def step(state: Any) -> None:
        state.rename_node("research", "researcher")
        state.rename_node("ask", "asker")

    with open_saver() as saver:
        run(nested("research", "ask", saver), {"said": []})
        old = nested("research", "ask", saver).get_state(CONFIG).interrupts[0].id
    with open_saver(schema=schema_of(2, to2=step)) as saver:
        graph = nested("researcher", "asker", saver)
        shown = graph.get_state(CONFIG, subgraphs=True)
        assert shown.tasks[0].state.next == ("asker",)
        ns = shown.tasks[0].state.config["configurable"]["checkpoint_ns"]
        below: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ns}}
        history = list(graph.get_state_history(below))
        assert [each.next for each in history] == [("asker",), ("prepare",), ("__start__",)]
        new = shown.interrupts[0].id
        assert saver.interrupt_ids(CONFIG) == {old: new}
        run(graph, Command(resume={new: "a"}))
        assert run(graph, Command(resume="b")) == {"said": ["prepared", "a", "b"]}


def fanning(worker: str, saver: Any) -> Any:
    """Sends to workers, one of which asks."""

    class State(TypedDict):
        done: Annotated[list, operator.add]

    def work(given: Any) -> Any:
        n = given["n"]
        return {"done": [f"{n}{interrupt('?') if n == 2 else ''}"]}

    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {})
    builder.add_node(worker, work)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda s: [Send(worker, {"n": n}) for n in range(4)])
    return builder.compile(checkpointer=saver)


def test_sends_to_a_renamed_node_are_not_done_again(open_saver: Any, run: Any) -> None:
    with open_saver() as saver:
        run(fanning("work", saver), {"done": []})
    schema = schema_of(2, to2=lambda state: state.rename_node("work", "worker"))
    with open_saver(schema=schema) as saver:
        graph = fanning("worker", saver)
        tasks = graph.get_state(CONFIG).tasks
        assert [(t.name, bool(t.result)) for t in tasks] == [
            *(("worker", True), ("worker", True), ("worker", False), ("worker", True))
        ]
        assert run(graph, Command(resume="!")) == {"done": ["0", "1", "2!", "3"]}


def functional(name: str, fetch: str, saver: Any, calls: list[str]) -> Any:
    def fetching(n: int) -> int:
        calls.append(f"{fetch}{n}")
        return n * 10

    fetched = task(name=fetch)(fetching)

    def flow(given: int) -> str:
        got = fetched(given).result()
        return f"{got}{interrupt('?')}"

    flow.__name__ = name
    return entrypoint(checkpointer=saver)(flow)


def test_tasks_of_the_functional_api_are_not_done_again(open_saver: Any, run: Any) -> None:
    def step(state: Any) -> None:
        state.rename_node("fetch", "fetcher")
        state.rename_node("flow", "workflow")

    with open_saver() as saver:
        run(functional("flow", "fetch", saver, []), 4)
    calls: list[str] = []
    with open_saver(schema=schema_of(2, to2=step)) as saver:
        assert run(functional("workflow", "fetcher", saver, calls), Command(resume="!")) == "40!"
    assert calls == []


def joining(one: str, end: str, saver: Any) -> Any:
    class State(TypedDict):
        done: Annotated[list, operator.add]

    def two(state: Any) -> Any:
        return {"done": [interrupt("?")]}

    builder = StateGraph(State)
    builder.add_node(one, lambda state: {"done": ["one"]})
    builder.add_node("two", two)
    builder.add_node(end, lambda state: {"done": [interrupt("end?")]})
    builder.add_edge(START, one)
    builder.add_edge(START, "two")
    builder.add_edge([one, "two"], end)
    return builder.compile(checkpointer=saver)


def test_nodes_around_a_join_are_renamed(open_saver: Any, run: Any) -> None:
    def step(state: Any) -> None:
        state.rename_node("one", "first")
        state.rename_node("end", "last")

    with open_saver() as saver:
        run(joining("one", "end", saver), {"done": []})
    with open_saver(schema=schema_of(2, to2=step)) as saver:
        run(joining("first", "last", saver), Command(resume="two"))
        found = run(joining("first", "last", saver), Command(resume="end"))
        assert found == {"done": ["one", "two", "end"]}


def test_a_node_that_waits_at_a_join_is_renamed(open_saver: Any, run: Any) -> None:
    with open_saver() as saver:
        run(joining("one", "end", saver), {"done": []})
        run(joining("one", "end", saver), Command(resume="two"))
    schema = schema_of(2, to2=lambda state: state.rename_node("end", "last"))
    with open_saver(schema=schema) as saver:
        found = run(joining("one", "last", saver), Command(resume="end"))
        assert found == {"done": ["one", "two", "end"]}


def delta(channel: str, saver: Any, change: Callable[[str], str] = str) -> Any:
    def extend(old: list, new: list) -> list:
        return [*old, *(each for some in new for each in some)]

    State = TypedDict(  # type: ignore[misc]
        "State", {channel: Annotated[list, DeltaChannel(extend, snapshot_frequency=5)], "n": int}
    )
    builder = StateGraph(State)
    builder.add_node("say", lambda state: {channel: [change(f"said {len(state[channel])}")]})
    builder.add_edge(START, "say")
    return builder.compile(checkpointer=saver)


def test_the_history_of_a_delta_channel_is_upgraded_write_by_write(
    open_saver: Any, run: Any
) -> None:
    def step(state: Any) -> None:
        state.rename("docs", "documents")
        state.transform("documents", lambda some: [each.upper() for each in some])

    with open_saver() as saver:
        for n in range(8):
            run(delta("docs", saver), {"docs": [f"in {n}"], "n": n})
            expected = [
                [each.upper() for each in s.values["docs"]]
                for s in delta("docs", saver).get_state_history(CONFIG)
                if "docs" in s.values
            ]
    with open_saver(schema=schema_of(2, to2=step)) as saver:
        graph = delta("documents", saver, str.upper)

        def shown() -> list[list[str]]:
            history = graph.get_state_history(CONFIG)
            return [s.values["documents"] for s in history if "documents" in s.values]

        assert shown() == expected
        found = run(graph, {"documents": ["IN 8"], "n": 8})
        assert found["documents"] == [*expected[0], "IN 8", "SAID 17"]
        assert shown()[-len(expected) :] == expected
    with open_saver(schema=schema_of(2, to2=step)) as saver:
        found = run(delta("documents", saver, str.upper), {"documents": ["IN 9"], "n": 9})
        assert found["documents"] == [*expected[0], "IN 8", "SAID 17", "IN 9", "SAID 19"]


# ---- what a step can do --------------------------------------------------------------------------


@dataclass
class Plan:
    title: str
    owner: str = "nobody"


def storing(saver: Any, values: dict[str, Any], *writes: tuple[str, Any]) -> None:
    """One checkpoint with these channels, and pending writes of one task."""
    version = saver.get_next_version(None, None)
    checkpoint: Any = {
        "v": 4,
        "id": "1f0c0000-0000-6000-8000-000000000001",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, version),
        "versions_seen": {"node": dict.fromkeys(values, version)},
        "updated_channels": sorted(values),
    }
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    config = saver.put(
        at, checkpoint, {"source": "loop", "step": 1}, checkpoint["channel_versions"]
    )
    if writes:
        saver.put_writes(config, writes, "task")


def upgraded(open_saver: Any, step: Any, values: dict[str, Any], *writes: Any) -> Any:
    with open_saver() as saver:
        storing(saver, values, *writes)
    with open_saver(schema=schema_of(2, to2=step)) as saver:
        return saver.get_tuple(CONFIG)


def test_a_channel_is_added_once_and_wakes_nobody(open_saver: Any) -> None:
    def step(state: Any) -> None:
        state.add("language", "en")
        state.add("kept", "other")
        state.add("made", factory=list)

    found = upgraded(open_saver, step, {"kept": 1}).checkpoint
    assert found["channel_values"] == {"kept": 1, "language": "en", "made": []}
    assert found["channel_versions"]["language"] == found["versions_seen"]["node"]["language"]


def test_a_channel_is_dropped_with_what_was_written_to_it(open_saver: Any) -> None:
    found = upgraded(
        open_saver, lambda s: s.drop("scratch"), {"a": 1, "scratch": 2}, ("scratch", 3), ("a", 4)
    )
    assert found.checkpoint["channel_values"] == {"a": 1}
    assert set(found.checkpoint["channel_versions"]) == {"a"}
    assert found.checkpoint["versions_seen"] == {"node": found.checkpoint["channel_versions"]}
    assert found.checkpoint["updated_channels"] == ["a"]
    assert found.pending_writes == [("task", "a", 4)]


def test_values_and_writes_are_transformed(open_saver: Any) -> None:
    def step(state: Any) -> None:
        state.transform("score", float)
        state.transform(
            "docs", lambda docs: {d: len(d) for d in docs}, writes=lambda doc: {doc: len(doc)}
        )

    found = upgraded(open_saver, step, {"score": 1, "docs": ["aa"]}, ("score", 2), ("docs", "bbb"))
    assert found.checkpoint["channel_values"] == {"score": 1.0, "docs": {"aa": 2}}
    assert isinstance(found.checkpoint["channel_values"]["score"], float)
    assert found.pending_writes == [("task", "score", 2.0), ("task", "docs", {"bbb": 3})]


def test_input_that_was_not_worked_on_yet_is_upgraded(open_saver: Any) -> None:
    def step(state: Any) -> None:
        state.rename("docs", "documents")
        state.transform("score", float)
        state.drop("scratch")

    given = {"docs": ["a"], "score": 1, "scratch": 0}
    found = upgraded(open_saver, step, {"__start__": given}).checkpoint
    assert found["channel_values"]["__start__"] == {"documents": ["a"], "score": 1.0}


def test_what_sends_carry_is_transformed(open_saver: Any) -> None:
    def step(state: Any) -> None:
        state.rename_node("work", "worker")
        state.transform_sends("worker", lambda arg: {"number": arg["n"]})

    sends = [Send("work", {"n": 1}), Send("other", {"n": 2})]
    found = upgraded(open_saver, step, {"__pregel_tasks": sends}).checkpoint
    assert found["channel_values"]["__pregel_tasks"] == [
        *(Send("worker", {"number": 1}), Send("other", {"n": 2}))
    ]


def test_a_moved_class_loads_with_its_new_defaults(open_saver: Any) -> None:
    gone = type("Plan", (), {"__annotations__": {"title": str}, "__module__": __name__})
    old = dataclass(gone)
    globals()["OldPlan"] = old
    old.__qualname__ = old.__name__ = "OldPlan"
    try:
        with open_saver() as saver:
            storing(saver, {"plan": old("write"), "many": [old("a"), old("b")]})
    finally:
        del globals()["OldPlan"]
    del gone, old

    def move(state: Any) -> None:
        state.transform("plan", lambda plan: plan)
        state.move_class(f"{__name__}.OldPlan", Plan)

    with open_saver(schema=schema_of(2, to2=lambda s: None)) as saver:
        if not isinstance(saver, str):
            with pytest.raises(UnsafeTypeError, match=r"OldPlan.*move_class"):
                _without_memory_of_classes(saver)
    for target in (move, lambda s: s.move_class(f"{__name__}.OldPlan", f"{__name__}.Plan")):
        with open_saver(schema=schema_of(2, to2=target)) as saver:
            found = saver.get_tuple(CONFIG).checkpoint["channel_values"]
            assert found == {"plan": Plan("write"), "many": [Plan("a"), Plan("b")]}
    as_dict = schema_of(2, to2=lambda s: s.load_as_dict(f"{__name__}.OldPlan"))
    for options in ({"schema": as_dict}, {"types": "plain"}):
        with open_saver(**options) as saver:
            found = saver.get_tuple(CONFIG).checkpoint["channel_values"]
            assert found == {"plan": {"title": "write"}, "many": [{"title": "a"}, {"title": "b"}]}


def class_of(kind: str, *fields: tuple[Any, ...]) -> Any:
    """The class `Trip` of one version of this module."""
    if kind == "dataclass":
        made: Any = make_dataclass("Trip", fields)
    elif kind == "model":
        given: Any = {name: (of, *(default or [...])) for name, of, *default in fields}
        made = create_model("Trip", **given)
    else:
        made = collections.namedtuple(
            "Trip", [f[0] for f in fields], defaults=[f[2] for f in fields if len(f) > 2]
        )
    made.__module__ = __name__
    return made


@pytest.mark.parametrize("kind", ["dataclass", "model", "named tuple"])
def test_a_class_that_lost_or_gained_fields_loads_or_says_what_to_do(
    open_saver: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def becomes(*fields: tuple[Any, ...]) -> Any:
        made = class_of(kind, *fields)
        monkeypatch.setattr(sys.modules[__name__], "Trip", made, raising=False)
        return made

    def read(saver: Any) -> Any:
        return saver.get_tuple(CONFIG).checkpoint["channel_values"]["trip"]

    with open_saver() as saver:
        storing(saver, {"trip": becomes(("to", str), ("via", str))(to="Oslo", via="Bergen")})
    options: Any
    for options in ({}, {"schema": schema_of(1)}):
        lost = becomes(("to", str))
        with open_saver(**options) as saver:
            assert read(saver) == lost(to="Oslo")
        default = becomes(("to", str), ("via", str), ("days", int, 3))
        with open_saver(**options) as saver:
            assert read(saver) == default(to="Oslo", via="Bergen", days=3)
        becomes(("to", str), ("days", int))
        with open_saver(**options) as saver:
            for _ in range(2):
                with pytest.raises(
                    SerializationError,
                    match=r"(?s)thread 't'.*'trip'.*gained: days; lost: via.*load_as_dict",
                ):
                    read(saver)

    gained = becomes(("to", str), ("days", int))

    def build(state: Any) -> None:
        state.load_as_dict(f"{__name__}.Trip")
        state.transform("trip", lambda old: gained(to=old["to"], days=2))

    with open_saver(schema=schema_of(1, to1=build)) as saver:
        assert read(saver) == gained(to="Oslo", days=2)
        assert saver.upgrade_threads().failed == {}
        assert read(saver) == gained(to="Oslo", days=2)


def _without_memory_of_classes(saver: Any) -> None:
    """Read as a process would that never had the class."""
    from langgraph_durable._core import types

    types._unreachable.clear()
    saver.get_tuple(CONFIG)


def test_a_value_may_be_held_while_names_are_changed(open_saver: Any) -> None:
    def step(state: Any) -> None:
        docs = state["docs"]
        state.rename("docs", "documents")
        state.add("many", factory=lambda: len(docs))
        if state.get("absent") is None and len(docs) == 2:
            state.transform("documents", sorted)
            state.drop("scratch")

    found = upgraded(open_saver, step, {"docs": ["b", "a"], "scratch": 0})
    assert found.checkpoint["channel_values"] == {"documents": ["a", "b"], "many": 2}


# ---- what stops ----------------------------------------------------------------------------------


def test_a_missing_step_stops_with_both_versions(open_saver: Any) -> None:
    with open_saver(schema=StateSchema(version=1)) as saver:
        storing(saver, {"a": 1})
    with open_saver(schema=StateSchema(version=3)) as saver:
        with pytest.raises(SchemaVersionError, match=r"thread 't'.*version 1.*version 3.*to=2"):
            saver.get_tuple(CONFIG)
        with pytest.raises(SchemaVersionError):
            list(saver.list(CONFIG))
        assert list(saver.list(None)) == []


@pytest.mark.parametrize("stored", [1, 1_763_500_000])
def test_a_version_far_away_stops_as_one_nearby(open_saver: Any, stored: int) -> None:
    """Whoever takes dates for versions is told at once, not after millions of steps."""
    with open_saver(schema=StateSchema(version=stored)) as saver:
        storing(saver, {"a": 1})
    schema = StateSchema(version=20_261_119)
    assert len(schema._steps.way(stored)) == 2
    with open_saver(schema=schema) as saver, pytest.raises(SchemaVersionError, match="20261119"):
        saver.get_tuple(CONFIG)


def test_a_newer_version_stops_unless_a_downgrade_leads_back(open_saver: Any) -> None:
    with open_saver(schema=StateSchema(version=3)) as saver:
        storing(saver, {"new": 1})
    with open_saver(schema=StateSchema(version=2)) as saver:
        with pytest.raises(SchemaVersionError, match="downgrade") as caught:
            saver.get_tuple(CONFIG)
        assert (caught.value.stored, caught.value.wanted, caught.value.step) == (3, 2, 2)
    back = StateSchema(version=2)
    back.downgrade(to=2)(lambda state: state.rename("new", "old"))
    with open_saver(schema=back) as saver:
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"] == {"old": 1}


def test_a_step_that_raises_names_itself_and_the_cause(open_saver: Any) -> None:
    with open_saver() as saver:
        storing(saver, {"score": "x"})
    schema = schema_of(2, to2=lambda state: state.transform("score", float))
    with open_saver(schema=schema) as saver:
        with pytest.raises(SchemaVersionError, match="could not convert") as caught:
            saver.get_tuple(CONFIG)
        assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "step",
    [
        lambda state: {"documents": ["a"]},
        lambda state: asyncio.sleep(0, state.rename("docs", "documents")),
        lambda state: state.transform("docs", asyncio.sleep),
        lambda state: state.transform("docs", list, writes=asyncio.sleep),
        lambda state: state.transform_sends("work", None),
        lambda state: state.add("documents", factory=asyncio.sleep),
        lambda state: state.add("documents", factory=["a"]),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_step_that_would_do_nothing_is_refused(open_saver: Any, step: Any) -> None:
    """A node returns what changes, and may be a coroutine; a step must be neither."""
    with open_saver() as saver:
        storing(saver, {"docs": ["a"]})
    told = pytest.raises(SchemaVersionError, match="to version 2 failed: ConfigurationError")
    with open_saver(schema=schema_of(2, to2=step)) as saver, told:
        saver.get_tuple(CONFIG)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.rename("docs", "documents"),
        lambda state: state.rename_node("research", "researcher"),
        lambda state: state.move_class("old.Plan", "new.Plan"),
    ],
    ids=["rename", "rename_node", "move_class"],
)
def test_names_that_depend_on_a_value_are_refused(open_saver: Any, change: Any) -> None:
    """They are needed where there are no values: to find a sub-graph, a history, a class."""

    def step(state: Any) -> None:
        if state["kind"] == "a":
            change(state)

    with open_saver() as saver:
        storing(saver, {"docs": [], "kind": "a"})
    with open_saver(schema=schema_of(3, to2=lambda state: None, to3=step)) as saver:
        with pytest.raises(SchemaVersionError, match="before asking for values") as caught:
            saver.get_tuple(CONFIG)
        assert caught.value.step == 3


def test_unversioned_threads_count_as_what_the_user_says(open_saver: Any) -> None:
    with open_saver() as saver:
        storing(saver, {"a": 1})
    schema = StateSchema(version=2, unversioned=2)
    schema.upgrade(to=2)(lambda state: state.drop("a"))
    with open_saver(schema=schema) as saver:
        found = saver.get_tuple(CONFIG)
        assert found.checkpoint["channel_values"] == {"a": 1}
        assert found.metadata["schema_version"] == 2
        assert list(saver.list(CONFIG, filter={"schema_version": 2})) == [found]
        assert not list(saver.list(CONFIG, filter={"schema_version": 0}))


def test_a_saver_without_a_schema_keeps_the_version_of_a_thread(open_saver: Any, run: Any) -> None:
    with open_saver(schema=schema_of(3, **RENAMED)) as saver:
        run(approving("researcher", "documents", saver), {"documents": []})
    with open_saver() as saver:
        run(approving("researcher", "documents", saver), Command(resume="a"))
        run(approving("researcher", "documents", saver), Command(resume="b"))
        assert {found.metadata["schema_version"] for found in saver.list(CONFIG)} == {3}


def test_steps_are_checked_when_they_are_registered() -> None:
    async def later(state: Any) -> None: ...

    schema = StateSchema(version=3)
    schema.upgrade(to=2)(lambda state: None)
    for wrong in (
        lambda: schema.upgrade(to=2),
        lambda: schema.upgrade(to=4),
        lambda: schema.upgrade(to=0),
        lambda: schema.downgrade(to=2),
        lambda: schema.downgrade(to=4),
        lambda: schema.upgrade(to=3)("no function"),  # type: ignore[type-var]
        lambda: schema.upgrade(to=3)(later),
        lambda: schema.downgrade(to=3)(later),
        lambda: StateSchema(version=0),
        lambda: StateSchema(version=True),
        lambda: StateSchema(version=1, unversioned=-1),
        lambda: StateSchema.fingerprint("no graph"),
    ):
        with pytest.raises(ConfigurationError):
            wrong()
    late = StateSchema(version=5)
    late.upgrade(to=3)(lambda state: None)
    with pytest.raises(ConfigurationError, match="to=4"):
        late.upgrade(to=5)


def test_wrong_options_are_said_at_once(tmp_path: Path) -> None:
    for options in (
        {"schema": 3},
        {"environment": "prod"},
        {"environment": {1: 2}},
        {"environment": {"client": object()}},
        {"on_environment_change": "shout"},
    ):
        with pytest.raises(ConfigurationError):
            hasty_sqlite(tmp_path, **options)
