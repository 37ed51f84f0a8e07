"""Figures of raw calls by one caller: `put`, `get_tuple`, `delete_thread` and their async forms.

The arguments are made before the clock starts; a sample is the mean of a short burst of calls, and
bursts of the savers alternate.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from measure import INFORMATION, Figure, Plan, at_most, compare, interleave, times_better
from savers import Saver, Synchronous, open_async_saver, open_bare, open_saver
from workloads import OneInteger, Step, TenChannels, thread

LEVELS: tuple[Synchronous, ...] = ("NORMAL", "FULL")
BURST = 20
NextStep = Callable[[], Step]


def raw_calls(plan: Plan) -> Iterator[Figure]:
    """`put` and `get_tuple` of ten channels with 100 messages, against stock and a bare commit."""
    rounds = plan.pick(15, 41)
    for level in LEVELS:
        for what, growing in (("one channel changes", False), ("messages grow", True)):
            samples = time_puts(plan, level, growing, rounds)
            name = f"put, {what}, {level}"
            if level == "NORMAL":
                yield compare(name, "s", samples, "stock", times_better(5, ">= 5x faster"))
                yield compare(name, "s", samples, "bare", INFORMATION)
            else:
                within = times_better(1 / 1.3, "<= 1.3x a bare commit")
                yield compare(name, "s", samples, "bare", within)
                yield compare(name, "s", samples, "stock", INFORMATION)
    samples = time_gets(plan, TenChannels, rounds)
    yield compare("get_tuple, 100 messages", "s", samples, "stock", times_better(2.5, ">= 2.5x"))


def tiny_state(plan: Plan) -> Iterator[Figure]:
    """A state of one integer: nothing may be slower than stock, async at least twice as fast."""
    rounds = plan.pick(15, 41)
    same = times_better(1, "not slower than stock")
    twice = times_better(2, ">= 2x faster")
    for level in LEVELS:
        samples = time_tiny_puts(plan, level, rounds)
        yield compare(f"tiny put, {level}", "s", samples, "stock", same)
    yield compare("tiny get_tuple", "s", time_gets(plan, OneInteger, rounds), "stock", same)
    for level in LEVELS:
        puts, gets = time_tiny_async(plan, level, rounds)
        yield compare(f"tiny aput, {level}", "s", puts, "stock", twice)
        if level == "NORMAL":
            yield compare("tiny aget_tuple", "s", gets, "stock", twice)


def delete_thread(plan: Plan) -> Iterator[Figure]:
    """`delete_thread` of 1,000 checkpoints of ten channels, each with one write, at FULL."""
    checkpoints = 1_000
    rounds = plan.pick(2, 5)
    with ExitStack() as stack:
        samplers = {}
        for name in plan.entrants("ours", "stock"):
            folder = plan.folder(name)
            names = [f"doomed-{number}" for number in range(rounds + 1)]
            with open_saver(name, folder, "NORMAL") as saver:
                for doomed in names:
                    fill(saver, TenChannels(saver, doomed).change_one, checkpoints)
            saver = stack.enter_context(open_saver(name, folder, "FULL"))
            samplers[name] = time_each(saver.delete_thread, names)
        samples = interleave(samplers, rounds)
    target = at_most(0.020, "under 20 ms")
    yield compare("delete_thread of 1,000 checkpoints, FULL", "s", samples, "stock", target)


def fill(saver: Saver, next_step: NextStep, count: int) -> None:
    """Save `count` steps, each with the write that leads to it, as LangGraph does."""
    for _ in range(count):
        save_step(saver, next_step())


def save_step(saver: Saver, step: Step) -> None:
    """One step of a run: the task's writes on the parent checkpoint, then the next checkpoint."""
    if "checkpoint_id" in step.config["configurable"]:
        saver.put_writes(step.config, list(step.changes.items()), "task")
    saver.put(step.config, step.checkpoint, step.metadata, step.new_versions)


def time_puts(plan: Plan, level: Synchronous, growing: bool, rounds: int) -> dict[str, list[float]]:
    """Seconds a `put`, and a bare commit of the bytes that are new in each."""
    with ExitStack() as stack:
        samplers = {}
        for name in plan.entrants("ours", "stock"):
            folder = plan.folder(f"{name}-{level}-{growing}")
            saver = stack.enter_context(open_saver(name, folder, level))
            state = TenChannels(saver, "ten")
            samplers[name] = time_put_burst(saver, state.grow if growing else state.change_one)
        connection = stack.enter_context(open_bare(plan.folder(f"bare-{level}-{growing}"), level))
        state = TenChannels(saver, "bare")
        samplers["bare"] = time_bare_burst(connection, state.grow if growing else state.change_one)
        return interleave(samplers, rounds)


def time_tiny_puts(plan: Plan, level: Synchronous, rounds: int) -> dict[str, list[float]]:
    """Seconds a `put` of one integer."""
    with ExitStack() as stack:
        samplers = {}
        for name in plan.entrants("ours", "stock"):
            saver = stack.enter_context(
                open_saver(name, plan.folder(f"{name}-tiny-{level}"), level)
            )
            samplers[name] = time_put_burst(saver, OneInteger(saver, "tiny").change_one)
        return interleave(samplers, rounds)


def time_put_burst(saver: Saver, next_step: NextStep) -> Callable[[], float]:
    """A sampler: the seconds of one `put`, averaged over a burst."""

    def sample() -> float:
        steps = [next_step() for _ in range(BURST)]
        started = time.perf_counter()
        for step in steps:
            saver.put(step.config, step.checkpoint, step.metadata, step.new_versions)
        return (time.perf_counter() - started) / BURST

    return sample


def new_bytes(step: Step, serde: JsonPlusSerializer) -> bytes:
    """What a step adds: its checkpoint with only the changes, and its metadata.

    Of a list that grew only the last element is new.
    """
    values = {
        channel: value[-1:] if isinstance(value, list) else value
        for channel, value in step.changes.items()
    }
    _, checkpoint = serde.dumps_typed({**step.checkpoint, "channel_values": values})
    return checkpoint + json.dumps(step.metadata).encode()


def time_bare_burst(connection: sqlite3.Connection, next_step: NextStep) -> Callable[[], float]:
    """A sampler: the seconds of one commit of a step's new bytes, serialised beforehand."""
    serde = JsonPlusSerializer()

    def sample() -> float:
        blobs = [(new_bytes(next_step(), serde),) for _ in range(BURST)]
        started = time.perf_counter()
        for blob in blobs:
            connection.execute("INSERT INTO log (bytes) VALUES (?)", blob)
        return (time.perf_counter() - started) / BURST

    return sample


def time_gets(
    plan: Plan, state: type[TenChannels] | type[OneInteger], rounds: int
) -> dict[str, list[float]]:
    """Seconds a `get_tuple` of the newest of 50 checkpoints, which has no pending writes."""
    with ExitStack() as stack:
        samplers = {}
        for name in plan.entrants("ours", "stock"):
            folder = plan.folder(f"{name}-get-{state.__name__}")
            saver = stack.enter_context(open_saver(name, folder, "NORMAL"))
            fill(saver, state(saver, "read").change_one, 50)
            samplers[name] = time_get_burst(saver)
        return interleave(samplers, rounds)


def time_get_burst(saver: Saver) -> Callable[[], float]:
    """A sampler: the seconds of one `get_tuple`, averaged over a burst."""
    config = thread("read")

    def sample() -> float:
        started = time.perf_counter()
        for _ in range(BURST):
            saver.get_tuple(config)
        return (time.perf_counter() - started) / BURST

    return sample


def time_tiny_async(
    plan: Plan, level: Synchronous, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds an `aput` and an `aget_tuple` of one integer, one caller awaiting each."""
    with asyncio.Runner() as runner, ExitStack() as stack:
        puts, gets = {}, {}
        for name in plan.entrants("ours", "stock"):
            folder = plan.folder(f"{name}-async-{level}")
            saver = stack.enter_context(open_async_saver(name, folder, level, runner))
            state = OneInteger(saver, "tiny")
            puts[name] = time_aput_burst(runner, saver, state.change_one)
            gets[name] = time_aget_burst(runner, saver)
        return interleave(puts, rounds), interleave(gets, rounds)


def time_aput_burst(
    runner: asyncio.Runner, saver: Saver, next_step: NextStep
) -> Callable[[], float]:
    """A sampler: the seconds of one awaited `aput`, averaged over a burst."""

    async def burst(steps: list[Step]) -> float:
        started = time.perf_counter()
        for step in steps:
            await saver.aput(step.config, step.checkpoint, step.metadata, step.new_versions)
        return (time.perf_counter() - started) / BURST

    return lambda: runner.run(burst([next_step() for _ in range(BURST)]))


def time_aget_burst(runner: asyncio.Runner, saver: Saver) -> Callable[[], float]:
    """A sampler: the seconds of one awaited `aget_tuple`, averaged over a burst."""
    config = thread("tiny")

    async def burst() -> float:
        started = time.perf_counter()
        for _ in range(BURST):
            await saver.aget_tuple(config)
        return (time.perf_counter() - started) / BURST

    return lambda: runner.run(burst())


def time_each(call: Callable[[str], None], names: Iterable[str]) -> Callable[[], float]:
    """A sampler: the seconds of a call that can be made only once for each name."""
    remaining = iter(names)

    def sample() -> float:
        name = next(remaining)
        started = time.perf_counter()
        call(name)
        return time.perf_counter() - started

    return sample
