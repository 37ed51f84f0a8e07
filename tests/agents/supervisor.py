"""`langgraph-supervisor`: it hands over to an agent that asks, pays and reports, and back."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langgraph_supervisor import create_supervisor
from scripted import Scripted, look, pay_if_approved, report

PLAN = [
    [("look", {"what": "prices"})],
    [("pay_if_approved", {"to": "Ana", "amount": 1})],
    [("report", {"about": "all"})],
]
INPUT: Any = {"messages": [("user", "Pay what we owe, and report.")]}
ANSWER: Any = "yes"
BESIDE: list[str] = []
DONE = ["look prices", "pay 1 to Ana", "report all"]


def build(saver: Any) -> Any:
    tools = [look, pay_if_approved, report]
    clerk = create_agent(Scripted(plan=PLAN, last_words="The clerk is done."), tools, name="clerk")
    boss = Scripted(plan=[[("transfer_to_clerk", {})]])
    return create_supervisor([clerk], model=boss).compile(checkpointer=saver)


def check(state: dict[str, Any]) -> None:
    contents = [message.content for message in state["messages"]]
    assert "The clerk is done." in contents
    assert contents[-1] == "All done."
