"""The second version of `before`: it goes on with the threads of the first."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langgraph.types import interrupt
from running import Case, main

from langgraph_durable import StateSchema


@dataclass
class Project:
    title: str
    owner: str = "nobody"


class Docs(TypedDict):
    docs: Annotated[list, operator.add]


class Documents(TypedDict):
    documents: Annotated[list, operator.add]


class Planned(TypedDict):
    plan: Project
    docs: Annotated[list, operator.add]


class Tagged(TypedDict):
    tags: Annotated[dict, operator.or_]


class Scored(TypedDict):
    score: float


def to2(step: Any) -> StateSchema:
    schema = StateSchema(version=2)
    schema.upgrade(to=2)(step)
    return schema


def ask(state: Any) -> Any:
    return {"docs": [interrupt("?")]}


def say(what: str) -> Any:
    return lambda state: {"docs": [what]}


def ask_planned(state: Any) -> Any:
    assert isinstance(state["plan"], Project)
    return {"docs": [interrupt("?")]}


def ask_scored(state: Any) -> Any:
    return {"score": state["score"] + len(interrupt("?"))}


CASES = {
    "channel": Case(
        Documents,
        {
            "begin": lambda state: {},
            "ask": lambda state: {"documents": [*state["documents"], interrupt("?")]},
        },
        {},
        to2(lambda state: state.rename("docs", "documents")),
    ),
    "node": Case(
        Docs,
        {"begin": say("again"), "asker": ask, "end": say("ended")},
        {},
        to2(lambda state: state.rename_node("ask", "asker")),
    ),
    "class": Case(
        Planned,
        {"begin": lambda state: {}, "ask": ask_planned},
        {},
        to2(lambda state: state.move_class("__main__.Plan", "__main__.Project")),
    ),
    "added": Case(
        Docs,
        {"first": say("again"), "ask": ask, "review": say("reviewed"), "end": say("ended")},
        {},
        to2(lambda state: None),
    ),
    "removed": Case(Docs, {"ask": ask}, {}, to2(lambda state: None)),
    "list": Case(
        Tagged,
        {"ask": lambda state: {"tags": {interrupt("?"): 0}}},
        {},
        to2(lambda state: state.transform("tags", lambda tags: dict.fromkeys(tags, 1))),
    ),
    "type": Case(
        Scored, {"ask": ask_scored}, {}, to2(lambda state: state.transform("score", float))
    ),
}

if __name__ == "__main__":
    main(CASES)
