"""No async method makes the loop's thread wait for the disk or for another process's lock.

Shown by structure, not by timing: which thread calls SQLite, and whether a ticker on the same
loop keeps ticking while another process holds the write lock.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import victim
from forks import ForkServer
from victim import Saver, thread


async def _alist(saver: Saver) -> list[Any]:
    return [found async for found in saver.alist(None)]


CALLS: dict[str, Callable[[Saver], Awaitable[Any]]] = {
    "aput": lambda saver: victim.aput(saver, thread("t"), 5),
    "aput_writes": lambda saver: saver.aput_writes(
        thread("t", "1f000000-0000-6000-8000-000000000000"), victim.writes(0), "task"
    ),
    "adelete_thread": lambda saver: saver.adelete_thread("t"),
    "acopy_thread": lambda saver: saver.acopy_thread("t", "copy"),
    "aprune": lambda saver: saver.aprune(["t"]),
    "adelete_for_runs": lambda saver: saver.adelete_for_runs(["run"]),
}
READS: dict[str, Callable[[Saver], Awaitable[Any]]] = {
    "aget_tuple": lambda saver: saver.aget_tuple(thread("t")),
    "aget": lambda saver: saver.aget(thread("t")),
    "alist": _alist,
    "aget_delta_channel_history": lambda saver: saver.aget_delta_channel_history(
        config=thread("t"), channels=["messages"]
    ),
}


@pytest.fixture
def path(kind: str, tmp_path: Path) -> str:
    """A store with one thread, closed."""
    made = str(tmp_path / "agent.db")
    saver = victim.open_store(kind, made)
    victim.fill(saver, "t", run_id="run")
    victim.close_store(saver)
    return made


# -- who calls SQLite -----------------------------------------------------------------------------


@contextmanager
def disk_calls() -> Iterator[list[str]]:
    """The calls that this thread makes to SQLite and to the disk."""
    calls: list[str] = []
    waits = {os.fsync, os.fdatasync, os.replace, os.stat, sqlite3.connect}

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call":
            return
        owner = getattr(called, "__self__", None)
        if isinstance(owner, sqlite3.Connection | sqlite3.Cursor) or called in waits:
            calls.append(f"{called.__name__} from {frame.f_code.co_filename}:{frame.f_lineno}")

    sys.setprofile(watch)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("what", CALLS | READS)
@pytest.mark.parametrize("fresh", [True, False], ids=["first call", "later call"])
def test_no_async_call_touches_the_disk_on_the_thread_of_the_loop(
    what: str, fresh: bool, kind: str, path: str
) -> None:
    async def use() -> list[str]:
        saver: Any = victim.open_store(kind, path)
        if not fresh:
            await saver.aget_tuple(thread("t"))
        with disk_calls() as calls:
            await (CALLS | READS)[what](saver)
        await saver.aclose()
        return calls

    assert asyncio.run(use()) == []


def test_no_async_run_of_a_graph_touches_the_disk_on_the_thread_of_the_loop(
    kind: str, path: str
) -> None:
    async def run() -> tuple[list[str], Any]:
        saver: Any = victim.open_store(kind, path)
        graph = victim.builder().compile(checkpointer=saver)
        await graph.ainvoke(victim.turn_input(1), thread("first"))  # LangChain imports lazily
        with disk_calls() as calls:
            for turn in (1, 2):
                await graph.ainvoke(victim.turn_input(turn), thread("graph"), durability="sync")
        state = (await graph.aget_state(thread("graph"))).values
        await saver.aclose()
        return calls, state

    calls, state = asyncio.run(run())
    assert calls == []
    assert state == victim.state_after(2)


def test_control_a_sync_call_on_the_loop_is_seen(kind: str, path: str) -> None:
    async def use() -> list[str]:
        saver = victim.open_store("stock" if kind == "stock" else kind, path)
        with disk_calls() as calls:
            victim.put(saver, thread("t"), 5)
        victim.close_store(saver)
        return calls

    assert asyncio.run(use())


# -- who waits for a lock -------------------------------------------------------------------------


@asynccontextmanager
async def ticker() -> AsyncIterator[list[int]]:
    """Something else that the loop has to do."""
    ticks = [0]

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.005)
            ticks[0] += 1

    task = asyncio.ensure_future(tick())
    try:
        yield ticks
    finally:
        task.cancel()


@pytest.mark.parametrize("what", CALLS)
def test_while_a_call_waits_for_a_lock_the_loop_ticks_and_reads_succeed(
    what: str, kind: str, path: str, victims: ForkServer
) -> None:
    async def wait() -> None:
        saver: Any = victim.open_store(kind, path)
        await saver.aget_tuple(thread("t"))
        holder = victims.start("hold_lock", path=path, how="IMMEDIATE", seconds=60)
        holder.until("held")
        async with ticker() as ticks:
            waiting = asyncio.ensure_future(CALLS[what](saver))
            while ticks[0] < 20:
                await asyncio.sleep(0.01)
            for read in READS.values():
                assert await asyncio.wait_for(read(saver), 120)
            assert not waiting.done()
            holder.kill_after(0)
            await asyncio.wait_for(waiting, 120)
        await saver.aclose()

    asyncio.run(wait())


def test_a_first_open_that_waits_for_a_lock_lets_the_loop_tick(
    kind: str, tmp_path: Path, victims: ForkServer
) -> None:
    new = str(tmp_path / "new.db")

    async def wait() -> None:
        holder = victims.start("hold_lock", path=new, how="EXCLUSIVE", seconds=60)
        holder.until("held")
        saver: Any = victim.open_store(kind, new)
        async with ticker() as ticks:
            waiting = asyncio.ensure_future(victim.aput(saver, thread("t"), 0))
            while ticks[0] < 20:
                await asyncio.sleep(0.01)
            assert not waiting.done()
            holder.kill_after(0)
            await asyncio.wait_for(waiting, 120)
        await saver.aclose()

    asyncio.run(wait())


def test_control_a_sync_call_that_waits_for_a_lock_stops_the_ticker(
    kind: str, path: str, victims: ForkServer
) -> None:
    async def wait() -> int:
        saver = victim.open_store(kind, path)
        holder = victims.start("hold_lock", path=path, how="IMMEDIATE", seconds=0.5)
        holder.until("held")
        async with ticker() as ticks:
            await asyncio.sleep(0)
            victim.put(saver, thread("t"), 5)
            stood = ticks[0]
        holder.end()
        victim.close_store(saver)
        return stood

    assert asyncio.run(wait()) <= 1
