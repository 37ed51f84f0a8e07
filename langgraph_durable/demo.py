"""A graph that is killed half way and goes on: `python -m langgraph_durable.demo`.

This process starts the graph in a second one, kills that with SIGKILL in the middle of a step,
and starts a third one with the same thread id on the same file. It needs langgraph.
"""

from __future__ import annotations

import operator
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph_durable import SqliteSaver

try:
    from langgraph.graph import START, StateGraph
except ImportError:
    sys.exit("The demo runs a graph, so it needs langgraph: pip install langgraph")

SECONDS = {"search": 0.3, "read": 0.3, "outline": 2.0, "write": 0.3, "review": 0.3}
"""The steps of the graph, and how long each pretends to work."""
KILLED_IN = "outline"


# ---- the agent: nothing in here knows that it will be killed --------------------------------


class Report(TypedDict):
    done: Annotated[list[str], operator.add]


def step(name: str) -> Any:
    def work(state: Report) -> dict[str, list[str]]:
        print(f"{name} ...", flush=True)
        time.sleep(SECONDS[name])
        print(f"{name} done", flush=True)
        return {"done": [name]}

    return work


def run_agent(path: str) -> None:
    """Start the thread, or go on where its file says it was."""
    builder = StateGraph(Report)
    for before, name in pairwise([START, *SECONDS]):
        builder.add_node(name, step(name))
        builder.add_edge(before, name)
    with SqliteSaver(path) as saver:
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "report"}}
        is_new = graph.get_state(config).created_at is None
        graph.invoke({"done": []} if is_new else None, config, durability="sync")


# ---- the show: run it, kill it, run it again ------------------------------------------------


@dataclass
class Seen:
    """What an agent was seen to do."""

    begun: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)


def watch(path: Path, kill_in: str | None = None) -> Seen:
    """Run the agent in a process of its own, and kill it when it begins the step `kill_in`."""
    command = [sys.executable, "-m", "langgraph_durable.demo", str(path)]
    seen = Seen()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name, what = line.split()
            if what == "done":
                seen.finished.append(name)
                print("done")
                continue
            seen.begun.append(name)
            print(f"    {name} ... ", end="", flush=True)
            if name == kill_in:
                process.kill()
                print("killed with SIGKILL")
                break
    if kill_in is None and process.returncode:
        sys.exit("the agent failed")
    return seen


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        print("A first process runs the thread 'report' on agent.db:")
        first = watch(path, kill_in=KILLED_IN)
        print("A second process opens the same file:")
        second = watch(path)
    again = [name for name in second.begun if name in first.finished]
    print("Finished steps that ran again:", ", ".join(again) or "none")


if __name__ == "__main__":
    if sys.argv[1:]:
        run_agent(sys.argv[1])
    else:
        main()
