"""The graphs that the server under test serves. It finds this file in a folder of its own.

`story` keeps a ledger of the nodes it ran, asks a human if it is told to, and stands still in
`wait` while a file named after its thread exists. `talk` goes on talking into a DeltaChannel.
"""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

HERE = Path(__file__).parent


class Story(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    ask: bool


def note(config: RunnableConfig, what: str) -> None:
    """One line for one thing that was done, by thread."""
    with (HERE / f"ledger-{config['configurable']['thread_id']}").open("a") as ledger:
        ledger.write(f"{what}\n")


def first(state: Story, config: RunnableConfig) -> Story:
    note(config, "first")
    return {"log": ["first"]}


def ask(state: Story, config: RunnableConfig) -> Story:
    if not state.get("ask"):
        return {}
    answer = interrupt("what?")
    note(config, f"answered {answer}")
    return {"log": [answer]}


async def wait(state: Story, config: RunnableConfig) -> Story:
    note(config, "wait")
    while (HERE / f"hold-{config['configurable']['thread_id']}").exists():
        await asyncio.sleep(0.02)
    return {"log": ["waited"]}


def last(state: Story, config: RunnableConfig) -> Story:
    note(config, "last")
    return {"log": ["last"]}


story = StateGraph(Story).add_sequence([first, ask, wait, last]).add_edge(START, "first").compile()


def extend(log: list[str], writes: list[list[str]]) -> list[str]:
    return [*log, *(entry for write in writes for entry in write)]


class Talk(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=1000)]

    turns: int


def reply(state: Talk) -> dict[str, Any]:
    return {"log": [f"turn {len(state['log'])}"]}


def again(state: Talk) -> str:
    return "reply" if len(state["log"]) % state["turns"] else END


talk = (
    StateGraph(Talk)
    .add_node("reply", reply)
    .add_edge(START, "reply")
    .add_conditional_edges("reply", again)
    .compile()
)
