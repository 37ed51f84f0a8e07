"""Upgrades ahead of time that are killed and begun again, or run beside programs that write."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import servers
from backends import EVERYWHERE
from langgraph.types import Command
from test_schema import CONFIG, approving, schema_of, storing

from langgraph_durable import StateSchema

THREADS = 3


def to2(state: Any) -> None:
    state.rename("docs", "documents")
    state.rename_node("research", "researcher")


def config(n: int) -> Any:
    return {"configurable": {"thread_id": f"t{n}"}}


@pytest.fixture(params=["sqlite", "valkey"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def ask(backend: str, place: Path) -> None:
    """Threads of the first version, each with a question."""
    with EVERYWHERE[backend](place) as saver:
        for n in range(THREADS):
            approving("research", "docs", saver).invoke({"docs": [f"in {n}"]}, config(n))


def answered(saver: Any, n: int) -> Any:
    """What comes of a thread when its questions are answered by the second version."""
    graph = approving("researcher", "documents", saver)
    graph.invoke(Command(resume="a"), config(n))
    return graph.invoke(Command(resume="b"), config(n))["documents"]


KILLED = """
import json, os, signal, sqlite3, sys
import redis
from langgraph_durable import StateSchema, open_saver

url = sys.argv[1]
schema = StateSchema(version=2)

@schema.upgrade(to=2)
def to2(state):
    state.rename("docs", "documents")
    state.rename_node("research", "researcher")

def dying(end_at):
    "Die before this statement or command of the upgrade."
    left, begun = end_at, False

    def count(*_):
        nonlocal left
        left -= begun
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    connect, send = sqlite3.connect, redis.connection.AbstractConnection.send_packed_command

    def connected(*args, **options):
        conn = connect(*args, **options)
        conn.set_trace_callback(count)
        return conn

    def sent(self, *args, **options):
        count()
        return send(self, *args, **options)

    sqlite3.connect, redis.connection.AbstractConnection.send_packed_command = connected, sent
    with open_saver(url, schema=schema) as saver:
        begun = True
        saver.upgrade_threads()

def apart(act):
    "In a process of its own, which tells how it ended."
    if not (pid := os.fork()):
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def told():
    with open_saver(url, schema=schema) as saver:
        found = [(t.config, t.checkpoint, t.pending_writes) for t in saver.list(None)]
        plan = saver.upgrade_threads(dry_run=True)
    print(json.dumps([repr(found), plan.rewritten]), flush=True)

apart(told)
for end_at in range(0, 400, int(sys.argv[2])):
    died = apart(lambda: dying(end_at))
    apart(told)
    if died == 0:
        break
"""


def test_an_upgrade_killed_anywhere_goes_on_where_it_was(
    backend: str, tmp_path: Path, long: bool
) -> None:
    ask(backend, tmp_path)
    if backend == "sqlite":
        url = f"sqlite:///{tmp_path}/agent.db?durability=normal"
    else:
        url = f"{servers.shared(backend).url}?prefix={servers.prefix_for(tmp_path)}"
    step = "1" if long else "17" if backend == "sqlite" else "7"
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, url, step], capture_output=True, text=True, check=True
    )
    seen = [json.loads(line) for line in ran.stdout.splitlines()]
    contents, left = {content for content, _ in seen}, [rewritten for _, rewritten in seen]
    assert len(contents) == 1, "what a thread reads as has changed"
    assert left == sorted(left, reverse=True)
    assert (left[0], left[-1]) == (3 * THREADS, 0)
    assert len({*left}) > 2, "it never went on from half way"
    with EVERYWHERE[backend](tmp_path, schema=StateSchema(version=2)) as saver:
        for n in range(THREADS):
            assert answered(saver, n) == [f"in {n}", "begun", "a", "b"]


def test_an_upgrade_beside_a_program_that_answers_loses_nothing(
    backend: str, tmp_path: Path
) -> None:
    ask(backend, tmp_path)
    found: dict[int, Any] = {}

    def work() -> None:
        with EVERYWHERE[backend](tmp_path, schema=schema_of(2, to2=to2)) as saver:
            found.update({n: answered(saver, n) for n in range(THREADS)})

    worker = threading.Thread(target=work)
    with EVERYWHERE[backend](tmp_path, schema=schema_of(2, to2=to2)) as saver:
        worker.start()
        while worker.is_alive():
            saver.upgrade_threads()
        worker.join()
        assert saver.upgrade_threads().failed == {}
    assert found == {n: [f"in {n}", "begun", "a", "b"] for n in range(THREADS)}
    with EVERYWHERE[backend](tmp_path, schema=StateSchema(version=2)) as saver:
        for n in range(THREADS):
            graph = approving("researcher", "documents", saver)
            assert graph.get_state(config(n)).values["documents"] == found[n]


@pytest.mark.parametrize("busy", [2, 100], ids=["for a while", "all the time"])
def test_what_is_written_while_a_thread_is_rewritten_is_kept(
    backend: str, tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = EVERYWHERE[backend]
    with opens(tmp_path) as saver:
        storing(saver, {"docs": 1})
    with (
        opens(tmp_path, schema=schema_of(2, to2=to2)) as saver,
        opens(tmp_path, schema=schema_of(2, to2=to2)) as other,
    ):
        at: Any = other.get_tuple(CONFIG).config
        storage = saver._engine.storage
        edit, written = storage.edit, 0

        async def late(*args: Any) -> Any:
            nonlocal written
            if written < busy:
                other.put_writes(at, [("documents", written)], f"task {written}")
                written += 1
            return await edit(*args)

        monkeypatch.setattr(storage, "edit", late)
        report = saver.upgrade_threads()
        if busy == 2:
            assert (report.failed, report.rewritten) == ({}, 1)
        else:
            assert "others wrote to it 5 times" in report.failed["t"]
        found = saver.get_tuple(CONFIG)
        assert found.checkpoint["channel_values"] == {"documents": 1}
        assert sorted(value for _, _, value in found.pending_writes) == [*range(written)]
