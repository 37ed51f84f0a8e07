"""Raw calls of the savers: one caller and a crowd of them, in both colours, against the floor.

The arguments are made before the clock starts. The floor is what no saver can do without: one
commit (`bare sqlite`) or one pipeline (`bare redis`) that moves the bytes that are new, and the
stock serialiser on the whole checkpoint (`serialise`).
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import redis
from entrants import FILE, PEERS, Level, Plan, Saver, Spot, open_async_saver, open_saver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from measure import (
    Call,
    Figure,
    Promise,
    Sampler,
    Section,
    interleave,
    timed,
    timed_tasks,
    timed_threads,
    tolerating,
)
from workloads import OneInteger, Step, TenChannels, thread

Colour = Literal["sync", "async"]
State = type[TenChannels] | type[OneInteger]
FLOOR = ("bare sqlite", "bare redis", "serialise")
CROWD = 32


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of figures: an operation, by whom, and at which levels."""

    operation: str
    colour: Colour
    callers: int
    levels: tuple[Level, ...] = ("normal",)


BOTH: tuple[Level, ...] = ("full", "normal")
RAW = (
    Kind("put", "sync", 1, BOTH),
    *(Kind(name, "sync", 1) for name in ("get_tuple", "list", "history")),
    Kind("put_writes", "sync", 1, BOTH),
    Kind("put", "sync", CROWD, BOTH),
    Kind("get_tuple", "sync", CROWD),
    Kind("put", "async", 1, BOTH),
    *(Kind(name, "async", 1) for name in ("get_tuple", "list", "history")),
    Kind("put_writes", "async", 1, BOTH),
    Kind("put", "async", CROWD, BOTH),
    *(Kind(name, "async", CROWD) for name in ("get_tuple", "list", "put_writes")),
)
"""A read comes after a put, not after writes: they stay pending, and would be read with it."""
LONG = (("list", CROWD), ("put_writes", CROWD))
"""Left to the full run: half a minute of one rival's time."""
TINY = (
    Kind("put", "sync", 1, BOTH),
    Kind("get_tuple", "sync", 1),
    Kind("put", "async", 1, BOTH),
    Kind("get_tuple", "async", 1),
)


def better(who: str, rival: str, times: float, by: Literal["median", "cpu"] = "median") -> Promise:
    """`who` shall be that many times better than `rival`."""
    text = f"≥ {times:g}x" if times >= 1 else f"≤ {1 / times:.3g}x the time"
    return Promise(who, f"{text} {rival}{' (CPU)' if by == 'cpu' else ''}", times, rival, by)


def sqlite_promise(times: float, rival: str = "stock sqlite") -> tuple[Promise, ...]:
    return (better("ours sqlite", rival, times),)


REDIS = (better("ours redis", "bare redis", 0.5, "cpu"),)
PROMISES: dict[tuple[str, Colour, int, Level], tuple[Promise, ...]] = {
    ("put", "sync", 1, "normal"): sqlite_promise(5) + REDIS,
    ("put", "sync", 1, "full"): sqlite_promise(1 / 1.3, "bare sqlite"),
    ("put_writes", "sync", 1, "normal"): REDIS,
    ("get_tuple", "sync", 1, "normal"): sqlite_promise(2.5) + REDIS,
    ("put", "async", CROWD, "full"): sqlite_promise(5),
    ("put", "async", CROWD, "normal"): sqlite_promise(5),
    ("get_tuple", "async", CROWD, "normal"): sqlite_promise(3),
    ("put", "sync", CROWD, "full"): sqlite_promise(3),
    ("put", "sync", CROWD, "normal"): sqlite_promise(3),
}
"""Of issues 2 and 3, for the state of ten channels."""


def raw_calls(plan: Plan) -> Iterator[Figure]:
    """Ten channels with 100 messages; one channel of 200 bytes changes in a step."""
    kinds = [k for k in RAW if plan.pace.name == "full" or (k.operation, k.callers) not in LONG]
    yield from figures(plan, TenChannels, kinds, PROMISES)


def tiny_state(plan: Plan) -> Iterator[Figure]:
    """A state of one integer: what a saver costs when there is nothing to save."""
    promises = {
        (kind.operation, kind.colour, 1, level): sqlite_promise(1 if kind.colour == "sync" else 2)
        for kind in TINY
        for level in kind.levels
    }
    yield from figures(plan, OneInteger, TINY, promises)


def figures(plan: Plan, state: State, kinds: Sequence[Kind], promises: Any) -> Iterator[Figure]:
    """Every kind at its levels; the savers of a colour and a level are opened once."""
    for colour in ("sync", "async"):
        for level in BOTH:
            wanted = [k for k in kinds if k.colour == colour and level in k.levels]
            with ExitStack() as stack:
                crowd = max((kind.callers for kind in wanted), default=1)
                desks = open_desks(plan, stack, colour, level, state, crowd)
                for kind in wanted:
                    promised = promises.get((kind.operation, colour, kind.callers, level), ())
                    yield measured(plan, desks, kind, level, promised)


def measured(
    plan: Plan, desks: dict[str, Any], kind: Kind, level: Level, promised: tuple[Promise, ...]
) -> Figure:
    callers = min(kind.callers, plan.pick(3, CROWD, CROWD))
    each = plan.pick(1, 5, 20) if kind.callers == 1 else plan.pick(1, 1, 4)
    if kind.operation in ("list", "history"):
        each = min(each, plan.pick(1, 1, 5))
    samplers: dict[str, Sampler] = {}
    for name, desk in desks.items():
        if name in FLOOR and (kind.callers > 1 or kind.operation not in desk.operations):
            continue
        samplers[name] = desk.sampler(kind.operation, callers, each)
    rounds = interleave(samplers, plan.pace)
    unit: Literal["s", "/s"] = "s" if kind.callers == 1 else "/s"
    who = "" if kind.callers == 1 else f", {kind.callers} at once"
    name = kind.operation if kind.colour == "sync" else f"a{kind.operation}"
    if kind.operation == "history":
        name = f"{'a' if kind.colour == 'async' else ''}list of all {history_length(plan)}"
    elif kind.operation == "list":
        name += " of 10"
    readings = rounds.readings(unit)
    kept = tuple(p for p in promised if p.who in readings and p.rival in readings)
    return Figure(f"{name}{who}", unit, readings, kept, level, failed=rounds.failed)


def open_desks(
    plan: Plan, stack: ExitStack, colour: Colour, level: Level, state: State, crowd: int
) -> dict[str, Any]:
    """Everybody who takes part, with a state of their own for each of the crowd."""
    label = f"{state.__name__} {colour}"
    plan.hosts.set_level(level)
    desks: dict[str, Any] = {}
    runner = stack.enter_context(asyncio.Runner()) if colour == "async" else None
    pool = stack.enter_context(ThreadPoolExecutor(CROWD))
    for name in plan.entrants(*PEERS, "memory"):
        with tolerating(name, plan.missing):
            spot = plan.spot(name, level, label)
            if runner is None:
                saver = stack.enter_context(open_saver(spot))
            else:
                saver = stack.enter_context(open_async_saver(spot, runner))
            desks[name] = Desk(saver, state, runner, pool, plan, crowd)
    if colour == "sync":
        for name in plan.entrants(*FLOOR):
            spot = plan.spot(name, level, label)
            desks[name] = stack.enter_context(closing(FLOORS[name](spot, state)))
    return desks


def history_length(plan: Plan) -> int:
    """How many checkpoints the thread has that is listed."""
    return int(plan.pick(10, 50, 50))


class Desk:
    """A saver, and the threads that are saved with it."""

    def __init__(
        self,
        saver: Saver,
        state: State,
        runner: asyncio.Runner | None,
        pool: ThreadPoolExecutor,
        plan: Plan,
        crowd: int,
    ) -> None:
        self.saver, self.runner, self.pool = saver, runner, pool
        callers, self.length = min(crowd, plan.pick(3, CROWD, CROWD)), history_length(plan)
        self.states = [state(saver, f"thread-{number}") for number in range(callers)]
        self.tasks = iter(range(1_000_000_000))
        history = state(saver, "history")
        self.put_all([history.change_one() for _ in range(self.length)])
        self.put_all([one.change_one() for one in self.states])

    def put_all(self, steps: list[Step]) -> None:
        if self.runner is None:
            for step in steps:
                self.saver.put(*step.arguments)
        else:
            calls = [partial(self.saver.aput, *step.arguments) for step in steps]
            self.runner.run(timed_tasks([calls]))

    def sampler(self, operation: str, callers: int, each: int) -> Sampler:
        make = getattr(self, f"_{operation}")

        def sample() -> Any:
            work = [[make(state) for _ in range(each)] for state in self.states[:callers]]
            if self.runner is not None:
                return self.runner.run(timed_tasks(work))
            return timed(work[0]) if callers == 1 else timed_threads(self.pool, work)

        return sample

    def _named(self, name: str) -> Callable[..., Any]:
        return getattr(self.saver, name if self.runner is None else f"a{name}")

    def _put(self, state: Any) -> Call:
        return partial(self._named("put"), *state.change_one().arguments)

    def _put_writes(self, state: Any) -> Call:
        writes = [("scratch", state.prose.text(200))]
        return partial(
            self._named("put_writes"), state.timeline.latest, writes, f"task-{next(self.tasks)}"
        )

    def _get_tuple(self, state: Any) -> Call:
        return partial(self._named("get_tuple"), thread(state.timeline.name))

    def _list(self, state: Any) -> Call:
        return self._listing("history", 10)

    def _history(self, state: Any) -> Call:
        return self._listing("history", self.length)

    def _listing(self, name: str, limit: int) -> Call:
        if self.runner is None:
            return lambda: checked(list(self.saver.list(thread(name), limit=limit)), limit)

        async def walk() -> None:
            checked([one async for one in self.saver.alist(thread(name), limit=limit)], limit)

        return walk


def checked(found: list[Any], count: int) -> None:
    """A listing that lacks something is not fast, but wrong."""
    if len(found) != count:
        raise RuntimeError(f"{len(found)} checkpoints were listed, not {count}")


# ---- the floor -----------------------------------------------------------------------------------


def new_bytes(step: Step, serde: JsonPlusSerializer) -> bytes:
    """What a step adds: its checkpoint with only the changes, and its metadata."""
    values = dict(step.changes)
    _, checkpoint = serde.dumps_typed({**step.checkpoint, "channel_values": values})
    return checkpoint + json.dumps(step.metadata).encode()


class Floor:
    """What the floors have in common: a state of their own and its bytes."""

    operations: tuple[str, ...] = ("put", "put_writes", "get_tuple")

    def __init__(self, spot: Spot, state: State) -> None:
        from langgraph.checkpoint.memory import InMemorySaver

        self.serde = JsonPlusSerializer()
        self.state: Any = state(InMemorySaver(), "floor")
        self.whole = self.state.change_one()
        self.open(spot)

    def open(self, spot: Spot) -> None:
        """Get ready to store."""

    def close(self) -> None:
        """Let go."""

    def sampler(self, operation: str, callers: int, each: int) -> Sampler:
        make = getattr(self, operation)
        return lambda: timed([make() for _ in range(each)])

    def new(self) -> bytes:
        return new_bytes(self.state.change_one(), self.serde)

    def written(self) -> bytes:
        return self.serde.dumps_typed(self.state.change_one().changes)[1]


class BareSqlite(Floor):
    """One table of blobs."""

    def open(self, spot: Spot) -> None:
        path = Path(spot.folder) / FILE
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute(f"PRAGMA synchronous={spot.level}")
        self.connection.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, bytes BLOB)")
        self.insert(new_bytes(self.whole, self.serde))

    def close(self) -> None:
        self.connection.close()

    def insert(self, blob: bytes) -> None:
        self.connection.execute("INSERT INTO log (bytes) VALUES (?)", (blob,))

    def put(self) -> Call:
        return partial(self.insert, self.new())

    def put_writes(self) -> Call:
        return partial(self.insert, self.written())

    def get_tuple(self) -> Call:
        read = "SELECT bytes FROM log WHERE number = 1"
        return lambda: self.connection.execute(read).fetchone()


class BareRedis(Floor):
    """A pipeline that appends the bytes to a log, writes a row and sets a head."""

    def open(self, spot: Spot) -> None:
        self.client = redis.Redis.from_url(spot.url)
        self.prefix = spot.prefix
        self.insert(new_bytes(self.whole, self.serde))

    def close(self) -> None:
        self.client.close()

    def insert(self, blob: bytes) -> None:
        with self.client.pipeline(transaction=True) as pipe:
            pipe.rpush(f"{self.prefix}:log", blob)
            pipe.hset(f"{self.prefix}:rows", str(self.state.timeline.number), "row")
            pipe.set(f"{self.prefix}:head", "head")
            pipe.execute()

    def put(self) -> Call:
        return partial(self.insert, self.new())

    def put_writes(self) -> Call:
        return partial(self.insert, self.written())

    def get_tuple(self) -> Call:
        def read() -> None:
            with self.client.pipeline(transaction=True) as pipe:
                pipe.get(f"{self.prefix}:head")
                pipe.hget(f"{self.prefix}:rows", "0")
                pipe.lrange(f"{self.prefix}:log", 0, 0)
                pipe.execute()

        return read


class Serialise(Floor):
    """The stock serialiser on the whole checkpoint, and nothing stored."""

    def put(self) -> Call:
        return partial(self.serde.dumps_typed, self.state.change_one().checkpoint)

    def put_writes(self) -> Call:
        return partial(self.serde.dumps_typed, self.state.change_one().changes)

    def get_tuple(self) -> Call:
        return partial(self.serde.loads_typed, self.serde.dumps_typed(self.whole.checkpoint))


FLOORS: dict[str, type[Floor]] = {
    "bare sqlite": BareSqlite,
    "bare redis": BareRedis,
    "serialise": Serialise,
}
SECTIONS = (
    Section(
        "calls",
        "Raw calls",
        raw_calls,
        "A state of ten channels with 100 messages of 600 bytes; one channel of 200 bytes changes. "
        "Seconds a call by one caller, calls a second by 32 callers on 32 threads.",
    ),
    Section("tiny", "Raw calls on a tiny state", tiny_state, "A state of one integer."),
)
