"""`langchain.agents.create_agent` with human-in-the-loop: three payments, three decisions."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from scripted import Scripted, look, pay, report

PLAN = [
    [("look", {"what": "prices"})],
    [("pay", {"to": who, "amount": n}) for who, n in (("Ana", 1), ("Bo", 200), ("Cleo", 3))],
    [("look", {"what": "weather"}), ("report", {"about": "all"})],
]
INPUT: Any = {"messages": [("user", "Pay what we owe, and report.")]}
ANSWER: Any = {
    "decisions": [
        {"type": "approve"},
        {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "Bo", "amount": 20}}},
        {"type": "reject", "message": "Not Cleo."},
    ]
}
BESIDE = ["look weather"]
"""What is finished in the same step as the report: LangGraph does not wait until it is stored."""
DONE = ["look prices", "pay 1 to Ana", "pay 20 to Bo", "look weather", "report all"]


def build(saver: Any) -> Any:
    return create_agent(
        Scripted(plan=PLAN),
        [look, pay, report],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})],
        checkpointer=saver,
    )


def check(state: dict[str, Any]) -> None:
    assert state["messages"][-1].content == "All done."
    refused = [message for message in state["messages"] if "Not Cleo." in message.content]
    assert [message.tool_call_id for message in refused] == ["1.2 pay"]
