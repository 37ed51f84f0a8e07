"""How storage and time grow with a thread: compiled graphs, all savers side by side.

Everybody has the same conversation. It grows turn by turn to a mark; there turns are timed in
interleaved rounds, and what is stored is weighed. A saver's own time is that of a turn less the
time of the same turn on the `reference` saver, which keeps objects and stores nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from calls import better
from entrants import OURS, PEERS, Plan, Saver, Spot, open_saver
from measure import (
    Burst,
    Curve,
    Figure,
    Promise,
    Reading,
    Sampler,
    Section,
    exactly,
    interleave,
    timed,
    tolerating,
)
from workloads import MESSAGE_BYTES, Chat, Loop, Workspace, delegating_builder, fan_graph

TURN_BYTES = 2 * MESSAGE_BYTES
"""The text alone, without ids and field names: the strict reading."""


@dataclass(slots=True)
class Grown:
    """What one entrant has come to."""

    spot: Spot
    subject: Any
    turns: int = 0
    sizes: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Growth:
    """A conversation on every saver, and what is known of it at each mark."""

    plan: Plan
    label: str
    make: Callable[[Saver], Any]
    per_turn: int = 2
    grown: dict[str, Grown] = field(default_factory=dict)
    own: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    cpu: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    whole: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def run(self, marks: Sequence[int]) -> None:
        """Grow to each mark in turn."""
        self.plan.hosts.set_level("full")
        with ExitStack() as stack:
            for name in self.plan.entrants(*PEERS, "memory", "reference"):
                with tolerating(name, self.failed):
                    spot = self.plan.spot(name, "full", self.label)
                    saver = stack.enter_context(open_saver(spot))
                    self.grown[name] = Grown(spot, self.make(saver))
            for mark in marks:
                self._reach(mark)
                self._time_turns(mark)

    def _reach(self, mark: int) -> None:
        turns = mark // self.per_turn
        for name, one in self._going().items():
            with tolerating(name, self.failed):
                while one.turns < turns:
                    one.subject.turn()
                    one.turns += 1
                if name in PEERS:
                    one.sizes[one.turns] = self.plan.weigh(one.spot)

    def _going(self) -> dict[str, Grown]:
        return {name: one for name, one in self.grown.items() if name not in self.failed}

    def _time_turns(self, mark: int) -> None:
        samplers = {name: self._sampler(one) for name, one in self._going().items()}
        rounds = interleave(samplers, self.plan.pace)
        self.failed |= rounds.failed
        own = rounds.above("reference")
        for name, reading in own.items():
            self.own.setdefault(name, []).append((mark, reading.median))
            self.cpu.setdefault(name, []).append((mark, reading.cpu or 0.0))
        for name, reading in rounds.readings("s").items():
            self.whole.setdefault(name, []).append((mark, reading.median))
        self.figures.append(
            Figure(
                f"{self.label}: own time a turn at {mark:,}",
                "s",
                own,
                (),
                "full",
                failed=dict(self.failed),
            )
        )

    def _sampler(self, one: Grown) -> Sampler:
        def sample() -> Burst:
            one.turns += 1
            return timed([one.subject.turn])

        return sample

    # ---- what comes out ------------------------------------------------------------------------

    def sizes(self) -> dict[str, dict[int, int]]:
        return {name: one.sizes for name, one in self.grown.items() if one.sizes}

    def per_turn_bytes(self) -> dict[str, list[tuple[float, float]]]:
        """Bytes a turn between two marks, at the second one."""
        return {
            name: [
                (b * self.per_turn, max((sizes[b] - sizes[a]) / (b - a), 1.0))
                for a, b in pairwise(sorted(sizes))
            ]
            for name, sizes in self.sizes().items()
        }

    def curves(self, x: str) -> Iterator[Curve]:
        total = {
            name: [(turns * self.per_turn, size) for turns, size in sorted(sizes.items())]
            for name, sizes in self.sizes().items()
        }
        yield Curve(f"{self.label}: stored bytes", "B", x, total)
        yield Curve(f"{self.label}: bytes a turn", "B", x, self.per_turn_bytes())
        yield Curve(f"{self.label}: time a turn", "s", x, self.whole, "with LangGraph's own time")
        yield Curve(f"{self.label}: saver's own time a turn", "s", x, self.own)
        yield Curve(f"{self.label}: saver's own CPU time a turn", "s", x, self.cpu)

    def bytes_figure(self, new: int | None, limit: float | None) -> Figure:
        """Bytes a turn at the end; `new` is what a turn brings."""
        last = {name: points[-1][1] for name, points in self.per_turn_bytes().items()}
        if new is None:
            readings = {name: exactly(value) for name, value in last.items()}
            return Figure(f"{self.label}: bytes a turn at the end", "B", readings)
        readings = {name: exactly(value / new) for name, value in last.items()}
        promises = tuple(
            Promise(name, f"≤ {limit:g}x", limit) for name in OURS if limit and name in readings
        )
        name = f"{self.label}: bytes a turn at the end, over the {new:,} bytes of new text"
        return Figure(name, "x", readings, promises)

    def flat_figure(self) -> Figure:
        """The largest bytes a turn of any window over the smallest: 1 is linear growth."""
        readings = {
            name: exactly(max(y for _, y in points) / min(y for _, y in points))
            for name, points in self.per_turn_bytes().items()
        }
        promises = tuple(Promise(n, "constant (≤ 1.15x)", 1.15) for n in OURS if n in readings)
        return Figure(f"{self.label}: bytes a turn, largest/smallest", "x", readings, promises)


def chat(plan: Plan) -> Iterator[Figure | Curve]:
    """The two-node chat of the issue: two messages of 600 bytes a turn."""
    marks = plan.pick((4, 8, 12), (50, 100, 200), (100, 200, 400, 800, 1_600))
    growth = Growth(plan, "chat", Chat)
    growth.run(marks)
    yield from growth.curves("messages")
    yield growth.bytes_figure(TURN_BYTES, 4.0)
    yield growth.flat_figure()
    sizes = {name: sizes[max(sizes)] for name, sizes in growth.sizes().items()}
    promises = ()
    if plan.pace.name == "full":
        promises = (better("ours sqlite", "stock sqlite", 300),)
    name = f"chat: stored at {marks[-1]:,} messages"
    readings = {name: exactly(size) for name, size in sizes.items()}
    yield Figure(name, "B", readings, promises)
    for mark, figure in zip(marks, growth.figures, strict=True):
        yield replace(figure, promises=turn_promises(mark))


def turn_promises(mark: int) -> tuple[Promise, ...]:
    if mark == 400:
        return tuple(better(name, "memory", 1) for name in OURS)
    if mark >= 1_600:
        return (better("ours sqlite", "memory", 4), better("ours sqlite", "stock sqlite", 10))
    return ()


def subgraph(plan: Plan) -> Iterator[Figure | Curve]:
    """The whole conversation is handed to a sub-graph in every turn."""
    marks = plan.pick((4, 8, 12), (10, 20, 40), (50, 100, 200, 400))
    growth = Growth(plan, "sub-graph", lambda saver: Chat(saver, builder=delegating_builder))
    growth.run(marks)
    yield from growth.curves("messages")
    yield growth.bytes_figure(TURN_BYTES, None)
    yield growth.flat_figure()
    yield growth.figures[-1]


def files(plan: Plan) -> Iterator[Figure | Curve]:
    """A dict of 200 files of 2,000 bytes, one of which changes in a turn."""
    count, marks = plan.pick((20, (2, 4)), (200, (5, 15)), (200, (20, 50, 100)))
    growth = Growth(plan, "files", lambda saver: Workspace(saver, count), per_turn=1)
    growth.run(marks)
    yield from growth.curves("turns")
    yield growth.bytes_figure(2_000, None)
    yield growth.figures[-1]


def large_value(plan: Plan) -> Iterator[Figure]:
    """A value of 5 MB that does not change for 50 turns."""
    document = random.Random(5).randbytes(plan.pick(100_000, 5_000_000, 5_000_000))
    steps = plan.pick(3, 6, 50)
    sizes: dict[str, Reading] = {}
    times: dict[str, Reading] = {}
    failed: dict[str, str] = {}
    plan.hosts.set_level("full")
    for name in plan.entrants(*PEERS):
        spot = plan.spot(name, "full", "large")
        with tolerating(name, failed), open_saver(spot) as saver:
            loop = Loop(saver, document)
            bursts = [timed([loop.turn]) for _ in range(steps)]
            sizes[name] = exactly(plan.weigh(spot) / len(document))
            times[name] = Reading.of_bursts(bursts, "s")
    what = f"{len(document) / 1e6:g} MB unchanged for {steps} turns"
    once = tuple(Promise(name, "stored once (≤ 1.1x)", 1.1) for name in OURS if name in sizes)
    yield Figure(f"{what}: stored, over its size", "x", sizes, once, "full", failed=failed)
    yield Figure(f"{what}: time a turn", "s", times, (), "full", failed=failed)


def fan_out(plan: Plan) -> Iterator[Figure]:
    """A step of 100 parallel `Send` tasks, each with a small result."""
    width = plan.pick(5, 100, 100)
    plan.hosts.set_level("normal")
    with ExitStack() as stack:
        samplers = {}
        for name in plan.entrants(*PEERS, "memory", "reference"):
            saver = stack.enter_context(open_saver(plan.spot(name, "normal", "fan")))
            samplers[name] = fan_sampler(fan_graph(saver, width))
        rounds = interleave(samplers, plan.pace)
    own = rounds.above("reference")
    promises = (better("ours sqlite", "memory", 1, "cpu"),)
    # How the pool schedules 100 tasks moves one run by more than a saver costs: read the CPU time.
    name = f"own cost of {width} Send tasks"
    yield Figure(name, "s", own, promises, "normal", failed=rounds.failed)


def fan_sampler(run: Callable[[str], None]) -> Sampler:
    numbers = iter(range(1_000_000))
    return lambda: timed([lambda: run(f"fan-{next(numbers)}")])


SECTIONS = (
    Section(
        "chat",
        "A conversation that grows",
        chat,
        "A compiled graph of two nodes with `add_messages`, two messages of 600 bytes a turn, "
        '`durability="sync"`, an acknowledged write survives a power cut.',
    ),
    Section(
        "subgraph",
        "A conversation handed to a sub-graph every turn",
        subgraph,
        "The parent's only node is the chat graph, which inherits saver and messages.",
    ),
    Section(
        "files",
        "An agent with a workspace in its state",
        files,
        "As deep agents keep it: a dict of 200 files of 2,000 bytes, one changes per turn.",
    ),
    Section("large", "A large value that stays", large_value),
    Section("fan-out", "A fan-out", fan_out, "The time above that of the `reference` saver."),
)
