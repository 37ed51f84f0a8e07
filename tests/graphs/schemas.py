"""Stories of state schemas: conversations, pydantic and dataclass states, contexts and configs."""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypedDict

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.graph import MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from play import Log, Play, line, story
from pydantic import BaseModel, Field

# -- conversations --------------------------------------------------------------------------------


def said(state: Any) -> list[str]:
    return [f"{message.id} {message.content}" for message in state["messages"]]


def reply(state: MessagesState) -> dict[str, Any]:
    """Answer the last message, under an id of its own."""
    last = state["messages"][-1]
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    answer = AIMessage(f"re {last.content}", id=f"re {last.id}", usage_metadata=usage)
    return {"messages": [answer]}


@story()
async def a_conversation(play: Play) -> None:
    graph = line(play, ("reply", reply), state=MessagesState)
    for turn in range(6):
        given = await play.run(graph, {"messages": [HumanMessage("hi", id=f"{turn}")]})
        assert len(given["messages"]) == 2 * (turn + 1)
    await play.run(graph, {"messages": ("user", "a tuple")})
    await play.run(graph, {"messages": [SystemMessage([{"type": "text", "text": "x"}], id="s")]})


@story()
async def messages_edited_by_id(play: Play) -> None:
    graph = line(play, ("reply", reply), state=MessagesState)
    await play.run(graph, {"messages": [HumanMessage("one", id="1"), HumanMessage("two", id="2")]})
    edited = {"messages": [HumanMessage("ONE", id="1"), HumanMessage("three", id="3")]}
    given = await play.run(graph, edited)
    assert said(given) == ["1 ONE", "2 two", "re 2 re two", "3 three", "re 3 re three"]
    await play.update(graph, {"messages": [AIMessage("RE", id="re 2")]})
    assert said((await play.state(graph)).values)[2] == "re 2 RE"


@story(looks_back=True)
async def messages_removed(play: Play) -> None:
    graph = line(play, ("reply", reply), state=MessagesState)
    for turn in range(4):
        await play.run(graph, {"messages": [HumanMessage(f"say {turn}", id=f"{turn}")]})
    gone = [RemoveMessage(id="1"), RemoveMessage(id="re 0"), HumanMessage("on", id="on")]
    given = await play.run(graph, {"messages": gone})
    assert said(given)[:2] == ["0 say 0", "re 1 re say 1"]
    window = [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("anew", id="anew")]
    given = await play.run(graph, {"messages": window})
    assert said(given) == ["anew anew", "re anew re anew"]
    history = await play.history()
    assert any("re 0 re say 0" in said(s.values) for s in history if "messages" in s.values)


@story("sync", "exit")  # under "async" LangGraph itself races with the change
async def messages_changed_in_place(play: Play) -> None:
    def scribble(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        play.settle(config)
        first = state["messages"][0]
        first.content += "!"
        first.additional_kwargs["seen"] = first.additional_kwargs.get("seen", 0) + 1
        return {"messages": [AIMessage("ok", id=f"ok {first.content}")]}

    graph = line(play, ("one", scribble), ("two", scribble), state=MessagesState)
    for turn in range(3):
        await play.run(graph, {"messages": [HumanMessage("hi", id=f"{turn}")]})
    message = (await play.state(graph)).values["messages"][0]
    assert (message.content, message.additional_kwargs) == ("hi" + 6 * "!", {"seen": 6})


@story("sync", "exit")  # under "async" LangGraph itself races with the change
async def values_changed_in_place(play: Play) -> None:
    class Table(TypedDict, total=False):
        log: Annotated[list[str], operator.add]
        rows: list[dict[str, Any]]
        index: dict[str, Any]

    def edit(state: Table, config: RunnableConfig) -> dict[str, Any]:
        play.settle(config)
        state["rows"][1]["n"] += 1
        state["rows"].insert(0, {"n": len(state["rows"])})
        state["index"].setdefault("deep", {})[str(len(state["rows"]))] = True
        return {"rows": state["rows"], "index": state["index"]}

    graph = line(play, ("one", edit), ("two", edit), state=Table)
    await play.run(graph, {"rows": [{"n": 10}, {"n": 20}], "index": {"b": 1, "a": 2}})
    await play.run(graph, {"log": ["again"]})


@story()
async def a_conversation_shared_with_children(play: Play) -> None:
    for remembers in (None, True):
        child = line(play, ("deep", reply), state=MessagesState).compile(checkpointer=remembers)
        graph = line(play, ("child", child), ("reply", reply), state=MessagesState)
        for turn in range(3):
            said_now = {"messages": [HumanMessage("hi", id=f"{turn}")]}
            given = await play.run(graph, said_now, f"remembers {remembers}")
        assert len(given["messages"]) == 9


@story()
async def messages_of_every_kind(play: Play) -> None:
    calls = [{"name": "f", "args": {"x": [1, {"y": None}]}, "id": "c"}]
    kinds: list[AnyMessage] = [
        SystemMessage("s", id="s", name="n"),
        AIMessage([{"type": "text", "text": "t"}], id="a", tool_calls=calls),
        ToolMessage("r", id="t", tool_call_id="c", artifact={"raw": b"\x00\xff"}, status="error"),
        HumanMessage("", id="h", response_metadata={"deep": [{"n": 1.5}]}),
    ]
    graph = line(play, ("reply", reply), state=MessagesState)
    await play.run(graph, {"messages": kinds})
    await play.run(graph, {"messages": [HumanMessage("on", id="on")]})


# -- schemas --------------------------------------------------------------------------------------


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Person(BaseModel):
    name: str
    mood: Mood = Mood.GOOD
    friends: list[Person] = Field(default_factory=list)


@dataclass
class Parcel:
    to: str
    weight: float = 0.5
    seals: set[str] = dataclasses.field(default_factory=set)


class Checked(BaseModel):
    log: Annotated[list[str], operator.add] = Field(default_factory=list)
    person: Person | None = None
    mood: Mood = Mood.BAD


@dataclass
class Plain:
    log: Annotated[list[str], operator.add]
    parcel: Parcel | None = None
    messages: Annotated[list[AnyMessage], add_messages] = dataclasses.field(default_factory=list)


@story()
async def a_pydantic_state(play: Play) -> None:
    def meet(state: Checked) -> dict[str, Any]:
        assert isinstance(state.person, Person)
        friend = Person(name=f"friend {len(state.person.friends)}", mood=Mood.BAD)
        friends = [*state.person.friends, friend]
        return {"person": state.person.model_copy(update={"friends": friends}), "mood": Mood.GOOD}

    graph = line(play, ("meet", meet), "b", ("again", meet), state=Checked)
    await play.run(graph, Checked(log=["hi"], person=Person(name="Ann")))
    await play.run(graph, {"log": ["on"]})
    state = await play.state(graph)
    assert [type(each) for each in state.values["person"].friends] == [Person] * 4


@story()
async def a_dataclass_state(play: Play) -> None:
    def wrap(state: Plain) -> dict[str, Any]:
        parcel = state.parcel or Parcel("nobody")
        seals = parcel.seals | {f"seal {len(parcel.seals)}"}
        return {"parcel": dataclasses.replace(parcel, seals=seals)}

    graph = line(play, ("wrap", wrap), "b", ("again", wrap), state=Plain)
    await play.run(graph, Plain(log=["hi"], parcel=Parcel("Ann", 1.25)))
    await play.run(graph, {"log": ["on"], "messages": [HumanMessage("m", id="m")]})
    state = await play.state(graph)
    assert state.values["parcel"] == Parcel("Ann", 1.25, {f"seal {n}" for n in range(4)})


@story()
async def questions_and_answers_of_typed_values(play: Play) -> None:
    def ask(state: Log) -> dict[str, Any]:
        answer = interrupt({"who": Person(name="Ann"), "what": Parcel("Bob")})
        return {"log": [f"{answer!r}"]}

    graph = line(play, ("ask", ask))
    for answer in (Person(name="Cy"), Parcel("Dee"), Mood.BAD, [1, 2.5, None]):
        given = await play.run(graph, {"log": []})
        assert given["__interrupt__"][0].value["what"] == Parcel("Bob")
        given = await play.run(graph, Command(resume=answer))
        assert given["log"][-1] == repr(answer)


@story()
async def different_schemas_in_and_out(play: Play) -> None:
    class Said(TypedDict):
        note: str

    class Answered(TypedDict):
        log: list[str]

    class Hidden(TypedDict):
        hidden: str

    def think(state: Log) -> Hidden:
        return {"hidden": f"thought of {state['note']}"}

    def tell(state: Hidden) -> dict[str, Any]:
        return {"log": [state["hidden"]]}

    graph = StateGraph(Log, input_schema=Said, output_schema=Answered)
    graph.add_node("think", think, input_schema=Log).add_node("tell", tell, input_schema=Hidden)
    graph.set_entry_point("think").add_edge("think", "tell")
    for note in ("one", "two"):
        await play.run(graph, {"note": note})
    await play.state(graph)


@story()
async def a_context_and_a_config(play: Play) -> None:
    @dataclass
    class Context:
        user: str

    def greet(state: Log, config: RunnableConfig, runtime: Runtime[Any]) -> dict[str, Any]:
        return {"log": [f"{runtime.context.user} {config['configurable']['tone']}"]}

    graph = StateGraph(Log, context_schema=Context).add_node("greet", greet)
    graph.set_entry_point("greet")
    for turn in range(2):
        place = {"thread_id": "t", "tone": "kind", "token_count": turn, "list": [1]}
        config = {
            "configurable": place,
            "metadata": {"run": turn, "run_id": f"run {turn}", "ratio": 0.5},
            "tags": ["tagged"],
        }
        await play.run(graph, {"log": []}, config, context=Context("Ann"))
    state = await play.state(graph)
    kept = {key: state.metadata.get(key) for key in ("tone", "token_count", "run", "run_id")}
    assert kept == {"tone": "kind", "token_count": 1, "run": 1, "run_id": "run 1"}
