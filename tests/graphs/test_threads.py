"""What happens to whole threads: removed, copied, rolled back, described; and then they go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import deltas
import pytest
from langgraph.types import Command, Durability, interrupt
from play import MODES, WAYS, Config, Graph, Log, Open, Play, line, lineage

from langgraph_durable.testing.model import Coloured, finish


@pytest.fixture(params=["sync", "reopened"])
def way(request: pytest.FixtureRequest) -> str:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["sync", "exit"])
def play(request: pytest.FixtureRequest, way: str, open_saver: Open) -> Play:
    return Play(open_saver, WAYS[way], request.param)


def tell(play: Play, story: Callable[[], Any]) -> None:
    """Run a test's own coroutine in the colour of the play."""
    finish("sync" if play.way == WAYS["sync"] else "async", story())


def saver(play: Play) -> Coloured:
    """The play's saver, to be awaited in its colour."""
    return Coloured(play.saver, "sync" if play.way == WAYS["sync"] else "async")


def asking(play: Play, state: Any) -> Graph:
    """a -> ask -> b, and a node beside the question."""
    graph = line(play, "a", ("ask", lambda _: {"log": [interrupt("name?")]}), "b", state=state)
    return graph.add_node("beside", play.node("beside")).add_edge("a", "beside")


def nested(play: Play, remembers: bool | None) -> Graph:
    """The question is asked by a child of a child."""
    child = asking(play, Log).compile(checkpointer=remembers)  # type: ignore[union-attr]
    middle = line(play, "x", ("child", child)).compile(checkpointer=remembers)
    return line(play, ("middle", middle), "y")


GRAPHS: dict[str, Callable[[Play], Graph]] = {
    "values": lambda play: asking(play, Log),
    "deltas": lambda play: asking(play, deltas.Rare),
    "snapshots": lambda play: asking(play, deltas.Often),
    "children": lambda play: nested(play, None),
    "remembering children": lambda play: nested(play, True),
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest, play: Play) -> Graph:
    return GRAPHS[request.param](play)


def by_run(run: str, thread: str = "t") -> Config:
    return {"configurable": {"thread_id": thread}, "metadata": {"run_id": run}}


async def turn(play: Play, graph: Graph, n: int, thread: str = "t") -> Any:
    """One turn of a graph that asks: said by run "n said", answered by run "n told"."""
    await play.run(graph, {"log": [f"say {n}"]}, by_run(f"{n} said", thread))
    return await play.run(graph, Command(resume=f"tell {n}"), by_run(f"{n} told", thread))


# -- pruning --------------------------------------------------------------------------------------


def test_a_question_can_be_answered_after_pruning(play: Play, graph: Graph) -> None:
    async def story() -> None:
        first = await turn(play, graph, 0)
        await play.run(graph, {"log": ["say 1"]})
        asked = await play.state(graph, subgraphs=True)
        await saver(play).prune(["t"])
        pruned = await play.state(graph, subgraphs=True)
        assert play.seen[-1] == play.seen[-2]
        assert pruned.parent_config is None
        assert asked.config == pruned.config
        assert len(await play.history()) == 1
        given = await play.run(graph, Command(resume="tell 1"))
        assert [entry for entry in given["log"] if entry.startswith("tell")][-1] == "tell 1"
        assert given["log"][: len(first["log"])] == first["log"]
        assert (await play.state(graph)).values == given

    tell(play, story)


def test_pruning_everything_leaves_nothing_and_the_thread_starts_anew(
    play: Play, graph: Graph
) -> None:
    async def story() -> None:
        first = await turn(play, graph, 0)
        await turn(play, graph, 1)
        await saver(play).prune(["t"], strategy="delete")
        assert (await play.state(graph)).values == {}
        assert await turn(play, graph, 0) == first

    tell(play, story)


# -- deleting -------------------------------------------------------------------------------------


def test_a_deleted_thread_starts_anew_and_its_neighbour_keeps_all(play: Play, graph: Graph) -> None:
    async def story() -> None:
        first = await turn(play, graph, 0)
        await turn(play, graph, 0, "neighbour")
        await play.run(graph, {"log": ["say 1"]})
        before = lineage(await play.history("neighbour"))
        await saver(play).delete_thread("t")
        empty = await play.state(graph, subgraphs=True)
        assert (empty.values, empty.next, empty.tasks) == ({}, (), ())
        assert await play.history() == []
        assert await turn(play, graph, 0) == first
        assert lineage(await play.history("neighbour")) == before

    tell(play, story)


def test_a_run_taken_back_is_as_if_it_had_never_been(play: Play, graph: Graph) -> None:
    async def story() -> None:
        await turn(play, graph, 0)
        await play.run(graph, {"log": ["say 1"]}, by_run("1 said"))
        asked = await play.state(graph, subgraphs=True)
        await play.run(graph, Command(resume="wrong"), by_run("wrong"))
        await play.run(graph, {"log": ["rogue"]}, by_run("rogue"))
        await saver(play).delete_for_runs(["wrong", "rogue", "nobody"])
        await saver(play).delete_for_runs(["wrong"])
        again = await play.state(graph, subgraphs=True)
        assert (again.config, again.values) == (asked.config, asked.values)
        assert (again.next, again.interrupts) == (asked.next, asked.interrupts)
        await play.run(graph, Command(resume="tell 1"), by_run("1 told"))
        given = await turn(play, graph, 2)
        assert [entry for entry in given["log"] if entry.startswith("tell")][-1] == "tell 2"
        assert not {"wrong", "rogue"} & set(given["log"])

    tell(play, story)


def test_a_run_taken_out_of_the_middle_leaves_what_came_after_it_unchanged(
    play: Play, graph: Graph
) -> None:
    async def story() -> None:
        for n in range(3):
            await turn(play, graph, n)
        before = await play.state(graph)
        await saver(play).delete_for_runs(["1 said", "1 told"])
        after = await play.state(graph)
        assert (after.config, after.values, after.next) == (
            before.config,
            before.values,
            before.next,
        )
        given = await turn(play, graph, 3)
        assert given["log"][: len(before.values["log"])] == before.values["log"]

    tell(play, story)


# -- copying --------------------------------------------------------------------------------------


def test_a_copy_has_the_same_past_and_both_go_on_apart(play: Play, graph: Graph) -> None:
    async def story() -> None:
        await turn(play, graph, 0)
        await play.run(graph, {"log": ["say 1"]})
        await saver(play).copy_thread("t", "copy")
        assert lineage(await play.history("copy", graph)) == lineage(await play.history("t"))
        mine = await play.run(graph, Command(resume="mine"))
        await saver(play).delete_thread("t")
        asked = await play.state(graph, "copy", subgraphs=True)
        assert [each.value for each in asked.interrupts] == ["name?"]
        copied = await play.run(graph, Command(resume="copied"), "copy")
        assert [e.replace("copied", "mine") for e in copied["log"]] == mine["log"]
        assert (await play.state(graph)).values == {}

    tell(play, story)


# -- a clock that is behind -----------------------------------------------------------------------


def test_a_thread_goes_on_from_a_fork_that_was_made_by_a_clock_that_is_behind(
    play: Play, step_back: Callable[[], None]
) -> None:
    async def story() -> None:
        graph = line(play, "a", "b", "c")
        first = await play.run(graph, {"log": ["hi"]}, durability="sync")
        await play.run(graph, {"log": ["on"]}, durability="sync")
        end = next(s.config for s in await play.history() if s.values == first)
        middle = next(s.config for s in reversed(await play.history()) if s.next == ("b",))
        for n in range(2):
            for given, config in (
                ({"log": [f"input {n}"]}, end),
                (None, middle),
                (None, await play.update(graph, {"log": [f"fork {n}"]}, middle)),
            ):
                step_back()
                forked = await play.run(graph, given, config)
                assert (await play.state(graph)).values == forked
                step_back()
                further = await play.run(graph, {"log": ["further"]})
                assert further["log"] == [*forked["log"], "further", "a", "b", "c"]

    tell(play, story)


# -- metadata -------------------------------------------------------------------------------------


SECRETS = {"openai_api_key": "sk-1", "password": "hunter2", "github_token": "gh-1"}


def with_secrets(**more: Any) -> Config:
    return {
        "configurable": {"thread_id": "t", "author": "Ann", "token_count": 3, **SECRETS},
        "metadata": {"run_id": "run 1", "client_secret": "cs-1", "user": "u"},
        **more,
    }


@pytest.mark.parametrize("mode", MODES)
def test_secrets_of_a_config_reach_the_nodes_but_not_the_store(
    way: str, mode: Durability, open_saver: Open, caplog: pytest.LogCaptureFixture
) -> None:
    play = Play(open_saver, WAYS[way], mode)

    def use(state: Any, config: Any) -> dict[str, Any]:
        return {"note": str(config["configurable"]["password"] == "hunter2")}

    use.__annotations__.clear()
    graph = line(play, ("use", use), ("child", line(play, "x").compile()), "b")

    async def story() -> None:
        with caplog.at_level(logging.WARNING, "langgraph_durable"):
            for _ in range(2):
                given = await play.run(graph, {"log": ["hi"]}, with_secrets())
        assert given["note"] == "True"
        found = await saver(play).list(None)
        assert found
        for each in found:
            assert not {*SECRETS, "client_secret"} & set(each.metadata)
            kept = {key: each.metadata.get(key) for key in ("author", "token_count", "user")}
            assert kept == {"author": "Ann", "token_count": 3, "user": "u"}
            assert each.metadata["run_id"] == "run 1"

    tell(play, story)
    for secret in (*SECRETS.values(), "cs-1"):
        assert secret not in caplog.text


def test_metadata_keys_names_the_only_ones_that_are_kept(way: str, open_saver: Open) -> None:
    play = Play(lambda: open_saver(metadata_keys=["user"]), WAYS[way])

    async def story() -> None:
        await play.run(line(play, "a"), {"log": ["hi"]}, with_secrets())
        for each in await saver(play).list(None):
            own = {"source", "step", "parents"}
            assert set(each.metadata) == {*own, "user", "run_id"}

    tell(play, story)


def test_the_ids_a_thread_hands_out_are_strings_like_any_other(play: Play) -> None:
    async def story() -> None:
        graph = line(play, "a", ("child", line(play, "x").compile(checkpointer=True)), "b")
        await play.run(graph, {"log": ["hi"]})
        state = await play.state(graph)
        await play.run(graph, {"log": ["again"]}, state.config)
        for each in await saver(play).list(None):
            parents = each.metadata["parents"].values()
            assert {type(parent) for parent in parents} <= {str}
            assert type(each.checkpoint["id"]) is str

    tell(play, story)
