"""What the Redis savers do on the wire: round trips by operation, and work through a slow network.

The proxy of the tests stands in front of the server: one that counts, and one, in a process of its
own, that makes every round trip take two milliseconds.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import proxy
import redis
from entrants import OURS, Plan, Saver, Spot, open_async_saver, open_saver
from measure import Figure, Promise, Reading, Sampler, Section, exactly, interleave, timed_tasks
from workloads import OneInteger, TenChannels, thread

REDIS = ("ours redis", "official redis")
ROUND_TRIP = 0.002
TASKS = 50
OPERATIONS = ("put", "put_writes", "get_tuple", "list of 10", "delete_thread")


def round_trips(plan: Plan) -> Iterator[Figure]:
    """How often each operation waits for the server."""
    found: dict[str, dict[str, Reading]] = {name: {} for name in OPERATIONS}
    for name in plan.entrants(*REDIS):
        spot = plan.spot(name, "normal", "trips")
        at = urlsplit(spot.url)
        with proxy.counting(str(at.hostname), int(at.port or 0)) as counter:
            url = f"redis://{proxy.HOST}:{counter.port}/0"
            with open_saver(replace(spot, url=url)) as saver:
                for operation, count in counted(saver, counter).items():
                    found[operation][name] = exactly(count)
    for operation, readings in found.items():
        once = operation in ("put", "put_writes", "get_tuple") and "ours redis" in readings
        promises = (Promise("ours redis", "one", 1),) if once else ()
        yield Figure(f"round trips of {operation}", "", readings, promises)


def counted(saver: Saver, counter: proxy.Proxy) -> dict[str, int]:
    """The round trips of each operation; the first time, a script may have to be sent."""
    for name in ("first", "trips"):
        state, found = TenChannels(saver, name), {}
        for _ in range(12):
            saver.put(*state.change_one().arguments)
        for operation, call in operations(saver, state).items():
            before = counter.trips
            call()
            found[operation] = counter.trips - before
    return found


def operations(saver: Saver, state: TenChannels) -> dict[str, Callable[[], Any]]:
    """Each of `OPERATIONS` on a thread that has just been written."""
    step, latest, config = state.change_one(), state.timeline.latest, thread(state.timeline.name)
    return {
        "put": lambda: saver.put(*step.arguments),
        "put_writes": lambda: saver.put_writes(latest, [("scratch", "text " * 40)], "task"),
        "get_tuple": lambda: saver.get_tuple(config),
        "list of 10": lambda: list(saver.list(config, limit=10)),
        "delete_thread": lambda: saver.delete_thread(state.timeline.name),
    }


def slow_network(plan: Plan) -> Iterator[Figure]:
    """50 async threads at once, two milliseconds away from the server."""
    plan.hosts.set_level("normal")
    for label, state in (("ten channels", TenChannels), ("one integer", OneInteger)):
        with asyncio.Runner() as runner, ExitStack() as stack:
            samplers: dict[str, Sampler] = {}
            pings = []
            for name in plan.entrants(*REDIS):
                spot = plan.spot(name, "normal", f"slow {label}")
                far = stack.enter_context(far_away(spot))
                pings.append(ping(far.url))
                saver = stack.enter_context(open_async_saver(far, runner))
                states = [state(saver, f"far-{n}") for n in range(plan.pick(3, TASKS, TASKS))]
                samplers[name] = mixed_sampler(runner, saver, states, plan.pick(1, 1, 3))
            rounds = interleave(samplers, plan.pace)
            readings = rounds.readings("/s")
            promises = tuple(Promise(name, "≥ 4,000/s", 4_000) for name in OURS if name in readings)
            note = f"a third each of aput, aput_writes and aget_tuple; PING takes {pings[0]:.2f} ms"
            name = f"{len(states)} async threads, {label}"
            yield Figure(name, "/s", readings, promises, "normal", note, rounds.failed)


@contextmanager
def far_away(spot: Spot) -> Iterator[Spot]:
    """The same spot behind a proxy that is slow."""
    at = urlsplit(spot.url)
    # Timers of an event loop are rounded up to a millisecond: half of one less comes nearest.
    delay = ROUND_TRIP - 0.0005
    command = [sys.executable, proxy.__file__, str(at.hostname), str(at.port), str(delay)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield replace(spot, url=f"redis://{proxy.HOST}:{port}/0")
    finally:
        process.communicate()  # end of input ends the proxy


def ping(url: str) -> float:
    """The median of a few, in milliseconds."""
    with redis.Redis.from_url(url) as client:
        times = []
        for _ in range(9):
            began = time.perf_counter()
            client.ping()
            times.append(time.perf_counter() - began)
    return sorted(times)[4] * 1e3


def mixed_sampler(runner: asyncio.Runner, saver: Saver, states: list[Any], each: int) -> Sampler:
    numbers = iter(range(1_000_000_000))
    first = [[partial(saver.aput, *state.change_one().arguments)] for state in states]
    runner.run(timed_tasks(first))

    def calls(state: Any) -> Iterator[Callable[[], Any]]:
        for _ in range(each):
            writes, task = list(state.timeline.state.items())[-1:], f"task-{next(numbers)}"
            yield partial(saver.aput_writes, state.timeline.latest, writes, task)
            yield partial(saver.aput, *state.change_one().arguments)
            yield partial(saver.aget_tuple, thread(state.timeline.name))

    return lambda: runner.run(timed_tasks([list(calls(state)) for state in states]))


SECTIONS = (
    Section("trips", "Redis: round trips", round_trips, "Counted by a proxy, once all is warm."),
    Section(
        "network",
        "Redis: two milliseconds away",
        slow_network,
        "Through a proxy that adds two milliseconds to every round trip.",
    ),
)
