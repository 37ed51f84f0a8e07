"""Figures of many callers at once: async tasks, OS threads, processes, and the loop they share.

Processes are real ones running `worker.py`; they are started once and told what to do a line at a
time, so that only the work between "go" and "done" is timed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from calls import LEVELS, fill, save_step
from measure import Figure, Plan, at_most, compare, interleave, times_better
from savers import Saver, Synchronous, open_async_saver, open_saver
from workloads import Prose, Step, TenChannels, Timeline, thread

TASKS = 32
THREADS = 8
PROCESSES = 4
TICK = 0.0005
# One hand-over of the interpreter lock takes up to sys.getswitchinterval(), 5 ms, even when all
# the work is off the loop: "~5 ms" is judged as that plus a millisecond of timer slack.
STALL = at_most(0.006, "~5 ms (judged at 6 ms)")


def async_tasks(plan: Plan) -> Iterator[Figure]:
    """32 async threads at once on ten channels: puts and gets a second against AsyncSqliteSaver."""
    each, rounds = plan.pick(6, 10), plan.pick(5, 11)
    for level in LEVELS:
        with asyncio.Runner() as runner, ExitStack() as stack:
            puts, gets = {}, {}
            for name in plan.entrants("ours", "stock"):
                folder = plan.folder(f"{name}-{level}")
                saver = stack.enter_context(open_async_saver(name, folder, level, runner))
                states = [TenChannels(saver, f"task-{number}") for number in range(TASKS)]
                puts[name] = rate_aputs(runner, saver, states, each)
                gets[name] = rate_agets(runner, saver, states, each)
            put_rates = interleave(puts, rounds)
            get_rates = interleave(gets, rounds) if level == "NORMAL" else {}
        name = f"{TASKS} async threads, aput, {level}"
        yield compare(name, "/s", put_rates, "stock", times_better(5, ">= 5x the puts"))
        if get_rates:
            name = f"{TASKS} async threads, aget_tuple"
            yield compare(name, "/s", get_rates, "stock", times_better(3, ">= 3x the gets"))


def os_threads(plan: Plan) -> Iterator[Figure]:
    """8 OS threads on one saver: steps (`put_writes` and `put`) a second."""
    each, rounds = plan.pick(15, 25), plan.pick(5, 15)
    for level in LEVELS:
        with ThreadPoolExecutor(THREADS) as pool, ExitStack() as stack:
            samplers = {}
            for name in plan.entrants("ours", "stock"):
                folder = plan.folder(f"{name}-{level}")
                saver = stack.enter_context(open_saver(name, folder, level))
                samplers[name] = rate_threads(pool, saver, each)
            rates = interleave(samplers, rounds)
        name = f"{THREADS} OS threads, steps, {level}"
        yield compare(name, "/s", rates, "stock", times_better(3, ">= 3x the steps"))


def processes(plan: Plan) -> Iterator[Figure]:
    """4 processes on one file: steps a second, at FULL and at NORMAL."""
    each, rounds = plan.pick(40, 80), plan.pick(5, 11)
    targets = {"FULL": times_better(1, "no worse"), "NORMAL": times_better(2, ">= 2x the steps")}
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker()) for _ in range(PROCESSES)]
        for level in LEVELS:
            samplers = {}
            for name in plan.entrants("ours", "stock"):
                folder = plan.folder(f"{name}-{level}")
                with open_saver(name, folder, level):
                    pass  # the stock saver fails when several processes create the file at once
                samplers[name] = rate_processes(workers, name, folder, level, each)
            rates = interleave(samplers, rounds)
            name = f"{PROCESSES} processes on one file, steps, {level}"
            yield compare(name, "/s", rates, "stock", targets[level])


def cold_open(plan: Plan) -> Iterator[Figure]:
    """Open and read a thread of 1,000 checkpoints in a process that has only done its imports."""
    kinds = ("one channel changed",) if plan.quick else ("one channel changed", "messages grew")
    for kind in kinds:
        samplers = {}
        for name in plan.entrants("ours", "stock"):
            folder = plan.folder(f"{name}-{kind.replace(' ', '-')}")
            with open_saver(name, folder, "NORMAL") as saver:
                state = TenChannels(saver, "read")
                fill(saver, state.grow if kind == "messages grew" else state.change_one, 1_000)
            samplers[name] = time_cold_open(name, folder)
        samples = interleave(samplers, plan.pick(3, 9))
        target = times_better(1, "not slower than stock")
        yield compare(f"cold open and read, {kind}", "s", samples, "stock", target)


def event_loop(plan: Plan) -> Iterator[Figure]:
    """The longest the loop stood still while a 5,000-message thread was saved and read."""
    rounds = plan.pick(5, 15)
    messages = Prose(4).messages(5_000)
    with asyncio.Runner() as runner, ExitStack() as stack:
        stalls: dict[str, dict[str, Callable[[], float]]] = {}
        for name in plan.entrants("ours", "stock"):
            saver = stack.enter_context(open_async_saver(name, plan.folder(name), "NORMAL", runner))
            for what, sampler in stall_samplers(runner, saver, messages).items():
                stalls.setdefault(what, {})[name] = sampler
        idle = runner.run(longest_gap(asyncio.sleep(0.5)))
        for what, samplers in stalls.items():
            samples = interleave(samplers, rounds)
            worst = ", ".join(f"{name} {max(gaps) * 1e3:.1f}" for name, gaps in samples.items())
            note = f"of each call's longest gap; the worst, ms: {worst}, idle loop {idle * 1e3:.1f}"
            yield compare(f"event loop stall, {what}", "s", samples, "stock", STALL, note)


def rate_aputs(
    runner: asyncio.Runner, saver: Saver, states: list[TenChannels], each: int
) -> Callable[[], float]:
    """A sampler: `aput`s a second by one task per state, each awaiting its own."""

    async def put_all(steps: list[Step]) -> None:
        for step in steps:
            await saver.aput(step.config, step.checkpoint, step.metadata, step.new_versions)

    async def crowd(work: list[list[Step]]) -> float:
        started = time.perf_counter()
        await asyncio.gather(*map(put_all, work))
        return len(work) * each / (time.perf_counter() - started)

    return lambda: runner.run(
        crowd([[state.change_one() for _ in range(each)] for state in states])
    )


def rate_agets(
    runner: asyncio.Runner, saver: Saver, states: list[TenChannels], each: int
) -> Callable[[], float]:
    """A sampler: `aget_tuple`s a second by one task per state."""

    async def get_all(name: str) -> None:
        for _ in range(each):
            if await saver.aget_tuple(thread(name)) is None:
                raise RuntimeError(f"{name} was saved and is not found")

    async def crowd() -> float:
        started = time.perf_counter()
        await asyncio.gather(*(get_all(state.timeline.name) for state in states))
        return len(states) * each / (time.perf_counter() - started)

    return lambda: runner.run(crowd())


def rate_threads(pool: ThreadPoolExecutor, saver: Saver, each: int) -> Callable[[], float]:
    """A sampler: steps a second by OS threads that share a saver, each on its own thread id."""
    states = [TenChannels(saver, f"os-{number}") for number in range(THREADS)]

    def save_all(steps: list[Step]) -> None:
        for step in steps:
            save_step(saver, step)

    def sample() -> float:
        work = [[state.change_one() for _ in range(each)] for state in states]
        started = time.perf_counter()
        list(pool.map(save_all, work))
        return THREADS * each / (time.perf_counter() - started)

    return sample


class Worker:
    """A process of its own that answers one line of JSON with another (see `worker.py`)."""

    def __enter__(self) -> Worker:
        script = Path(__file__).with_name("worker.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.communicate(timeout=60)  # end of input ends the worker

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send a command without waiting for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")

    def hear(self) -> Any:
        """Wait for the answer to the oldest unanswered command."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a benchmark worker died; its error is above")
        return json.loads(line)


def rate_processes(
    workers: list[Worker], name: str, folder: Path, level: Synchronous, each: int
) -> Callable[[], float]:
    """A sampler: steps a second by all workers on one file, from "go" to the last "done"."""

    def sample() -> float:
        for number, worker in enumerate(workers):
            where = {"saver": name, "folder": str(folder), "synchronous": level}
            worker.tell({"do": "prepare", **where, "thread": f"p-{number}", "steps": each})
        for worker in workers:
            worker.hear()
        started = time.perf_counter()
        for worker in workers:
            worker.tell({"do": "go"})
        for worker in workers:
            worker.hear()
        return len(workers) * each / (time.perf_counter() - started)

    return sample


def time_cold_open(name: str, folder: Path) -> Callable[[], float]:
    """A sampler: seconds a fresh process takes to open the file and read the thread."""

    def sample() -> float:
        with Worker() as worker:
            worker.tell({"do": "read", "saver": name, "folder": str(folder), "thread": "read"})
            return float(worker.hear())

    return sample


def stall_samplers(
    runner: asyncio.Runner, saver: Saver, messages: list[Any]
) -> dict[str, Callable[[], float]]:
    """Samplers of the longest gap during a first save, a later save and a read."""
    numbers = iter(range(1_000_000))
    timeline = Timeline(saver, "long", {"messages": messages, "count": 0})
    prose = Prose(5)

    def put(step: Step) -> Awaitable[Any]:
        return saver.aput(step.config, step.checkpoint, step.metadata, step.new_versions)

    def first() -> Awaitable[Any]:
        state = {"messages": messages, "count": 0}
        return put(Timeline(saver, f"new-{next(numbers)}", state).advance({}))

    def later() -> Awaitable[Any]:
        grown = [*timeline.state["messages"], prose.message(timeline.number)]
        return put(timeline.advance({"messages": grown}))

    def read() -> Awaitable[Any]:
        return saver.aget_tuple(thread("long"))

    calls = {"aput of 5,000 new messages": first, "aput of one more": later, "aget_tuple": read}
    return {
        what: (lambda call=call: runner.run(longest_gap(call())))  # type: ignore[misc]
        for what, call in calls.items()
    }


async def longest_gap(work: Awaitable[Any]) -> float:
    """The most by which a ticking coroutine was late while `work` ran on the same loop."""
    task = asyncio.ensure_future(work)
    worst, last = 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(TICK)
        now = time.perf_counter()
        worst, last = max(worst, now - last - TICK), now
    await task
    return worst
