"""What an operation costs, counted: bytes, statements, round trips, hops, serialised items.

None of it depends on the machine, so a change that makes an operation dearer fails here, long
before a benchmark could tell. The subject is a thread of 1,000 messages that gets one more. A limit
may be lowered when something gets cheaper; raise one only for a reason worth writing down.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import proxy
import pytest
import redis
import servers
from calls import calls_of
from langchain_core.messages import HumanMessage

from langgraph_durable import KeepLast, RedisSaver, SqliteSaver, StateSchema
from langgraph_durable._core import seal
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable._sqlite import tombs
from langgraph_durable.saver import DurableSaver

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

from workloads import Prose, Timeline, thread

MESSAGES = 1_000
ROUNDS = 20
CHUNK = 32
"""Messages that are told from the stored ones together; only a chunk that differs is serialised."""


class Subject:
    """A thread of many messages on a saver, and the calls that continue it."""

    def __init__(self, saver: DurableSaver) -> None:
        self.saver, self.prose = saver, Prose(7)
        state = {"messages": self.prose.messages(MESSAGES), "turn": 0, "topic": "costs"}
        self.timeline = Timeline(saver, "long", state)
        self.put(self.timeline.advance({}))
        for _ in range(3):
            self.say()()
            self.write()()
        self.get()

    def put(self, step: Any) -> None:
        self.saver.put(*step.arguments)

    def grown(self) -> Any:
        said = self.timeline.state["messages"]
        return self.timeline.advance({"messages": [*said, self.prose.message(len(said))]})

    def say(self) -> Callable[[], None]:
        """One more message; the arguments are made before anything is counted."""
        step = self.grown()
        return lambda: self.put(step)

    def write(self) -> Callable[[], None]:
        message = HumanMessage(self.prose.text(), id=f"w{self.timeline.number}")
        at, task = self.timeline.latest, f"task-{self.timeline.number}"
        return lambda: self.saver.put_writes(at, [("messages", [message])], task)

    def get(self) -> None:
        assert self.saver.get_tuple(thread("long")) is not None


@contextmanager
def on_sqlite(place: Path, watch: Any = None, **options: Any) -> Iterator[Subject]:
    with pytest.MonkeyPatch.context() as patch:
        if watch is not None:
            patch.setattr(sqlite3, "connect", watch(sqlite3.connect))
        place.mkdir(exist_ok=True)
        with SqliteSaver(place / "agent.db", durability="normal", **options) as saver:
            yield Subject(saver)


@contextmanager
def on_redis(url: str | None = None, prefix: str = "costs", **options: Any) -> Iterator[Subject]:
    url = url or servers.shared("valkey").url
    with RedisSaver(url, prefix=prefix, **options) as saver:
        saver.delete_thread("long")
        yield Subject(saver)


def on(backend: str, place: Path) -> Any:
    return on_sqlite(place) if backend == "sqlite" else on_redis(prefix=servers.prefix_for(place))


# ---- bytes -----------------------------------------------------------------------------------


def bytes_in_file(place: Path) -> int:
    """What the rows hold, without what SQLite adds."""
    with sqlite3.connect(place / "agent.db") as conn:
        tables = [
            name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        total = 0
        for table in tables:
            columns = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
            sizes = "+".join(f'ifnull(length(CAST("{c}" AS BLOB)), 0)' for c in columns)
            total += conn.execute(f"SELECT ifnull(sum({sizes}), 0) FROM {table}").fetchone()[0]
    return int(total)


def bytes_in_keys(prefix: str) -> int:
    with servers.shared("valkey").client() as client:
        keys = client.keys(f"{prefix}*")
        return sum(client.memory_usage(key, samples=0) or 0 for key in keys)


def per_put(subject: Subject, weigh: Callable[[], int]) -> float:
    before = weigh()
    for _ in range(ROUNDS):
        subject.say()()
    return (weigh() - before) / ROUNDS


def test_one_more_message_on_sqlite_stores_that_message(tmp_path: Path) -> None:
    with on_sqlite(tmp_path) as subject:
        stored = per_put(subject, lambda: bytes_in_file(tmp_path))
    assert stored < SQLITE_BYTES, f"a put that adds one message of 600 bytes stores {stored:.0f}"


def test_one_more_message_on_redis_stores_that_message() -> None:
    with on_redis(prefix="costsbytes") as subject:
        stored = per_put(subject, lambda: bytes_in_keys("costsbytes"))
    assert stored < REDIS_BYTES, f"a put that adds one message of 600 bytes stores {stored:.0f}"


SQLITE_BYTES = 860
REDIS_BYTES = 980


# ---- statements and round trips --------------------------------------------------------------


class Trace:
    """The statements of every connection that is opened while it watches."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, connect: Callable[..., sqlite3.Connection]) -> Callable[..., Any]:
        def connected(*args: Any, **options: Any) -> sqlite3.Connection:
            conn = connect(*args, **options)
            conn.set_trace_callback(self.seen.append)
            return conn

        return connected

    def of(self, act: Callable[[], Any]) -> list[str]:
        self.seen.clear()
        act()
        return [" ".join(one.split())[:60] for one in self.seen]


def test_every_operation_on_sqlite_is_one_transaction_of_few_statements(tmp_path: Path) -> None:
    trace = Trace()
    with on_sqlite(tmp_path, trace) as subject:
        done = {
            "put": trace.of(subject.say()),
            "put_writes": trace.of(subject.write()),
            "get_tuple": trace.of(subject.get),
        }
    for name, statements in done.items():
        begun = [one for one in statements if one.upper().startswith("BEGIN")]
        assert len(begun) == 1, f"{name} is {len(begun)} transactions: {statements}"
        assert len(statements) <= STATEMENTS[name], f"{name} takes {statements}"


STATEMENTS = {"put": 6, "put_writes": 7, "get_tuple": 4}
"""With BEGIN and its end; one of them asks whether another process has written."""


def test_nothing_done_to_one_thread_on_sqlite_looks_through_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many threads and runs there are. (Old tombstones are swept now and then.)"""
    monkeypatch.setattr(tombs, "_sweep", lambda conn, now: None)
    trace = Trace()
    latest: Any = thread("long")
    run: Any = {**latest, "metadata": {"run_id": "run"}}
    with on_sqlite(tmp_path, trace) as subject:
        saver, put = subject.saver, subject.grown().arguments
        saver.put({**put[0], **run}, *put[1:])
        put = subject.grown().arguments
        for act in (
            subject.say(),
            subject.write(),
            subject.get,
            lambda: list(saver.list(latest)),
            lambda: saver.tag(latest, "a"),
            lambda: saver.prune(["long"], strategy=KeepLast(2)),
            lambda: saver.stats(["long"], channels=True),
            lambda: saver.copy_thread("long", "copy"),
            lambda: saver.delete_for_runs(["run"]),
            lambda: saver.delete_thread("long"),
        ):
            act()
    with sqlite3.connect(tmp_path / "agent.db") as conn:
        for statement in {one for one in trace.seen if one.split()[0] in VERBS}:
            plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}")]
            scans = [step for step in plan if step.startswith("SCAN lgd_")]
            assert scans in ([], ["SCAN lgd_stores"]), statement


VERBS = {"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE"}


def test_every_operation_on_redis_is_one_round_trip() -> None:
    server = servers.shared("valkey")
    with ExitStack() as stack:
        counter = stack.enter_context(proxy.counting(servers.HOST, server.port))
        url = f"redis://{proxy.HOST}:{counter.port}/0"
        subject = stack.enter_context(on_redis(url, "coststrips"))
        for name, act in (
            ("put", subject.say()),
            ("put_writes", subject.write()),
            ("get_tuple", subject.get),
        ):
            before = counter.trips
            act()
            assert counter.trips - before == 1, f"{name} makes {counter.trips - before} round trips"


def test_the_second_put_of_a_thread_on_redis_is_one_round_trip_already() -> None:
    server, trips = servers.shared("valkey"), []
    with (
        proxy.counting(servers.HOST, server.port) as counter,
        RedisSaver(f"redis://{proxy.HOST}:{counter.port}/0", prefix="costsnew") as saver,
    ):
        for name in ("which connects", "and the next"):
            timeline = Timeline(saver, name, {"messages": []})
            for n in range(3):
                said = [f"{name} {k} " * 50 for k in range(n + 1)]
                step, before = timeline.advance({"messages": said}), counter.trips
                saver.put(*step.arguments)
                trips.append(counter.trips - before)
    assert trips[-2:] == [1, 1]


def test_a_put_on_redis_sends_the_new_message_only() -> None:
    with on_redis(prefix="costssent") as subject, servers.shared("valkey").client() as client:
        step = subject.say()
        before = received(client)
        step()
        sent = received(client) - before
    assert sent < SENT, f"a put that adds one message sends {sent} bytes"


SENT = 1_280


def received(client: redis.Redis) -> int:
    return int(client.info("stats")["total_net_input_bytes"])


# ---- hops -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sqlite", "redis"])
async def test_an_async_call_hops_at_most_once(backend: str, tmp_path: Path) -> None:
    with on(backend, tmp_path) as subject:
        saver, latest = subject.saver, subject.timeline.latest
        calls = {
            "aput": lambda: saver.aput(*subject.grown().arguments),
            "aput_writes": lambda: saver.aput_writes(latest, [("turn", 1)], "hop"),
            "aget_tuple": lambda: saver.aget_tuple(thread("long")),
        }
        for call in calls.values():
            await call()  # opens what is needed
        for name, call in calls.items():
            hops = await counted_hops(call)
            assert hops <= 1, f"{name} hops {hops} times"
        await saver.aclose()


async def counted_hops(call: Callable[[], Any]) -> int:
    """How often another thread wakes this loop."""
    loop, seen = asyncio.get_running_loop(), 0
    original = loop.call_soon_threadsafe

    def wake(*args: Any, **options: Any) -> Any:
        nonlocal seen
        seen += 1
        return original(*args, **options)

    loop.call_soon_threadsafe = wake  # type: ignore[method-assign]
    try:
        await call()
    finally:
        del loop.call_soon_threadsafe  # type: ignore[attr-defined]
    return seen


# ---- serialising -----------------------------------------------------------------------------


class Counted:
    """How many items are serialised, and how many of them packed to be stored."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.dumped = self.packed = 0
        one, many, pack = ExactSerializer.dump_item, ExactSerializer.dump_items, seal.pack

        def dump_item(serde: ExactSerializer, value: Any) -> bytes:
            self.dumped += 1
            return one(serde, value)

        def dump_items(serde: ExactSerializer, values: Any) -> list[bytes]:
            found = many(serde, values)
            self.dumped += len(found)
            return found

        def packing(raw: bytes) -> Any:
            self.packed += 1
            return pack(raw)

        patch.setattr(ExactSerializer, "dump_item", dump_item)
        patch.setattr(ExactSerializer, "dump_items", dump_items)
        patch.setattr(seal, "pack", packing)


@pytest.mark.parametrize("backend", ["sqlite", "redis"])
def test_a_put_serialises_the_last_chunk_and_packs_the_new_message(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = Counted(monkeypatch)
    with on(backend, tmp_path) as subject:
        for _ in range(2 * CHUNK):  # wherever the chunk begins
            step = subject.say()
            count.dumped = count.packed = 0
            step()
            assert count.dumped <= CHUNK + 1, f"{count.dumped} items of the thread are serialised"
            assert count.packed <= PACKED, f"{count.packed} things are packed for one new message"


PACKED = 2
"""The new item and the record of the checkpoint."""


@pytest.mark.parametrize("backend", ["sqlite", "redis"])
def test_a_put_that_changes_nothing_long_does_not_look_at_it(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = Counted(monkeypatch)
    with on(backend, tmp_path) as subject:
        step = subject.timeline.advance({"turn": 1})
        count.dumped = count.packed = 0
        subject.put(step)
    assert count.dumped <= 1, f"{count.dumped} items are serialised where one number changed"
    assert count.packed <= 1, f"{count.packed} things are packed where one number changed"


@pytest.mark.parametrize("backend", ["sqlite", "redis"])
def test_pruning_does_not_make_the_next_put_read_the_thread_again(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the saver remembers of a thread, and its own prune has left there, is still true."""
    count = Counted(monkeypatch)
    with on(backend, tmp_path) as subject:
        storage = type(subject.saver._engine.storage)
        monkeypatch.setattr(storage, "load", None)  # a load would be a TypeError
        for _ in range(3):
            removed: Any = subject.saver.prune(["long"], strategy=KeepLast(2))
            assert removed.checkpoints
            step = subject.say()
            count.dumped = count.packed = 0
            step()
            assert count.dumped <= CHUNK + 1, f"{count.dumped} items of the thread are serialised"
            assert count.packed <= PACKED, f"{count.packed} things are packed for one new message"
        monkeypatch.undo()
        kept = subject.saver.get_tuple(thread("long"))
        assert kept is not None
        said = subject.timeline.state["messages"]
        assert kept.checkpoint["channel_values"]["messages"] == said


# ---- versions --------------------------------------------------------------------------------


def schema_that_must_not_run() -> StateSchema:
    schema = StateSchema(version=2)

    @schema.upgrade(to=2)
    def step(state: Any) -> None:
        raise AssertionError("a checkpoint of this version needs no step")

    return schema


def test_a_schema_adds_no_statement_and_no_trip_where_versions_agree(tmp_path: Path) -> None:
    server, seen = servers.shared("valkey"), []
    for n, schema in enumerate((None, schema_that_must_not_run())):
        trace = Trace()
        with on_sqlite(tmp_path / str(n), trace, schema=schema) as subject:
            statements = [trace.of(a) for a in (subject.say(), subject.write(), subject.get)]
        with ExitStack() as stack:
            counter = stack.enter_context(proxy.counting(servers.HOST, server.port))
            url = f"redis://{proxy.HOST}:{counter.port}/0"
            subject = stack.enter_context(on_redis(url, "costsschema", schema=schema))
            before = counter.trips
            for act in (subject.say(), subject.write(), subject.get):
                act()
            trips = counter.trips - before
        seen.append(([[one.split("(")[0] for one in each] for each in statements], trips))
    assert seen[0] == seen[1]


def test_a_schema_adds_a_handful_of_calls_where_versions_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the thread: nothing more is read, packed or compared."""
    count, seen = Counted(monkeypatch), []
    for n, schema in enumerate((None, schema_that_must_not_run())):
        with on_sqlite(tmp_path / str(n), schema=schema) as subject:
            for _ in range(3):
                subject.say()()
                subject.get()
            acts = subject.get, subject.say(), subject.write()
            count.dumped = count.packed = 0
            seen.append([*map(calls_of, acts), count.dumped, count.packed])
    (*without, dumped, packed), (*calls, dumped_too, packed_too) = seen
    assert (dumped_too, packed_too) == (dumped, packed)
    for name, less, more in zip(("get_tuple", "put", "put_writes"), without, calls, strict=True):
        assert more - less <= SCHEMA_CALLS, f"{name} makes {more} calls, and {less} without"


SCHEMA_CALLS = 12
