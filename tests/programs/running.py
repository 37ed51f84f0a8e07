"""Runs the graphs of `before` or `after`, each on a store of its own, and prints what came out.

`python before.py URL COLOUR GIVEN`: the URL has a `*` where the name of a case goes; GIVEN is JSON,
the answer to the question that a graph has asked, or null for a first run.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from langgraph.graph import START, StateGraph
from langgraph.types import Command

from langgraph_durable import StateSchema, open_saver

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Case(NamedTuple):
    """A graph: nodes in a row."""

    state: type
    nodes: dict[str, Callable[[Any], Any]]
    given: dict[str, Any]
    """What the first run begins with."""
    schema: StateSchema | None = None


def run(case: Case, url: str, colour: str, answer: Any) -> dict[str, Any]:
    with open_saver(url, schema=case.schema) as saver:
        builder = StateGraph(case.state)
        for before, (name, node) in zip([START, *case.nodes], case.nodes.items(), strict=False):
            builder.add_node(name, node)
            builder.add_edge(before, name)
        graph = builder.compile(checkpointer=saver)
        given: Any = case.given if answer is None else Command(resume=answer)
        if colour == "async":
            found = asyncio.run(graph.ainvoke(given, CONFIG))
        else:
            found = graph.invoke(given, CONFIG)
        asked = [each.value for each in found.pop("__interrupt__", ())]
        return {"found": found, "asked": asked}


def main(cases: dict[str, Case]) -> None:
    url, colour, answer = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    told = {}
    for name, case in cases.items():
        try:
            told[name] = run(case, url.replace("*", name), colour, answer)
        except Exception:  # the other cases are tests of their own
            told[name] = {"error": traceback.format_exc()}
    print(json.dumps(told, default=vars))
