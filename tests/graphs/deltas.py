"""Stories of DeltaChannel: a channel that is stored as its writes, with a snapshot now and then."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite, Send, StateUpdate, interrupt
from play import Play, line, story


def extend(log: list[str], writes: list[list[str]]) -> list[str]:
    return [*log, *(entry for write in writes for entry in write)]


def converse(messages: list[AnyMessage], writes: list[Any]) -> list[AnyMessage]:
    for write in writes:
        messages = add_messages(messages, write)  # type: ignore[assignment, arg-type]
    return messages


class Rare(TypedDict, total=False):
    """Snapshots are so rare that all is rebuilt from writes."""

    log: Annotated[list[str], DeltaChannel(extend)]
    note: str


class Often(TypedDict, total=False):
    """Every third update makes a snapshot."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    note: str


class Chat(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(converse, snapshot_frequency=4)]


KINDS = {"rare": Rare, "often": Often}


def lines(play: Play) -> list[tuple[str, StateGraph[Any]]]:
    return [(name, line(play, "a", "b", "c", state=kind)) for name, kind in KINDS.items()]


@story()
async def deltas_over_many_turns(play: Play) -> None:
    for thread, graph in lines(play):
        expected: list[str] = []
        for turn in range(3):
            given = await play.run(graph, {"log": [f"turn {turn}"]}, thread)
            expected += [f"turn {turn}", "a", "b", "c"]
            assert given["log"] == expected
            assert (await play.state(graph, thread)).values["log"] == expected


@story()
async def deltas_from_parallel_tasks(play: Play) -> None:
    for thread, kind in KINDS.items():
        graph = line(play, "plan", state=kind)
        graph.add_node("work", lambda order: play.node(f"work {order['part']}")(order))
        sends = [Send("work", {"part": part}) for part in range(12)]
        graph.add_conditional_edges("plan", lambda state: sends, ["work"])  # noqa: B023
        for turn in range(2):
            await play.run(graph, {"log": [f"turn {turn}"]}, thread)
        assert len((await play.state(graph, thread)).values["log"]) == 2 * 14


@story()
async def deltas_overwritten(play: Play) -> None:
    for thread, kind in KINDS.items():
        graph = line(play, "a", ("anew", lambda s: {"log": Overwrite(["anew"])}), "b", state=kind)
        for turn in range(2):
            given = await play.run(graph, {"log": [f"turn {turn}"]}, thread)
            assert given["log"] == ["anew", "b"]
        await play.update(graph, {"log": Overwrite(["by hand"])}, thread)
        await play.run(graph, {"note": "on"}, thread)
        await play.run(graph, {"log": Overwrite(["input"])}, thread)


@story("sync", "async", looks_back=True)
async def deltas_replayed_and_forked(play: Play) -> None:
    for thread, graph in lines(play):
        for turn in range(2):
            await play.run(graph, {"log": [f"turn {turn}"]}, thread)
        for state in await play.history(thread):
            if state.next:
                await play.run(graph, None, state.config)
        for depth in range(2):
            old = await play.before("b", thread)
            fork = await play.update(graph, {"log": [f"fork {depth}"]}, old)
            given = await play.run(graph, None, fork)
            assert (await play.state(graph, thread)).values["log"] == given["log"]
        await play.run(graph, {"log": ["input"]}, (await play.history(thread))[-3].config)
        await play.run(graph, {"log": ["on"]}, thread)


@story()
async def deltas_written_by_hand(play: Play) -> None:
    for thread, graph in lines(play):
        config = {"configurable": {"thread_id": thread}}
        await play.update(graph, {"log": ["first"]}, thread, as_node="a")
        await play.run(graph, None, thread)
        for turn in range(4):
            await play.update(graph, {"log": [f"update {turn}"]}, thread, as_node="b")
        steps = [[StateUpdate({"log": [name]}, name)] for name in ("a", "b", "a")]
        await play.call(graph, "bulk_update_state", config, steps)
        await play.run(graph, None, thread)
        await play.run(graph, {"log": ["on"]}, thread)


@story()
async def deltas_of_a_copied_checkpoint(play: Play) -> None:
    for thread, graph in lines(play):
        await play.run(graph, {"log": ["hi"]}, thread)
        await play.update(graph, {"log": ["by hand"]}, thread, as_node="a")
        await play.update(graph, None, thread, as_node="__copy__")
        given = await play.run(graph, None, thread)
        assert given["log"] == ["hi", "a", "b", "c", "by hand", "b", "c"]


@story()
async def deltas_and_questions(play: Play) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("what?")]}

    for thread, kind in KINDS.items():
        graph = line(play, "a", ("ask", ask), "b", state=kind)
        graph.add_node("beside", play.node("beside")).add_edge("a", "beside")
        for turn in range(2):
            await play.run(graph, {"log": [f"turn {turn}"]}, thread)
            await play.state(graph, thread)
            given = await play.run(
                graph, Command(resume="it", update={"log": ["by the way"]}), thread
            )
        assert given["log"].count("it") == given["log"].count("by the way") == 2


@story()
async def deltas_in_children(play: Play) -> None:
    for thread, kind in KINDS.items():
        for remembers in (None, True):
            child = line(play, "x", "y", state=kind).compile(checkpointer=remembers)
            graph = line(play, "a", ("child", child), "b", state=kind)
            for turn in range(2):
                given = {"log": [f"turn {turn}"]}
                await play.run(graph, given, f"{thread} {remembers}")


@story()
async def a_conversation_of_deltas(play: Play) -> None:
    def reply(state: Chat) -> dict[str, Any]:
        last = state["messages"][-1]
        return {"messages": [AIMessage("re", id=f"re {last.id}")]}

    graph = line(play, ("reply", reply), state=Chat)
    for turn in range(4):
        await play.run(graph, {"messages": [HumanMessage("hi", id=f"{turn}")]})
    await play.run(graph, {"messages": [RemoveMessage(id="1"), HumanMessage("HI", id="0")]})
    await play.update(graph, {"messages": [AIMessage("RE", id="re 2")]})
    given = (await play.state(graph)).values["messages"]
    assert [m.content for m in given][:4] == ["HI", "re", "re", "hi"]
