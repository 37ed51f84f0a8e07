"""LangGraph's functional API: an entrypoint with tasks."""

from __future__ import annotations

from typing import Any

import scripted
from langgraph.func import entrypoint, task
from langgraph.types import interrupt

INPUT: Any = "all"
ANSWER: Any = "yes"
BESIDE = ["pay 1 to Ana", "look weather"]
DONE = ["look prices", "pay 1 to Ana", "look weather", "report all"]

look = task(scripted.look)
pay = task(scripted.pay)
report = task(scripted.report)


def build(saver: Any) -> Any:
    @entrypoint(checkpointer=saver)
    def work(about: str) -> list[str]:
        found = look("prices").result()
        if interrupt("Pay 1 to Ana?") != "yes":
            return [found]
        paid = pay("Ana", 1).result()
        beside = look("weather").result()
        return [found, paid, beside, report(about).result()]

    return work


def check(state: list[str]) -> None:
    assert state == [f"{line}: fine" for line in DONE]
