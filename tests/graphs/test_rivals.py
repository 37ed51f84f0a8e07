"""Two runs at one checkpoint: each goes on with its own writes, whoever stored them first.

A `DeltaChannel` reads its value from the writes on the checkpoints before. Under "exit" a run
stores all of them at its end on the checkpoint that it loaded, and only then the one that goes on;
so the writes of two runs may lie there together. Here the later loser stores all but its
checkpoint, the winner ends, and then the loser's checkpoint is refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import backends
import deltas
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import RunControl
from langgraph.types import Command, Durability, Send, interrupt
from play import MODES, Graph, Open, Play, Saver, compiled_with, line
from test_conflicts import CONFIG, before_putting, log, run

from langgraph_durable import (
    ConcurrentUpdate,
    ConfigurationError,
    CorruptionError,
    KeepLast,
    StateSchema,
    copy_store,
    export_threads,
    import_threads,
)
from langgraph_durable.testing.model import Colour


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def play(open_saver: Open) -> Play:
    return Play(open_saver)


class Late:
    """A run that stops when it has stored all but its first checkpoint, until it is let go."""

    def __init__(self, saver: Saver, work: Callable[[], Any]) -> None:
        self._is_there, self._may_go = Event(), Event()
        before_putting(saver, self._pause)
        self._pool = ThreadPoolExecutor(1)
        self._ended: Future[Any] = self._pool.submit(work)
        assert self._is_there.wait(20)

    def _pause(self) -> None:
        self._is_there.set()
        self._may_go.wait(20)

    def go(self) -> Any:
        self._may_go.set()
        with self._pool:
            return self._ended.result()

    def is_refused(self) -> None:
        with pytest.raises(ConcurrentUpdate):
            self.go()


def once_loaded(saver: Saver, act: Callable[[], Any]) -> None:
    """Let `act` happen once, when this saver has given out a checkpoint."""
    get, aget = saver.get_tuple, saver.aget_tuple

    def restore() -> None:
        saver.get_tuple, saver.aget_tuple = get, aget  # type: ignore[method-assign]

    def got(config: Any) -> Any:
        found = get(config)
        restore()
        act()
        return found

    async def agot(config: Any) -> Any:
        found = await aget(config)
        restore()
        act()
        return found

    saver.get_tuple, saver.aget_tuple = got, agot  # type: ignore[method-assign]


def meet(
    colour: Colour,
    graph: Graph,
    winner: Saver,
    loser: Saver,
    given: tuple[Any, Any],
    mode: Durability = "exit",
) -> Late:
    """Both load the thread; the second has stored all but its checkpoint when the first ends."""
    late: list[Late] = []
    start = lambda: run(colour, graph, loser, given[1], mode)  # noqa: E731
    once_loaded(winner, lambda: late.append(Late(loser, start)))
    run(colour, graph, winner, given[0], mode)
    return late[0]


def asking(play: Play) -> Graph:
    ask = ("ask", lambda state: {"log": [interrupt("name?")]})
    return line(play, "a", ask, "b", state=deltas.Rare)


@pytest.mark.parametrize("mode", MODES)
def test_two_answers_to_one_question_do_not_mix(
    play: Play, colour: Colour, mode: Durability
) -> None:
    """Both runs store what their tasks write under the same ids."""
    graph, loser = asking(play), play.open_saver()
    run(colour, graph, play.saver, "hi", mode)
    answers = tuple(Command(resume=name, update={"log": [f"by {name}"]}) for name in ("W", "L"))
    late = meet(colour, graph, play.saver, loser, answers, mode)
    late.is_refused()
    for saver in (play.saver, loser, play.open_saver()):
        assert sorted(log(graph, saver)) == ["W", "by W", "hi"]
    run(colour, graph, loser, "again", mode)
    assert sorted(log(graph, play.saver)) == ["W", "again", "by W", "hi"]


def through_text(saver: Saver) -> Saver:
    """The same saver as one behind a wire: what it gives out is made of plain text."""
    get, aget = saver.get_tuple, saver.aget_tuple

    def plain(found: Any) -> Any:
        if found is None:
            return None
        sent = json.loads(json.dumps([found.config, found.parent_config, found.checkpoint["id"]]))
        checkpoint = {**found.checkpoint, "id": sent[2]}
        return found._replace(config=sent[0], parent_config=sent[1], checkpoint=checkpoint)

    async def aplain(config: Any) -> Any:
        return plain(await aget(config))

    saver.get_tuple, saver.aget_tuple = lambda config: plain(get(config)), aplain  # type: ignore[method-assign]
    return saver


@pytest.mark.parametrize("mode", MODES)
def test_they_are_told_apart_where_ids_come_back_as_plain_text(
    play: Play, colour: Colour, mode: Durability
) -> None:
    """A wrapper between LangGraph and the saver may have written the tuples down and read them."""
    graph, loser = asking(play), through_text(play.open_saver())
    winner = through_text(play.saver)
    run(colour, graph, winner, "hi", mode)
    answers = tuple(Command(resume=name, update={"log": [f"by {name}"]}) for name in ("W", "L"))
    meet(colour, graph, winner, loser, answers, mode).is_refused()
    assert sorted(log(graph, play.open_saver())) == ["W", "by W", "hi"]
    first = list(compiled_with(graph, winner).get_state_history(CONFIG))[-1].config
    run(colour, graph, loser, "asked for", mode, first)
    assert "asked for" in log(graph, play.open_saver())


@pytest.mark.parametrize("mode", MODES)
def test_two_second_tries_of_many_tasks_do_not_mix(
    play: Play, colour: Colour, mode: Durability
) -> None:
    """Some tasks have ended in the first try: both runs know what those wrote."""
    fails, who = [True], ["?"]

    def work(order: dict[str, int]) -> dict[str, Any]:
        if order["part"] % 2:
            if fails:
                raise OSError("not today")
            return {"log": [f"{who[0]}{order['part']}"]}
        return {"log": [f"first{order['part']}"]}

    graph = line(play, "plan", state=deltas.Rare)
    graph.add_node("work", work)
    sends = [Send("work", {"part": part}) for part in range(6)]
    graph.add_conditional_edges("plan", lambda state: sends, ["work"])
    with pytest.raises(OSError):
        run(colour, graph, play.saver, "hi", mode)
    known = {
        e for _, ch, v in play.saver.get_tuple(CONFIG).pending_writes if ch == "log" for e in v
    }
    fails.clear()
    who[0] = "L"
    loser = play.open_saver()

    def start() -> None:
        late.append(Late(loser, lambda: run(colour, graph, loser, None, mode)))
        who[0] = "W"

    late: list[Late] = []
    once_loaded(play.saver, start)
    run(colour, graph, play.saver, None, mode)
    late[0].is_refused()
    kept = log(graph, play.saver)
    assert known <= set(kept)
    assert sorted(e for e in kept if e[0] in "LW") == ["W1", "W3", "W5"]
    assert sorted(e for e in kept if e[0] == "f") == ["first0", "first2", "first4"]


@pytest.mark.parametrize("mode", MODES)
def test_what_an_earlier_run_put_aside_stays_there_for_a_later_one_of_the_same_hand(
    play: Play, colour: Colour, mode: Durability
) -> None:
    """A control may serve many runs, and its address another one once it is gone."""
    control, loser, who = RunControl(), play.open_saver(), ["W"]
    graph = line(play, "a", ("ask", lambda state: {"log": [interrupt("name?")]}), state=deltas.Rare)
    graph.add_node("beside", lambda state: {"log": [f"beside {who[0]}"]}).add_edge("a", "beside")
    compiled_with(graph, play.saver).update_state(CONFIG, {"log": ["hi"]}, as_node="a")

    def rival() -> None:
        who[0] = "L"
        with ThreadPoolExecutor(1) as pool:
            pool.submit(run, colour, graph, loser, None, mode).result()
        who[0] = "W"

    once_loaded(play.saver, rival)
    run(colour, graph, play.saver, None, mode, control=control)
    given = run(colour, graph, play.saver, Command(resume="me"), mode, control=control)
    assert sorted(given["log"]) == sorted(log(graph, play.saver)) == ["beside L", "hi", "me"]


def test_a_run_that_ends_on_a_step_of_another_leaves_nothing_there(
    play: Play, colour: Colour
) -> None:
    """One stores every step; the other has loaded one of these, and stores its end on it."""
    graph, loser, late = line(play, "a", "b", state=deltas.Rare), play.open_saver(), list[Late]()

    def work(state: Any) -> dict[str, Any]:
        late.append(Late(loser, lambda: run(colour, graph, loser, "refused", "exit")))
        return {"log": ["worked"]}

    working = line(play, "a", ("work", work), "b", state=deltas.Rare)
    run(colour, graph, play.saver, "hi", "sync")
    run(colour, working, play.saver, "winner", "sync")
    late[0].is_refused()
    assert log(working, play.saver) == ["hi", "winner", "worked"]


def test_an_update_does_not_take_over_what_a_late_run_wrote(play: Play, colour: Colour) -> None:
    graph, loser = line(play, "a", "b", state=deltas.Rare), play.open_saver()
    run(colour, graph, play.saver, "hi", "exit")
    late: list[Late] = []
    start = lambda: run(colour, graph, loser, "refused", "exit")  # noqa: E731
    once_loaded(play.saver, lambda: late.append(Late(loser, start)))
    compiled_with(graph, play.saver).update_state(CONFIG, {"log": ["edit"]})
    late[0].is_refused()
    assert log(graph, play.saver) == ["hi", "edit"]


def test_where_both_are_kept_each_has_its_own(play: Play, colour: Colour, open_saver: Open) -> None:
    graph = line(play, "a", "b", state=deltas.Rare)
    first, second = open_saver(on_conflict="allow"), open_saver(on_conflict="allow")
    run(colour, graph, first, "hi", "exit")
    late = meet(colour, graph, first, second, ("one", "two"))
    late.go()
    ends = compiled_with(graph, first).get_state_history(CONFIG)
    logs = [state.values.get("log", []) for state in ends]
    assert ["hi", "a", "b", "one", "a", "b"] in logs
    assert ["hi", "a", "b", "two", "a", "b"] in logs


def met(play: Play, graph: Graph, **options: Any) -> Saver:
    """A saver with a thread in which two answers have met."""
    saver, loser = play.open_saver(**options), play.open_saver(**options)
    run("sync", graph, saver, "hi", "exit")
    meet("sync", graph, saver, loser, (Command(resume="W"), Command(resume="L"))).is_refused()
    assert log(graph, saver) == ["hi", "W"]
    return saver


REMOVALS: dict[str, Callable[[Saver], Any]] = {
    "keep_latest": lambda saver: saver.prune(["t"]),
    "policy": lambda saver: saver.prune(["t"], strategy=KeepLast(2)),
    "nothing": lambda saver: saver.delete_for_runs(["nobody"]),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_they_stay_apart_when_others_are_removed(play: Play, removal: str) -> None:
    graph = asking(play)
    saver = met(play, graph)
    REMOVALS[removal](saver)
    assert log(graph, saver) == log(graph, play.open_saver()) == ["hi", "W"]
    run("sync", graph, saver, "again", "exit")
    run("sync", graph, saver, Command(resume="me"), "exit")
    assert log(graph, saver) == ["hi", "W", "again", "me"]


def test_a_copy_of_the_winners_end_is_its_like(play: Play) -> None:
    graph = asking(play)
    saver = met(play, graph)
    compiled = compiled_with(graph, saver)
    compiled.update_state(CONFIG, None, as_node="__copy__")
    assert log(graph, saver) == ["hi", "W"]
    compiled.update_state(CONFIG, {"log": ["edit"]}, as_node="b")
    assert log(graph, play.open_saver()) == ["hi", "W", "edit"]


def test_taking_the_winner_back_leaves_nothing_of_the_loser(play: Play) -> None:
    graph, loser = asking(play), play.open_saver()
    run("sync", graph, play.saver, "hi", "exit")
    config = {**CONFIG, "metadata": {"run_id": "w"}}
    late: list[Late] = []
    start = lambda: run("sync", graph, loser, Command(resume="L"), "exit")  # noqa: E731
    once_loaded(play.saver, lambda: late.append(Late(loser, start)))
    run("sync", graph, play.saver, Command(resume="W"), "exit", config)
    late[0].is_refused()
    play.saver.delete_for_runs(["w"])
    assert log(graph, play.saver) == ["hi"]
    run("sync", graph, play.saver, Command(resume="anew"), "exit")
    assert log(graph, play.saver) == ["hi", "anew"]


def test_they_stay_apart_in_copies(play: Play, open_saver: Open, tmp_path: Path) -> None:
    graph = asking(play)
    saver = met(play, graph)
    saver.copy_thread("t", "copy")
    export_threads(saver, tmp_path / "all.lgd")
    saver.delete_thread("t")
    import_threads(saver, tmp_path / "all.lgd", threads=["t"])
    compiled = compiled_with(graph, saver)
    for thread in ("t", "copy"):
        state = compiled.get_state({"configurable": {"thread_id": thread}})
        assert [entry for entry in state.values["log"] if entry not in "ab"] == ["hi", "W"]


def test_a_copy_that_cannot_keep_them_apart_is_not_made(play: Play, tmp_path: Path) -> None:
    graph = asking(play)
    saver, other = met(play, graph), InMemorySaver()
    with pytest.raises(ConfigurationError, match="two runs"):
        copy_store(saver, other)
    assert list(other.list(None)) == []
    elsewhere = backends.sqlite(tmp_path / "elsewhere.db" / "..")
    copy_store(saver, elsewhere)
    assert log(graph, elsewhere) == ["hi", "W"]
    elsewhere.close()


@pytest.mark.parametrize("ahead", [True, False])
def test_they_stay_apart_in_a_newer_version(play: Play, ahead: bool) -> None:
    graph = asking(play)
    met(play, graph, schema=StateSchema(version=1))
    schema = StateSchema(version=2)

    @schema.upgrade(to=2)
    def step(state: Any) -> None:
        state.add("note", "new")

    saver = play.open_saver(schema=schema)
    if ahead:
        saver.upgrade_threads()
    assert log(graph, saver) == ["hi", "W"]
    run("sync", graph, saver, "again", "exit")
    run("sync", graph, saver, Command(resume="me"), "exit")
    assert log(graph, saver) == ["hi", "W", "again", "me"]


def test_going_on_from_an_older_version_is_refused_where_a_rival_writes(play: Play) -> None:
    """What it needs of the past is stored anew then, and that cannot be told apart."""
    graph = asking(play)
    run("sync", graph, play.open_saver(schema=StateSchema(version=1)), "hi", "exit")
    schema = StateSchema(version=2)

    @schema.upgrade(to=2)
    def step(state: Any) -> None:
        state.add("note", "new")

    saver, loser = play.open_saver(schema=schema), play.open_saver(schema=schema)
    late: list[Late] = []
    start = lambda: run("sync", graph, loser, Command(resume="L"), "exit")  # noqa: E731
    once_loaded(saver, lambda: late.append(Late(loser, start)))
    with pytest.raises(ConcurrentUpdate):
        run("sync", graph, saver, Command(resume="W"), "exit")
    late[0].is_refused()
    run("sync", graph, saver, Command(resume="me"), "exit")
    assert log(graph, saver) == ["hi", "me"]


def test_they_stay_apart_where_scripts_are_denied(tmp_path: Path) -> None:
    opened: list[Any] = []

    def open_saver(**options: Any) -> Saver:
        opened.append(backends.scriptless(tmp_path, **options))
        return opened[-1]

    play = Play(open_saver)
    met(play, asking(play))
    for saver in opened:
        saver.close()


def test_a_damaged_write_of_a_rival_is_an_error(tmp_path: Path) -> None:
    opened = [backends.hasty_sqlite(tmp_path) for _ in range(2)]
    saver, loser = opened
    graph = asking(Play(lambda **options: saver))
    run("sync", graph, saver, "hi", "exit")
    late: list[Late] = []

    def start() -> None:
        late.append(Late(loser, lambda: run("sync", graph, loser, Command(resume="L"), "exit")))
        with sqlite3.connect(tmp_path / "agent.db") as conn:
            conn.execute("UPDATE lgd_writes SET body = zeroblob(length(body))")
        conn.close()

    once_loaded(saver, start)
    with pytest.raises(CorruptionError, match="writes of task"):
        run("sync", graph, saver, Command(resume="W"), "exit")
    late[0].go()
    for each in opened:
        each.close()
