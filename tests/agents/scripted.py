"""What all agents of these tests have in common: a model without a key, and tools that keep books.

The model is a plan: a list of steps, each a list of tool calls. It makes the calls of the first
step that has no answer yet, and ends when all have one. So it depends on nothing but the messages
it is shown, and any process can be its next one.

The ledger has one line when a tool starts and one when it is done. A tool named in `HOLD` tells the
parent that it is inside, and stays there until its process is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forks import acknowledge
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.types import interrupt

LEDGER, HOLD = "AGENTS_LEDGER", "AGENTS_HOLD"
"""Variables: the path of the ledger, and the tool that waits to be killed."""

Call = tuple[str, dict[str, Any]]


class Scripted(BaseChatModel):
    """A chat model that follows a plan; see the top of the file."""

    plan: list[list[Call]]
    last_words: str = "All done."

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Scripted:
        return self

    def _generate(self, messages: list[BaseMessage], *unused: Any, **options: Any) -> ChatResult:
        answered = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
        reply = AIMessage(self.last_words)
        for number, step in enumerate(self.plan):
            ids = [f"{number}.{place} {name}" for place, (name, _) in enumerate(step)]
            if not answered.issuperset(ids):
                calls = [
                    {"id": id, "name": name, "args": arguments}
                    for id, (name, arguments) in zip(ids, step, strict=True)
                ]
                reply = AIMessage("", tool_calls=calls)
                break
        return ChatResult(generations=[ChatGeneration(message=reply)])


def note(line: str) -> None:
    """One atomic line in the ledger; it outlives the process that wrote it."""
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def do(tool: str, what: str) -> str:
    """The work of every tool."""
    note(f"{tool} {what} starts")
    if os.environ.get(HOLD) == tool:
        acknowledge("inside", tool=tool)
        time.sleep(600)
    note(f"{tool} {what} done")
    return f"{tool} {what}: fine"


def look(what: str) -> str:
    """Look something up."""
    return do("look", what)


def pay(to: str, amount: int) -> str:
    """Pay somebody; whoever is asked may refuse."""
    return do("pay", f"{amount} to {to}")


def pay_if_approved(to: str, amount: int) -> str:
    """Pay somebody, but ask a human first."""
    answer = interrupt(f"Pay {amount} to {to}?")
    return do("pay", f"{amount} to {to}") if answer == "yes" else "refused"


def report(about: str) -> str:
    """Write a long report."""
    return do("report", about)


def finished(ledger: Path) -> list[str]:
    """What was done, in order."""
    lines = ledger.read_text("utf-8").splitlines()
    return [line.removesuffix(" done") for line in lines if line.endswith(" done")]


def started(ledger: Path) -> list[str]:
    lines = ledger.read_text("utf-8").splitlines()
    return [line.removesuffix(" starts") for line in lines if line.endswith(" starts")]
