"""A sub-graph that remembers its calls, under a node that other versions of the program call
otherwise: its history, its latest state and its forks go across all names.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from backends import EVERYWHERE
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from test_renamed_graphs import extend
from test_schema import CONFIG, schema_of

from langgraph_durable import StateSchema, Timeline


@pytest.fixture(params=EVERYWHERE)
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    return lambda **options: EVERYWHERE[request.param](tmp_path, **options)


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs a graph; what its sub-graphs said comes back, the last first."""

    def run(graph: Any) -> Any:
        if request.param == "sync":
            return graph.invoke({"log": []}, CONFIG)["log"][::-1]
        return asyncio.run(graph.ainvoke({"log": []}, CONFIG))["log"][::-1]

    return run


KINDS = {"plain": operator.add, "deltas": DeltaChannel(extend, snapshot_frequency=100)}
FIRST, SECOND = ("child", "memory"), ("kid", "recall")


def program(saver: Any, *named: tuple[str, str], kind: str = "plain") -> Any:
    """Sub-graphs in a row, each by its node and its channel: it notes how often it was called."""
    builder: Any = StateGraph(TypedDict("Outer", {"log": Annotated[list, operator.add]}))  # type: ignore[misc]
    before = START
    for node, channel in named:
        state = {channel: Annotated[list, KINDS[kind]], "log": Annotated[list, operator.add]}

        def note(state: Any, node: str = node, channel: str = channel) -> Any:
            said = f"{node} {len(state.get(channel) or ())}"
            return {channel: [said], "log": [said]}

        inner: Any = StateGraph(TypedDict("Inner", state))  # type: ignore[misc]
        inner.add_node("note", note)
        inner.add_edge(START, "note")
        builder.add_node(node, inner.compile(checkpointer=True))
        builder.add_edge(before, node)
        before = node
    return builder.compile(checkpointer=saver)


def second() -> StateSchema:
    return schema_of(
        2, to2=lambda state: [state.rename_node("child", "kid"), state.rename("memory", "recall")]
    )


def first() -> StateSchema:
    schema = StateSchema(version=1)
    schema.downgrade(to=1)(
        lambda state: [state.rename_node("kid", "child"), state.rename("recall", "memory")]
    )
    return schema


def history(graph: Any, node: str, channel: str, **options: Any) -> list[int]:
    """How much each checkpoint of a sub-graph remembers, the newest first."""
    config = {"configurable": {**CONFIG["configurable"], "checkpoint_ns": node}}
    found = list(graph.get_state_history(config, **options))
    return [len(state.values.get(channel) or ()) for state in found]


@pytest.mark.parametrize("kind", KINDS)
def test_its_history_goes_on_across_a_new_name(open_saver: Any, call: Any, kind: str) -> None:
    with open_saver(schema=first()) as saver:
        graph = program(saver, FIRST, kind=kind)
        call(graph), call(graph)
        before = history(graph, *FIRST)
    with open_saver(schema=second()) as saver:
        graph = program(saver, SECOND, kind=kind)
        assert history(graph, *SECOND) == before
        assert call(graph)[0] == "kid 2"
        assert history(graph, *SECOND) == [3, 2, 2, *before]
        assert history(graph, *SECOND, limit=4) == [3, 2, 2, before[0]]
        middle = list(saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": "kid"}}))[2]
        assert history(graph, *SECOND, before=middle.config) == before
        assert history(graph, *SECOND, filter={"source": "input"}) == [2, 1, 0]
        inner = {header.ns for header in Timeline(graph, "t")._source.below()}
        assert inner == {"kid"}
        lazily = history(graph, *SECOND)
        assert not saver.upgrade_threads().failed
        assert history(graph, *SECOND) == lazily


def test_an_upgrade_by_somebody_else_does_not_lose_it(open_saver: Any, call: Any) -> None:
    """This saver knows where the old checkpoints were, until another one moves them."""
    with open_saver(schema=first()) as saver:
        call(program(saver, FIRST, kind="deltas"))
    with open_saver(schema=second()) as saver, open_saver(schema=second()) as other:
        graph = program(saver, SECOND, kind="deltas")
        lazily = history(graph, *SECOND)
        assert not other.upgrade_threads().failed
        assert history(graph, *SECOND) == lazily
        assert call(graph)[0] == "kid 1"


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_from_before_the_new_name_sees_what_it_had_come_to(
    open_saver: Any, call: Any, kind: str
) -> None:
    """Replayed, and in a fork into a new thread; in no order of ids but that of the list."""
    with open_saver(schema=first()) as saver:
        graph = program(saver, FIRST, kind=kind)
        call(graph), call(graph)
    with open_saver(schema=second()) as saver:
        graph = program(saver, SECOND, kind=kind)
        call(graph)
        tl = Timeline(graph, "t")
        assert tl[4].next == ("kid",)
        fork = tl[4].fork(to_thread="u")
        assert tl[4].replay()["log"][-1] == "kid 1"
        assert fork.replay()["log"][-1] == "kid 1"
        assert {
            found.config["configurable"]["checkpoint_ns"]
            for found in saver.list({"configurable": {"thread_id": "u"}})
        } == {"", "kid"}


@pytest.mark.parametrize(("kind", "eager"), [("plain", True), ("deltas", False)])
def test_a_rollback_and_its_end_forget_nothing(
    open_saver: Any, call: Any, kind: str, eager: bool
) -> None:
    schemas: list[tuple[Any, tuple[str, str]]] = [(first(), FIRST), (second(), SECOND)]
    for number in range(4):
        schema, names = schemas[number % 2]
        with open_saver(schema=schema) as saver:
            graph = program(saver, names, kind=kind)
            if eager and number == 2:  # what two versions have stored becomes one
                assert not saver.upgrade_threads().failed
            assert call(graph)[0] == f"{names[0]} {number}"
            found = saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": names[0]}})
            assert len(history(graph, *names)) == 3 * (number + 1)
            assert found.config["configurable"]["checkpoint_ns"] == names[0]


@pytest.mark.parametrize("eager", [False, True], ids=["lazy", "eager"])
def test_a_name_that_another_node_had_does_not_bring_its_state(
    open_saver: Any, call: Any, eager: bool
) -> None:
    """The old node has a new name, and a new one has the name of the old."""
    schema = schema_of(2, to2=lambda state: state.rename_node("child", "old"))
    with open_saver(schema=StateSchema(version=1)) as saver:
        graph = program(saver, FIRST)
        call(graph), call(graph)
    with open_saver(schema=schema) as saver:
        graph = program(saver, ("old", "memory"), ("child", "memory"))
        assert history(graph, "child", "memory") == []
        assert len(history(graph, "old", "memory")) == 6
        assert call(graph)[:2] == ["child 0", "old 2"]
        if eager:
            assert not saver.upgrade_threads().failed
        assert call(graph)[:2] == ["child 1", "old 3"]
        assert len(history(graph, "child", "memory")) == 6
        assert len(history(graph, "old", "memory")) == 12


def test_a_name_that_another_node_had_is_ahead_of_time_too(open_saver: Any, call: Any) -> None:
    """No node has the head of the old name when only some of its checkpoints move."""
    schema = schema_of(2, to2=lambda state: state.rename_node("child", "old"))
    with open_saver(schema=StateSchema(version=1)) as saver:
        call(program(saver, FIRST))
    with open_saver(schema=schema) as saver:
        call(program(saver, ("child", "memory")))  # the old one is not called any more
        assert not saver.upgrade_threads().failed
        graph = program(saver, ("old", "memory"), ("child", "memory"))
        assert call(graph)[:2] == ["child 1", "old 1"]
