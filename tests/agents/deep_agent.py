"""`deepagents`: files in the state, messages in a DeltaChannel, and a sub-agent that is killed."""

from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent
from scripted import Scripted, look, pay, report

PLAN = [
    [("write_file", {"file_path": "/notes.md", "content": "prices: 1, 20, 3"})],
    [("pay", {"to": "Ana", "amount": 1})],
    [("task", {"description": "Look and report.", "subagent_type": "clerk"})],
    [("edit_file", {"file_path": "/notes.md", "old_string": "20", "new_string": "21"})],
]
OF_THE_CLERK = [[("look", {"what": "weather"})], [("report", {"about": "all"})]]
INPUT: Any = {"messages": [("user", "Pay what we owe, and report.")]}
ANSWER: Any = {"decisions": [{"type": "approve"}]}
BESIDE: list[str] = []
DONE = ["pay 1 to Ana", "look weather", "report all"]


def build(saver: Any) -> Any:
    clerk = {
        "name": "clerk",
        "description": "Looks and reports.",
        "system_prompt": "You are a clerk.",
        "model": Scripted(plan=OF_THE_CLERK, last_words="The clerk is done."),
        "tools": [look, report],
    }
    return create_deep_agent(
        Scripted(plan=PLAN),
        [pay],
        subagents=[clerk],
        interrupt_on={"pay": True},
        checkpointer=saver,
    )


def check(state: dict[str, Any]) -> None:
    contents = [message.content for message in state["messages"]]
    assert contents[-1] == "All done."
    assert "The clerk is done." in contents
    assert state["files"]["/notes.md"]["content"] in ("prices: 1, 21, 3", ["prices: 1, 21, 3"])
