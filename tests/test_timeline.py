"""The timeline of a thread on every kind of saver: what it shows, finds, compares and does."""

from __future__ import annotations

import base64
import itertools
import operator
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, Any, TypedDict

import backends
import pytest
from calls import calls_of
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver as StockSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt

from langgraph_durable import (
    Artifact,
    ConfigurationError,
    KeepLast,
    KeepTagged,
    StepNotFound,
    Timeline,
)
from langgraph_durable.timeline import apply, branches, common_ancestor, diff, parent_chain
from langgraph_durable.timeline.diff import same
from langgraph_durable.timeline.headers import Header
from langgraph_durable.timeline.lineage import rows

SAVERS = ["memory", "stock", "sqlite", "valkey"]


@pytest.fixture(params=SAVERS)
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "stock":
        with StockSqliteSaver.from_conn_string(str(tmp_path / "stock.db")) as stock:
            yield stock
    else:
        with backends.EVERYWHERE[request.param](tmp_path) as ours:
            yield ours


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]
    plan: str
    tries: int


def at(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def planner(state: State) -> State:
    return {"plan": "A", "messages": [AIMessage("I plan", id="p")], "log": ["plan"]}


def worker(state: State) -> State:
    return {"log": [f"work on {state['plan']}"], "messages": [AIMessage("<script>x</script>")]}


def simple(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_sequence([planner, worker])
    builder.add_edge(START, "planner")
    return builder.compile(checkpointer=saver)


def asking(saver: Any, questions: int = 1) -> Any:
    """One node for each question, side by side."""
    builder = StateGraph(State)
    for number in range(questions):

        def ask(state: State, number: int = number) -> State:
            return {"log": [f"{number}: {interrupt(f'question {number}')}"]}

        builder.add_node(f"ask{number}", ask)
        builder.add_edge(START, f"ask{number}")
    return builder.compile(checkpointer=saver)


@pytest.fixture
def tl(saver: Any) -> Timeline:
    graph = simple(saver)
    graph.invoke({"messages": [HumanMessage("hello", id="h")]}, at("t"))
    return Timeline(graph, "t")


# ---- finding ------------------------------------------------------------------------------------


def test_steps_come_in_order_with_what_made_them(tl: Timeline) -> None:
    assert [step.node for step in tl] == ["__input__", "__start__", "planner", "worker"]
    assert [step.number for step in tl] == [-1, 0, 1, 2]
    assert [step.index for step in tl] == [0, 1, 2, 3]
    assert len(tl) == 4
    assert tl[-1].id == tl[3].id == tl[tl[3].id].id == tl[tl[3].id[:35]].id
    assert tl[1:3] == [tl[1], tl[2]]
    assert tl.latest is not None
    assert tl.latest.id == tl[-1].id


def test_a_step_tells_what_graph_and_saver_know(tl: Timeline) -> None:
    step = tl[2]
    assert step.values["plan"] == "A"
    assert step.next == ("worker",)
    assert step.writes["log"] == [["work on A"]]
    assert step.interrupts == ()
    assert step.error is None
    assert step.created_at is not None
    assert step.created_at.tzinfo is not None
    assert step.took is not None
    assert timedelta() <= step.took < timedelta(minutes=1)
    assert step.bytes == sum(step.bytes_by_channel.values()) > 0
    assert step.parent is not None
    assert step.parent.id == tl[1].id
    assert tl[0].took is None
    assert tl[0].parent is None


def test_looking_without_the_graph_shows_the_same(tl: Timeline) -> None:
    looks: Any = getattr(tl.saver, "timeline", lambda thread: Timeline(tl.saver, thread))
    look = looks("t")
    assert [(s.node, s.values) for s in look[2:]] == [(s.node, s.values) for s in tl[2:]]
    assert look[2].next == ("worker",)
    with pytest.raises(ConfigurationError, match="needs the graph"):
        look[2].fork({"plan": "B"})


def test_finding_by_time_node_source_and_tag(tl: Timeline) -> None:
    assert [step.number for step in tl.where(node="planner")] == [1]
    assert [step.number for step in tl.where(source="input")] == [-1]
    assert tl.at(datetime.now(UTC)).id == tl[-1].id
    assert tl.at(str(tl[1].created_at)).id == tl[1].id
    made = tl[1].created_at
    assert made is not None
    without_zone = made.astimezone(UTC).replace(tzinfo=None)
    assert tl.at(without_zone.isoformat(" ")).id == tl[1].id
    assert tl.at((made + timedelta(days=1)).strftime("%Y-%m-%d %H:%M")).id == tl[-1].id
    with pytest.raises(StepNotFound):
        tl.at((made - timedelta(minutes=2)).strftime("%Y-%m-%d %H:%M"))
    tl.graph.invoke({"log": []}, {**at("t"), "metadata": {"tags": "milestone"}})
    tl.refresh()
    assert {step.number for step in tl.tagged("milestone")} == {3, 4, 5, 6}
    assert tl.tagged("nothing") == []


@pytest.mark.parametrize("backend", backends.EVERYWHERE)
def test_tags_of_the_saver_are_found_shown_and_taken_away(backend: str, tmp_path: Path) -> None:
    with backends.EVERYWHERE[backend](tmp_path) as saver:
        graph = simple(saver)
        graph.invoke({}, at("t"))
        check_tags(saver, Timeline(graph, "t"))


def check_tags(saver: Any, tl: Timeline) -> None:
    saver.tag(tl[2].config, "milestone", "<b>shown</b>")
    saver.tag(at("t"), "milestone")
    tl.refresh()
    assert [step.number for step in tl.tagged("milestone")] == [1, 2]
    assert tl[2].tags == ("milestone", "<b>shown</b>")
    assert [step.number for step in tl.where(tag="milestone", node="planner")] == [1]
    assert repr(tl).count("#milestone") == 2
    assert "tags: milestone, <b>shown</b>" in repr(tl[2])
    page = tl._repr_html_()
    check_html(page)
    assert page.count('<span class="badge tag">#milestone</span>') == 2
    assert "#&lt;b&gt;shown" in page
    assert tl[2].fork({"plan": "B"}, as_node="planner").tags == ()
    saver.untag(tl[2].config, "milestone")
    tl.refresh()
    assert [step.number for step in tl.tagged("milestone")] == [2]
    assert tl[2].tags == ("<b>shown</b>",)
    saver.untag(tl[2].config)
    tl.refresh()
    assert tl[2].tags == ()


@pytest.mark.parametrize("backend", backends.EVERYWHERE)
def test_the_environment_is_what_the_saver_noted(backend: str, tmp_path: Path) -> None:
    for commit in ("abc", "def"):
        noted = {"commit": commit, "model": "<script>"}
        with backends.EVERYWHERE[backend](tmp_path, environment=noted) as saver:
            simple(saver).invoke({}, at("t"))
    with backends.EVERYWHERE[backend](tmp_path) as saver:
        tl = Timeline(simple(saver), "t")
        first, last = tl[0].environment, tl[-1].environment
        assert first is not None
        assert last is not None
        assert (first["commit"], last["commit"]) == ("abc", "def")
        assert {"python", "langgraph"} <= set(last)
        assert "commit def" in repr(tl[-1])
        page = tl._repr_html_()
        check_html(page)
        assert '<span class="note">commit</span> def' in page
        assert "langgraph" in (tl[-1].environment or {})


def test_a_saver_that_notes_nothing_has_no_environment(tl: Timeline) -> None:
    assert (tl[-1].environment is None) != hasattr(tl.saver, "environment")
    assert ("environment:" in repr(tl[-1])) == hasattr(tl.saver, "environment")


@pytest.mark.parametrize("key", [99, -99, "no-such-id", "f" * 36])
def test_an_unknown_step_is_not_found(tl: Timeline, key: Any) -> None:
    with pytest.raises(StepNotFound):
        tl[key]


def test_bad_input_is_refused(tl: Timeline) -> None:
    with pytest.raises(ConfigurationError, match="start of 4 ids"):
        tl["1"]
    for wrong in (lambda: tl[1.5], lambda: tl.at("yesterday"), lambda: Timeline(tl.graph, "")):  # type: ignore[list-item]
        with pytest.raises(ConfigurationError):
            wrong()
    with pytest.raises(StepNotFound):
        tl.at("2001-01-01")
    with pytest.raises(ConfigurationError, match="checkpointer"):
        Timeline(StateGraph(State), "t")
    with pytest.raises(ConfigurationError, match="checkpointer"):
        Timeline(object(), "t")


def test_an_unknown_thread_has_no_steps(saver: Any) -> None:
    empty = Timeline(simple(saver), "nobody")
    assert len(empty) == 0
    assert not empty
    assert empty.latest is None
    assert empty.waiting == {}
    assert "no steps" in repr(empty)
    assert "no steps" in empty._repr_html_()
    with pytest.raises(StepNotFound):
        empty[-1]
    with pytest.raises(ConfigurationError, match="nothing waits"):
        empty.resume("x")


# ---- acting -------------------------------------------------------------------------------------


def test_a_fork_is_a_branch_and_the_old_one_stays(tl: Timeline) -> None:
    before = [step.id for step in tl]
    fork = tl[2].fork({"plan": "B"}, as_node="planner")
    assert fork.source == "update"
    assert fork.parent is not None
    assert fork.parent.id == before[2]
    fork.replay()
    assert tl[-1].values["log"] == ["plan", "work on B"]
    assert [step.id for step in tl][:4] == before
    assert tl[3].values["log"] == ["plan", "work on A"]
    headers = [step._header for step in tl]
    assert len(branches(headers)) == 2
    by_id = {header.id: header for header in headers}
    assert common_ancestor(by_id, tl[3].id, tl[-1].id) == before[2]
    assert parent_chain(by_id, tl[-1].id)[-1] == before[0]
    again = tl[-1].fork({"plan": "C"}, as_node="planner")
    tl[again.id].fork({"plan": "D"}, as_node="planner").replay()
    assert tl[-1].values["log"][-1] == "work on D"
    assert "├─" in repr(tl)


def test_a_fork_into_a_new_thread_leaves_this_one_alone(tl: Timeline) -> None:
    fork = tl[2].fork({"plan": "Z"}, to_thread="other")
    assert len(tl) == 4
    assert fork.config["configurable"]["thread_id"] == "other"
    fork.replay()
    assert tl.graph.get_state(at("other")).values["log"] == ["plan", "work on Z"]
    with pytest.raises(ConfigurationError, match="exists already"):
        tl[2].fork(to_thread="other")
    more = tl[2].fork({"messages": [HumanMessage("more")]}, to_thread="third")
    assert [one.content for one in more.values["messages"]] == ["hello", "I plan", "more"]
    assert tl[1].fork(to_thread="fourth").replay()["log"] == ["plan", "work on A"]
    assert tl[0].fork(to_thread="fifth").replay()["log"] == ["plan", "work on A"]


def test_replay_runs_again_and_stops_where_asked(tl: Timeline) -> None:
    assert tl[1].replay(until="worker")["log"] == ["plan"]
    assert tl.latest is not None
    assert tl.latest.next == ("worker",)
    assert tl[1].replay()["log"] == ["plan", "work on A"]


def test_wrong_nodes_are_refused_before_anything_is_written(tl: Timeline) -> None:
    for wrong in (
        lambda: tl[2].fork({}, as_node="nobody"),
        lambda: tl[2].replay(until="nobody"),
        lambda: tl[2].fork({}, to_thread=""),
        lambda: tl.resume("nothing waits"),
    ):
        with pytest.raises(ConfigurationError):
            wrong()
    tl.refresh()
    assert len(tl) == 4


def test_resume_answers_what_waits(saver: Any) -> None:
    graph = asking(saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    assert [one.value for one in tl.waiting.values()] == ["question 0"]
    assert [step.number for step in tl.interrupts] == [0]
    assert tl[-1].is_waiting
    assert tl[-1].interrupts[0].value == "question 0"
    assert tl.resume("yes")["log"] == ["0: yes"]
    assert tl.waiting == {}
    assert len(tl.interrupts) == 1
    assert not tl.interrupts[0].is_waiting
    with pytest.raises(ConfigurationError, match="nothing waits"):
        tl.resume("again")


@pytest.mark.parametrize("answer", [None, {}, "", False, {"to": "Ana"}, ["yes"]], ids=repr)
def test_any_value_is_an_answer(saver: Any, answer: Any) -> None:
    graph = asking(saver)
    graph.invoke({}, at("t"))
    assert Timeline(graph, "t").resume(answer)["log"] == [f"0: {answer}"]


def test_several_interrupts_are_answered_by_id(saver: Any) -> None:
    graph = asking(saver, 3)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    assert len(tl.waiting) == 3
    with pytest.raises(ConfigurationError, match="3 interrupts wait"):
        tl.resume("which?")
    with pytest.raises(ConfigurationError, match="nothing with the id"):
        tl.resume({"0" * 32: "x"})
    first, *others = tl.waiting
    tl.resume({first: "one"})
    assert set(tl.waiting) == set(others)
    assert len(tl.resume(dict.fromkeys(others, "rest"))["log"]) == 3


@pytest.mark.parametrize("backend", ["memory", *backends.EVERYWHERE])
async def test_both_colours(backend: str, tmp_path: Path) -> None:
    """On a running loop, as in a notebook."""
    opened = InMemorySaver() if backend == "memory" else backends.EVERYWHERE[backend](tmp_path)
    with opened as saver:
        graph = simple(saver)
        await graph.ainvoke({}, at("t"))
        tl = Timeline(graph, "t")
        fork = await tl[2].afork({"plan": "B"}, as_node="planner")
        assert (await fork.areplay())["log"] == ["plan", "work on B"]
        other = await tl[2].afork(to_thread="u")
        assert (await other.areplay())["log"] == ["plan", "work on A"]
        with pytest.raises(ConfigurationError, match="exists"):
            await tl[2].afork(to_thread="u")
        asks = asking(saver)
        await asks.ainvoke({}, at("q"))
        assert (await Timeline(asks, "q").aresume("yes"))["log"] == ["0: yes"]
        draft = tl[-1].edit()
        draft.text = draft.text.replace('"plan": "B"', '"plan": "C"')
        assert (await draft.asave(as_node="planner")).values["plan"] == "C"


# ---- shapes of graphs ---------------------------------------------------------------------------


def test_subgraphs_expand_in_place_and_cannot_be_forked(saver: Any) -> None:
    inner = StateGraph(State)
    inner.add_sequence([planner, worker])
    inner.add_edge(START, "planner")
    outer = StateGraph(State)
    outer.add_node("child", inner.compile())
    outer.add_edge(START, "child")
    graph = outer.compile(checkpointer=saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    assert [step.node for step in tl] == ["__input__", "__start__", "child"]
    steps = tl[1].children
    assert [step.node for step in steps] == ["__input__", "__start__", "planner", "worker"]
    assert steps[-1].values["log"] == ["plan", "work on A"]
    assert not tl[2].children
    assert "child › worker" in repr(tl)
    assert "sub-graph, 4 steps" in tl._repr_html_()
    assert tl[steps[-1].id].ns == steps[-1].ns
    with pytest.raises(ConfigurationError, match="sub-graph"):
        steps[-1].fork({"plan": "B"})


def test_sends_loops_and_updates(saver: Any) -> None:
    def one(state: State) -> State:
        return {"tries": state.get("tries", 0) + 1}

    builder = StateGraph(State)
    builder.add_node("one", one)
    builder.add_node("fan", lambda state: {"log": [str(state["tries"])]})
    builder.add_edge(START, "one")
    builder.add_conditional_edges(
        "one",
        lambda s: "one" if s["tries"] < 3 else [Send("fan", {"tries": n}) for n in range(3)],
        ["one", "fan"],
    )
    graph = builder.compile(checkpointer=saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    assert [step.node for step in tl][2:] == ["one", "one", "one", "fan"]
    assert len(tl.where(node="one")) == 3
    assert tl[-1].values["log"] == ["0", "1", "2"]
    graph.update_state(at("t"), {"tries": 3}, as_node="one")
    graph.invoke(None, at("t"))
    tl.refresh()
    assert [step.source for step in tl][-2:] == ["update", "loop"]
    assert tl[-1].node == "fan"


def test_the_functional_api(saver: Any) -> None:
    @task
    def double(number: int) -> int:
        return 2 * number

    @entrypoint(checkpointer=saver)
    def flow(number: int) -> int:
        return double(number).result() + len(interrupt("sure?"))

    flow.invoke(4, at("t"))
    tl = Timeline(flow, "t")
    assert tl[0].is_waiting
    assert tl.resume("yes") == 11
    assert tl[-1].node == "flow"
    assert tl[-1].values == 11
    assert "~ (value): None -> 11" in repr(tl[-1].diff())
    assert tl[-1].fork(to_thread="u").values == 11
    assert tl[0].replay()["__interrupt__"][0].value == "sure?"
    assert tl.resume("no") == 10
    assert "flow" in repr(tl)
    assert "11" in tl._repr_html_()
    assert tl.plot().svg()


def test_errors_are_shown_where_the_run_failed(saver: Any) -> None:
    builder = StateGraph(State)
    builder.add_node("bad", lambda state: {"tries": 1 // 0})
    builder.add_edge(START, "bad")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(ZeroDivisionError):
        graph.invoke({"plan": "x"}, at("t"))
    tl = Timeline(graph, "t")
    (failed,) = tl.errors
    assert "division" in str(failed.error)
    assert failed.next == ("bad",)
    assert "failed" in repr(tl)
    assert "division" in tl._repr_html_()


def test_a_thread_that_grows_meanwhile(saver: Any, capsys: pytest.CaptureFixture[str]) -> None:
    graph = simple(saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    live = tl.watch(every=0.01, timeout=200)
    runner = threading.Thread(target=graph.invoke, args=({}, at("t")))
    runner.start()
    seen = list(itertools.islice(live, 4))
    runner.join()
    assert [step.number for step in seen] == [3, 4, 5, 6]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert "worker" in printed[-1]
    assert list(tl.watch(every=0, timeout=0)) == []
    for wrong in ({"every": -1}, {"every": None}, {"timeout": "soon"}, {"every": True}):
        with pytest.raises(ConfigurationError, match="number of seconds"):
            tl.watch(**wrong)  # type: ignore[arg-type]


def test_a_step_removed_meanwhile_says_so(tmp_path: Path) -> None:
    with backends.hasty_sqlite(tmp_path) as saver:
        graph = simple(saver)
        graph.invoke({}, at("t"))
        step = Timeline(graph, "t")[1]
        saver.delete_thread("t")
        with pytest.raises(StepNotFound, match="no longer stored"):
            _ = step.values


# ---- comparing and editing ----------------------------------------------------------------------


def test_diffs_of_steps(tl: Timeline) -> None:
    found = tl[2].diff()
    assert found.added["plan"] == "A"
    assert found.added["log[0]"] == "plan"
    assert found.added["messages[1]"].content == "I plan"
    assert "ai: I plan" in repr(found)
    assert tl.diff(3, 2).removed["log[1]"] == "work on A"
    fork = tl[3].fork({"plan": "A\nthen B"})
    assert fork.diff().changed == {"plan": ("A", "A\nthen B")}
    assert "+then B" in repr(fork.diff())
    assert '<div class="new">+then B</div>' in fork.diff()._repr_html_()
    assert len(tl.diff(2, 2)) == 0
    assert "no difference" in repr(tl.diff(2, 2))


def test_comparing_two_runs(tl: Timeline) -> None:
    tl.graph.invoke({"messages": [HumanMessage("hello", id="h2")]}, at("same"))
    assert tl.compare("same").parts_at is None
    assert "alike" in repr(tl.compare("same"))
    tl.graph.invoke({"messages": [HumanMessage("goodbye")]}, at("differs"))
    apart = tl.compare("differs")
    assert apart.parts_at == 1
    assert [str(one.where) for one in apart.diff()] == ["messages[0]"]
    tl[2].fork({"plan": "B"}, to_thread="other").replay()
    found = tl.compare("other")
    assert found.parts_at is not None
    assert found.parting is not None
    assert "other" in repr(found)
    assert "other" in found._repr_html_()
    with pytest.raises(ConfigurationError):
        tl.compare(3)  # type: ignore[arg-type]


def test_editing_keeps_types_and_points_at_the_line(tl: Timeline) -> None:
    draft = tl[2].edit()
    draft.text = draft.text.replace("I plan", "I plan better")
    made = draft.save(as_node="planner")
    message = made.values["messages"][1]
    assert type(message) is AIMessage
    assert (message.content, message.id) == ("I plan better", "p")
    assert made.values["log"] == ["plan"]
    assert tl[2].values["messages"][1].content == "I plan"
    assert made.replay()["log"] == ["plan", "work on A"]
    draft.text = draft.text.replace('"plan": "A"', '"plan": A')
    with pytest.raises(ConfigurationError, match=r"line \d+, column \d+.*\"plan\": A"):
        draft.save()
    draft = tl[3].edit()
    lines = draft.text.splitlines()
    wrong = lines.index('        "content": "I plan",') + 1
    draft.text = draft.text.replace('"content": "I plan"', '"content": 7')
    with pytest.raises(ConfigurationError, match=rf'line {wrong}, channel .*"content": 7'):
        draft.save()
    draft.text = draft.text.replace("AIMessage", "Nobody")
    with pytest.raises(ConfigurationError, match=r"line \d+, .*Nobody' is no type"):
        draft.save()
    draft = tl[3].edit()
    draft.text = draft.text.replace('\n  "plan":', '\n  "plam": 1,\n  "plan":')
    at_line = draft.text.splitlines().index('  "plam": 1,') + 1
    with pytest.raises(ConfigurationError, match=f"line {at_line}: the graph has no .*plam"):
        draft.save()
    draft.text = '{"messages": []}'
    with pytest.raises(ConfigurationError, match="missing"):
        draft.save()
    assert '"plan": "A"' in tl[2].to_json()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=25,
)


@given(VALUES, VALUES)
def test_applying_a_diff_gives_the_new_value(old: Any, new: Any) -> None:
    assert same(apply(old, diff(old, new)), new)
    state = {"a": old, "b": [old, new, old]}
    other = {"b": [new, old], "a": new}
    assert same(apply(state, diff(state, other)), other)
    assert diff(old, old) == []


# ---- showing ------------------------------------------------------------------------------------

VOID = {"meta", "img", "br"}


class Checked(HTMLParser):
    """Fails on tags that do not match, and on anything that could run or load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object", "link", "form", "a"), tag
        for name, content in attrs:
            assert not name.startswith("on"), name
            assert name not in ("href", "action")
            assert name != "src" or str(content).startswith("data:image/")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_html(text: str) -> None:
    parser = Checked()
    parser.feed(text)
    parser.close()
    assert parser.open == []


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>x</script>",
    "</details></div>",
    "&lt;b&gt; & 'quotes' \"too\" \x00",
    "<b>" * 2000,
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_content_is_text(tmp_path: Path, hostile: str) -> None:
    thread = f"t{hostile[:40]}"
    saver = InMemorySaver()
    builder = StateGraph(State)
    name = hostile.replace(":", "").replace("|", "")[:40]
    builder.add_node(name, lambda s: {"plan": hostile, "messages": [AIMessage(hostile)]})
    builder.add_edge(START, name)
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": [HumanMessage(hostile)]}, at(thread))
    tl = Timeline(graph, thread)
    tl[-1].fork({"plan": f"{hostile}\nmore"})
    tl.graph.invoke({"plan": hostile}, {**at(thread), "metadata": {"tags": hostile}})
    tl.refresh()
    pieces = [tl, tl[2], tl[2].diff(), tl[3].diff(), tl.compare(thread), tl.plot()]
    for piece in pieces:
        check_html(piece._repr_html_())
        repr(piece)
    check_html(tl.to_html(tmp_path / "x.html").read_text("utf-8"))


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Broken:
    def _lgd_html_(self) -> str:
        raise RuntimeError("<b>")


def test_odd_values_are_shown_as_themselves() -> None:
    from PIL import Image

    from langgraph_durable.timeline import html

    assert "repr raises" in html.value(Rude())
    assert "data:image/png" in html.value(b"\x89PNG\r\n\x1a\n")
    assert "bytes, 3 B" in html.value(b"abc")
    assert "data:image/png" in html.value([Image.new("RGB", (2, 2))])
    shown = html.value(Broken())
    assert "cannot be shown: RuntimeError: &lt;b&gt;" in shown
    assert "<details>" in html.value("x" * 1000)
    deep: Any = []
    for _ in range(50):
        deep = [deep]
    check_html(html.value(deep))


PICTURE = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDAT"
    b"x\xdac\xfc\xcf\xc0P\x0f\0\x04\x85\x01\x80\x84\xa9\x8c!\0\0\0\0IEND\xaeB`\x82"
)
"""One point."""


class Things(TypedDict, total=False):
    picture: Any
    table: Any
    blob: bytes
    messages: Annotated[list[AnyMessage], add_messages]


def made_of(saver: Any, **values: Any) -> Timeline:
    builder = StateGraph(Things)
    builder.add_node("make", lambda state: values)
    builder.add_edge(START, "make")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({}, at("things"))
    return Timeline(graph, "things")


def test_binary_values_are_shown_as_themselves(saver: Any, tmp_path: Path) -> None:
    data = base64.b64encode(PICTURE).decode()
    blocks: Any = [
        {"type": "text", "text": "<i>look</i>"},
        {"type": "image", "base64": data, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image", "base64": '"><script>', "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}},
    ]
    tl = made_of(saver, picture=PICTURE, blob=bytes(300), messages=[HumanMessage(blocks)])
    shown = repr(tl[-1])
    assert f"picture = <image/png, {len(PICTURE)} B>" in shown
    assert "blob = <bytes, 300 B>" in shown
    page = tl.to_html(tmp_path / "x.html").read_text("utf-8")
    check_html(page)
    # The picture and both blocks, among what changed and in the state.
    assert page.count(f'src="data:image/png;base64,{data}"') == 6
    assert "00 00 00" in page
    assert "&lt;i&gt;look" in page


@pytest.mark.parametrize("backend", backends.EVERYWHERE)
def test_artifacts_are_shown_as_themselves(backend: str, tmp_path: Path) -> None:
    with backends.EVERYWHERE[backend](tmp_path, artifacts=tmp_path / "store") as saver:
        picture = Artifact.from_bytes(PICTURE, media_type="image/png", name='"><x>.png')
        table = Artifact.from_text("a,b\n1,<b>2\n", media_type="text/csv", name="t.csv")
        tl = made_of(saver, picture=picture, table=[table], blob=b"abc")
        assert "table = [<Artifact t.csv, text/csv, " in repr(tl[-1])
        assert "+ table: [<Artifact t.csv" in repr(tl[-1].diff())
        page = tl.to_html(tmp_path / "x.html").read_text("utf-8")
        check_html(page)
        assert page.count("data:image/png;base64,") == 2
        assert "<th>a</th><th>b</th>" in page
        assert "<td>&lt;b&gt;2</td>" in page
        assert tl[-1].bytes_by_channel["blob"] < tl[-1].bytes < 1_000
        assert "Artifact" in tl[-1].to_json()
        draft = tl[-1].edit()
        draft.text = draft.text.replace('"$kept": 0', '"$kept": 1')
        assert draft.save(as_node="make").values["picture"] == table
        for file in (tmp_path / "store").rglob("*"):
            if file.is_file():
                file.unlink()
        gone = Timeline(saver, "things")._repr_html_()
        check_html(gone)
        assert "<img" not in gone
        assert "t.csv, text/csv" in gone


def test_a_page_has_room_for_so_many_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    from langgraph_durable.timeline import html

    tl = made_of(InMemorySaver(), picture=PICTURE)
    tl.graph.invoke({}, at("things"))
    tl.refresh()
    whole = tl._repr_html_().count("<img")
    assert whole > 3
    monkeypatch.setattr(html, "ROOM", 250)
    page = tl._repr_html_()
    check_html(page)
    assert page.count("<img") == 1
    assert "<img" in page.rpartition('class="step')[2]
    assert page.count(f"image/png, {len(PICTURE)} B") == whole


def test_the_saved_file_needs_nothing_else(tl: Timeline, tmp_path: Path) -> None:
    saved = tl.to_html(tmp_path / "run.html").read_text("utf-8")
    check_html(saved)
    assert "http" not in saved.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in saved
    assert "work on A" in saved
    assert "<svg" in saved


def test_plots_tell_time_and_size(tl: Timeline) -> None:
    plot = tl.plot()
    assert set(plot.seconds) == {"__start__", "planner", "worker"}
    assert next(iter(plot.channels)) == "messages"
    assert "planner" in plot.svg()
    assert "messages" in repr(plot)


def test_plots_can_be_read_where_viewers_take_the_drawing_out(tl: Timeline) -> None:
    words = re.sub("<[^>]*>", "", tl.plot().svg())
    told = r"Time per node: (\w+ [\d.:]+( m?s)?(; )?){3}Bytes per step: up to .*B; step -1 "
    assert re.search(told, words)


def test_notebooks_do_not_take_prices_for_formulas(tl: Timeline) -> None:
    """MathJax, old and new, leaves elements of these classes alone."""
    for shown in (tl, tl[-1], tl[-1].diff(), tl.plot(), tl.compare("t")):
        assert 'class="lgd tex2jax_ignore mathjax_ignore"' in shown._repr_html_()


# ---- long threads -------------------------------------------------------------------------------


class Counted:
    """A storage that counts how often it is asked, and the bytes it hands out."""

    def __init__(self, storage: Any) -> None:
        self._storage, self.bytes, self.calls = storage, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def _count(self, loaded: Any) -> None:
        rows = [loaded.row, *loaded.writes]
        self.bytes += sum(len(row.refs) + len(row.body) for row in rows)
        self.bytes += sum(map(len, loaded.items.values()))

    async def load(self, *args: Any) -> Any:
        self.calls += 1
        loaded = await self._storage.load(*args)
        self._count(loaded)
        return loaded

    async def page(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        page = await self._storage.page(*args, **options)
        for loaded in page.rows:
            self._count(loaded)
        return page


def fill(saver: Any, steps: int, messages: int) -> None:
    """A thread in which a conversation grows to `messages` and is then worked on."""
    config = at("long")
    config["configurable"]["checkpoint_ns"] = ""
    said: list[Any] = []
    for step in range(steps):
        checkpoint: Any = empty_checkpoint()
        new = {"turn": f"{step + 1:032}.0000000000000000"}
        if step < messages:
            kind = HumanMessage if step % 2 else AIMessage
            said = [*said, kind(f"message {step}: " + "some words " * 20, id=f"m{step}")]
            new["messages"] = new["turn"]
        done = f"{min(step + 1, messages):032}.0000000000000000"
        checkpoint |= {
            "id": str(uuid6(clock_seq=step)),
            "channel_values": {"messages": said, "turn": step},
            "channel_versions": {"messages": done, "turn": new["turn"]},
            "updated_channels": sorted(new),
        }
        config = saver.put(config, checkpoint, {"source": "loop", "step": step}, new)


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
def test_a_long_thread_opens_by_reading_what_is_shown(
    backend: str, tmp_path: Path, long: bool
) -> None:
    steps = 10_000 if long else 1_500
    open_saver = backends.EVERYWHERE[backend]
    with open_saver(tmp_path) as saver:
        fill(saver, steps, 1_000)
    with open_saver(tmp_path) as saver:
        counted = saver._engine.storage = Counted(saver._engine.storage)  # type: ignore[assignment]
        tl = Timeline(saver, "long")
        assert "newest 50 steps" in repr(tl)
        assert "newest 50 steps" in tl._repr_html_()
        assert tl._source.reads <= 60
        assert counted.calls <= 10
        assert 10_000 < counted.bytes < 2_000_000
        assert tl[-3].index == -3
        assert tl[-3].values["turn"] == steps - 3
        assert tl._source.reads <= 60
        assert tl[7].values["turn"] == 7
        assert len(tl) == steps
        assert len(tl[0].values["messages"]) == 1


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
def test_opening_a_long_thread_is_no_more_work_than_ten_reads(
    backend: str, tmp_path: Path, long: bool
) -> None:
    """Time is measured by the benchmarks; on a busy machine it would say nothing here."""
    looks: list[Callable[[Any], Any]] = [
        lambda saver: saver.get_tuple(at("long")),
        lambda saver: repr(Timeline(saver, "long")),
        lambda saver: Timeline(saver, "long")._repr_html_(),
    ]
    work = []
    with backends.EVERYWHERE[backend](tmp_path) as saver:
        fill(saver, 10_000 if long else 1_500, 1_000)
    for look in looks:
        with backends.EVERYWHERE[backend](tmp_path) as saver:
            work.append(calls_of(lambda look=look, saver=saver: look(saver)))  # type: ignore[misc]
    one, text, page = work
    assert text < 10 * one
    assert page < 10 * one


def test_what_is_kept_of_a_pruned_past_stands_before_the_main_line() -> None:
    def header(id: str, parent: str | None) -> Header:
        return Header("t", "", id, parent, None, {}, {}, {}, None)

    kept = [header("a", "0"), header("b", "a"), header("c", "1"), header("x", "9")]
    line = [header("w", "2"), header("y", "w"), header("z", "y")]
    found = rows([*kept, *line], "z")
    assert [(row.id, row.lane) for row in found] == [
        *(("a", 0), ("b", 0), ("c", 0)),
        *(("w", 0), ("y", 0), ("z", 0), ("x", 1)),
    ]
    assert branches([*kept, *line]) == [["a", "b"], ["c"], ["w", "y", "z"], ["x"]]


@pytest.mark.parametrize("backend", backends.EVERYWHERE)
def test_a_step_whose_parent_was_pruned_still_tells_its_node(backend: str, tmp_path: Path) -> None:
    with backends.EVERYWHERE[backend](tmp_path) as saver:
        tl = Timeline(simple(saver), "t")
        for _ in range(2):
            tl.graph.invoke({}, at("t"))
        before = {step.id: step.node for step in tl}
        for step in tl.where(node="planner"):
            saver.tag(step.config, "kept")
        saver.prune(["t"], strategy=KeepLast(1) | KeepTagged("kept"))
        tl.refresh()
        assert [step.node for step in tl] == ["planner", "planner", "worker"]
        assert all(before[step.id] == step.node for step in tl)
        assert "│" not in repr(tl)


def test_a_circle_of_parents_ends() -> None:
    def header(id: str, parent: str | None) -> Header:
        return Header("t", "", id, parent, None, {}, {}, {}, None)

    circle = [header("a", "c"), header("b", "a"), header("c", "b"), header("d", "d")]
    by_id = {one.id: one for one in circle}
    assert parent_chain(by_id, "b") == ["b", "a", "c"]
    assert sorted(row.id for row in rows(circle)) == ["a", "b", "c", "d"]
    assert parent_chain(by_id, "nobody") == []
