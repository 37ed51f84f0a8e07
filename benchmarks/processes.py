"""Figures that need processes of their own: four writers, a cold resume, and memory.

They run `worker.py`; they are told what to do a line at a time, so that only the work between
"go" and "done" is timed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from calls import better
from entrants import OURS, PEERS, Level, Plan, Spot, open_saver
from measure import (
    ONCE,
    TINY,
    Burst,
    Figure,
    Reading,
    Sampler,
    Section,
    exactly,
    interleave,
    tolerating,
)
from workloads import TenChannels

PROCESSES = 4


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

    def tell(self, do: str, **more: Any) -> None:
        """Send a command without waiting for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")

    def hear(self) -> Mapping[str, Any]:
        """Wait for the answer to the oldest unanswered command."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a benchmark worker died; its error is above")
        found: Mapping[str, Any] = json.loads(line)
        return found

    def ask(self, do: str, **more: Any) -> Mapping[str, Any]:
        """Send a command and wait for the answer."""
        self.tell(do, **more)
        return self.hear()


def writers(plan: Plan) -> Iterator[Figure]:
    """Four processes that write to one store, each to a thread of its own."""
    each = plan.pick(2, 10, 50)
    times: dict[Level, float] = {"full": 1, "normal": 2}
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker()) for _ in range(plan.pick(2, PROCESSES, PROCESSES))]
        for level, better_by in times.items():
            plan.hosts.set_level(level)
            samplers = {}
            for name in plan.entrants(*PEERS):
                spot = plan.spot(name, level, "writers")
                with open_saver(spot):
                    pass  # the stock saver fails when several processes create the file at once
                samplers[name] = writers_sampler(workers, spot, each)
            rounds = interleave(samplers, plan.pace)
            yield Figure(
                f"put, {len(workers)} processes",
                "/s",
                rounds.readings("/s"),
                (better("ours sqlite", "stock sqlite", better_by),),
                level,
                failed=rounds.failed,
            )


def writers_sampler(workers: list[Worker], spot: Spot, each: int) -> Sampler:
    """From "go" to the last "done"; the processor time is that of the workers."""

    def sample() -> Burst:
        for number, worker in enumerate(workers):
            worker.tell("prepare", spot=asdict(spot), thread=f"p-{number}", steps=each)
        for worker in workers:
            worker.hear()
        began = time.perf_counter()
        for worker in workers:
            worker.tell("go")
        cpu = sum(worker.hear()["cpu"] for worker in workers)
        return Burst(len(workers) * each, time.perf_counter() - began, cpu)

    return sample


def cold_resume(plan: Plan) -> Iterator[Figure]:
    """Open the store and read a thread of 1,000 checkpoints in a process that has just begun."""
    count = plan.pick(5, 60, 1_000)
    plan.hosts.set_level("normal")
    for what in ("change_one", "grow")[: plan.pick(1, 1, 2)]:
        samplers: dict[str, Sampler] = {}
        failed: dict[str, str] = {}
        for name in plan.entrants(*plan.pick(OURS, PEERS, PEERS)):
            spot = plan.spot(name, "normal", f"cold {what}")
            with tolerating(name, failed), open_saver(spot) as saver:
                state = TenChannels(saver, "read")
                for _ in range(count):
                    saver.put(*getattr(state, what)().arguments)
                samplers[name] = cold_sampler(spot)
        rounds = interleave(samplers, plan.pick(TINY, ONCE, plan.pace), warm=False)
        messages = 100 + (count if what == "grow" else 0)
        name = f"open and read, {count:,} checkpoints, {messages:,} messages"
        promises = (better("ours sqlite", "stock sqlite", 1),)
        failed |= rounds.failed
        yield Figure(name, "s", rounds.readings("s"), promises, "normal", failed=failed)


def cold_sampler(spot: Spot) -> Sampler:
    def sample() -> Burst:
        with Worker() as worker:
            worker.ask("ready", saver=spot.name)
            took = worker.ask("read", spot=asdict(spot), thread="read")
        return Burst(1, took["wall"], took["cpu"])

    return sample


def memory(plan: Plan) -> Iterator[Figure]:
    """How much larger a process is after a conversation."""
    turns = plan.pick(3, 40, 300)
    who = plan.pick(OURS[:1], (*OURS, "stock sqlite", "memory"), (*PEERS, "memory", "reference"))
    plan.hosts.set_level("normal")
    readings: dict[str, Reading] = {}
    failed: dict[str, str] = {}
    for name in plan.entrants(*who):
        with tolerating(name, failed):
            spot = plan.spot(name, "normal", "memory")
            with Worker() as worker:
                answer = worker.ask("converse", spot=asdict(spot), turns=turns)
            readings[name] = exactly(float(answer["said"]))
    name = f"memory of the process, more after {turns} turns"
    note = "our savers keep digests of what is stored, at most cache_bytes (64 MB)"
    yield Figure(name, "B", readings, (), "normal", note, failed)


SECTIONS = (
    Section("processes", "Several processes", writers, "The state of the raw calls, `put` only."),
    Section("cold", "Resume from a cold process", cold_resume, "Imports are not counted."),
    Section("memory", "Memory", memory, "The chat, in a process of its own for each saver."),
)
