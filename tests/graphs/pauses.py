"""Stories of interrupts: who is asked, in what order, what the answers do, and who runs again."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt
from play import Graph, Log, Play, Saver, line, story


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def ask(play: Play, *questions: str) -> Any:
    """A node that asks, one question after another, and logs the answers."""

    def run(state: Any) -> dict[str, Any]:
        play.ran.append(f"ask {questions[0]}")
        return {"log": [f"{question} {interrupt(question)}" for question in questions]}

    return run


def answers(given: dict[str, Any], **replies: Any) -> Command[Any]:
    """A resume that answers each question by its interrupt's id."""
    asked = {each.value: each.id for each in given["__interrupt__"]}
    return Command(resume={asked[question]: reply for question, reply in replies.items()})


@story()
async def one_question(play: Play) -> None:
    graph = line(play, "a", ("ask", ask(play, "name?")), "b")
    for reply in ("Ann", {"deep": [1, None]}, False, ""):
        given = await play.run(graph, {"log": ["hi"]})
        assert [each.value for each in given["__interrupt__"]] == ["name?"]
        assert (await play.state(graph)).next == ("ask",)
        given = await play.run(graph, Command(resume=reply))
        assert given["log"][-2:] == [f"name? {reply}", "b"]
    await play.state(graph)


@story()
async def several_questions_of_one_node(play: Play) -> None:
    graph = line(play, ("ask", ask(play, "one?", "two?", "three?")), "b")
    await play.run(graph, {"log": []})
    for reply in "1", "2":
        given = await play.run(graph, Command(resume=reply))
        await play.state(graph)
        assert len(given["__interrupt__"]) == 1
    given = await play.run(graph, Command(resume="3"))
    assert given["log"] == ["one? 1", "two? 2", "three? 3", "b"]


def panel(play: Play) -> Graph:
    """Two nodes that ask and one that works, all at once."""
    graph = line(play, "a")
    for name in ("left", "right"):
        graph.add_node(name, ask(play, name)).add_edge("a", name)
    graph.add_node("work", play.node("work")).add_edge("a", "work")
    graph.add_node("join", play.node("join")).add_edge(["left", "right", "work"], "join")
    return graph


@story()
async def questions_at_once_answered_at_once(play: Play) -> None:
    graph = panel(play)
    for _ in range(2):
        given = await play.run(graph, {"log": []})
        assert {each.value for each in given["__interrupt__"]} == {"left", "right"}
        await play.fail(RuntimeError, graph, Command(resume="which?"))
        given = await play.run(graph, answers(given, left=1, right=2))
        assert given["log"][-4:] == ["left 1", "right 2", "work", "join"]
    assert play.ran.count("work") == 2


@story()
async def questions_at_once_answered_one_by_one(play: Play) -> None:
    graph = panel(play)
    given = await play.run(graph, {"log": []})
    given = await play.run(graph, answers(given, right=2))
    await play.state(graph)
    given = await play.run(graph, answers(given, left=1))
    assert given["log"] == ["a", "left 1", "right 2", "work", "join"]
    assert play.ran.count("work") == 1


@story()
async def questions_of_sent_tasks(play: Play) -> None:
    def work(order: dict[str, Any]) -> dict[str, Any]:
        play.ran.append(f"work {order['part']}")
        done = interrupt(f"{order['part']}?") if order["part"] % 2 else "unasked"
        return {"log": [f"{order['part']} {done}"]}

    graph = line(play, "plan").add_node("work", work)
    sends = [Send("work", {"part": part}) for part in range(5)]
    graph.add_conditional_edges("plan", lambda state: sends, ["work"])
    given = await play.run(graph, {"log": []})
    given = await play.run(graph, answers(given, **{"1?": "one", "3?": "three"}))
    assert given["log"] == ["plan", "0 unasked", "1 one", "2 unasked", "3 three", "4 unasked"]


@story()
async def a_question_asked_in_a_loop(play: Play) -> None:
    graph = line(play, ("ask", ask(play, "more?")))
    graph.add_conditional_edges("ask", lambda s: END if s["log"][-1] == "more? no" else "ask")
    await play.run(graph, {"log": []})
    for reply in ("yes", "yes", "no"):
        given = await play.run(graph, Command(resume=reply))
    assert given["log"] == ["more? yes", "more? yes", "more? no"]


@story()
async def a_question_inside_children(play: Play) -> None:
    for remembers in (None, True):
        inner = line(play, "deep", ("ask", ask(play, "sure?")), "deeper")
        middle = line(play, "x", ("inner", inner.compile(checkpointer=remembers)), "y")
        graph = line(play, "a", ("middle", middle.compile(checkpointer=remembers)), "b")
        thread = f"remembers {remembers}"
        for turn in range(2):
            await play.run(graph, {"log": [f"turn {turn}"]}, thread)
            state = await play.state(graph, thread, subgraphs=True)
            assert state.tasks[0].state.tasks[0].state.next == ("ask",)
            given = await play.run(graph, Command(resume=f"yes {turn}"), thread)
            assert f"sure? yes {turn}" in given["log"]
    assert play.ran.count("x") == 4


@story()
async def questions_of_children_at_once(play: Play) -> None:
    graph = line(play, "a")
    for name, remembers in (("left", None), ("right", True)):
        child = line(play, f"{name} x", ("ask", ask(play, name)), f"{name} y")
        graph.add_node(name, child.compile(checkpointer=remembers)).add_edge("a", name)
    for turn in range(2):
        given = await play.run(graph, {"log": [f"turn {turn}"]})
        await play.state(graph, subgraphs=True)
        given = await play.run(graph, answers(given, left=1))
        given = await play.run(graph, answers(given, right=2))
    assert play.ran.count("left x") == play.ran.count("right x") == 2


@story()
async def a_question_of_a_child_called_by_a_node(play: Play) -> None:
    child = line(play, "x", ("ask", ask(play, "sure?"))).compile()

    def call(state: Log) -> dict[str, Any]:
        play.ran.append("call")
        return {"log": child.invoke({"log": ["called"]})["log"]}

    graph = line(play, "a", ("call", call), "b")
    await play.run(graph, {"log": []})
    given = await play.run(graph, Command(resume="yes"))
    assert given["log"] == ["a", "called", "x", "sure? yes", "b"]
    assert play.ran.count("x") == 1


@story()
async def stops_before_and_after_nodes(play: Play) -> None:
    builder = line(play, "a", "b", "c")

    def graph(saver: Saver) -> Any:
        return builder.compile(checkpointer=saver, interrupt_before=["b"], interrupt_after=["b"])

    for _ in range(2):
        await play.run(graph, {"log": ["hi"]})
        assert (await play.state(graph)).next == ("b",)
        await play.run(graph, None)
        assert (await play.state(graph)).next == ("c",)
        await play.run(graph, None)
    await play.run(builder, {"log": ["asked"]}, "other", interrupt_before="*")
    while (await play.state(builder, "other")).next:
        await play.run(builder, None, "other", interrupt_before="*")


@story()
async def a_stop_inside_a_child(play: Play) -> None:
    for remembers in (None, True):
        child = line(play, "x", "y").compile(checkpointer=remembers, interrupt_before=["y"])
        graph = line(play, "a", ("child", child), "b")
        thread = f"remembers {remembers}"
        for turn in range(2):
            await play.run(graph, {"log": [f"turn {turn}"]}, thread)
            await play.state(graph, thread, subgraphs=True)
            await play.run(graph, None, thread)


@story()
async def the_state_is_edited_while_a_question_waits(play: Play) -> None:
    graph = line(play, "a", ("ask", ask(play, "name?")), "b")
    await play.run(graph, {"log": []})
    await play.update(graph, {"log": ["edited"]})
    assert (await play.state(graph)).next == ("ask",)
    await play.run(graph, None)
    given = await play.run(graph, Command(resume="Ann", update={"note": "too"}))
    assert given["log"] == ["a", "edited", "name? Ann", "b"]


@story()
async def the_question_is_answered_by_an_update_as_its_node(play: Play) -> None:
    graph = line(play, "a", ("ask", ask(play, "name?")), "b")
    await play.run(graph, {"log": []})
    await play.update(graph, {"log": ["instead"]}, as_node="ask")
    given = await play.run(graph, None)
    assert given["log"] == ["a", "instead", "b"]


@story()
async def a_question_is_left_for_a_new_input(play: Play) -> None:
    graph = line(play, "a", ("ask", ask(play, "name?")), "b")
    await play.run(graph, {"log": ["one"]})
    await play.run(graph, {"log": ["two"]})
    given = await play.run(graph, Command(resume="Ann"))
    assert given["log"] == ["one", "a", "two", "a", "name? Ann", "b"]


@story()
async def a_child_is_edited_while_its_question_waits(play: Play) -> None:
    child = line(play, "x", ("ask", ask(play, "sure?")), "y").compile()
    graph = line(play, "a", ("child", child), "b")
    await play.run(graph, {"log": []})
    inside = (await play.state(graph, subgraphs=True)).tasks[0].state.config
    await play.update(graph, {"log": ["edited"]}, inside)
    await play.state(graph, subgraphs=True)
    await play.run(graph, None)
    given = await play.run(graph, Command(resume="yes"))
    assert given["log"] == ["a", "a", "x", "edited", "sure? yes", "y", "b"]


@story()
async def tools_that_ask(play: Play) -> None:
    @tool
    def approve(what: str) -> str:
        """Ask for approval."""
        return f"{what}: {interrupt(what)}"

    calls = [{"name": "approve", "args": {"what": what}, "id": what} for what in ("pay", "send")]

    def each_call(state: Chat) -> list[Send]:
        return [Send("tools", [call]) for call in state["messages"][-1].tool_calls]

    graph = line(
        play,
        ("ask", lambda s: {"messages": [AIMessage("", id="ai", tool_calls=calls)]}),
        state=Chat,
    )
    graph.add_node("tools", ToolNode([approve])).add_conditional_edges("ask", each_call, ["tools"])
    given = await play.run(graph, {"messages": [HumanMessage("go", id="go")]})
    given = await play.run(graph, answers(given, send="no"))
    given = await play.run(graph, answers(given, pay="yes"))
    assert [m.content for m in given["messages"]][2:] == ["pay: yes", "send: no"]
