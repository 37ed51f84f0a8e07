"""A thread that one program has begun and another goes on with, as two real processes.

`programs/before.py` and `programs/after.py` are the two versions, and end before the next begins.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import servers

PROGRAMS = Path(__file__).parent / "programs"


def store_url(backend: str, place: Path) -> str:
    """Where a process finds a store; `*` stands for the name of a case."""
    if backend == "sqlite":
        return f"sqlite:///{place}/*.db?durability=normal"
    return f"{servers.shared(backend).url}?prefix={servers.prefix_for(place)}-*"


def ran(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True)


def told(program: str, *args: str) -> dict[str, Any]:
    """What a program says of each case."""
    done = ran(str(PROGRAMS / program), *args)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module", params=["sqlite", "valkey"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module", params=["sync to async", "async to sync"])
def stories(
    request: pytest.FixtureRequest, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both programs say: all cases share two processes, for those take long to start."""
    url = store_url(backend, tmp_path_factory.mktemp("programs"))
    first, second = request.param.split(" to ")
    return told("before.py", url, first, "null"), told("after.py", url, second, '"yes"')


AFTER = {
    "channel": {"documents": ["in", "begun", "in", "begun", "yes"]},
    "node": {"docs": ["in", "begun", "yes", "ended"]},
    "class": {"docs": ["in", "yes"], "plan": {"title": "p", "owner": "nobody"}},
    "added": {"docs": ["in", "yes", "reviewed", "ended"]},
    "removed": {"docs": ["in", "begun", "yes"]},
    "list": {"tags": {"x": 1, "y": 1, "yes": 0}},
    "type": {"score": 4.5},
}
CHANGES = {
    "channel": "a channel renamed",
    "node": "a node with a pending interrupt renamed",
    "class": "a class renamed",
    "added": "nodes added",
    "removed": "nodes removed",
    "list": "a list turned into a dict",
    "type": "a type narrowed",
}


@pytest.mark.parametrize("case", AFTER, ids=CHANGES.get)
def test_another_program_goes_on_with_the_thread_of_the_first(stories: Any, case: str) -> None:
    before, after = stories
    assert before[case].get("asked") == ["?"], before[case]
    assert after[case] == {"found": AFTER[case], "asked": []}


# ---- killed, and renamed -------------------------------------------------------------------------

DYING = """
import json, operator, os, signal, sys
from typing import Annotated, TypedDict
from langgraph.graph import START, StateGraph
from langgraph_durable import StateSchema, open_saver

class State(TypedDict):
    said: Annotated[list, operator.add]

def last(state):
    if {die}:
        os.kill(os.getpid(), signal.SIGKILL)
    return {{"said": ["last"]}}

below = StateGraph(State)
below.add_node("first", lambda state: {{"said": ["first" if {die} else "again"]}})
below.add_node("last", last)
below.add_edge(START, "first")
below.add_edge("first", "last")
above = StateGraph(State)
above.add_node("{name}", below.compile())
above.add_edge(START, "{name}")
schema = StateSchema(version=2)
schema.upgrade(to=2)(lambda state: state.rename_node("research", "researcher"))
options = {{}} if {die} else {{"schema": schema}}
graph = above.compile(checkpointer=open_saver(sys.argv[1], **options))
config = {{"configurable": {{"thread_id": "t"}}}}
print(json.dumps(graph.invoke(json.loads(sys.argv[2]), config, durability="sync")))
"""


def test_a_sub_graph_that_was_killed_goes_on_under_another_name(
    backend: str, tmp_path: Path
) -> None:
    """Nothing on the levels above tells of its task."""
    url = store_url(backend, tmp_path).replace("*", "agent")
    died = ran("-c", DYING.format(die=True, name="research"), url, '{"said": ["in"]}')
    assert died.returncode == -signal.SIGKILL, died.stderr
    done = ran("-c", DYING.format(die=False, name="researcher"), url, "null")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"said": ["in", "in", "first", "last"]}
