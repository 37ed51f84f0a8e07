"""The program whose processes run the agents, and are killed. Any agent, either colour."""

from __future__ import annotations

import asyncio
import os
from types import ModuleType
from typing import Any, Literal

import deep_agent
import langchain_agent
import scripted
import supervisor
import swarm
import tasks_agent
from forks import acknowledge, serve
from langgraph.types import Command

from langgraph_durable import open_saver

AGENTS: dict[str, ModuleType] = {
    "create_agent": langchain_agent,
    "deepagents": deep_agent,
    "supervisor": supervisor,
    "swarm": swarm,
    "functional": tasks_agent,
}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def run(
    agent: str,
    url: str,
    colour: str,
    given: str,
    ledger: str,
    hold: str = "",
    mode: Literal["sync", "exit"] = "sync",
) -> None:
    """Give an agent its input, the answer it waits for, or nothing; tell how it ended."""
    os.environ.update({scripted.LEDGER: ledger, scripted.HOLD: hold})
    module = AGENTS[agent]
    graph = module.build(open_saver(url))
    what = {"input": module.INPUT, "answer": Command(resume=module.ANSWER), "nothing": None}[given]
    if colour == "sync":
        result = graph.invoke(what, CONFIG, durability=mode)
    else:
        result = asyncio.run(graph.ainvoke(what, CONFIG, durability=mode))
    if isinstance(result, dict) and "__interrupt__" in result:
        acknowledge("stopped", questions=len(result["__interrupt__"]))
    else:
        module.check(result)
        acknowledge("finished")


if __name__ == "__main__":
    serve({"run": run})
