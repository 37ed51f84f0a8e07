"""Many processes, threads and event loops on one file, forks, and savers that nobody closes."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import victim
from forks import ForkServer
from victim import thread


def failures(told: list[dict[str, object]]) -> list[object]:
    """What went wrong in the children."""
    return [line["error"] for line in told if line["what"] == "failed"]


# -- many writers ---------------------------------------------------------------------------------


def test_four_processes_of_eight_threads_lose_no_write_and_are_never_locked_out(
    tmp_path: Path, kind: str, long: bool, victims: ForkServer
) -> None:
    path, steps = str(tmp_path / "agent.db"), 60 if long else 12
    saver = victim.open_store(kind, path)
    common = victim.put(saver, thread("common"), 0)["configurable"]["checkpoint_id"]
    job = {"kind": kind, "path": path, "threads": 8, "steps": steps, "common": common}
    told = victims.start("crowd", each="write_at_once", processes=4, patience=250, **job).end()

    assert failures(told) == []
    for member, n in itertools.product(range(4), range(8)):
        found = list(saver.list(thread(f"{member}.{n}")))
        assert [each.metadata["step"] for each in found] == list(reversed(range(steps)))
        assert all(victim.whole(each) and len(each.pending_writes or ()) == 3 for each in found)
    shared = saver.get_tuple(thread("common"))
    assert shared is not None
    expected = {
        f"{member}.{n}.{step}"
        for member, n, step in itertools.product(range(4), range(8), range(steps))
    }
    assert {value for _, _, value in shared.pending_writes or ()} == expected
    assert len(shared.pending_writes or ()) == len(expected)
    victim.close_store(saver)
    assert victim.intact(path)


def test_control_the_same_crowd_locks_out_a_saver_that_does_not_wait(
    tmp_path: Path, victims: ForkServer
) -> None:
    path = str(tmp_path / "agent.db")
    saver = victim.open_store("stock", path)
    common = victim.put(saver, thread("common"), 0)["configurable"]["checkpoint_id"]
    job = {"kind": "hasty", "path": path, "threads": 8, "steps": 12, "common": common}
    told = victims.start("crowd", each="write_at_once", processes=4, **job).end()
    victim.close_store(saver)
    assert any("database is locked" in str(error) for error in failures(told))


def test_three_hundred_first_opens_of_one_new_file_all_succeed(
    tmp_path: Path, kind: str, long: bool, victims: ForkServer
) -> None:
    for round in range(10 if long else 1):
        path = str(tmp_path / f"{round}.db")
        job = {"kind": kind, "path": path, "threads": 10}
        told = victims.start("crowd", each="open_at_once", processes=30, patience=200, **job).end()
        assert failures(told) == []
        saver = victim.open_store(kind, path)
        names = {found.config["configurable"]["thread_id"] for found in saver.list(None)}
        victim.close_store(saver)
        assert names == {f"{member}.{n}" for member in range(30) for n in range(10)}
        assert victim.intact(path)


def test_control_first_opens_that_do_not_wait_fail(tmp_path: Path, victims: ForkServer) -> None:
    job = {"kind": "hasty", "path": str(tmp_path / "new.db"), "threads": 10}
    told = victims.start("crowd", each="open_at_once", processes=30, **job).end()
    assert failures(told)


def _accepted_and_lost(
    kind: str, path: str, turns: int, victims: ForkServer
) -> tuple[set[str], set[str], list[object]]:
    """Let four processes run one thread: the inputs accepted, those of them lost, the errors."""
    victim.close_store(victim.open_store(kind, path))
    job = {"kind": kind, "path": path, "turns": turns}
    told = victims.start("crowd", each="invoke_at_once", processes=4, patience=200, **job).end()
    saver = victim.open_store(kind, path)
    kept = victim.adder().compile(checkpointer=saver).get_state(thread("shared")).values["log"]
    victim.close_store(saver)
    accepted = {line["label"] for line in told if line["what"] == "accepted"}
    return accepted, accepted - set(kept), failures(told)


def test_processes_that_run_one_thread_lose_no_accepted_input(
    tmp_path: Path, kind: str, long: bool, victims: ForkServer
) -> None:
    path, turns = str(tmp_path / "agent.db"), 250 if long else 25
    accepted, dropped, errors = _accepted_and_lost(kind, path, turns, victims)
    assert errors == []
    assert accepted
    assert dropped == set()


def test_control_without_the_head_check_accepted_inputs_are_lost(
    tmp_path: Path, kind: str, victims: ForkServer
) -> None:
    unguarded = "stock" if kind == "stock" else "unguarded"
    assert _accepted_and_lost(unguarded, str(tmp_path / "a.db"), 25, victims)[1]


# -- readers and writers --------------------------------------------------------------------------


def _free_to_checkpoint(path: str) -> bool:
    """Whether no connection holds a read or write transaction on the file."""
    connection = sqlite3.connect(path, timeout=0)
    try:
        return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    finally:
        connection.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_list_holds_nothing_while_the_caller_looks_at_what_it_gave(
    colour: str, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "agent.db")
    saver = victim.open_store(kind, path)
    victim.fill(saver, "long", 300)

    async def look() -> int:
        seen = 0
        async for _ in saver.alist(thread("long")):
            seen += 1
            if seen % 50 == 1:
                await victim.aput(saver, thread("other"), seen)
                assert _free_to_checkpoint(path)
        return seen

    if colour == "async":
        assert asyncio.run(look()) == 300
        return
    for n, _ in enumerate(saver.list(thread("long"))):
        if n % 50 == 0:
            victim.put(saver, thread("other"), n)
            assert _free_to_checkpoint(path)
    assert n == 299
    victim.close_store(saver)


def test_an_abandoned_list_holds_nothing(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "agent.db")
    saver = victim.open_store(kind, path)
    victim.fill(saver, "long", 300)
    abandoned = saver.list(thread("long"))
    next(abandoned)
    victim.put(saver, thread("other"), 0)
    assert _free_to_checkpoint(path)
    del abandoned
    victim.close_store(saver)


def test_control_a_list_of_the_stock_saver_holds_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.db")
    saver = victim.open_store("stock", path)
    victim.fill(saver, "long", 300)
    abandoned = saver.list(thread("long"))
    next(abandoned)
    assert not _free_to_checkpoint(path)
    abandoned.close()
    victim.close_store(saver)


def test_readers_go_on_while_another_process_holds_the_write_lock(
    tmp_path: Path, kind: str, victims: ForkServer
) -> None:
    path = str(tmp_path / "agent.db")
    saver = victim.open_store(kind, path)
    configs = victim.fill(saver, "t", 20)
    holder = victims.start("hold_lock", path=path, how="IMMEDIATE", seconds=30)
    holder.until("held")
    assert len(list(saver.list(thread("t")))) == 20
    assert saver.get_tuple(configs[3]) is not None
    cold = victim.open_store(kind, path)
    assert cold.get_tuple(thread("t")) is not None
    assert not any(line["what"] == "released" for line in holder.told)
    holder.kill_after(0)
    victim.close_store(saver)
    victim.close_store(cold)


def test_a_busy_reader_never_holds_up_a_writer(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "agent.db")
    reader, writer = victim.open_store(kind, path), victim.open_store(kind, path)
    victim.fill(reader, "long", 200)
    done, lists = threading.Event(), 0

    def read_all_the_time() -> None:
        nonlocal lists
        while not done.is_set():
            assert len(list(reader.list(thread("long")))) == 200
            lists += 1

    reading = threading.Thread(target=read_all_the_time)
    reading.start()
    config, step = thread("other"), 0
    while step < 60 or (not lists and reading.is_alive()):
        config = victim.put(writer, config, step)
        step += 1
    done.set()
    reading.join()
    assert lists
    assert len(list(reader.list(thread("other")))) == step
    victim.close_store(reader)
    victim.close_store(writer)


# -- forks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "amid writes"])
def test_after_a_fork_both_sides_work_and_the_file_is_intact(
    busy: bool, tmp_path: Path, kind: str, long: bool, victims: ForkServer
) -> None:
    for round in range(20 if long else 2):
        path = str(tmp_path / f"{round}.db")
        told = victims.start("fork_after_use", kind=kind, path=path, busy=busy).end()
        assert failures(told) == []
        assert [line["what"] for line in told].count("child") == 6
        assert told[-2]["what"] == "parent"
        saver = victim.open_store(kind, path)
        for name in [*(f"fork {n}" for n in range(5)), "multiprocessing", "before", "after"]:
            assert len(list(saver.list(thread(name)))) == 3
        for name in [f"parent {n}" for n in range(5)] + ["fork 0 async", "after async"]:
            assert len(list(saver.list(thread(name)))) == 1
        meanwhile = [found.metadata["step"] for found in saver.list(thread("meanwhile"))]
        assert meanwhile == list(reversed(range(len(meanwhile))))
        victim.close_store(saver)
        assert victim.intact(path)


# -- leaving --------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys, threading
sys.path[:0] = {folders!r}
import victim

saver = victim.open_store({kind!r}, {path!r})      # constructed outside any loop

async def use():
    await victim.aput(saver, victim.thread("async"), 0)
    assert await saver.aget_tuple(victim.thread("async"))
    stream = saver.alist(None)
    assert await anext(stream)

def use_sync():
    victim.fill(saver, "sync")
    assert next(saver.list(None))

{body}
late = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
print("left behind:", late)
"""

ENDINGS = {
    "sync": "use_sync()",
    "async": "asyncio.run(use())",
    "both": "use_sync(); asyncio.run(use()); use_sync()",
    "thread": "t = threading.Thread(target=use_sync); t.start(); t.join()",
    "in flight": """
async def leave():
    pending = [asyncio.ensure_future(use()) for _ in range(20)]
    await asyncio.sleep(0.005)
asyncio.run(leave())
""",
    "unused": "",
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_saver_that_nobody_closes_never_keeps_the_interpreter_from_ending(
    how: str, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "agent.db")
    program = textwrap.dedent(PROGRAM).format(
        folders=[str(folder) for folder in Path(__file__).parents[:2]],
        kind=kind,
        path=path,
        body=ENDINGS[how],
    )
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "left behind: []\n"
    if how != "unused":
        assert victim.intact(path)


def test_a_saver_dropped_unclosed_gives_its_threads_and_connections_back(
    tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "agent.db")
    for _ in range(3):
        _use_and_drop(kind, path)
    threads, handles = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(30):
        _use_and_drop(kind, path)
    end = time.monotonic() + 60  # a worker may be about to let go of the last one
    while time.monotonic() < end:
        left = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
        if left[0] <= threads + 2 and left[1] <= handles + 6:
            return
        time.sleep(0.01)
    pytest.fail(f"{left} threads and files, {(threads, handles)} before")


def _use_and_drop(kind: str, path: str) -> None:
    saver = victim.open_store(kind, path)
    victim.put(saver, thread("t"), 0)
    asyncio.run(victim.aput(saver, thread("t"), 0))


# -- event loops ----------------------------------------------------------------------------------


def test_one_saver_serves_several_event_loops_one_after_another(tmp_path: Path, kind: str) -> None:
    saver = victim.open_store(kind, tmp_path / "agent.db")

    async def use(n: int) -> int:
        await asyncio.gather(*(victim.aput(saver, thread(f"{n}.{i}"), 0) for i in range(5)))
        return len([found async for found in saver.alist(None)])

    assert [asyncio.run(use(n)) for n in range(4)] == [5, 10, 15, 20]
    victim.close_store(saver)


def test_one_saver_serves_event_loops_and_plain_threads_at_once(tmp_path: Path, kind: str) -> None:
    saver = victim.open_store(kind, tmp_path / "agent.db")

    async def chain(name: str) -> None:
        config = thread(name)
        for step in range(10):
            config = await victim.aput(saver, config, step)
            await saver.aput_writes(config, victim.writes(step), f"task-{step}")
            assert await saver.aget_tuple(config) is not None

    async def several(n: int) -> None:
        await asyncio.gather(*(chain(f"loop {n}.{i}") for i in range(4)))

    def work(n: int) -> None:
        if n < 2:
            asyncio.run(several(n))
        else:
            victim.fill(saver, f"plain {n}", 10)

    victim.in_threads(4, work)
    names = [f"loop {n}.{i}" for n in range(2) for i in range(4)] + ["plain 2", "plain 3"]
    for name in names:
        found = list(saver.list(thread(name)))
        assert len(found) == 10
        assert all(map(victim.whole, found))
    victim.close_store(saver)


def test_a_sync_call_on_a_running_loop_works(tmp_path: Path, kind: str) -> None:
    saver = victim.open_store(kind, tmp_path / "agent.db")

    async def use() -> None:
        await victim.aput(saver, thread("async"), 0)
        pending = [asyncio.ensure_future(victim.aput(saver, thread(f"p{n}"), 0)) for n in range(5)]
        await asyncio.sleep(0)
        victim.fill(saver, "sync", 3)
        assert saver.get_tuple(thread("async")) is not None
        assert len(list(saver.list(thread("sync")))) == 3
        await asyncio.gather(*pending)
        saver.delete_thread("async")
        assert await saver.aget_tuple(thread("async")) is None

    asyncio.run(asyncio.wait_for(use(), 120))
    assert len(list(saver.list(None))) == 8
    victim.close_store(saver)
