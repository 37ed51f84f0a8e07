"""A cancelled async call has taken effect whole or not at all, and leaves the saver as usable.

Each call of `CALLS` is cancelled at many instants: before it has begun, at once, and after random
delays around the time the call takes. Its `whole or absent` is judged by what can be read at once
and again later, since a transaction that had begun may still be finished by another thread.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import victim
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from victim import Saver, thread

Call = Callable[[Saver, str], Awaitable[Any]]
STEPS = 6


async def _alist(saver: Saver, name: str) -> None:
    async for _ in saver.alist(thread(name)):
        pass


async def _aput(saver: Saver, name: str) -> None:
    await victim.aput(saver, thread(name), STEPS)


async def _aput_writes(saver: Saver, name: str) -> None:
    newest = await saver.aget_tuple(thread(name))
    assert newest is not None
    await saver.aput_writes(newest.config, [("more", n) for n in range(20)], "late task")


CALLS: dict[str, Call] = {
    "aget_tuple": lambda saver, name: saver.aget_tuple(thread(name)),
    "alist": _alist,
    "aput": _aput,
    "aput_writes": _aput_writes,
    "adelete_thread": lambda saver, name: saver.adelete_thread(name),
    "acopy_thread": lambda saver, name: saver.acopy_thread(name, f"{name} copy"),
    "aprune": lambda saver, name: saver.aprune([name]),
    "adelete_for_runs": lambda saver, name: saver.adelete_for_runs([f"run of {name}"]),
    "aget_delta_channel_history": lambda saver, name: saver.aget_delta_channel_history(
        config=thread(name), channels=["messages"]
    ),
}


async def afill(saver: Saver, name: str) -> None:
    """A thread of STEPS checkpoints made by one run, each with three pending writes."""
    config = thread(name)
    for step in range(STEPS):
        config = await victim.aput(saver, config, step, run_id=f"run of {name}")
        await saver.aput_writes(config, victim.writes(step), f"task-{step}")


async def shape(saver: Saver, name: str) -> tuple[int, ...]:
    """How many pending writes each checkpoint of the thread has, newest first."""
    return tuple([len(found.pending_writes or ()) async for found in saver.alist(thread(name))])


FULL = (3,) * STEPS
ALLOWED: dict[str, set[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "aget_tuple": {(FULL, ())},
    "alist": {(FULL, ())},
    "aget_delta_channel_history": {(FULL, ())},
    "aput": {(FULL, ()), ((0, *FULL), ())},
    "aput_writes": {(FULL, ()), ((23, *FULL[1:]), ())},
    "adelete_thread": {(FULL, ()), ((), ())},
    "acopy_thread": {(FULL, ()), (FULL, FULL)},
    "aprune": {(FULL, ()), ((3,), ())},
    "adelete_for_runs": {(FULL, ()), ((), ())},
}


async def cancel(call: Awaitable[Any], delay: float | None) -> bool:
    """Start a call and cancel it: `None` at once, before its first step. Whether it was cut."""
    task = asyncio.ensure_future(call)
    if delay is not None:
        end = time.perf_counter() + delay
        while time.perf_counter() < end and not task.done():
            await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def time_out(call: Awaitable[Any], delay: float) -> bool:
    """The same by `asyncio.timeout`."""
    try:
        async with asyncio.timeout(delay):
            await call
    except TimeoutError:
        return True
    return False


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What asyncio and the threads complained about, e.g. an exception never retrieved."""
    caplog.set_level(logging.WARNING, logger="asyncio")
    in_threads: list[str] = []
    before = threading.excepthook
    threading.excepthook = lambda what: in_threads.append(repr(what.exc_value))

    def collect() -> list[str]:
        gc.collect()
        threading.excepthook = before
        said = [each.getMessage() for each in caplog.records if each.name == "asyncio"]
        return [line for line in said if not line.startswith("Executing ")] + in_threads

    return collect


@pytest.fixture
async def saver(kind: str, tmp_path: Path) -> AsyncIterator[Any]:
    path = str(tmp_path / "agent.db")
    if kind == "stock":
        async with AsyncSqliteSaver.from_conn_string(path) as stock:
            yield stock
        return
    made = victim.open_store(kind, path)
    yield made
    await made.aclose()


def delays(count: int, usual: float, dice: random.Random) -> list[float | None]:
    """When to cancel: before the start, at the first step, and up to well after the usual end."""
    return [None, 0.0, *(dice.uniform(0, 1.3 * usual) for _ in range(count))]


async def usual_time(saver: Saver, what: str) -> float:
    """How long the call takes when nobody cancels it."""
    await afill(saver, "warm up")
    began = time.perf_counter()
    await CALLS[what](saver, "warm up")
    return time.perf_counter() - began


async def partial_effects(
    saver: Saver, what: str, count: int, dice: random.Random
) -> tuple[list[Any], int]:
    """Cancel the call many times; the half effects that were seen, and how often it was cut."""
    bad, cut = [], 0
    usual = await usual_time(saver, what)
    for n, delay in enumerate(delays(count, usual, dice)):
        name = f"thread {n}"
        await afill(saver, name)
        call = CALLS[what](saver, name)
        by_timeout = delay is not None and n % 3 == 2
        cut += await (time_out if by_timeout else cancel)(call, delay)  # type: ignore[arg-type]
        for _ in range(2):
            seen = (await shape(saver, name), await shape(saver, f"{name} copy"))
            if seen not in ALLOWED[what]:
                bad.append((delay, seen))
            await victim.aput(saver, thread("next"), n)
    return bad, cut


@pytest.mark.parametrize("what", CALLS)
async def test_a_cancelled_call_takes_effect_whole_or_not_at_all(
    what: str, saver: Any, long: bool, dice: random.Random, complaints: Any
) -> None:
    bad, cut = await partial_effects(saver, what, 400 if long else 25, dice)
    assert bad == []
    assert cut >= 2
    await afill(saver, "afterwards")
    assert await shape(saver, "afterwards") == FULL
    assert complaints() == []


async def test_control_a_cancelled_delete_of_the_stock_saver_takes_half_an_effect(
    tmp_path: Path, dice: random.Random
) -> None:
    path = str(tmp_path / "stock.db")
    async with aiosqlite.connect(path) as connection, aiosqlite.connect(path) as other:
        stock = AsyncSqliteSaver(connection)
        for n in range(200):
            await afill(stock, f"thread {n}")
            await cancel(stock.adelete_thread(f"thread {n}"), dice.uniform(0, 0.001))
            await victim.aput(stock, thread("next"), n)
            left = []
            for table in ("checkpoints", "writes"):
                query = f"SELECT count(*) FROM {table} WHERE thread_id = ?"
                async with other.execute(query, (f"thread {n}",)) as rows:
                    left.append((await rows.fetchone() or (0,))[0])
            if left[0] == 0 and left[1] > 0:
                return
    pytest.fail("200 cancelled deletes, and none was half done")


async def test_many_calls_cancelled_at_once_leave_the_rest_alone(
    saver: Any, long: bool, dice: random.Random, complaints: Any
) -> None:
    for round in range(30 if long else 4):
        names = [f"{round}.{n}" for n in range(20)]
        await asyncio.gather(*(afill(saver, name) for name in names))
        kept = names[::2]
        tasks = {name: asyncio.ensure_future(_aput(saver, name)) for name in names}
        await asyncio.sleep(dice.uniform(0, 0.004))
        for name in names[1::2]:
            tasks[name].cancel()
        results = await asyncio.gather(*tasks.values(), return_exceptions=True)
        ends = dict(zip(names, results, strict=True))
        assert [ends[name] for name in kept] == [None] * len(kept)
        assert all(isinstance(end, asyncio.CancelledError | None) for end in results)
        for name in names:
            seen = await shape(saver, name)
            assert seen == (0, *FULL) or (name not in kept and seen == FULL)
    assert complaints() == []


async def test_cancelled_calls_leave_no_threads_behind(saver: Any, dice: random.Random) -> None:
    await afill(saver, "t")
    others = set(threading.enumerate())

    async def storm(count: int) -> int:
        for n in range(count):
            call = list(CALLS.values())[n % 3](saver, "t")
            await cancel(call, dice.uniform(0, 0.002))
        await saver.aget_tuple(thread("t"))
        return len(set(threading.enumerate()) - others)

    few = await storm(30)
    assert await storm(300) <= few + 1


async def test_a_list_left_early_or_cancelled_between_pages_leaves_the_saver_usable(
    saver: Any, complaints: Any
) -> None:
    config = thread("long")
    for step in range(120):
        config = await victim.aput(saver, config, step)
    for stop in (1, 50, 119):
        stream = saver.alist(thread("long"))
        for _ in range(stop):
            await anext(stream)
        await stream.aclose()
        forgotten = saver.alist(thread("long"))
        await anext(forgotten)
        del forgotten
    await victim.aput(saver, config, 120)
    assert len(await shape(saver, "long")) == 121
    assert complaints() == []


# -- loops that end with calls in flight ----------------------------------------------------------


def _end_by_return(work: Callable[[], Awaitable[Any]]) -> None:
    """`asyncio.run` cancels what is still running."""

    async def leave() -> None:
        tasks = [asyncio.ensure_future(work()) for _ in range(8)]
        await asyncio.sleep(0.003)
        del tasks

    asyncio.run(leave())


def _end_by_close(work: Callable[[], Awaitable[Any]]) -> None:
    """A loop that is closed under running calls, as a crashing framework does."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    tasks = [loop.create_task(work()) for _ in range(8)]  # type: ignore[arg-type]
    loop.run_until_complete(asyncio.sleep(0.003))
    loop.close()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()  # type: ignore[union-attr]


@pytest.mark.parametrize("end", [_end_by_return, _end_by_close])
def test_a_loop_that_ends_with_calls_in_flight_does_not_break_the_next(
    end: Callable[..., None], kind: str, tmp_path: Path, long: bool, complaints: Any
) -> None:
    saver = victim.open_store(kind, tmp_path / "agent.db")

    async def work() -> None:
        name = f"{id(asyncio.current_task())}"
        while True:
            await afill(saver, name)

    for n in range(50 if long else 8):
        end(work)
        asyncio.run(asyncio.wait_for(afill(saver, f"after {n}"), 120))
        assert asyncio.run(shape(saver, f"after {n}")) == FULL
        victim.fill(saver, f"sync after {n}")
    victim.close_store(saver)
    assert complaints() == []
