"""A timeline where something is wrong or unusual: damage, deletion, other loops, odd values."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import operator
import sqlite3
import sys
import uuid
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple, TypedDict

import backends
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import servers
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from pydantic import BaseModel, Field
from test_timeline import State, asking, at, check_html, made_of, saver, simple

from langgraph_durable import (
    ConfigurationError,
    CorruptionError,
    StepNotFound,
    Timeline,
    UnsafeTypeError,
)
from langgraph_durable.timeline import (
    Diff,
    apply,
    diff,
    html,
    pages,
    summary,
    text,
    time_per_node,
    timeline,
    watch,
)
from langgraph_durable.timeline.diff import same
from langgraph_durable.timeline.editing import Draft
from langgraph_durable.timeline.headers import Header
from langgraph_durable.timeline.lineage import rails, rows

__all__ = ["saver"]  # the fixture


# ---- damage and deletion ------------------------------------------------------------------------


def harm_sqlite(place: Path, id: str) -> None:
    change = "body = cast(substr(body, 1, 40) || x'01' || substr(body, 42) as blob)"
    with sqlite3.connect(place / "agent.db") as file:
        assert file.execute(f"update lgd_checkpoints set {change} where id = ?", [id]).rowcount


def harm_valkey(place: Path, id: str) -> None:
    with servers.shared("valkey").client() as client:
        (key,) = client.scan_iter(f"{servers.prefix_for(place)}:*", _type="hash")
        field = f"c{id}\0".encode()
        stored = client.hget(key, field)
        client.hset(key, field, stored[:60] + bytes([stored[60] ^ 1]) + stored[61:])


HARM = {"sqlite": harm_sqlite, "valkey": harm_valkey}


@pytest.fixture(params=[0, 2, 3], ids=["first", "middle", "last"])
def place_of_damage(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=HARM)
def damaged(request: pytest.FixtureRequest, place_of_damage: int, tmp_path: Path) -> Any:
    """A thread of four steps, one of which has a changed byte."""
    with backends.EVERYWHERE[request.param](tmp_path) as saver:
        simple(saver).invoke({}, at("t"))
        wrong = Timeline(saver, "t")[place_of_damage].id
    HARM[request.param](tmp_path, wrong)
    with backends.EVERYWHERE[request.param](tmp_path) as saver:
        yield Timeline(simple(saver), "t"), wrong


def test_a_damaged_step_says_so_and_the_others_are_shown(damaged: Any, tmp_path: Path) -> None:
    tl, wrong = damaged
    assert len(tl) == 4
    assert repr(tl).count("(damaged)") == 1
    assert "checksum" in repr(tl[wrong])
    for page in (tl._repr_html_(), tl.to_html(tmp_path / "x.html").read_text("utf-8")):
        check_html(page)
        assert "Cannot be read" in page
        assert "checksum" in page
        assert page.count("<h4>State</h4>") == 3
    for step in tl:
        if step.id != wrong:
            assert isinstance(step.values, dict)
    with pytest.raises(CorruptionError):
        _ = tl[wrong].values
    assert len(tl.plot().sizes) == 3
    if wrong != tl[-1].id:
        assert tl[-1].node == "worker"
        assert tl[-1].values["plan"] == "A"


def test_steps_are_shown_where_the_classes_in_their_state_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = ModuleType("away")
    monkeypatch.setitem(sys.modules, "away", away)
    exec("import dataclasses as d\n@d.dataclass\nclass Plan:\n    name: str", away.__dict__)
    with backends.EVERYWHERE["sqlite"](tmp_path) as saver:
        simple(saver).invoke({"log": [away.Plan("A")]}, at("t"))
    monkeypatch.delitem(sys.modules, "away")
    tl = backends.EVERYWHERE["sqlite"](tmp_path).timeline("t")
    assert repr(tl).count("○") == len(tl)
    for page in (tl._repr_html_(), tl.to_html(tmp_path / "x.html").read_text("utf-8")):
        check_html(page)
        assert "away.Plan" in page
    with pytest.raises(UnsafeTypeError, match="away"):
        _ = tl[0].values, tl[1].values


def test_a_thread_deleted_meanwhile(saver: Any, tmp_path: Path) -> None:
    graph = simple(saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    assert "4 steps" in repr(tl)
    saver.delete_thread("t")
    check_html(tl._repr_html_())
    assert "no longer stored" in tl._repr_html_()
    check_html(tl.to_html(tmp_path / "x.html").read_text("utf-8"))
    for act in (lambda: tl[1].fork({"plan": "x"}), lambda: tl[1].replay()):
        with pytest.raises(StepNotFound, match="no longer stored"):
            act()
    with pytest.raises(StepNotFound, match="no longer stored"):
        tl[1].fork(to_thread="u")
    assert saver.get_tuple(at("t")) is None
    assert saver.get_tuple(at("u")) is None
    tl.refresh()
    assert "no steps" in repr(tl)


# ---- forking ------------------------------------------------------------------------------------


class Joined(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    nested: Annotated[list[Any], lambda old, new: [*old, new]]
    grown: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *chain(*new)])]


def joining(saver: Any) -> Any:
    """Two nodes side by side, one that waits for both, and reducers that a copy must not meet."""
    builder = StateGraph(Joined)
    for name in ("left", "right"):
        builder.add_node(name, lambda s, n=name: {"log": [n], "nested": n, "grown": [n]})
        builder.add_edge(START, name)
    builder.add_node("join", lambda state: {"log": ["join"], "grown": ["join"]})
    builder.add_edge(["left", "right"], "join")
    return builder.compile(checkpointer=saver)


def test_a_fork_into_a_new_thread_is_the_very_step(saver: Any) -> None:
    graph = joining(saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    fork = tl[2].fork(to_thread="u")
    assert fork.values == tl[2].values
    assert fork.values["grown"] == ["left", "right"]
    assert fork.next == tl[2].next == ("join",)
    assert fork.replay()["grown"] == ["left", "right", "join"]
    changed = tl[2].fork({"log": ["more"]}, as_node="left", to_thread="v")
    assert changed.values["log"] == ["left", "right", "more"]
    found = tl.compare("u")
    assert found.parts_at is None
    assert [pair[1] is None for pair in found.pairs] == [True, True, False, False]
    assert found.pairs[2][0].id == tl[2].id  # type: ignore[union-attr]
    assert Timeline(graph, "u").compare("t").parts_at is None


def test_a_fork_that_fails_leaves_no_thread_behind(saver: Any) -> None:
    graph = simple(saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    with pytest.raises(Exception, match="Expected dict"):
        tl[2].fork("nonsense", to_thread="u")
    assert saver.get_tuple(at("u")) is None

    async def fork() -> None:
        with pytest.raises(Exception, match="Expected dict"):
            await tl[2].afork("nonsense", to_thread="u")

    if not hasattr(saver, "conn"):  # the stock SqliteSaver has no async methods
        asyncio.run(fork())
        assert saver.get_tuple(at("u")) is None
    assert tl[2].fork(to_thread="u").values["plan"] == "A"


def test_a_state_is_edited_before_its_question_is_answered(saver: Any) -> None:
    builder = StateGraph(State)
    builder.add_node("guess", lambda state: {"plan": "Paris, Texas"})
    builder.add_node("ask", lambda s: {"log": [f"{s['plan']}: {interrupt('Go to ' + s['plan'])}"]})
    builder.add_edge(START, "guess")
    builder.add_edge("guess", "ask")
    tl = Timeline(builder.compile(checkpointer=saver), "t")
    tl.graph.invoke({}, at("t"))
    draft = tl[-1].edit()
    draft.text = draft.text.replace("Paris, Texas", "Paris")
    draft.save()
    with pytest.raises(ConfigurationError, match=r"tl.latest.replay\(\)"):
        tl.resume("yes")
    assert tl.latest is not None
    tl.latest.replay()
    assert [one.value for one in tl.waiting.values()] == ["Go to Paris"]
    assert tl.resume("yes")["log"] == ["Paris: yes"]


def test_until_is_added_to_other_stops(saver: Any) -> None:
    graph = simple(saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    assert tl[1].replay(until="worker", interrupt_before=["planner"])["log"] == ["plan"]
    assert tl[1].replay(until="worker", interrupt_before="*")["log"] == ["plan"]


async def test_an_async_saver_of_others_is_looked_at_from_a_thread() -> None:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        graph = simple(saver)
        await graph.ainvoke({}, at("t"))
        tl = Timeline(graph, "t")
        for look in (tl.__repr__, tl._repr_html_, tl.__len__):
            with pytest.raises(ConfigurationError, match=r"asyncio\.to_thread"):
                look()
        assert "worker" in await asyncio.to_thread(repr, tl)
        step = await asyncio.to_thread(tl.__getitem__, 2)
        fork = await step.afork({"plan": "B"}, as_node="planner")
        assert (await fork.areplay())["log"] == ["plan", "work on B"]
        assert (await (await step.afork(to_thread="u")).areplay())["log"][-1] == "work on A"
        asks = asking(saver)
        await asks.ainvoke({}, at("q"))
        assert (await Timeline(asks, "q").aresume("yes"))["log"] == ["0: yes"]


# ---- finding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", backends.EVERYWHERE)
def test_the_last_steps_of_a_long_thread_are_a_slice(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "PAGE", 10)
    with backends.EVERYWHERE[backend](tmp_path) as saver:
        graph = simple(saver)
        for _ in range(4):
            graph.invoke({}, at("t"))
        tl = Timeline(graph, "t")
        last = [step.id for step in tl[-5:]]
        some = [step.id for step in tl[-7:-2]]
        assert tl._source.reads <= 10
        every = [step.id for step in tl]
        assert last == every[-5:]
        assert some == every[-7:-2]
        assert [step.id for step in tl[::-3]] == every[::-3]


def nested(saver: Any) -> Any:
    """A graph in a graph in a graph; the innermost is started twice, side by side."""
    inner = StateGraph(State)
    inner.add_node("deep", lambda state: {"log": ["deep"]})
    inner.add_edge(START, "deep")
    middle = StateGraph(State)
    middle.add_node("split", lambda state: {})
    middle.add_node("inner", inner.compile())
    middle.add_edge(START, "split")
    middle.add_conditional_edges("split", lambda s: [Send("inner", {})] * 2, ["inner"])
    outer = StateGraph(State)
    outer.add_node("middle", middle.compile())
    outer.add_edge(START, "middle")
    return outer.compile(checkpointer=saver)


def test_sub_graphs_of_sub_graphs_expand_run_by_run(saver: Any) -> None:
    graph = nested(saver)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    shown = repr(tl)
    assert shown.count("middle › inner › deep") == 2
    assert "2 tasks" in shown
    page = tl._repr_html_()
    check_html(page)
    assert page.count('<details class="run"') == 3
    deep = tl[1].children[2].children
    assert {step.path for step in deep} == {("middle", "inner")}
    assert all(step.parent is None or step.parent.ns == step.ns for step in deep)


@pytest.mark.parametrize("backend", backends.EVERYWHERE)
def test_sub_graphs_of_a_long_thread_are_read_with_its_newest_steps(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "PAGE", 5)
    monkeypatch.setattr(timeline, "PAGE", 5)
    with backends.EVERYWHERE[backend](tmp_path) as saver:
        graph = nested(saver)
        for _ in range(3):
            graph.invoke({}, at("t"))
        tl = Timeline(graph, "t")
        assert "the newest 5 steps" in repr(tl)
        assert repr(tl).count("middle › inner › deep") == 2 * 2
        assert not tl.is_complete
        assert [step.node for step in tl[1].children] == [
            "__input__",
            "__start__",
            "split",
            "inner",
        ]
        assert len(tl) == 9


# ---- values -------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    one: int
    two: int


@dataclasses.dataclass
class Measured:
    size: int
    doubled: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.size


class Aliased(BaseModel):
    given: str = Field(alias="handed")
    count: int = 0


class Standing:
    """A step that is only its values."""

    def __init__(self, **values: Any) -> None:
        self.values = values


def drafted(**values: Any) -> Draft:
    return Draft(Standing(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "old", "new", "edited"),
    [
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02", "2027-01-02", None),
        (datetime.date(2026, 1, 2), "2026", "2027", datetime.date(2027, 1, 2)),
        (decimal.Decimal("1.10"), '"1.10"', '"1.20"', decimal.Decimal("1.20")),
        (uuid.UUID(int=1), "0001", "0002", uuid.UUID(int=2)),
        ((1, "a"), '"a"', '"b"', (1, "b")),
        (frozenset({1}), "1\n", "2\n", frozenset({2})),
        (Colour.RED, '"red"', '"blue"', Colour.BLUE),
        (Measured(3), '"size": 3', '"size": 4', None),
        (Aliased(handed="x"), '"count": 0', '"count": 7', Aliased(handed="x", count=7)),
        ([Colour.RED, (1, {2})], '"red"', '"blue"', [Colour.BLUE, (1, {2})]),
    ],
)
def test_values_of_many_types_can_be_edited(value: Any, old: str, new: str, edited: Any) -> None:
    draft = drafted(it=value)
    assert draft.changes() == {}
    assert old in draft.text
    draft.text = draft.text.replace(old, new)
    found = draft.changes()["it"]
    assert type(found) is type(value)
    assert found != value
    assert edited is None or found == edited


def test_what_is_not_touched_is_the_very_value() -> None:
    model, pair = Aliased(handed="x"), Pair(1, 2)
    draft = drafted(it=[model, pair, b"x", "old"])
    draft.text = draft.text.replace('"old"', '"new"')
    found = draft.changes()["it"]
    assert found[0] is model
    assert found[1] is pair
    assert found[2:] == [b"x", "new"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"red"', '"green"', "line 4, .*green"),
        ('"2026-01-02"', '"soon"', "line 8, .*soon"),
        ('"2026-01-02"', "7", 'line 6, .*needs its "text"'),
        ('"text"', '"txt"', 'line 6, .*needs its "text"'),
    ],
)
def test_an_edit_that_does_not_fit_is_told_with_its_line(old: str, new: str, says: str) -> None:
    draft = drafted(colour=Colour.RED, day=datetime.date(2026, 1, 2))
    draft.text = draft.text.replace(old, new)
    with pytest.raises(ConfigurationError, match=says):
        draft.changes()


@pytest.mark.parametrize("text", [None, 3, "", "[1]", "[" * 100_000, "{", '{"it": 1, }'])
def test_a_text_that_is_no_state_is_refused(text: Any) -> None:
    draft = drafted(it=1)
    draft.text = text
    with pytest.raises(ConfigurationError):
        draft.changes()


SMALL = st.lists(st.integers(0, 4) | st.lists(st.integers(0, 1), max_size=2), max_size=9)


@given(SMALL, SMALL)
def test_lists_are_aligned_and_can_be_applied(old: list[Any], new: list[Any]) -> None:
    assert same(apply({"it": old}, diff({"it": old}, {"it": new})), {"it": new})


def test_a_conversation_that_slides_or_is_mended_has_a_small_difference() -> None:
    said = [HumanMessage(f"m{at}", id=f"i{at}") for at in range(9)]
    slid = diff({"it": said[:6]}, {"it": said[2:8]})
    assert [(one.kind, one.where) for one in slid] == [
        *(("removed", "it[1]"), ("removed", "it[0]")),
        *(("added", "it[4]"), ("added", "it[5]")),
    ]
    mended = [said[0], HumanMessage("else", id="i1"), *said[2:6], AIMessage("new", id="n")]
    assert [(one.kind, one.where) for one in diff({"it": said[:6]}, {"it": mended})] == [
        ("added", "it[6]"),
        ("changed", "it[1]"),
    ]


def test_long_lists_of_few_values_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take a dozen seconds."""
    monkeypatch.delattr("difflib.SequenceMatcher")
    old, new = {"it": [at % 2 for at in range(1_000)]}, {"it": [0] * 1_000}
    assert len(diff(old, new)) == 500
    assert apply(old, diff(old, new)) == new


@dataclasses.dataclass(eq=False)
class Box:
    held: Any


MANY = 5_000
"""More than a repr writes out."""
HOLDERS: dict[str, Any] = {
    "array": np.array,
    "objects": lambda values: np.array(values, dtype=object),
    "pandas": lambda values: pd.DataFrame({"v": values}),
    "polars": lambda values: pl.DataFrame({"v": values}),
    "arrow": lambda values: pa.table({"v": values}),
    "field": lambda values: Box(np.array(values)),
    "named": lambda values: Pair(1, np.array(values)),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_one_number_in_a_large_table_is_a_difference(holder: Any) -> None:
    numbers = list(range(MANY))
    other = [*numbers[:2_500], -1, *numbers[2_501:]]
    assert diff({"it": [holder(numbers)]}, {"it": [holder(numbers)]}) == []
    (change,) = diff({"it": [holder(numbers)]}, {"it": [holder(other)]})
    assert change.where == "it[0]"


def test_arrays_of_other_types_or_shapes_differ() -> None:
    ones = [np.array([1]), np.array([1.0]), np.array([[1]]), np.array([1, 1])]
    assert all(same(a, b) == (a is b) for a in ones for b in ones)
    assert same(np.array([np.nan]), np.array([np.nan]))
    assert not same(pd.Series([1], name="a"), pd.Series([1], name="b"))


@pytest.mark.parametrize(("old", "new"), [("a\nb", "a\nb\n"), ("a\nb\n", "a\r\nb\n")])
def test_a_change_of_line_ends_is_a_change_to_be_seen(old: str, new: str) -> None:
    changed = Diff(diff({"text": old}, {"text": new}))
    assert len(repr(changed).splitlines()) > 3
    assert 'class="new"' in changed._repr_html_()


# ---- showing ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Unsaid:
    text: str = "held"

    def __repr__(self) -> str:
        raise RuntimeError


def test_what_has_no_repr_is_shown_all_the_same(saver: Any, tmp_path: Path) -> None:
    tl = made_of(saver, table=[Unsaid()], blob=b"x")
    assert "its repr raises RuntimeError" in repr(tl[-1].diff())
    assert "table = " in repr(tl[-1])
    assert "held" in tl[-1].to_json()
    check_html(tl.to_html(tmp_path / "x.html").read_text("utf-8"))


def test_a_terminal_is_not_obeyed_and_long_texts_are_folded() -> None:
    evil = "\x1b[2J\r\u202e" + "x" * 5_000
    tl = made_of(InMemorySaver(), table=evil, messages=[HumanMessage(evil), AIMessage("a\nb")])
    tl.graph.invoke({}, {**at("things"), "metadata": {"tags": "\x1b[31m"}})
    tl.refresh()
    for shown in map(repr, (tl, tl[-1], tl[2].diff(), tl.diff(0, -1), tl.plot())):
        assert not set(shown) & {"\x1b", "\r", "\u202e"}
        assert max(map(len, shown.splitlines())) < 600
    assert "\\x1b[2J" in repr(tl[2].diff())


def test_half_a_surrogate_pair_can_be_saved(tmp_path: Path) -> None:
    page = html.page(html.value("\ud83d"))
    assert page.encode("utf-8")
    thread = "t\ud800"
    graph = simple(InMemorySaver())
    graph.invoke({}, at(thread))
    saved = Timeline(graph, thread).to_html(tmp_path / "x.html")
    assert "&#55296;" in saved.read_text("utf-8")


def test_how_many_steps_are_shown_is_true() -> None:
    graph = simple(InMemorySaver())
    for _ in range(20):
        graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    assert "the newest 50 steps" in repr(tl)
    assert len(tl) == 80
    assert "80 steps, the newest 50 shown" in repr(tl)
    assert tl._repr_html_().count("data-step=") == 50


def test_a_page_opens_steps_while_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = simple(InMemorySaver())
    for _ in range(3):
        graph.invoke({}, at("t"))
    monkeypatch.setattr(pages, "VALUES", 30)
    page = Timeline(graph, "t")._repr_html_()
    check_html(page)
    opened = page.count("data-step=")
    assert 2 <= opened < 12
    assert f"the values of {12 - opened} older ones are not on this page" in page


def test_every_step_of_the_tree_is_joined_to_its_parent() -> None:
    def header(id: str, parent: str | None) -> Header:
        return Header("t", "", id, parent, None, {}, {}, {}, None)

    tree = [header("a", None), header("b", "a"), header("f", "a"), header("g", "f")]
    tree += [header("h", "f"), header("i", "b"), header("o", "gone")]
    drawn = rows(tree, "i")
    assert [(row.id, row.lane) for row in drawn] == [
        *(("a", 0), ("f", 1), ("h", 2), ("g", 1), ("b", 0), ("i", 0), ("o", 1)),
    ]
    lines = {row.id: rail for row, rail in zip(drawn, rails(drawn), strict=True)}
    assert lines["a"] == type(lines["a"])((), above=False, below=True)
    assert lines["f"] == type(lines["a"])((0,), above=False, below=True)
    assert lines["h"] == type(lines["a"])((0, 1), above=False, below=False)
    assert lines["g"] == type(lines["a"])((0,), above=True, below=False)
    assert lines["o"] == type(lines["a"])((), above=False, below=False)


def test_a_followed_thread_that_comes_to_wait_is_shown_again() -> None:
    graph = asking(InMemorySaver())
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    shown: list[str] = []
    waits = text.line(tl[-1])
    assert watch._again(tl, waits, shown.append) == waits
    assert watch._again(tl, waits.replace("waits", ""), lambda s: shown.append(s.node)) == waits
    assert shown == ["__start__"]


def test_what_is_followed_can_be_the_result_of_a_cell(
    saver: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = simple(saver)
    live: Any = Timeline(graph, "t").watch(every=0, timeout=0)
    assert "for step in" in repr(live)
    graph.invoke({}, at("t"))
    live._ipython_display_()
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert list(live) == []


def test_a_summary_counts_what_happened(saver: Any) -> None:
    graph = asking(saver, 2)
    graph.invoke({}, at("t"))
    tl = Timeline(graph, "t")
    told = summary(tl)
    assert (told.steps, told.branches, told.asked, told.waiting, told.failed) == (2, 1, 1, 1, 0)
    assert told.nodes == {}
    tl.resume(dict.fromkeys(tl.waiting, "yes"))
    graph.invoke({}, {**at("t"), "metadata": {"tags": "x"}})
    tl.refresh()
    told = summary(tl)
    assert told.nodes == {"ask0": 1, "ask1": 1}
    assert (told.asked, told.waiting) == (2, 1)
    assert told.tags == {"x": 2}
    assert told.seconds == time_per_node(tl)
    assert told.first == tl[0].created_at
    assert told.last == tl[-1].created_at
    assert summary(tl[-1:]).steps == 1
