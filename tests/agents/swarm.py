"""`langgraph-swarm`: one agent looks and hands over, the other asks, pays and reports."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langgraph_swarm import create_handoff_tool, create_swarm
from scripted import Scripted, look, pay_if_approved, report

OF_ALICE = [[("look", {"what": "prices"})], [("transfer_to_bob", {})]]
OF_BOB = [[("pay_if_approved", {"to": "Ana", "amount": 1})], [("report", {"about": "all"})]]
INPUT: Any = {"messages": [("user", "Pay what we owe, and report.")]}
ANSWER: Any = "yes"
BESIDE: list[str] = []
DONE = ["look prices", "pay 1 to Ana", "report all"]


def build(saver: Any) -> Any:
    alice = create_agent(
        Scripted(plan=OF_ALICE), [look, create_handoff_tool(agent_name="bob")], name="alice"
    )
    bob = create_agent(Scripted(plan=OF_BOB), [pay_if_approved, report], name="bob")
    return create_swarm([alice, bob], default_active_agent="alice").compile(checkpointer=saver)


def check(state: dict[str, Any]) -> None:
    assert state["active_agent"] == "bob"
    assert state["messages"][-1].content == "All done."
