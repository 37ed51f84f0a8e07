"""Graphs whose every name changes at every stop go on like graphs whose names stay.

Each program here is one version of the same graph: channels, nodes, sub-graphs, tasks and a class
have other names in each. A run stops at questions; the next version answers them, and finds what
the versions before it have stored, written and asked, in whatever namespace.
"""

from __future__ import annotations

import asyncio
import operator
import sys
from collections.abc import Callable
from dataclasses import make_dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypedDict

import pytest
from backends import EVERYWHERE
from langgraph.channels import DeltaChannel
from langgraph.func import task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_durable import StateSchema

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def note_of(version: int) -> Any:
    """The class that questions are asked with, in a module of its own for each version."""
    name = f"notes_v{version}"
    if name not in sys.modules:
        module = sys.modules[name] = ModuleType(name)
        cls = make_dataclass("Note", [("text", str)])
        cls.__module__ = name
        module.Note = cls  # type: ignore[attr-defined]
    return sys.modules[name].Note


def extend(old: list[str], writes: list[list[str]]) -> list[str]:
    return [*old, *(each for some in writes for each in some)]


class Program:
    """One version of a graph; a node is a name and what it does, or the nodes of a sub-graph."""

    def __init__(self, version: int, *, deltas: bool = False) -> None:
        self.version, self.note = version, note_of(version)
        kind: Any = DeltaChannel(extend, snapshot_frequency=4) if deltas else operator.add
        self.state: Any = TypedDict("State", {self.name("log"): Annotated[list, kind]})  # type: ignore[misc]
        self.called: list[str] = []

    def name(self, name: str) -> str:
        return f"{name}_v{self.version}" if self.version else name

    def said(self, *words: str) -> dict[str, list[str]]:
        return {self.name("log"): list(words)}

    def asks(self, name: str, many: int = 1) -> Callable[[Any], Any]:
        def ask(state: Any) -> Any:
            self.called.append(name)
            about = state.get("about", "")
            questions = (f"{name}{about} {n}?" for n in range(many))
            return self.said(*(interrupt(self.note(each)) for each in questions))

        return ask

    def calls(self, name: str) -> Callable[[Any], Any]:
        @task(name=self.name("inner"))
        def inner(n: int) -> int:
            self.called.append(f"inner {n}")
            return n + 1

        @task(name=self.name("outer"))
        def outer(n: int) -> int:
            self.called.append(f"outer {n}")
            return inner(n).result() * 10

        def call(state: Any) -> Any:
            got = [each.result() for each in [outer(1), outer(2)]]
            return self.said(f"{got}", interrupt(self.note(f"{name}?")))

        return call

    def sends(self, worker: str) -> Callable[[Any], Any]:
        sent = [Send(self.name(worker), {"about": f" {n}", **self.said()}) for n in range(3)]
        return lambda state: Command(goto=sent)

    def graph(self, nodes: dict[str, Any], saver: Any = None) -> Any:
        """Nodes in a row; "a|b" are two beside each other, a worker (>) waits to be sent for."""
        builder: Any = StateGraph(self.state)
        before = [START]
        for names, does in nodes.items():
            beside = [self.name(name) for name in names.strip(">").split("|")]
            for name, own in zip(names.strip(">").split("|"), beside, strict=True):
                builder.add_node(own, self._node(name, does))
                if ">" not in names:
                    several = len(before) > 1
                    builder.add_edge(before if several else before[0], own)
            before = before if ">" in names else beside
        return builder.compile(checkpointer=saver)

    def _node(self, name: str, does: Any) -> Any:
        if does == "lasts":
            return self.graph({"deep": 1, "deeper": 1}, saver=True)
        if does == "invokes":
            below = self.graph({"deep": 1, "deeper": 1})
            return lambda state: self.said(*below.invoke(self.said())[self.name("log")])
        if does == "calls":
            return self.calls(name)
        if isinstance(does, str):
            return self.sends(does)
        return self.graph(does) if isinstance(does, dict) else self.asks(name, does)


GRAPHS: dict[str, dict[str, Any]] = {
    "a sub-graph": {"above": {"one": 1, "two": 2}},
    "three levels": {"top": {"middle": {"one": 2, "two": 1}, "last": 1}},
    "beside each other": {"left|right": {"one": 1, "two": 1}, "last": 1},
    "a lasting sub-graph": {"child": "lasts", "last": 1},
    "an invoked sub-graph": {"caller": "invokes", "last": 1},
    "tasks": {"above": {"caller": "calls", "last": 1}},
    "sends": {"above": {"plan": "worker", "worker>": 2}},
    "sends to sub-graphs": {"plan": "worker", "worker>": {"one": 1, "two": 1}},
}


INSIDE = {"lasts": {"deep", "deeper"}, "invokes": {"deep", "deeper"}, "calls": {"inner", "outer"}}


def names_in(nodes: dict[str, Any]) -> set[str]:
    """The nodes and tasks of a graph and its sub-graphs."""
    found = {name for names in nodes for name in names.strip(">").split("|")}
    for does in nodes.values():
        found |= names_in(does) if isinstance(does, dict) else INSIDE.get(does, set())
    return found


def schema_of(version: int, nodes: dict[str, Any]) -> StateSchema:
    """Every step renames everything; the program of schema version 1 has the first names."""
    schema = StateSchema(version=version)
    for to in range(2, version + 1):

        def step(state: Any, to: int = to) -> None:
            before, now = Program(to - 2), Program(to - 1)
            state.rename(before.name("log"), now.name("log"))
            for name in sorted(names_in(nodes)):
                state.rename_node(before.name(name), now.name(name))
            state.move_class(f"notes_v{before.version}.Note", f"notes_v{now.version}.Note")

        schema.upgrade(to=to)(step)
    return schema


def told(
    opens: Callable[..., Any], nodes: dict[str, Any], how: str, *, renames: bool, **options: Any
) -> list[Any]:
    """What each run asked, did and left; `how` names the colour, and what is upgraded when."""
    story: list[Any] = []
    answers: Any = None
    for version in range(20):
        program = Program(version if renames else 0, **options)
        with opens(schema=schema_of(version + 1, nodes) if renames else None) as saver:
            if renames and "eager" in how:
                assert not saver.upgrade_threads().failed
            graph = program.graph(nodes, saver)
            if version:  # under the ids that this program knows its questions by
                asked = graph.get_state(CONFIG, subgraphs=True).interrupts
                assert sorted(each.value.text for each in asked) == story[-1][0]
                answers = Command(resume={each.id: f"to {each.value.text}" for each in asked})
            given = answers or program.said("in")
            more: Any = {"durability": "exit" if "exit" in how else "sync"}
            if "async" in how:
                asyncio.run(graph.ainvoke(given, CONFIG, **more))
            else:
                graph.invoke(given, CONFIG, **more)
            state = graph.get_state(CONFIG)
            asked = sorted(each.value.text for each in state.interrupts)
            log = state.values[program.name("log")]
            story.append((asked, sorted(program.called), log))
        if not state.next:
            return story
    raise AssertionError(f"it never ends: {story}")


SHORT = ["sqlite, sync", "sqlite, exit eager, deltas", "valkey, async, deltas"]
LONG = ["sqlite, async eager", "sqlite, exit, deltas", "sqlite, sync, deltas", "valkey, sync eager"]


@pytest.mark.parametrize("how", [*SHORT, *LONG])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_graph_with_other_names_at_every_stop_goes_on(
    graph: str, how: str, tmp_path: Path, long: bool
) -> None:
    if how in LONG and not long:
        return
    stories = []
    for renames in (False, True):
        place = tmp_path / f"{renames}"
        place.mkdir()

        def opens(place: Path = place, **options: Any) -> Any:
            return EVERYWHERE[how.partition(",")[0]](place, **options)

        deltas = how.endswith("deltas")
        stories.append(told(opens, GRAPHS[graph], how, renames=renames, deltas=deltas))
    assert stories[0] == stories[1]
    assert len(stories[0]) > 2  # two versions asked, and a third ended it


@pytest.mark.parametrize("backend", EVERYWHERE)
def test_a_step_sees_namespaces_as_the_steps_before_it_have_renamed_them(
    backend: str, tmp_path: Path
) -> None:
    nodes: dict[str, Any] = {"top": {"middle": {"one": 1}}}
    with EVERYWHERE[backend](tmp_path) as saver:
        Program(0).graph(nodes, saver).invoke({"log": ["in"]}, CONFIG)
    seen: set[tuple[int, str]] = set()

    def renaming(to: int) -> Callable[[Any], None]:
        def step(state: Any) -> None:
            seen.add((to, state.namespace))
            if not state.namespace:
                state.rename_node(f"top{to - 1}" if to > 2 else "top", f"top{to}")
            if state.namespace.startswith("top") and "|" not in state.namespace:
                state.rename_node(f"middle{to - 1}" if to > 2 else "middle", f"middle{to}")

        return step

    schema = StateSchema(version=3, unversioned=1)
    for to in (2, 3):
        schema.upgrade(to=to)(renaming(to))
    with EVERYWHERE[backend](tmp_path, schema=schema) as saver:
        lazily = [(t.checkpoint["id"], t.checkpoint) for t in saver.list(CONFIG)]
        assert seen == {
            *((2, ""), (2, "top"), (2, "top|middle")),
            *((3, ""), (3, "top2"), (3, "top2|middle2")),
        }
        assert not saver.upgrade_threads().failed
        names = {t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)}
        assert {"|".join(part.split(":")[0] for part in ns.split("|")) for ns in names} == {
            *("", "top3", "top3|middle3")
        }
        assert sorted(lazily) == sorted(
            (t.checkpoint["id"], t.checkpoint) for t in saver.list(CONFIG)
        )
