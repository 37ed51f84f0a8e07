"""A program in its first version; `after` is what it has become. Each graph stops at a question."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langgraph.types import interrupt
from running import Case, main


@dataclass
class Plan:
    title: str


class Docs(TypedDict):
    docs: Annotated[list, operator.add]


class Planned(TypedDict):
    plan: Plan
    docs: Annotated[list, operator.add]


class Tagged(TypedDict):
    tags: Annotated[list, operator.add]


class Scored(TypedDict):
    score: float | str


def ask(state: Any) -> Any:
    return {"docs": [interrupt("?")]}


def say(what: str) -> Any:
    return lambda state: {"docs": [what]}


DOCS = {"docs": ["in"]}
CASES = {
    "channel": Case(Docs, {"begin": say("begun"), "ask": ask}, DOCS),
    "node": Case(Docs, {"begin": say("begun"), "ask": ask, "end": say("ended")}, DOCS),
    "class": Case(Planned, {"begin": lambda state: {"plan": Plan("p")}, "ask": ask}, DOCS),
    "added": Case(Docs, {"ask": ask, "end": say("ended")}, DOCS),
    "removed": Case(Docs, {"begin": say("begun"), "ask": ask, "cleanup": say("cleaned")}, DOCS),
    "list": Case(Tagged, {"ask": lambda state: {"tags": [interrupt("?")]}}, {"tags": ["x", "y"]}),
    "type": Case(Scored, {"ask": lambda state: {"score": interrupt("?")}}, {"score": "1.5"}),
}

if __name__ == "__main__":
    main(CASES)
