"""Stories of time travel: replays, forks, forks of forks, and states edited by hand."""

from __future__ import annotations

from typing import Any

from langgraph.graph import END
from langgraph.types import Command, Send, StateUpdate
from pauses import ask
from play import Play, line, story

stepped = story("sync", "async", looks_back=True)  # "exit" stores no steps to go back to


@stepped
async def a_replay_from_every_checkpoint(play: Play) -> None:
    graph = line(play, "a", "b", "c")
    await play.run(graph, {"log": ["hi"]})
    for state in await play.history():
        given = await play.run(graph, None, state.config)
        assert given["log"][-1] == "c" or state.next == ("__start__",)
    await play.run(graph, {"log": ["on"]})


@stepped
async def forks_of_forks(play: Play) -> None:
    graph = line(play, "a", "b", "c")
    await play.run(graph, {"log": ["hi"]})
    for depth in range(3):
        fork = await play.update(graph, {"log": [f"fork {depth}"]}, await play.before("b"))
        given = await play.run(graph, None, fork)
        assert given["log"] == ["hi", "a", *(f"fork {n}" for n in range(depth + 1)), "b", "c"]
        assert (await play.state(graph)).values == given
    oldest = (await play.history())[-2].config
    await play.run(graph, {"log": ["another input"]}, oldest)
    await play.run(graph, {"log": ["on"]})


@stepped
async def two_inputs_from_one_old_checkpoint(play: Play) -> None:
    graph = line(play, "a", "b")
    await play.run(graph, {"log": ["one"]})
    end = (await play.state(graph)).config
    for name in ("two", "three"):
        given = await play.run(graph, {"log": [name]}, end)
        assert given["log"] == ["one", "a", "b", name, "a", "b"]
    await play.run(graph, {"log": ["four"]})


@stepped
async def a_question_answered_differently(play: Play) -> None:
    graph = line(play, "a", ("ask", ask(play, "name?")), "b")
    await play.run(graph, {"log": []})
    await play.run(graph, Command(resume="Ann"))
    asked = await play.before("ask")
    await play.run(graph, None, asked)
    given = await play.run(graph, Command(resume="Bob"))
    assert given["log"] == ["a", "name? Bob", "b"]
    await play.run(graph, Command(resume="Cy"), asked)
    await play.state(graph, asked)


@stepped
async def a_replay_with_children(play: Play) -> None:
    for remembers in (None, True):
        child = line(play, "x", ("ask", ask(play, "sure?")), "y").compile(checkpointer=remembers)
        graph = line(play, "a", ("child", child), "b")
        thread = f"remembers {remembers}"
        for turn in range(2):
            await play.run(graph, {"log": [f"turn {turn}"]}, thread)
            await play.run(graph, Command(resume=f"yes {turn}"), thread)
        history = await play.history(thread)
        for state in [s for s in history if s.next and s.next[0] in ("a", "child", "__start__")]:
            await play.run(graph, None, state.config, durability=play.mode)
            await play.run(graph, Command(resume="replayed"), thread)
        await play.run(graph, {"log": ["on"]}, thread)
        await play.run(graph, Command(resume="on"), thread)


@stepped
async def a_replay_inside_a_child(play: Play) -> None:
    child = line(play, "x", ("ask", ask(play, "sure?")), "y").compile(checkpointer=True)
    graph = line(play, "a", ("child", child), "b")
    await play.run(graph, {"log": []})
    inside = {"configurable": {"thread_id": "t", "checkpoint_ns": "child"}}
    old = next(s.config for s in await play.history(inside, graph) if "x" in s.next)
    await play.run(graph, None, old)
    await play.run(graph, Command(resume="yes"))
    await play.history(inside, graph)


@story()
async def states_written_by_hand(play: Play) -> None:
    graph = line(play, "a", "b", "c")
    await play.update(graph, {"log": ["by hand"], "note": "n"}, as_node="a")
    assert (await play.state(graph)).next == ("b",)
    given = await play.run(graph, None)
    assert given["log"] == ["by hand", "b", "c"]
    await play.update(graph, {"log": ["said"]}, as_node="__start__")
    await play.run(graph, None)
    await play.update(graph, {"log": ["quiet"]})
    await play.update(graph, None, as_node=END)
    await play.update(graph, None, as_node="__copy__")
    await play.update(graph, {"log": ["input"]}, as_node="__input__")
    await play.run(graph, None)


@story()
async def a_send_written_by_hand(play: Play) -> None:
    graph = line(play, "plan").add_node("work", lambda o: play.node(f"work {o['part']}")(o))
    sends = [Send("work", {"part": part}) for part in range(3)]
    graph.add_conditional_edges("plan", lambda state: sends, ["work"])
    await play.update(graph, {"log": ["by hand"]}, as_node="plan")
    assert (await play.state(graph)).next == ("work",) * 3
    given = await play.run(graph, None)
    assert given["log"] == ["by hand", "work 0", "work 1", "work 2"]


@story()
async def many_states_written_at_once(play: Play) -> None:
    graph = line(play, "a")
    for name in ("left", "right"):
        graph.add_node(name, play.node(name)).add_edge("a", name)
    graph.add_node("join", play.node("join")).add_edge(["left", "right"], "join")
    both = [StateUpdate({"log": [name]}, name) for name in ("left", "right")]
    steps = [[StateUpdate({"log": ["hi"]}, "__input__")], [StateUpdate({"log": ["a"]}, "a")], both]
    for _ in range(2):
        await play.call(graph, "bulk_update_state", {"configurable": {"thread_id": "t"}}, steps)
        assert (await play.state(graph)).next == ("join",)
    given = await play.run(graph, None)
    assert given["log"] == ["a", "left", "right"] * 2 + ["join"]


@stepped
async def a_history_by_filter_before_and_limit(play: Play) -> None:
    graph = line(play, "a", "b")
    for turn in range(3):
        config = {"configurable": {"thread_id": "t"}, "metadata": {"turn": turn, "user": "u"}}
        await play.run(graph, {"log": [f"turn {turn}"]}, config)
    whole = await play.history()
    options: list[dict[str, Any]] = [
        {"limit": 2},
        {"filter": {"source": "input"}},
        {"filter": {"turn": 1}},
        {"filter": {"turn": 1, "source": "loop"}, "limit": 2},
        {"filter": {"step": 0, "user": "u"}},
        {"filter": {"turn": "1"}},
        {"before": whole[3].config},
        {"before": whole[3].config, "filter": {"turn": 1}, "limit": 1},
        {"before": whole[-1].config},
    ]
    counts = [len(await play.history(**each)) for each in options]
    assert counts == [2, 3, 4, 2, 1, 0, 8, 1, 0]
