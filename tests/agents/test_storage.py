"""A deepagents thread of many turns and files: storage that grows with what is new."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import scripted
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver

from langgraph_durable import SqliteSaver

TURNS, FILES = 100, 50
TEXT = "What was found, in a line of a plausible length that says nothing. {}\n" * 30


class Writer(scripted.Scripted):
    """In each turn it writes a file or, once all are there, reads one; then it says so."""

    plan: list[list[scripted.Call]] = []

    def _generate(self, messages: list[BaseMessage], *unused: Any, **options: Any) -> ChatResult:
        turn = sum(isinstance(message, HumanMessage) for message in messages) - 1
        reply = AIMessage(f"Turn {turn} is done. " + "Here is why. " * 20)
        if isinstance(messages[-1], HumanMessage):
            path = f"/notes/{turn % FILES}.md"
            name, arguments = (
                "write_file",
                {"file_path": path, "content": TEXT.format(*[turn] * 30)},
            )
            if turn >= FILES:
                name, arguments = "read_file", {"file_path": path}
            call = {"id": f"{turn} {name}", "name": name, "args": arguments}
            reply = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def grow(saver: Any, file: Path) -> list[int]:
    """Bytes of the file after each quarter of the turns."""
    agent = create_deep_agent(Writer(), checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    sizes = []
    for turn in range(TURNS):
        agent.invoke({"messages": [("user", f"Turn {turn}, please.")]}, config)
        if (turn + 1) % (TURNS // 4) == 0:
            sizes.append(_bytes(file))
    state = agent.get_state(config).values
    assert len(state["files"]) == FILES
    assert len(state["messages"]) == TURNS * 4
    return sizes


def _bytes(file: Path) -> int:
    """The pages in use, those in the log included."""
    with sqlite3.connect(file) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {what}").fetchone()[0]
            for what in ("page_count", "freelist_count", "page_size")
        )
    connection.close()
    return int((pages - free) * size)


def test_a_deep_agent_of_many_turns_and_files_is_stored_linearly(tmp_path: Path) -> None:
    ours, stock = tmp_path / "ours.db", tmp_path / "stock.db"
    with SqliteSaver(ours, durability="normal") as saver:
        sizes = grow(saver, ours)
    with StockSaver.from_conn_string(str(stock)) as stock_saver:
        theirs = grow(stock_saver, stock)
    print(f"ours {sizes}, stock {theirs}")
    quarters = [after - before for before, after in zip([0, *sizes], sizes, strict=False)]
    # Reading adds less than writing, so later quarters may be smaller; none may be larger.
    assert max(quarters[1:]) <= 1.25 * quarters[0]
    assert sizes[-1] < theirs[-1] / 4
