"""Figures of compiled graphs: how large a conversation's file grows, and what saving a turn costs.

Sizes are of the whole folder after the log is folded in. "Own" time is the time of a turn less
that of the same turn on the `ReferenceSaver`, in the same round.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise

from measure import (
    INFORMATION,
    Figure,
    Plan,
    Reading,
    Samples,
    Target,
    above,
    at_most,
    compare,
    interleave,
    times_better,
)
from savers import Synchronous, open_saver, stored_bytes
from workloads import MESSAGE_BYTES, Chat, delegating_builder, fan_graph, run_loop

TURN_BYTES = 2 * MESSAGE_BYTES  # the text alone, without ids and field names: the strict reading
CONSTANT = at_most(1.10, "constant (<= 1.10x)")
Sizes = dict[int, int]


def chat_size(plan: Plan) -> Iterator[Figure]:
    """Bytes per turn of the two-node chat, and the total at 800 turns against stock."""
    marks = (10, 100, 200, 400) if plan.quick else (10, 100, 400, 800, 1000)
    stock_marks = (20, 40, 80, 120) if plan.quick else (20, 100, 400, 800)
    ours = grow_chat(plan, "ours", marks) if plan.ours else None
    stock = grow_chat(plan, "stock", stock_marks)
    yield from growth_figures("chat", ours, stock, at_most(4.0, "<= 4x message bytes"))
    total = "total at 800 turns"
    if plan.quick:
        total += ", extrapolated"
    yield Figure(
        total,
        "B",
        times_better(300, ">= 300x smaller"),
        exactly(extend_line(ours, 800)) if ours else None,
        "stock",
        exactly(extend_parabola(stock, 800)),
        f"ours from a line through turns {marks[-2:]}, stock from a parabola through {stock_marks}"
        if plan.quick
        else "",
    )


def subgraph_size(plan: Plan) -> Iterator[Figure]:
    """Bytes per turn when the whole conversation is handed to a sub-graph every turn."""
    marks = (10, 40, 70, 100) if plan.quick else (10, 100, 200, 400)
    ours = grow_chat(plan, "ours", marks, delegating_builder) if plan.ours else None
    stock = grow_chat(plan, "stock", (10, 40, 70, 100), delegating_builder)
    # The issue promises linear growth here, no multiple: the bound is on the slope alone.
    yield from growth_figures("sub-graph", ours, stock, None)


def large_value(plan: Plan) -> Iterator[Figure]:
    """Bytes stored when a 5 MB value stays unchanged for 50 steps."""
    document = random.Random(5).randbytes(5_000_000)  # incompressible: only sharing can help
    for source, from_node in (("made by a node", True), ("given as input", False)):
        sizes: dict[str, float] = {}
        for name in plan.entrants("ours", "stock"):
            folder = plan.folder(f"{name}-{source.replace(' ', '-')}")
            with open_saver(name, folder, "NORMAL") as saver:
                run_loop(saver, document, 50, from_node=from_node)
            sizes[name] = stored_bytes(folder) / len(document)
        yield Figure(
            f"5 MB unchanged for 50 steps, {source}",
            "x",
            at_most(1.10, "stored once (<= 1.10x)"),
            exactly(sizes["ours"]) if "ours" in sizes else None,
            "stock",
            exactly(sizes["stock"]),
        )


def turn_time(plan: Plan) -> Iterator[Figure]:
    """The saver's own time in a turn at 400 and at 2,000 messages, all files at FULL."""
    short = own_turn_time(plan, 400, rounds=plan.pick(7, 15), turns=plan.pick(2, 3))
    name = "own time a turn, 400 messages, FULL"
    yield compare(name, "s", short, "memory", times_better(1, "below InMemorySaver"))
    yield compare(name, "s", short, "stock", INFORMATION)
    long = own_turn_time(plan, 2_000, rounds=plan.pick(5, 11), turns=plan.pick(1, 2))
    name = "own time a turn, 2,000 messages, FULL"
    yield compare(name, "s", long, "memory", times_better(4, "<= 1/4 of InMemorySaver"))
    yield compare(name, "s", long, "stock", times_better(10, "<= 1/10 of stock"))


def send_tasks(plan: Plan) -> Iterator[Figure]:
    """The saver's own cost of a fan-out to 100 `Send` tasks, at NORMAL."""
    with ExitStack() as stack:
        samplers = {}
        for name in plan.entrants("ours", "stock", "memory", "reference"):
            saver = stack.enter_context(open_saver(name, plan.folder(name), "NORMAL"))
            samplers[name] = time_fan(fan_graph(saver, 100))
        # How the pool schedules 100 tasks moves one run by more than a saver costs (4 ms of
        # InMemorySaver's were seen as -8 to 28): only many short rounds find the difference.
        own = above(interleave(samplers, plan.pick(31, 151)), "reference")
    name = "own cost of 100 Send tasks, NORMAL"
    yield compare(name, "s", own, "memory", times_better(1, "<= InMemorySaver"))
    yield compare(name, "s", own, "stock", INFORMATION)


def grow_chat(
    plan: Plan, name: str, marks: Sequence[int], builder: Callable[..., object] | None = None
) -> Sizes:
    """Run a conversation to the last mark; the size of the folder at each mark."""
    folder = plan.folder(f"{name}-chat")
    sizes: Sizes = {}
    with open_saver(name, folder, "NORMAL") as saver:
        chat = Chat(saver, builder=builder)
        for turn in range(1, marks[-1] + 1):
            chat.turn()
            if turn in marks:
                sizes[turn] = stored_bytes(folder)
    return sizes


def slopes(sizes: Sizes) -> list[float]:
    """Bytes per turn between each two marks."""
    return [(sizes[b] - sizes[a]) / (b - a) for a, b in pairwise(sorted(sizes))]


def growth_figures(
    what: str, ours: Sizes | None, stock: Sizes, bytes_target: Target | None
) -> Iterator[Figure]:
    """Whether bytes per turn stay constant and, given a target, how they compare with the text."""
    slope = slopes(ours) if ours else None
    stock_slope = slopes(stock)
    windows = ", ".join(f"{a}-{b}" for a, b in pairwise(sorted(ours or stock)))
    shown = ", ".join(f"{value:,.0f}" for value in slope or stock_slope)
    yield Figure(
        f"{what}: bytes a turn, largest/smallest window",
        "x",
        CONSTANT,
        exactly(max(slope) / min(slope)) if slope else None,
        "stock",
        exactly(max(stock_slope) / min(stock_slope)),
        f"{'ours' if slope else 'stock'}, bytes a turn at turns {windows}: {shown}; "
        f"stock's windows end at turn {max(stock)}",
    )
    if bytes_target is not None:
        yield Figure(
            f"{what}: bytes a turn over message bytes",
            "x",
            bytes_target,
            exactly(max(slope) / TURN_BYTES) if slope else None,
            "stock",
            exactly(max(stock_slope) / TURN_BYTES),
            f"the worst window; message bytes are the {TURN_BYTES} of text; the aim is 2x",
        )


def own_turn_time(plan: Plan, messages: int, rounds: int, turns: int) -> Samples:
    """Seconds a turn above the reference saver, at a conversation of about `messages`."""
    level: Synchronous = "FULL"
    with ExitStack() as stack:
        samplers = {}
        for name in plan.entrants("ours", "stock", "memory", "reference"):
            folder = plan.folder(f"{name}-{messages}")
            chat = Chat(stack.enter_context(open_saver(name, folder, level)))
            chat.seed(messages)
            samplers[name] = time_turns(chat, turns)
        return above(interleave(samplers, rounds), "reference")


def time_turns(chat: Chat, turns: int) -> Callable[[], float]:
    """A sampler: the seconds of one turn, averaged over a few."""

    def sample() -> float:
        started = time.perf_counter()
        for _ in range(turns):
            chat.turn()
        return (time.perf_counter() - started) / turns

    return sample


def time_fan(run: Callable[[str], None]) -> Callable[[], float]:
    """A sampler: the seconds of one fan-out on a new thread."""
    numbers = iter(range(1_000_000))

    def sample() -> float:
        name = f"fan-{next(numbers)}"
        started = time.perf_counter()
        run(name)
        return time.perf_counter() - started

    return sample


def exactly(value: float) -> Reading:
    """A reading of something that does not vary, such as a size."""
    return Reading(value, value, value)


def extend_line(sizes: Sizes, turn: int) -> float:
    """The size at `turn`: measured if it is a mark, else on the line through the last two."""
    if turn in sizes:
        return sizes[turn]
    before, last = sorted(sizes)[-2:]
    return sizes[last] + (sizes[last] - sizes[before]) / (last - before) * (turn - last)


def extend_parabola(sizes: Sizes, turn: int) -> float:
    """The size at `turn`: measured if it is a mark, else on the parabola through three marks.

    Exact for a saver that stores every checkpoint whole: n turns hold n, n-1, ... 1 turns of text.
    """
    if turn in sizes:
        return sizes[turn]
    marks = sorted(sizes)
    points = (marks[0], marks[len(marks) // 2], marks[-1])
    total = 0.0
    for a in points:  # Lagrange
        weight = 1.0
        for b in points:
            if a != b:
                weight *= (turn - b) / (a - b)
        total += sizes[a] * weight
    return total
