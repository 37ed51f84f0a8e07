"""A newer program has worked on a thread, and is taken back: what it left for the older one.

The newer program answers one of two questions on a checkpoint that the older one stored, so that
pending writes of version 2 wait at a checkpoint of version 1.
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
from langgraph.types import Command, interrupt
from test_renamed_graphs import Program, extend, names_in
from test_schema import CONFIG, nested, schema_of, storing

from langgraph_durable import SchemaVersionError, StateSchema
from langgraph_durable._core.records import Selection


@pytest.fixture(params=EVERYWHERE)
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    return lambda **options: EVERYWHERE[request.param](tmp_path, **options)


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    if request.param == "sync":
        return lambda graph, given: graph.invoke(given, CONFIG)
    return lambda graph, given: asyncio.run(graph.ainvoke(given, CONFIG))


def program(version: int, saver: Any, kind: Any = operator.add) -> Any:
    """Two nodes ask beside each other. Version 2 has other names, and writes in capitals."""
    channel = ("docs", "documents")[version - 1]
    left, right = (("left", "right"), ("port", "starboard"))[version - 1]

    def asking(name: str) -> Callable[[Any], Any]:
        def ask(state: Any) -> Any:
            called.append(f"{name} {version}")
            answer = interrupt(f"{name}?")
            return {channel: [answer.upper() if version == 2 else answer]}

        return ask

    called: list[str] = []
    builder = StateGraph(TypedDict("State", {channel: Annotated[list, kind]}))  # type: ignore[misc]
    builder.add_node(left, asking("left"))
    builder.add_node(right, asking("right"))
    builder.add_edge(START, left)
    builder.add_edge(START, right)
    graph: Any = builder.compile(checkpointer=saver)
    graph.called = called
    return graph


def first(**options: bool) -> StateSchema:
    """The schema of the older program, with or without the way back."""
    schema = StateSchema(version=1)

    def back(state: Any) -> None:
        state.rename_node("port", "left")
        state.rename_node("starboard", "right")
        state.rename("documents", "docs")
        state.transform("docs", lambda docs: [each.lower() for each in docs])

    if options.get("back"):
        schema.downgrade(to=1)(back)
    return schema


def second() -> StateSchema:
    def ahead(state: Any) -> None:
        state.rename_node("left", "port")
        state.rename_node("right", "starboard")
        state.rename("docs", "documents")
        state.transform("documents", lambda docs: [each.upper() for each in docs])

    return schema_of(2, to2=ahead)


def answer(graph: Any, run: Any, name: str, given: str) -> Any:
    asked = {each.value: each.id for each in graph.get_state(CONFIG).interrupts}
    return run(graph, Command(resume={asked[f"{name}?"]: given}))


KINDS = {"plain": operator.add, "delta": DeltaChannel(extend, snapshot_frequency=5)}


@pytest.mark.parametrize("eager", [False, True], ids=["lazy", "eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_newer_program_wrote_comes_down_by_its_own_steps(
    open_saver: Any, run: Any, kind: str, eager: bool
) -> None:
    with open_saver(schema=first()) as saver:
        run(program(1, saver, KINDS[kind]), {"docs": ["in"]})
    with open_saver(schema=second()) as saver:
        graph = program(2, saver, KINDS[kind])
        answer(graph, run, "left", "Aye")
        assert graph.get_state(CONFIG).next == ("starboard",)
    with open_saver(schema=first(back=True)) as saver:
        if eager:
            assert saver.upgrade_threads().rewritten == 1
    with open_saver(schema=first(back=not eager)) as saver:
        graph = program(1, saver, KINDS[kind])
        outlines, _ = saver._backend.finish(saver._engine.outline(Selection("t"), None, 9))
        assert "documents" not in {write.channel for each in outlines for write in each.writes}
        found = saver.get_tuple(CONFIG)
        assert [v for _, c, v in found.pending_writes if c == "docs"] == [["aye"]]
        assert {c for _, c, _ in found.pending_writes} <= {"docs", "__interrupt__", "__resume__"}
        assert graph.get_state(CONFIG).next == ("right",)
        assert answer(graph, run, "right", "no") == {"docs": ["in", "aye", "no"]}
        assert graph.called == ["right 1"]
        assert graph.get_state(CONFIG).values == {"docs": ["in", "aye", "no"]}


def test_without_a_way_back_it_stops(open_saver: Any, run: Any) -> None:
    with open_saver(schema=first()) as saver:
        run(program(1, saver), {"docs": ["in"]})
    with open_saver(schema=second()) as saver:
        answer(program(2, saver), run, "left", "Aye")
    with open_saver(schema=first()) as saver:
        with pytest.raises(SchemaVersionError, match=r"thread 't', checkpoint .*2.*1.*downgrade"):
            run(program(1, saver), Command(resume="no"))
        with pytest.raises(SchemaVersionError) as caught:
            saver.get_tuple(CONFIG)
        assert (caught.value.stored, caught.value.wanted, caught.value.step) == (2, 1, 1)
        assert list(saver.upgrade_threads().failed) == ["t"]
    with open_saver(schema=second()) as saver:
        graph = program(2, saver)
        assert answer(graph, run, "right", "no")["documents"] == ["IN", "AYE", "NO"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_older_program_wrote_after_a_rollback_comes_up(
    open_saver: Any, run: Any, kind: str
) -> None:
    with open_saver(schema=second()) as saver:
        run(program(2, saver, KINDS[kind]), {"documents": ["IN"]})
    with open_saver(schema=first(back=True)) as saver:
        answer(program(1, saver, KINDS[kind]), run, "left", "Aye")
    with open_saver(schema=second()) as saver:
        graph = program(2, saver, KINDS[kind])
        assert graph.get_state(CONFIG).next == ("starboard",)
        assert answer(graph, run, "right", "no") == {"documents": ["IN", "AYE", "NO"]}
        assert graph.called == ["right 2"]
        assert graph.get_state(CONFIG).values == {"documents": ["IN", "AYE", "NO"]}


@pytest.mark.parametrize("outer", [False, True], ids=["inner", "outer"])
def test_what_was_asked_in_a_sub_graph_comes_down(open_saver: Any, run: Any, outer: bool) -> None:
    """Where the node that is the sub-graph has another name, so have all tasks in it."""
    old, new = ("research", "ask"), ("researcher", "ask") if outer else ("research", "asker")
    names = list(zip(old, new, strict=True))

    def asking(saver: Any, names: tuple[str, str]) -> Any:
        return nested(*names, saver)

    ahead = schema_of(2, to2=lambda state: [state.rename_node(*each) for each in names])
    back = StateSchema(version=1)
    back.downgrade(to=1)(lambda state: [state.rename_node(*each[::-1]) for each in names])
    with open_saver(schema=StateSchema(version=1)) as saver:
        run(asking(saver, old), {"said": []})
    with open_saver(schema=ahead) as saver:  # the answer is written, and then the program dies
        below = asking(saver, new).get_state(CONFIG, subgraphs=True).tasks[0].state
        task = below.tasks[0]
        at = saver.get_tuple(below.config).config
        path = f"~__pregel_pull, {task.name}"
        writes = [("said", ["answered"]), ("branch:to:again", None)]
        saver.put_writes(at, writes, task.id, path)
    with open_saver(schema=StateSchema(version=1)) as saver, pytest.raises(SchemaVersionError):
        run(asking(saver, old), None)
    with open_saver(schema=back) as saver:
        graph = asking(saver, old)
        assert len(list(saver.list(CONFIG))) > 2
        found = run(graph, None)
        assert [each.value for each in found["__interrupt__"]] == ["2?"]
        assert run(graph, Command(resume="b")) == {"said": ["prepared", "answered", "b"]}


@pytest.mark.parametrize("eager", [False, True], ids=["lazy", "eager"])
@pytest.mark.parametrize("levels", [1, 2])
def test_an_answer_given_in_renamed_sub_graphs_is_not_asked_for_again(
    open_saver: Any, run: Any, levels: int, eager: bool
) -> None:
    """Two questions in a sub-graph, whose own node, and all in it, the newer program renames."""
    nodes: dict[str, Any] = {"above": {"one|two": 1}, "last": 1}
    nodes = nodes if levels == 1 else {"top": {"middle": nodes}}
    back = StateSchema(version=1)

    def step(state: Any, before: Any, now: Any) -> None:
        state.rename(before.name("log"), now.name("log"))
        for name in sorted(names_in(nodes)):
            state.rename_node(before.name(name), now.name(name))
        state.move_class(f"notes_v{before.version}.Note", f"notes_v{now.version}.Note")

    older, newer = Program(0), Program(1)
    ahead = schema_of(2, to2=lambda state: step(state, older, newer))
    back.downgrade(to=1)(lambda state: step(state, newer, older))

    def answer_all(graph: Any, wanted: str) -> Any:
        asked = graph.get_state(CONFIG, subgraphs=True).interrupts
        (id,) = (each.id for each in asked if each.value.text == wanted)
        return run(graph, Command(resume={id: f"to {wanted}"}))

    with open_saver(schema=StateSchema(version=1)) as saver:
        run(older.graph(nodes, saver), older.said())
    with open_saver(schema=ahead) as saver:
        answer_all(newer.graph(nodes, saver), "one 0?")
    older.called.clear()
    with open_saver(schema=back) as saver:
        if eager:
            assert not saver.upgrade_threads().failed
        graph = older.graph(nodes, saver)
        answer_all(graph, "two 0?")
        assert older.called == ["two", "last"]
        assert answer_all(graph, "last 0?")["log"][-3:] == ["to one 0?", "to two 0?", "to last 0?"]


def test_writes_of_a_version_beyond_both_are_brought_back_first(open_saver: Any) -> None:
    """The checkpoint goes up from 1 to 2, and the writes of 3 come down to 2."""
    with open_saver(schema=StateSchema(version=1)) as saver:
        storing(saver, {"a": 1})
    with open_saver(schema=schema_of(3, to2=lambda s: s.rename("a", "b"), to3=lambda s: None)) as s:
        at = s.get_tuple(CONFIG).config
        s.put_writes(at, [("c", "30")], "task")
    schema = schema_of(2, to2=lambda s: s.rename("a", "b"))

    @schema.downgrade(to=2)
    def back(state: Any) -> None:
        state.rename("c", "b")
        state.transform("b", int)

    with open_saver(schema=schema) as saver:
        found = saver.get_tuple(CONFIG)
        assert found.checkpoint["channel_values"] == {"b": 1}
        assert found.pending_writes == [("task", "b", 30)]


def test_a_step_back_that_raises_over_a_write_names_its_version(open_saver: Any) -> None:
    with open_saver(schema=StateSchema(version=1)) as saver:
        storing(saver, {"a": 1})
    with open_saver(schema=schema_of(2, to2=lambda s: None)) as saver:
        saver.put_writes(saver.get_tuple(CONFIG).config, [("a", "no number")], "task")
    schema = StateSchema(version=1)
    schema.downgrade(to=1)(lambda state: state.transform("a", int))
    with open_saver(schema=schema) as saver:
        with pytest.raises(SchemaVersionError, match="invalid literal") as caught:
            saver.get_tuple(CONFIG)
        assert (caught.value.stored, caught.value.wanted) == (2, 1)


def test_a_saver_without_a_schema_reads_everything_as_it_is_stored(open_saver: Any) -> None:
    with open_saver(schema=StateSchema(version=1)) as saver:
        storing(saver, {"docs": ["in"]})
    with open_saver(schema=second()) as saver:
        saver.put_writes(saver.get_tuple(CONFIG).config, [("documents", ["AYE"])], "task")
    with open_saver() as saver:
        found = saver.get_tuple(CONFIG)
        assert found.metadata["schema_version"] == 1
        assert found.checkpoint["channel_values"] == {"docs": ["in"]}
        assert found.pending_writes == [("task", "documents", ["AYE"])]
        saver.put_writes(found.config, [("docs", ["more"])], "other")  # counts as the checkpoint's
    with open_saver(schema=second()) as saver:
        assert sorted(saver.get_tuple(CONFIG).pending_writes) == [
            *(("other", "documents", ["MORE"]), ("task", "documents", ["AYE"]))
        ]
