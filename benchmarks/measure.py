"""Measure: bursts of calls, interleaved rounds, and what is kept of them.

A section makes one *sampler* per entrant: a function without arguments that does some work and
returns a `Burst`. `interleave` runs the samplers in turn and answers with a `Reading` each; a
`Figure` is a line of the results, a `Curve` a line chart. Nothing here knows a saver.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

Unit = Literal["s", "B", "/s", "x", ""]
Call = Callable[[], Any]
FIRST_CLASS = ("ours sqlite", "ours redis")
"""A rival that fails is noted and left out; one of these that fails ends the run."""


@dataclass(frozen=True, slots=True)
class Burst:
    """What a sampler did: how many calls, in which time, and how long each of them took."""

    calls: int
    wall: float
    cpu: float = 0.0
    each: tuple[float, ...] = ()


Sampler = Callable[[], Burst]


@dataclass(frozen=True, slots=True)
class Reading:
    """The median of several rounds, their quartiles, and what else is known of them.

    `cpu` is the processor time of this process for one call, all its threads together: it hardly
    depends on what else the machine does. `p99` is over all calls of all rounds.
    """

    median: float
    low: float
    high: float
    rounds: int = 1
    cpu: float | None = None
    p50: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, values: Iterable[float], **more: Any) -> Reading:
        rounds = sorted(values)
        if len(rounds) < 4:
            ends = (statistics.median(rounds), rounds[0], rounds[-1])
        else:
            low, middle, high = statistics.quantiles(rounds, n=4, method="inclusive")
            ends = (middle, low, high)
        return cls(*ends, rounds=len(rounds), **more)

    @classmethod
    def of_bursts(cls, bursts: Sequence[Burst], unit: Unit) -> Reading:
        """Seconds a call, or calls a second."""
        seconds = [burst.wall / burst.calls for burst in bursts]
        values = [1 / value for value in seconds] if unit == "/s" else seconds
        each = sorted(value for burst in bursts for value in burst.each)
        more: dict[str, float] = {}
        if each:
            last = len(each) - 1
            more = {"p50": each[round(last * 0.5)], "p99": each[round(last * 0.99)]}
        cpu = statistics.median(burst.cpu / burst.calls for burst in bursts)
        return cls.of(values, cpu=cpu or None, **more)


@dataclass(frozen=True, slots=True)
class Promise:
    """What an issue promised of `who`: `limit` times better than `rival`, or at most `limit`."""

    who: str
    text: str
    limit: float
    rival: str | None = None
    by: Literal["median", "cpu"] = "median"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the results: a reading for everybody who took part."""

    name: str
    unit: Unit
    readings: Mapping[str, Reading]
    promises: tuple[Promise, ...] = ()
    level: str = ""
    note: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Curve:
    """How something grows: points of (x, y) for everybody who took part."""

    name: str
    unit: Unit
    x: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """How thorough a run is."""

    name: Literal["tiny", "quick", "full"]
    rounds: int
    least: int
    seconds: float


TINY = Pace("tiny", 1, 1, 0.0)
ONCE = Pace("quick", 1, 1, 0.0)
"""For a quick run, where a sample takes a second or more."""
QUICK = Pace("quick", 7, 2, 0.3)
FULL = Pace("full", 41, 5, 6.0)


@dataclass(slots=True)
class Rounds:
    """What `interleave` saw: readings by entrant, and those who failed with the reason."""

    bursts: dict[str, list[Burst]]
    failed: dict[str, str]

    def readings(self, unit: Unit) -> dict[str, Reading]:
        return {name: Reading.of_bursts(found, unit) for name, found in self.bursts.items()}

    def above(self, base: str) -> dict[str, Reading]:
        """The seconds a call that each took more than `base` in the same round: its own cost."""
        floor = self.bursts[base]
        found = {}
        for name, bursts in self.bursts.items():
            if name == base:
                continue
            pairs = list(zip(bursts, floor, strict=False))
            more = [one.wall / one.calls - low.wall / low.calls for one, low in pairs]
            cpu = [one.cpu / one.calls - low.cpu / low.calls for one, low in pairs]
            found[name] = Reading.of(more, cpu=statistics.median(cpu))
        return found


def interleave(samplers: Mapping[str, Sampler], pace: Pace, *, warm: bool = True) -> Rounds:
    """Sample everybody once a round, in turn, so that a slow minute hurts all of them alike.

    The first round warms up and is thrown away; the order is reversed every other round. After
    `pace.rounds` it is over, or when `pace.seconds` are gone and there are `pace.least` rounds.
    Garbage is collected between samples, so that nobody pays for another's.
    """
    result = Rounds({name: [] for name in samplers}, {})
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    try:
        for number in range(0 if warm and pace.name != "tiny" else 1, pace.rounds + 1):
            for name in list(result.bursts)[:: 1 if number % 2 else -1]:
                gc.collect()
                _sample(result, name, samplers[name], keep=number > 0)
            if number >= pace.least and time.perf_counter() - began > pace.seconds:
                break
    finally:
        gc.unfreeze()
    return result


def _sample(result: Rounds, name: str, sampler: Sampler, *, keep: bool) -> None:
    with tolerating(name, result.failed):
        burst = sampler()
        if keep:
            result.bursts[name].append(burst)
    if name in result.failed:
        del result.bursts[name]


@contextmanager
def tolerating(name: str, failed: dict[str, str]) -> Iterator[None]:
    """A rival's error is noted in `failed`; one of ours ends the run."""
    try:
        yield
    except Exception as error:
        if name in FIRST_CLASS:
            raise
        failed[name] = f"{type(error).__name__}: {str(error)[:200]}".strip(": ")


# ---- bursts ----------------------------------------------------------------------------------


def timed(calls: Sequence[Call]) -> Burst:
    """Make the calls one after another."""
    cpu, marks = time.process_time(), [time.perf_counter()]
    for call in calls:
        call()
        marks.append(time.perf_counter())
    return _burst(marks[-1] - marks[0], time.process_time() - cpu, [marks])


def timed_threads(pool: ThreadPoolExecutor, work: Sequence[Sequence[Call]]) -> Burst:
    """One OS thread for each list of calls."""

    def make(calls: Sequence[Call]) -> list[float]:
        marks = [time.perf_counter()]
        for call in calls:
            call()
            marks.append(time.perf_counter())
        return marks

    cpu, began = time.process_time(), time.perf_counter()
    marks = list(pool.map(make, work))
    return _burst(time.perf_counter() - began, time.process_time() - cpu, marks)


async def timed_tasks(work: Sequence[Sequence[Callable[[], Awaitable[Any]]]]) -> Burst:
    """One task for each list of calls, all on this loop."""

    async def make(calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[float]:
        marks = [time.perf_counter()]
        for call in calls:
            await call()
            marks.append(time.perf_counter())
        return marks

    cpu, began = time.process_time(), time.perf_counter()
    marks = await asyncio.gather(*map(make, work))
    return _burst(time.perf_counter() - began, time.process_time() - cpu, marks)


def _burst(wall: float, cpu: float, marks: Sequence[Sequence[float]]) -> Burst:
    each = tuple(b - a for one in marks for a, b in pairwise(one))
    return Burst(len(each), wall, cpu, each)


def exactly(value: float) -> Reading:
    """Something that does not vary, such as a size."""
    return Reading(value, value, value)


# ---- what a section gets -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the benchmark: `run` yields figures and curves as they are known."""

    name: str
    title: str
    run: Callable[[Any], Iterable[Figure | Curve]]
    about: str = ""


def folder_in(directory: Path, name: str) -> Path:
    """An empty directory of its own, so that its size is that of what is stored there."""
    path = directory / "".join(c if c.isalnum() else "-" for c in name)
    path.mkdir(parents=True)
    return path
