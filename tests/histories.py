"""Threads worth moving: made by real graphs on any saver, and told apart to the last write."""

from __future__ import annotations

import itertools
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, Send, interrupt

Graph = Any


def thread(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]
    files: dict[str, str]
    calls: int


class Inner(TypedDict):
    calls: int


def _inner(state: Inner) -> Any:
    return {"calls": state.get("calls", 0) + 1}


def _talk(state: State) -> Any:
    n = len(state["messages"])
    files = {**state.get("files", {}), f"notes/{n}.md": f"# note {n}\n" * 20}
    return {"messages": [AIMessage(f"answer {n}", id=f"a{n}")], "files": files}


def _fan(state: State) -> Any:
    return [Send("work", {"log": [], "n": n}) for n in range(3)]


def _work(state: Any) -> Any:
    return {"log": [f"work {state['n']}"]}


def _ask(state: State) -> Any:
    return {"log": [f"told {interrupt('go on?')}"]}


def graph(saver: BaseCheckpointSaver[Any]) -> Graph:
    """Talks, calls a sub-graph, works in three tasks at once, and asks before it ends."""
    inner = StateGraph(Inner).add_node("inner", _inner).add_edge(START, "inner").compile()
    builder = StateGraph(State)
    for name, node in (("talk", _talk), ("sub", inner), ("work", _work), ("ask", _ask)):
        builder.add_node(name, node)
    builder.add_edge(START, "talk").add_edge("talk", "sub")
    builder.add_conditional_edges("sub", _fan, ["work"])
    builder.add_edge("work", "ask").add_edge("ask", END)
    return builder.compile(checkpointer=saver)


def run(saver: BaseCheckpointSaver[Any], thread_id: str, turns: int = 2) -> None:
    """`turns` answered turns and one that waits for its answer."""
    made = graph(saver)
    for n in range(turns + 1):
        made.invoke({"messages": [HumanMessage(f"turn {n}", id=f"h{n}")]}, thread(thread_id))
        if n < turns:
            made.invoke(Command(resume=f"yes {n}"), thread(thread_id))


def _extended(old: list[str], new: list[list[str]]) -> list[str]:
    return [*old, *itertools.chain.from_iterable(new)]


class Long(TypedDict):
    lines: Annotated[list[str], DeltaChannel(_extended)]


def delta_graph(saver: BaseCheckpointSaver[Any]) -> Graph:
    """A state that is stored as differences."""
    builder = StateGraph(Long)
    builder.add_node("b", lambda s: {"lines": [f"b{len(s['lines'])}"]})
    builder.add_node("a", lambda s: {"lines": [f"a{len(s['lines'])}"]})
    builder.add_edge(START, "b").add_edge(START, "a").add_edge("a", END).add_edge("b", END)
    return builder.compile(checkpointer=saver)


def run_deltas(saver: BaseCheckpointSaver[Any], thread_id: str, turns: int = 5) -> None:
    made = delta_graph(saver)
    for n in range(turns):
        made.invoke({"lines": [f"turn {n}"]}, thread(thread_id))


def told(found: CheckpointTuple) -> dict[str, Any]:
    """Everything a tuple says."""
    return {
        "config": found.config,
        "checkpoint": found.checkpoint,
        "metadata": found.metadata,
        "parent": found.parent_config,
        "writes": found.pending_writes,
    }


def contents(saver: BaseCheckpointSaver[Any], thread_id: str | None = None) -> dict[Any, Any]:
    """What a store holds, by place."""
    config = None if thread_id is None else thread(thread_id)
    found = {}
    for each in saver.list(config):
        place = each.config["configurable"]
        key = place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"]
        found[key] = told(each)
    return found
