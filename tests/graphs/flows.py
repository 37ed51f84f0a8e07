"""Stories of control flow: lines, loops, branches, sends, commands, and sub-graphs of all kinds."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Literal, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.channels import EphemeralValue, Topic, UntrackedValue
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Overwrite, Send
from play import Log, Play, line, plain, story


class Count(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    count: Annotated[int, operator.add]


@story()
async def a_line_of_nodes(play: Play) -> None:
    graph = line(play, "a", "b", "c")
    await play.run(graph, {"log": ["hi"]})
    given = await play.run(graph, {"log": ["again"], "note": "x"})
    assert given["log"] == ["hi", "a", "b", "c", "again", "a", "b", "c"]
    await play.state(graph)


@story()
async def a_node_that_returns_nothing(play: Play) -> None:
    graph = line(play, ("silent", lambda state: None), ("empty", lambda state: {}), "last")
    await play.run(graph, {"log": ["hi"]})
    await play.state(graph)


@story()
async def a_loop_with_a_way_out(play: Play) -> None:
    graph = line(play, ("step", play.node("step", count=1)), state=Count)
    graph.add_conditional_edges("step", lambda state: "step" if state["count"] % 5 else END)
    given = await play.run(graph, {"log": ["go"], "count": 0})
    assert given["count"] == 5
    await play.run(graph, {"count": 1})


@story()
async def a_loop_that_hits_the_limit_goes_on_later(play: Play) -> None:
    graph = line(play, ("step", play.node("step", count=1)), state=Count)
    graph.add_conditional_edges("step", lambda state: "step" if state["count"] < 6 else END)
    short = {"configurable": {"thread_id": "t"}, "recursion_limit": 3}
    await play.fail(GraphRecursionError, graph, {"count": 0}, short)
    given = await play.run(graph, None)
    assert given["count"] == 6


@story()
async def branches_that_join(play: Play) -> None:
    graph = line(play, "a")
    for name in ("left", "right"):
        graph.add_node(name, play.node(name)).add_edge("a", name)
    graph.add_node("join", play.node("join")).add_edge(["left", "right"], "join")
    graph.add_node("late", play.node("late"), defer=True).add_edge("a", "late")
    for turn in range(2):
        await play.run(graph, {"log": [f"turn {turn}"]})


@story()
async def sends_that_fan_out(play: Play) -> None:
    graph = line(play, "plan")
    graph.add_node("work", lambda order: play.node(f"work {order['part']}")(order))
    graph.add_node("gather", play.node("gather")).add_edge("work", "gather")
    sends = [Send("work", {"part": part, "of": {"deep": [part]}}) for part in range(12)]
    graph.add_conditional_edges("plan", lambda state: sends, ["work"])
    given = await play.run(graph, {"log": []})
    assert given["log"] == ["plan", *(f"work {part}" for part in range(12)), "gather"]
    await play.run(graph, {"log": ["again"]})


@story()
async def commands_that_go_and_update(play: Play) -> None:
    def choose(state: Log) -> Command[Literal["b", "c"]]:
        sends: list[Any] = [Send("c", {"log": ["sent"]}), "b"]
        return Command(update={"log": ["chose"], "note": "chosen"}, goto=sends)

    graph = line(play, ("choose", choose))
    graph.add_node("b", play.node("b")).add_node("c", play.node("c"))
    await play.run(graph, {"log": []})
    await play.run(graph, Command(goto="b", update={"log": ["told"]}))
    await play.run(graph, Command(update={"note": "only a note"}))
    await play.state(graph)


@story("sync", "exit")  # a Topic is changed in place, so under "async" LangGraph races with itself
async def channels_of_all_kinds(play: Play) -> None:
    class Kinds(TypedDict, total=False):
        log: Annotated[list[str], operator.add]
        passing: Annotated[str, EphemeralValue(str)]
        private: Annotated[object, UntrackedValue(object)]
        topic: Annotated[list[str], Topic(str, accumulate=True)]
        nothing: None
        table: Annotated[dict[str, int], operator.or_]

    graph = line(
        play,
        ("a", play.node("a", passing="p", private=object, topic="x", table={"a": 1})),
        ("b", play.node("b", topic=["y", "z"], nothing=None, table={"b": 2, "a": 3})),
        ("c", lambda state: {"log": Overwrite(["anew"]), "table": {}}),
        state=Kinds,
    )
    await play.run(graph, {"log": ["hi"]}, output_keys=["log", "topic", "nothing", "table"])
    await play.run(graph, {"topic": "w"}, output_keys=["log", "topic", "nothing", "table"])


@story()
async def threads_do_not_mix(play: Play) -> None:
    graph = line(play, "a", "b")
    for turn in range(2):
        for thread in ("one", "two", "one|two", "ü\u2028:%_"):
            given = await play.run(graph, {"log": [f"{thread} {turn}"]}, thread)
            assert len(given["log"]) == 3 * (turn + 1)
    await play.run(graph, {"log": ["int"]}, 7)
    await play.run(graph, {"log": ["str"]}, "7")
    assert (await play.state(graph, 7)).values["log"] == ["int", "a", "b", "str", "a", "b"]


@story()
async def tools_called_at_once(play: Play) -> None:
    class Chat(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    @tool
    def double(n: int) -> int:
        """Double it."""
        play.ran.append(f"double {n}")
        return 2 * n

    asked = [{"name": "double", "args": {"n": n}, "id": f"call {n}"} for n in range(3)]
    graph = line(
        play,
        ("ask", lambda state: {"messages": [AIMessage("", id="ask", tool_calls=asked)]}),
        ("tools", ToolNode([double])),
        ("tell", lambda state: {"messages": [AIMessage(f"{len(state['messages'])}", id="tell")]}),
        state=Chat,
    )
    await play.run(graph, {"messages": [HumanMessage("hi", id="hi")]})


# -- sub-graphs -----------------------------------------------------------------------------------


def family(play: Play, **options: Any) -> StateGraph[Any]:
    """A graph whose middle node is a graph of two nodes, compiled with `options`."""
    child = line(play, "x", "y").compile(**options)
    return line(play, "a", ("child", child), "b")


@story()
async def a_stateless_child(play: Play) -> None:
    graph = family(play)
    await play.run(graph, {"log": ["hi"]})
    await play.run(graph, {"log": ["again"]})
    await play.state(graph, subgraphs=True)


@story()
async def a_child_that_remembers(play: Play) -> None:
    graph = family(play, checkpointer=True)
    for turn in range(3):
        await play.run(graph, {"log": [f"turn {turn}"]})
    await play.state(graph, {"configurable": {"thread_id": "t", "checkpoint_ns": "child"}})


@story("async", "exit")  # langgraph 1.2.22 itself fails here under "sync"
async def a_child_without_a_saver(play: Play) -> None:
    graph = family(play, checkpointer=False)
    for turn in range(2):
        await play.run(graph, {"log": [f"turn {turn}"]})


@story()
async def children_of_children(play: Play) -> None:
    for options in ({}, {"checkpointer": True}):
        inner = line(play, "deep").compile(**options)
        middle = line(play, "x", ("inner", inner), "y").compile(**options)
        graph = line(play, "a", ("middle", middle), "b")
        for turn in range(2):
            await play.run(graph, {"log": [f"turn {turn}"]}, f"thread {options}")


@story()
async def children_at_once(play: Play) -> None:
    graph = line(play, "a")
    for name, remembers in (("left", None), ("right", True), ("middle", None)):
        child = line(play, f"{name} x", f"{name} y").compile(checkpointer=remembers)
        graph.add_node(name, child).add_edge("a", name)
    for turn in range(2):
        await play.run(graph, {"log": [f"turn {turn}"]})


@story()
async def children_sent_at_once(play: Play) -> None:
    def part(order: dict[str, Any]) -> dict[str, Any]:
        return {"log": [f"part of {order['log'][0]}"]}

    graph = line(play, "plan").add_node("child", line(play, ("part", part), "y").compile())
    sends = [Send("child", {"log": [f"order {n}"]}) for n in range(4)]
    graph.add_conditional_edges("plan", lambda state: sends, ["child"])
    for turn in range(2):
        await play.run(graph, {"log": [f"turn {turn}"]})


@story()
async def children_called_by_a_node(play: Play) -> None:
    first, second = line(play, "x").compile(), line(play, "y").compile()

    def call(state: Log) -> dict[str, Any]:
        inner = first.invoke({"log": ["called"]})["log"]
        return {"log": [*inner, *second.invoke({"log": ["called too"]})["log"]]}

    graph = line(play, "a", ("call", call), "b")
    for turn in range(2):
        await play.run(graph, {"log": [f"turn {turn}"]})


@story()
async def another_graph_on_the_same_saver_called_by_a_node(play: Play) -> None:
    other = line(play, "x", "y")

    def call(state: Log) -> dict[str, Any]:
        inner = other.compile(checkpointer=play.saver)
        inner.invoke({"log": ["elsewhere"]}, {"configurable": {"thread_id": "elsewhere"}})
        return {"log": inner.invoke({"log": ["here"]})["log"]}

    graph = line(play, "a", ("call", call), "b")
    for turn in range(2):
        await play.run(graph, {"log": [f"turn {turn}"]})


@story(looks_back=True)
async def a_node_that_updates_another_thread(play: Play) -> None:
    other = line(play, "x", "y")

    def call(state: Log) -> dict[str, Any]:
        inner, place = other.compile(checkpointer=play.saver), {"thread_id": "other"}
        inner.update_state({"configurable": place}, {"log": ["from afar"]}, "y")
        oldest = list(inner.get_state_history({"configurable": place}))[-1]
        inner.update_state(oldest.config, {"log": ["a fork"]}, "x")
        return {"log": inner.get_state({"configurable": place}).values["log"]}

    await play.run(other, {"log": ["hi"]}, "other")
    graph = line(play, "a", ("call", call), "b")
    for turn in range(2):
        await play.run(graph, {"log": [f"turn {turn}"]})


@story()
async def a_child_that_sends_its_parent_elsewhere(play: Play) -> None:
    def leave(state: Log) -> Command[Any]:
        return Command(graph=Command.PARENT, goto="b", update={"log": ["left"]})

    child = line(play, "x", ("leave", leave)).compile()
    graph = StateGraph(Log).add_node("child", child).add_edge(START, "child")
    graph.add_node("b", play.node("b"))
    for turn in range(2):
        await play.run(graph, {"log": [f"turn {turn}"]})


@story()
async def a_child_with_a_schema_of_its_own(play: Play) -> None:
    class Inner(TypedDict, total=False):
        count: Annotated[int, operator.add]
        log: Annotated[list[str], operator.add]
        secret: str

    child = line(play, ("x", play.node("x", count=2, secret="s")), state=Inner)
    graph = line(play, ("child", child.compile(checkpointer=True)), "b", state=Count)
    for turn in range(3):
        await play.run(graph, {"log": [f"turn {turn}"], "count": 1})


@story()
async def streams_of_every_mode(play: Play) -> None:
    graph = family(play)
    config = {"configurable": {"thread_id": "t"}}
    for mode in ("values", "updates", "checkpoints", "debug", "tasks"):
        options = {"stream_mode": mode, "subgraphs": True, "durability": play.mode}
        for _, event in await play.call(graph, "stream", {"log": [mode]}, config, **options):
            event = event.get("payload", event) if mode == "debug" else event
            kept = ("values", "next", "metadata", "name", "input", "result", "log")
            play.seen.append(("event", plain({key: event[key] for key in kept if key in event})))
    await play.run(graph, {"log": ["done"]})
