"""Files of the stock SQLite saver as earlier releases of LangGraph have written them.

`python tests/golden/stock.py NAME.db` writes one with the packages it finds, and imports nothing
that earlier ones lack; gzip it. There is one from before `task_path` (langgraph 0.2.20 with
checkpoint-sqlite 1.0.3: it calls `Send` by its name of that time), and two whose questions have
the forms of theirs (0.4.8 with 2.0.10; 1.0.3 with 3.0.0).
"""

from __future__ import annotations

import operator
import sys
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph, add_messages

try:
    from langgraph.types import Send, interrupt
except ImportError:
    from langgraph.constants import Send

    interrupt = None  # type: ignore[assignment]


class State(TypedDict):
    messages: Annotated[list, add_messages]
    log: Annotated[list, operator.add]


def talk(state: State) -> Any:
    n = len(state["messages"])
    return {"messages": [AIMessage(f"answer {n}", id=f"a{n}")], "log": [("talk", n)]}


def fan(state: State) -> Any:
    return [Send("work", {"n": n}) for n in range(2)]


def work(task: Any) -> Any:
    return {"log": [f"work {task['n']}"]}


def ask(state: State) -> Any:
    return {"log": [interrupt("go on?") if interrupt else "asked"]}


def graph(saver: Any, **stops: Any) -> Any:
    builder = StateGraph(State)
    for name, node in (("talk", talk), ("work", work), ("ask", ask)):
        builder.add_node(name, node)
    for one, other in ((START, "talk"), ("work", "ask"), ("ask", END)):
        builder.add_edge(one, other)
    builder.add_conditional_edges("talk", fan, ["work"])
    return builder.compile(checkpointer=saver, **stops)


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def write(saver: Any) -> None:
    """A thread that stopped before a node, one that stopped before its sends, one that asks."""
    given = {"messages": [HumanMessage("one", id="h1")]}
    graph(saver, interrupt_before=["ask"]).invoke(given, thread("stopped"))
    graph(saver, interrupt_before=["work"]).invoke(given, thread("sends"))
    if interrupt:
        graph(saver).invoke(given, thread("asking"))


if __name__ == "__main__":
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(sys.argv[1]) as stock:
        write(stock)
