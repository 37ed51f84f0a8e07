"""Agents as people build them: stopped, killed inside a tool, and taken up by somebody else.

Each agent looks something up, asks a human, pays, and writes a report. One process brings it to
its question, another answers and is killed with SIGKILL inside the report, a third one goes on.
Sync and async take turns. The ledger says what was done: all of it, in order, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import person
import pytest
import scripted
import servers
from forks import ForkServer

from langgraph_durable import open_saver


@pytest.fixture(scope="session")
def people() -> Iterator[ForkServer]:
    server = ForkServer(person.__file__)
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'agent.db'}?durability=normal"
    return f"{servers.shared('valkey').url}?prefix={servers.prefix_for(tmp_path)}"


def stored(url: str, what: str) -> bool:
    """Whether the result of a tool is in the store, in a checkpoint or as a pending write."""
    with open_saver(url) as saver:
        found = saver.list(person.CONFIG)
        return any(f"{what}: fine" in repr((one.pending_writes, one.checkpoint)) for one in found)


@pytest.mark.parametrize(("starts", "answers"), [("sync", "async"), ("async", "sync")])
@pytest.mark.parametrize("agent", person.AGENTS)
def test_an_agent_killed_inside_a_tool_goes_on_and_repeats_nothing(
    agent: str, starts: str, answers: str, url: str, people: ForkServer, tmp_path: Path
) -> None:
    module, ledger = person.AGENTS[agent], tmp_path / "ledger"
    job = {"agent": agent, "url": url, "ledger": str(ledger)}

    asking = people.start("run", colour=starts, given="input", **job)
    assert asking.until("stopped")["questions"] == 1
    asking.end()

    working = people.start("run", colour=answers, given="answer", hold="report", **job)
    working.until("inside")
    for what in module.BESIDE:
        servers.wait_until(lambda what=what: stored(url, what), f"the storing of {what}")
    working.kill_after(0)
    assert "report all" not in scripted.finished(ledger)

    ending = people.start("run", colour=starts, given="nothing", **job)
    ending.until("finished")
    ending.end()
    assert sorted(scripted.finished(ledger)) == sorted(module.DONE)
    assert sorted(scripted.started(ledger)) == sorted([*module.DONE, "report all"])


def test_control_the_ledger_sees_what_is_done_twice(people: ForkServer, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    job = {"agent": "create_agent", "url": url, "ledger": str(ledger), "colour": "sync"}
    people.start("run", given="input", **job).end()
    working = people.start("run", given="answer", hold="report", mode="exit", **job)
    working.until("inside")
    working.kill_after(0)
    people.start("run", given="answer", **job).end()
    assert scripted.finished(ledger).count("pay 1 to Ana") == 2
