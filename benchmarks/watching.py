"""What others notice of a saver: how long the event loop stands still, how fast things open and go.

The stall is the most by which a ticking coroutine was late while one call ran on the same loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

from calls import better
from entrants import OURS, PEERS, Plan, Saver, open_async_saver, open_saver
from measure import Burst, Figure, Promise, Sampler, Section, interleave, timed, tolerating
from workloads import Prose, TenChannels, Timeline, thread

TICK = 0.0005
# One hand-over of the interpreter lock takes up to sys.getswitchinterval(), 5 ms, even when all
# the work is off the loop: "~5 ms" is judged as that plus a millisecond of timer slack.
STALL = 0.006


def event_loop(plan: Plan) -> Iterator[Figure]:
    """The longest the loop stands still while a thread of 5,000 messages is saved and read."""
    count = plan.pick(50, 1_000, 5_000)
    messages = Prose(4).messages(count)
    plan.hosts.set_level("normal")
    with asyncio.Runner() as runner, ExitStack() as stack:
        stalls: dict[str, dict[str, Sampler]] = {}
        for name in plan.entrants(*PEERS):
            spot = plan.spot(name, "normal", "stall")
            saver = stack.enter_context(open_async_saver(spot, runner))
            for what, sampler in stall_samplers(runner, saver, messages).items():
                stalls.setdefault(what, {})[name] = sampler
        idle = runner.run(longest_gap(asyncio.sleep(0.3)))
        for what, samplers in stalls.items():
            rounds = interleave(samplers, plan.pace)
            readings = rounds.readings("s")
            promises = tuple(
                Promise(name, "~5 ms (judged at 6)", STALL) for name in OURS if name in readings
            )
            note = f"an idle loop stands still for {idle * 1e3:.1f} ms"
            yield Figure(
                f"stall, {what}, {count:,} messages",
                "s",
                readings,
                promises,
                "normal",
                note,
                rounds.failed,
            )


def stall_samplers(runner: asyncio.Runner, saver: Saver, messages: list[Any]) -> dict[str, Sampler]:
    """Samplers of the longest gap during a first save, a later save and a read."""
    numbers = iter(range(1_000_000))
    timeline = Timeline(saver, "long", {"messages": messages, "count": 0})
    runner.run(timed_put(saver, timeline))
    prose = Prose(5)

    def first() -> Awaitable[Any]:
        state = {"messages": messages, "count": 0}
        return saver.aput(*Timeline(saver, f"new-{next(numbers)}", state).advance({}).arguments)

    def later() -> Awaitable[Any]:
        grown = [*timeline.state["messages"], prose.message(timeline.number)]
        return saver.aput(*timeline.advance({"messages": grown}).arguments)

    def read() -> Awaitable[Any]:
        return saver.aget_tuple(thread("long"))

    calls = {"aput of all": first, "aput of one more": later, "aget_tuple": read}
    return {what: gap_sampler(runner, call) for what, call in calls.items()}


async def timed_put(saver: Saver, timeline: Timeline) -> None:
    await saver.aput(*timeline.advance({}).arguments)


def gap_sampler(runner: asyncio.Runner, call: Callable[[], Awaitable[Any]]) -> Sampler:
    return lambda: Burst(1, runner.run(longest_gap(call())))


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


def opening(plan: Plan) -> Iterator[Figure]:
    """A timeline on a long thread against reading its newest checkpoint, by a new saver."""
    from langgraph_durable import Timeline as Steps

    count = plan.pick(10, 300, 10_000)
    plan.hosts.set_level("normal")
    looks: dict[str, Callable[[Any], Any]] = {
        "get_tuple": lambda saver: saver.get_tuple(thread("long")),
        "repr(Timeline)": lambda saver: repr(Steps(saver, "long")),
        "Timeline as HTML": lambda saver: Steps(saver, "long")._repr_html_(),
        "len(Timeline)": lambda saver: len(Steps(saver, "long")),
    }
    spots = {}
    for name in plan.entrants(*OURS):
        spots[name] = plan.spot(name, "normal", "timeline")
        with open_saver(spots[name]) as saver:
            state = TenChannels(saver, "long")
            for number in range(count):
                step = state.grow() if number < count // 10 else state.change_one()
                saver.put(*step.arguments)
    for what, look in looks.items():
        samplers = {name: look_sampler(spot, look) for name, spot in spots.items()}
        promises = []
        if count == 10_000 and what in ("repr(Timeline)", "Timeline as HTML"):
            for name, spot in spots.items():  # in the same rounds, for a slow minute hurts both
                rival = f"get_tuple of {name}"
                samplers[rival] = look_sampler(spot, looks["get_tuple"])
                promises.append(better(name, rival, 1 / 10))
        readings = interleave(samplers, plan.pace).readings("s")
        yield Figure(f"{what}, {count:,} steps", "s", readings, tuple(promises), "normal")


def look_sampler(spot: Any, look: Callable[[Any], Any]) -> Sampler:
    """A new saver each time: nothing is remembered."""

    def sample() -> Burst:
        with open_saver(spot) as saver:
            return timed([lambda: look(saver)])

    return sample


def removing(plan: Plan) -> Iterator[Figure]:
    """`delete_thread` and `prune(keep_latest)` of threads of 1,000 checkpoints."""
    count, threads = plan.pick(5, 20, 1_000), plan.pick(1, 2, 5)
    pace = plan.pace
    plan.hosts.set_level("full")
    with ExitStack() as stack:
        deletes: dict[str, Sampler] = {}
        prunes: dict[str, Sampler] = {}
        failed: dict[str, str] = {}
        for name in plan.entrants(*PEERS):
            with tolerating(name, failed):
                saver = stack.enter_context(open_saver(plan.spot(name, "full", "removing")))
                names = [f"doomed-{number}" for number in range(2 * (threads + 1))]
                for doomed in names:
                    state = TenChannels(saver, doomed, messages=20)
                    for _ in range(count):
                        saver.put(*state.change_one().arguments)
                doomed_ones = iter(names)
                deletes[name] = each_sampler(saver.delete_thread, doomed_ones)
                prunes[name] = each_sampler(pruner(saver), doomed_ones)
        limited = type(pace)(pace.name, min(threads, pace.rounds), threads, pace.seconds)
        for what, samplers in (("delete_thread", deletes), ("prune keep_latest", prunes)):
            rounds = interleave(samplers, limited)
            promises = ()
            if what == "delete_thread" and count == 1_000:
                promises = (Promise("ours sqlite", "≤ 20 ms", 0.020),)
            elif what == "delete_thread":
                promises = (better("ours sqlite", "stock sqlite", 1),)
            name = f"{what} of {count:,} checkpoints"
            readings = rounds.readings("s")
            yield Figure(name, "s", readings, promises, "full", failed=failed | rounds.failed)


def pruner(saver: Saver) -> Callable[[str], Any]:
    return lambda name: saver.prune([name], strategy="keep_latest")


def each_sampler(call: Callable[[str], Any], names: Iterator[str]) -> Sampler:
    """A call that can be made only once for each name."""

    def sample() -> Burst:
        name = next(names)
        return timed([lambda: call(name)])

    return sample


SECTIONS = (
    Section(
        "stall",
        "The event loop",
        event_loop,
        "The longest gap of a coroutine that ticks while a long thread is saved and read.",
    ),
    Section("timeline", "Opening a timeline", opening, "A tenth of the steps add a message."),
    Section("removing", "Removing", removing),
)
