"""One writer at a time: of two runs that go on from one checkpoint, the second is refused.

The rival of a run is another run of the same thread, from start to end, at a moment we choose:
right after the first one has loaded the thread, or while one of its nodes works. The stories of
`test_stories.py` are the other half: none of them may ever raise a false alarm.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any

import deltas
import pytest
from functional import flow
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Durability, interrupt
from play import MODES, Graph, Open, Play, Saver, compiled_with, line

from langgraph_durable import ConcurrentUpdate, SerializationError
from langgraph_durable.testing.model import Colour, Coloured, at, checkpoint, finish, numbered

CONFIG = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Durability:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def play(open_saver: Open) -> Play:
    """Only for its nodes and its first saver."""
    return Play(open_saver)


def aside(work: Callable[[], Any]) -> Any:
    """Do it on a thread of its own, with its own event loop and context, as a process would."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def at_first(saver: Saver, method: str, act: Callable[[], Any], *, before: bool = False) -> None:
    """Let `act` happen once, around the next call of this method in either colour."""
    call, acall = getattr(saver, method), getattr(saver, f"a{method}")

    def acted() -> None:
        setattr(saver, method, call)
        setattr(saver, f"a{method}", acall)
        aside(act)

    def called(*args: Any) -> Any:
        if before:
            acted()
            return call(*args)
        given = call(*args)
        acted()
        return given

    async def acalled(*args: Any) -> Any:
        if before:
            acted()
            return await acall(*args)
        given = await acall(*args)
        acted()
        return given

    setattr(saver, method, called)
    setattr(saver, f"a{method}", acalled)


def after_loading(saver: Saver, act: Callable[[], Any]) -> None:
    """Let `act` happen once the next run has loaded its thread."""
    at_first(saver, "get_tuple", act)


def before_putting(saver: Saver, act: Callable[[], Any]) -> None:
    """Let `act` happen when the next run is about to store its first checkpoint.

    By then, under "exit", LangGraph has stored all writes of a DeltaChannel on the loaded one.
    """
    at_first(saver, "put", act, before=True)


MOMENTS = {"loaded": after_loading, "putting": before_putting}


def run(
    colour: Colour,
    graph: Graph,
    saver: Saver,
    given: Any,
    mode: Any = None,
    config: Any = CONFIG,
    **options: Any,
) -> Any:
    """Invoke the graph on this saver; a string is something said to it."""
    compiled = compiled_with(graph, saver)
    given = {"log": [given]} if isinstance(given, str) else given
    if colour == "async":
        return asyncio.run(compiled.ainvoke(given, config, durability=mode, **options))
    return compiled.invoke(given, config, durability=mode, **options)


def log(graph: Graph, saver: Saver) -> list[str]:
    values = compiled_with(graph, saver).get_state(CONFIG).values
    return [entry for entry in values.get("log", ()) if entry not in "abc"]


def family(play: Play) -> Graph:
    child = line(play, "x", "y").compile(checkpointer=True)
    return line(play, "a", ("child", child), "b")


GRAPHS: dict[str, Callable[[Play], Graph]] = {
    "line": lambda play: line(play, "a", "b"),
    "delta": lambda play: line(play, "a", "b", state=deltas.Rare),
    "snapshots": lambda play: line(play, "a", "b", state=deltas.Often),
}

# -- the second is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "before", "savers"),
    [
        ("line", [], 1),
        ("line", ["hi"], 2),
        ("delta", [], 2),
        ("delta", ["hi"], 1),
        ("delta", ["hi", "ho"], 2),
        ("snapshots", ["hi"], 2),
    ],
)
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_second_of_two_runs_is_refused_and_the_first_one_is_not_lost(
    play: Play,
    colour: Colour,
    mode: Durability,
    moment: str,
    kind: str,
    before: list[str],
    savers: int,
) -> None:
    graph, saver = GRAPHS[kind](play), play.saver
    other = play.open_saver() if savers == 2 else saver
    for said in before:
        run(colour, graph, saver, said, mode)
    head = saver.get_tuple(CONFIG)
    MOMENTS[moment](saver, lambda: run(colour, graph, other, "rival", mode))

    with pytest.raises(ConcurrentUpdate) as refused:
        run(colour, graph, saver, "refused", mode)
    newest = saver.get_tuple(CONFIG)
    assert refused.value.thread_id == "t"
    assert refused.value.expected == (head and head.checkpoint["id"])
    assert newest
    assert refused.value.actual == newest.checkpoint["id"]
    assert log(graph, saver) == [*before, "rival"]
    run(colour, graph, saver, "again", mode)
    assert log(graph, saver) == log(graph, other) == [*before, "rival", "again"]


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_run_that_is_refused_late_leaves_nothing_in_the_run_that_was_accepted(
    play: Play, colour: Colour, mode: Durability, kind: str, request: pytest.FixtureRequest
) -> None:
    """Both load, the later loser stores all but its checkpoint, the winner ends, the loser puts."""
    graph, loser = GRAPHS[kind](play), play.open_saver()
    run(colour, graph, play.saver, "hi", mode)
    about_to_put, winner_done = Event(), Event()

    def pause() -> None:
        about_to_put.set()
        winner_done.wait(120)

    with ThreadPoolExecutor(1) as pool:
        before_putting(loser, pause)
        losing: list[Future[Any]] = []

        def start_loser() -> None:
            losing.append(pool.submit(run, colour, graph, loser, "refused", mode))
            about_to_put.wait(120)

        after_loading(play.saver, start_loser)
        run(colour, graph, play.saver, "winner", mode)
        winner_done.set()
        with pytest.raises(ConcurrentUpdate):
            losing[0].result()
    assert log(graph, play.saver) == ["hi", "winner"]


@pytest.mark.parametrize("mode", ["sync", "exit"])
def test_a_run_overtaken_while_its_node_works_is_refused(
    play: Play, colour: Colour, mode: Durability
) -> None:
    other, plain = play.open_saver(), line(play, "a", "b")

    def work(state: Any) -> dict[str, Any]:
        aside(lambda: run(colour, plain, other, "rival", mode))
        return {"log": ["worked"]}

    run(colour, plain, play.saver, "hi", mode)
    with pytest.raises(ConcurrentUpdate):
        run(colour, line(play, "a", ("work", work), "b"), play.saver, "overtaken", mode)
    kept = log(plain, play.saver)
    assert "rival" in kept
    assert "worked" not in kept
    run(colour, plain, play.saver, "again", mode)
    assert log(plain, play.saver) == [*kept, "again"]


def test_only_the_first_of_two_answers_to_a_question_counts(
    play: Play, colour: Colour, mode: Durability
) -> None:
    graph = line(play, "a", ("ask", lambda state: {"log": [interrupt("name?")]}), "b")
    run(colour, graph, play.saver, "hi", mode)
    other = play.open_saver()
    after_loading(play.saver, lambda: run(colour, graph, other, Command(resume="first"), mode))
    with pytest.raises(ConcurrentUpdate):
        run(colour, graph, play.saver, Command(resume="second"), mode)
    assert log(graph, play.saver) == ["hi", "first"]


def test_only_the_first_of_two_second_tries_after_an_error_counts(
    play: Play, colour: Colour, mode: Durability
) -> None:
    fails = [True]

    def work(state: Any) -> dict[str, Any]:
        if fails:
            raise OSError(fails.pop())
        return {"log": ["worked"]}

    graph = line(play, "a", ("work", work), "b")
    with pytest.raises(OSError):
        run(colour, graph, play.saver, "hi", mode)
    other = play.open_saver()
    after_loading(play.saver, lambda: run(colour, graph, other, None, mode))
    with pytest.raises(ConcurrentUpdate):
        run(colour, graph, play.saver, None, mode)
    assert log(graph, play.saver) == ["hi", "worked"]


def test_workflows_of_the_functional_api_are_refused_too(
    play: Play, colour: Colour, mode: Durability
) -> None:
    def body(said: list[str], *, previous: list[str] | None = None) -> list[str]:
        return [*(previous or []), *said]

    graph, other = flow(body), play.open_saver()
    run(colour, graph, play.saver, ["hi"], mode)
    after_loading(play.saver, lambda: run(colour, graph, other, ["rival"], mode))
    with pytest.raises(ConcurrentUpdate):
        run(colour, graph, play.saver, ["refused"], mode)
    assert run(colour, graph, play.saver, ["again"], mode) == ["hi", "rival", "again"]


def test_a_put_that_failed_has_not_gone_on_from_its_checkpoint(
    open_saver: Open, colour: Colour
) -> None:
    """What the run still writes on the checkpoint it loaded is refused if others have moved on."""
    saver, other = Coloured(open_saver(), colour), open_saver()
    other.put(at("t"), checkpoint(numbered(1)), {}, {})

    async def overtaken() -> None:
        loaded = (await saver.get_tuple(at("t"))).config["configurable"]
        config = {"configurable": {**loaded, "__pregel_runtime": object()}}
        with pytest.raises(SerializationError):
            await saver.put(config, checkpoint(numbered(2), {"a": object()}), {}, {})
        other.put(at("t", numbered(1)), checkpoint(numbered(3)), {}, {})
        with pytest.raises(ConcurrentUpdate):
            await saver.put_writes(config, [("a", 1)], "task")

    finish(colour, overtaken())
    assert other.get_tuple(at("t", numbered(1))).pending_writes == []


def test_a_run_does_not_bury_an_update_made_behind_it(
    play: Play, colour: Colour, mode: Durability
) -> None:
    graph = line(play, "a", "b")
    run(colour, graph, play.saver, "hi", mode)
    other = compiled_with(graph, play.open_saver())
    after_loading(play.saver, lambda: other.update_state(CONFIG, {"log": ["edit"]}))
    with pytest.raises(ConcurrentUpdate):
        run(colour, graph, play.saver, "refused", mode)
    assert log(graph, play.saver) == ["hi", "edit"]


def test_a_deleted_thread_stays_deleted_when_a_run_of_it_ends_later(
    play: Play, colour: Colour, mode: Durability
) -> None:
    graph, other = line(play, "a", "b"), play.open_saver()
    run(colour, graph, play.saver, "hi", mode)
    after_loading(play.saver, lambda: other.delete_thread("t"))
    with pytest.raises(ConcurrentUpdate):
        run(colour, graph, play.saver, "late", mode)
    assert list(play.saver.list(None)) == []
    run(colour, graph, play.saver, "anew", mode)
    assert log(graph, play.saver) == ["anew"]


@pytest.mark.parametrize("before", [[], ["hi"]], ids=["new", "known"])
def test_of_runs_at_the_same_moment_one_ends_and_others_are_refused_as_such(
    play: Play, mode: Durability, before: list[str]
) -> None:
    """Their puts share a commit; that one of them fails is no other's error."""
    graph, saver = line(play, "a", "b"), play.saver
    for said in before:
        run("async", graph, saver, said, mode)

    async def rush() -> list[Any]:
        compiled = compiled_with(graph, saver)
        runs = (
            compiled.ainvoke({"log": [f"say {n}"]}, at(thread), durability=mode)
            for n, thread in enumerate("ttutttt")
        )
        return await asyncio.gather(*runs, return_exceptions=True)

    ended = asyncio.run(rush())
    assert {type(end) for end in ended} <= {dict, ConcurrentUpdate}
    assert isinstance(ended.pop(2), dict)
    assert [end for end in ended if isinstance(end, dict)]


@pytest.mark.parametrize("mode", ["sync", "exit"])
def test_of_many_runs_at_once_every_acknowledged_one_is_there(play: Play, mode: Durability) -> None:
    graph = line(play, "a")

    def insist(name: int) -> list[str]:
        saver, told = play.open_saver(), []
        for turn in range(4):
            while True:
                try:
                    run("sync", graph, saver, f"{name}.{turn}", mode)
                except ConcurrentUpdate:
                    continue
                told.append(f"{name}.{turn}")
                break
        return told

    with ThreadPoolExecutor(3) as pool:
        told = [entry for part in pool.map(insist, range(3)) for entry in part]
    kept = log(graph, play.saver)
    assert set(told) <= set(kept)
    if mode == "exit":  # a refused run leaves nothing behind, so each is there once
        assert sorted(told) == sorted(kept)


# -- both are let through -------------------------------------------------------------------------


def inputs(graph: Graph, saver: Saver) -> set[str]:
    """Everything that was ever said to the graph and stored, on any branch."""
    history = compiled_with(graph, saver).get_state_history(CONFIG)
    return {entry for state in history for entry in state.values.get("log", ())} - {*"abc"}


@pytest.mark.parametrize("before", [[], ["hi"]], ids=["new", "used"])
def test_both_runs_are_stored_when_conflicts_are_allowed(
    open_saver: Open, colour: Colour, mode: Durability, before: list[str]
) -> None:
    play = Play(lambda: open_saver(on_conflict="allow"))
    graph, other = line(play, "a", "b"), play.open_saver()
    for said in before:
        run(colour, graph, play.saver, said, mode)
    after_loading(play.saver, lambda: run(colour, graph, other, "first", mode))
    run(colour, graph, play.saver, "second", mode)
    assert inputs(graph, play.saver) == {*before, "first", "second"}
    assert log(graph, play.saver) == [*before, "second"]


def test_runs_that_ask_for_the_same_checkpoint_are_forks_and_both_are_stored(
    play: Play, colour: Colour, mode: Durability
) -> None:
    graph, other = line(play, "a", "b"), play.open_saver()
    run(colour, graph, play.saver, "hi", mode)
    head = compiled_with(graph, play.saver).get_state(CONFIG).config
    after_loading(play.saver, lambda: run(colour, graph, other, "first", mode, head))
    run(colour, graph, play.saver, "second", mode, head)
    assert inputs(graph, play.saver) == {"hi", "first", "second"}
    assert log(graph, play.saver) == ["hi", "second"]


# -- no false alarm, beyond the stories -----------------------------------------------------------


def test_an_update_is_never_refused(play: Play, colour: Colour) -> None:
    graph, other = line(play, "a", "b"), play.open_saver()
    run(colour, graph, play.saver, "hi")
    after_loading(play.saver, lambda: run(colour, graph, other, "rival"))
    compiled = compiled_with(graph, play.saver)
    if colour == "async":
        asyncio.run(compiled.aupdate_state(CONFIG, {"log": ["edit"]}))
    else:
        compiled.update_state(CONFIG, {"log": ["edit"]})
    assert inputs(graph, play.saver) == {"hi", "rival", "edit"}


def test_direct_use_of_the_saver_is_never_refused(saver: Saver) -> None:
    first = saver.put(at("t"), checkpoint(numbered(1)), {}, {})
    for n in (2, 3):
        saver.put(first, checkpoint(numbered(n)), {}, {})
    saver.put(at("t"), checkpoint(numbered(4)), {}, {})
    saver.put(at("t", numbered(99)), checkpoint(numbered(5)), {}, {})
    assert [found.checkpoint["id"] for found in saver.list(at("t"))] == [
        numbered(n) for n in (5, 4, 3, 2, 1)
    ]


@pytest.mark.parametrize("how", ["prune", "copy", "read"])
def test_a_run_goes_on_while_its_thread_is_pruned_copied_or_read(
    play: Play, colour: Colour, mode: Durability, how: str
) -> None:
    other = play.open_saver()
    acts = {
        "prune": lambda: other.prune(["t"]),
        "copy": lambda: other.copy_thread("t", f"copy {len(play.ran)}"),
        "read": lambda: list(other.list(None)),
    }

    def work(state: Any) -> dict[str, Any]:
        aside(acts[how])
        return play.node("a")(state)

    for state in (None, deltas.Rare, deltas.Often):
        graph = line(play, ("one", work), ("two", work), **({"state": state} if state else {}))
        for turn in range(3):
            run(colour, graph, play.saver, f"{turn}", mode)
        assert log(graph, play.saver) == ["0", "1", "2"]
        play.saver.delete_thread("t")


def heavy(said: str) -> dict[str, Any]:
    """An input that takes its time to be stored."""
    return {"log": [said], "note": secrets.token_hex(1_000_000)}


def test_a_run_may_follow_one_whose_stream_was_abandoned(
    play: Play, colour: Colour, mode: Durability
) -> None:
    compiled = compiled_with(line(play, "a", "b", "c"), play.saver)

    async def abandon() -> None:
        async for _ in compiled.astream(heavy("left"), CONFIG, durability=mode):
            break

    for turn in range(4):
        if colour == "async":
            asyncio.run(abandon())
        else:
            for _ in compiled.stream(heavy("left"), CONFIG, durability=mode):
                break
        given = run(colour, lambda _: compiled, play.saver, f"{turn}", mode)
    assert [said for said in given["log"] if said in "0123"] == ["0", "1", "2", "3"]


def test_a_run_may_follow_one_that_was_cancelled(play: Play, mode: Durability) -> None:
    async def slow(state: Any) -> dict[str, Any]:
        await asyncio.sleep(0.002)
        return {"log": ["a"], "note": secrets.token_hex(1_000_000)}

    graph = line(play, ("one", slow), ("two", slow), ("three", slow))

    async def cancel_and_go_on() -> None:
        compiled = compiled_with(graph, play.saver)
        for n in range(8):
            cancelled = compiled.ainvoke(heavy("cancelled"), CONFIG, durability=mode)
            with suppress(TimeoutError):  # the first at least; a fast machine may end the last
                await asyncio.wait_for(cancelled, 0.003 * n)
            # LangGraph leaves the end of a cancelled run to a task that the caller may wait for.
            ending = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*ending, return_exceptions=True)
            await compiled.ainvoke({"log": [f"{n}"]}, CONFIG, durability=mode)

    asyncio.run(cancel_and_go_on())
    kept = [said for said in log(graph, play.saver) if said != "cancelled"]
    assert kept == [f"{n}" for n in range(8)]


def test_a_checkpoint_that_nobody_knows_starts_from_nothing_as_with_the_memory_saver(
    play: Play, colour: Colour, mode: Durability
) -> None:
    graph = line(play, "a", "b")
    for saver in (InMemorySaver(), play.saver):
        run(colour, graph, saver, "hi", mode)
        given = run(colour, graph, saver, "lost", mode, at("t", numbered(1)))
        assert given["log"] == ["lost", "a", "b"]


# -- what all this rests on -----------------------------------------------------------------------


class Witness(InMemorySaver):
    """Hands out ids of a type of its own, and keeps the `configurable` of each put."""

    class Id(str):
        __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[dict[str, Any]] = []

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if found is not None:
            place = found.config["configurable"]
            place["checkpoint_id"] = self.Id(place["checkpoint_id"])
        return found

    def put(self, config: Any, *rest: Any) -> Any:
        self.puts.append(config["configurable"])
        return super().put(config, *rest)


@pytest.mark.parametrize("kind", ["graph", "family", "workflow"])
def test_langgraph_marks_the_puts_of_runs_and_of_nobody_else(
    play: Play, colour: Colour, mode: Durability, kind: str
) -> None:
    witness = Witness()
    graph = {
        "graph": line(play, "a", "b"),
        "family": family(play),
        "workflow": flow(lambda given: given),
    }[kind]
    for _ in range(2):
        run(colour, graph, witness, "hi", mode)
    assert witness.puts
    assert all("__pregel_runtime" in each for each in witness.puts)

    if kind != "workflow":
        witness.puts.clear()
        compiled_with(graph, witness).update_state(CONFIG, {"log": ["edit"]}, as_node="b")
        assert len(witness.puts) == 1
        assert "__pregel_runtime" not in witness.puts[0]


def test_langgraph_hands_the_loaded_id_back_as_the_very_parent_of_the_first_put(
    play: Play, colour: Colour, mode: Durability
) -> None:
    witness, graph = Witness(), line(play, "a", "b")
    for said in ("hi", "again"):
        witness.puts.clear()
        run(colour, graph, witness, said, mode)
    assert type(witness.puts[0]["checkpoint_id"]) is Witness.Id
    assert not any(type(each["checkpoint_id"]) is Witness.Id for each in witness.puts[1:])
