"""A fork into a new thread ends as the thread it comes from would, whatever its sub-graphs keep."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypedDict

import backends
import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from test_renamed_graphs import GRAPHS, Program, schema_of
from test_timeline import State, asking, at, saver

from langgraph_durable import ConfigurationError, Timeline

__all__ = ["saver"]  # the fixture

KINDS = {
    "plain": operator.add,
    "deltas": DeltaChannel(lambda old, new: [*old, *chain(*new)], snapshot_frequency=3),
}


@pytest.fixture
def does(saver: Any) -> Callable[..., Any]:
    """Calls a method in the other colour, if the saver has it: the stock SqliteSaver has not."""

    def do(what: Any, name: str, *args: Any, **options: Any) -> Any:
        if hasattr(saver, "conn"):
            return getattr(what, name)(*args, **options)
        return asyncio.run(getattr(what, f"a{name}")(*args, **options))

    return do


def calls(what: Any, name: str, *args: Any, **options: Any) -> Any:
    return getattr(what, name)(*args, **options)


class Graph:
    """A sub-graph that remembers its calls, and asks in each, beside another node."""

    def __init__(self, saver: Any, shape: str, kind: str) -> None:
        self.called: list[str] = []
        inner: Any = TypedDict("Inner", {"told": str, "memory": Annotated[list, KINDS[kind]]})  # type: ignore[misc]
        outer: Any = TypedDict("Outer", {"told": str, "log": Annotated[list, KINDS[kind]]})  # type: ignore[misc]
        lasts = shape != "of each call"
        builder: Any = StateGraph(inner)
        builder.add_sequence([self.note, self.ask])
        builder.add_edge(START, "note")
        child = builder.compile(checkpointer=True if lasts else None)
        if shape == "in another":
            above: Any = StateGraph(inner).add_node("deep", child).add_edge(START, "deep")
            child = above.compile()
        builder = StateGraph(outer)
        called = lambda state: {"told": child.invoke({"told": ""})["told"]}  # noqa: E731
        builder.add_node("child", called if shape == "called" else child)
        builder.add_node("beside", self.beside)
        builder.add_node("end", self.end)
        builder.add_edge(START, "child")
        builder.add_edge(START, "beside")
        builder.add_edge(["child", "beside"], "end")
        self.graph = builder.compile(checkpointer=saver)

    def note(self, state: Any) -> Any:
        self.called.append("note")
        return {"memory": [f"call {len(state.get('memory') or ()) // 2}"]}

    def ask(self, state: Any) -> Any:
        self.called.append("ask")
        answer = interrupt(f"after {state['memory']}?")
        return {"memory": [answer], "told": f"{state['memory']} {answer}"}

    def beside(self, state: Any) -> Any:
        self.called.append("beside")
        return {"log": ["beside"]}

    def end(self, state: Any) -> Any:
        return {"log": [state["told"]]}


def told(does: Any, graph: Any, thread: str) -> Any:
    """How a thread ends that waits, and what it remembers of that."""
    while Timeline(graph, thread).waiting:
        does(Timeline(graph, thread), "resume", "yes")
    return graph.get_state(at(thread)).values


def stored(saver: Any, thread: str) -> list[Any]:
    """All that a thread holds."""
    return sorted(
        (repr(one.config), repr(one.checkpoint), repr(one.metadata), repr(one.pending_writes))
        for one in saver.list(at(thread))
    )


SHORT = {"lasting plain", "in another deltas async", "called deltas", "of each call plain async"}


@pytest.mark.parametrize("colour", ["", " async"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["of each call", "lasting", "in another", "called"])
def test_a_fork_carries_what_sub_graphs_had_come_to(
    saver: Any, does: Any, shape: str, kind: str, colour: str, long: bool
) -> None:
    if f"{shape} {kind}{colour}" not in SHORT and not long:
        return
    does = does if colour else calls
    program = Graph(saver, shape, kind)
    graph = program.graph

    def begin(thread: str) -> Timeline:
        """Two calls of the sub-graph; the second one waits."""
        for turn in range(2):
            if turn:
                told(does, graph, thread)
            does(graph, "invoke", {"log": [f"in {turn}"]}, at(thread))
        program.called.clear()
        return Timeline(graph, thread)

    tl = begin("t")
    before = stored(saver, "t")
    for place in range(len(tl)):
        does(begin(f"old {place}")[place], "replay")
        expected = told(does, graph, f"old {place}"), sorted(program.called)
        program.called.clear()
        fork = does(tl[place], "fork", to_thread=f"new {place}")
        assert fork.values == tl[place].values
        does(fork, "replay")
        assert (told(does, graph, f"new {place}"), sorted(program.called)) == expected

    begin("old")
    expected = told(does, graph, "old"), program.called
    program.called = []
    fork = does(tl[-1], "fork", to_thread="new")
    assert fork.id == tl[-1].id  # so that the questions have their ids
    assert Timeline(graph, "new").waiting == tl.waiting != {}
    assert (told(does, graph, "new"), program.called) == expected
    assert program.called == ["ask"]
    assert stored(saver, "t") == before
    does(graph, "invoke", {"log": ["in 2"]}, at("old"))
    does(graph, "invoke", {"log": ["in 2"]}, at("new"))
    assert told(does, graph, "new") == told(does, graph, "old")


def test_a_fork_with_other_values_asks_again(saver: Any, does: Any) -> None:
    program = Graph(saver, "lasting", "plain")
    does(program.graph, "invoke", {"log": ["in"]}, at("t"))
    tl = Timeline(program.graph, "t")
    fork = does(tl[-1], "fork", {"log": ["more"]}, as_node="__start__", to_thread="u")
    there = Timeline(program.graph, "u")
    assert there.waiting == {}
    assert fork.values["log"] == ["in", "more"]
    does(fork, "replay")
    assert [one.value for one in there.waiting.values()] == ["after ['call 0']?"]
    assert does(there, "resume", "yes")["told"] == "['call 0'] yes"


def test_one_of_several_answers_comes_along(saver: Any, does: Any) -> None:
    graph = asking(saver, 3)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    first, second, third = tl.waiting
    does(tl, "resume", {first: "one"})
    fork = does(tl[-1], "fork", to_thread="u")
    there = Timeline(graph, "u")
    assert set(there.waiting) == {second, third}
    assert sorted(does(there, "resume", {second: "two", third: "three"})["log"]) == sorted(
        does(tl, "resume", {second: "two", third: "three"})["log"]
    )
    assert fork.values == tl[fork.id].values


def test_finished_tasks_of_a_flow_are_not_done_again(saver: Any, does: Any) -> None:
    done: list[int] = []

    @task
    def double(number: int) -> int:
        done.append(number)
        return 2 * number

    @entrypoint(checkpointer=saver)
    def flow(number: int) -> str:
        return f"{double(number).result()} {interrupt('sure?')}"

    flow.invoke(4, at("t"))
    tl = Timeline(flow, "t")
    tl[-1].fork(to_thread="u")
    assert Timeline(flow, "u").resume("yes") == "8 yes"
    assert tl.resume("no") == "8 no"
    assert done == [4]


def test_what_a_command_added_comes_along(saver: Any, does: Any) -> None:
    """Written for no task: it belongs to the state, in a replay too."""
    builder = StateGraph(State)
    builder.add_node("ask", lambda state: {"log": [f"{state['plan']} {interrupt('go?')}"]})
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"plan": "A"}, at("t"))
    graph.invoke(Command(resume="yes", update={"plan": "B"}), at("t"))
    tl = Timeline(graph, "t")
    fork = does(tl[-2], "fork", to_thread="u")
    assert fork.values == tl[-2].values
    does(fork, "replay")
    does(tl[-2], "replay")
    assert does(Timeline(graph, "u"), "resume", "no") == does(tl, "resume", "no")


def test_a_delta_channel_of_a_sub_graph_that_nobody_knows_is_refused(saver: Any) -> None:
    hidden = {"child": Graph(None, "lasting", "deltas").graph.nodes["child"].bound}
    builder: Any = StateGraph(State)
    builder.add_node("child", lambda state: {"log": [hidden["child"].invoke({"told": ""})["told"]]})
    builder.add_edge(START, "child")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    with pytest.raises(ConfigurationError, match="'child' has the DeltaChannel 'memory'"):
        tl[-1].fork(to_thread="u")
    assert saver.get_tuple(at("u")) is None
    assert not list(saver.list(at("u")))


@pytest.mark.parametrize("backend", backends.EVERYWHERE)
@pytest.mark.parametrize("shape", ["a sub-graph", "three levels", "a lasting sub-graph", "tasks"])
def test_what_waits_under_names_of_an_older_program_waits_in_the_fork(
    shape: str, backend: str, tmp_path: Path
) -> None:
    """Nothing was upgraded yet when a newer program, with other names for all, forks."""
    nodes = GRAPHS[shape]
    with backends.EVERYWHERE[backend](tmp_path, schema=schema_of(1, nodes)) as ours:
        older = Program(0)
        tl = Timeline(older.graph(nodes, ours), "t")
        tl.graph.invoke(older.said("in"), at("t"))
        tl.resume("first")
    with backends.EVERYWHERE[backend](tmp_path, schema=schema_of(2, nodes)) as ours:
        newer = Program(1)
        tl = Timeline(newer.graph(nodes, ours), "t")
        tl[-1].fork(to_thread="u")
        fork = Timeline(tl.graph, "u")
        assert set(fork.waiting) == set(tl.waiting)
        ends = []
        for each in (tl, fork):
            newer.called.clear()
            ends.append((each.resume("second"), newer.called.copy()))
        assert ends[0][0][newer.name("log")] == ends[1][0][newer.name("log")]
        assert ends[0][1] == ends[1][1]
