"""Calls that get in each other's way: Ctrl-C, forks, failed commits, late writes, shared things.

Each promise was broken once, by a review that tried. What must happen at one certain moment is made
to happen there, by a hook on that moment; signals and forks get a process of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import operator
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Annotated, Any, TypedDict

import pytest
import victim
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from victim import thread

from langgraph_durable import SqliteSaver
from langgraph_durable._core import encoder
from langgraph_durable._core.memory import Learned
from langgraph_durable._sqlite import database, schema
from langgraph_durable.errors import SerializationError, StorageBusy, StorageError, StorageFull

steps = itertools.count()


def put_value(saver: Any, config: Any, value: Any) -> Any:
    """Store a checkpoint whose channel `m` holds `value`."""
    made = victim.checkpoint(next(steps), {"m": value})
    return saver.put(config, made, victim.metadata(0), made["channel_versions"])


def value_at(saver: Any, config: Any) -> Any:
    found = saver.get_tuple(config)
    return found and found.checkpoint["channel_values"]["m"]


def soon(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.001)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def locked(path: str) -> Iterator[Callable[[], sqlite3.Connection]]:
    """Take the file's write lock, as another program might; rolling back lets go of it."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def lock() -> sqlite3.Connection:
        other.execute("BEGIN IMMEDIATE")
        return other

    yield lock
    other.close()


def run(program: str, path: str, **named: object) -> str:
    """Run a program that knows `victim` and `path`; what it printed comes back."""
    here = Path(__file__).parent
    head = f"import sys; sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]\n"
    names = "".join(f"{name} = {value!r}\n" for name, value in {"path": path, **named}.items())
    command = [sys.executable, "-W", "ignore", "-c", head + names + textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# -- Ctrl-C ---------------------------------------------------------------------------------------

STORM = """
import random, signal, sqlite3, victim
from langgraph_durable.errors import StorageError

def interrupt(*_):
    raise KeyboardInterrupt

saver = victim.open_store("durable", path, durability="normal", busy_timeout=3)
victim.put(saver, victim.thread("first"), 0)
stranger = sqlite3.connect(path, timeout=0, isolation_level=None)
dice, done, interrupts = random.Random(seed), [], 0
signal.signal(signal.SIGALRM, interrupt)
while interrupts < 100:
    name = f"{interrupts}.{len(done)}"
    try:
        signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0001, 0.002))
        victim.put(saver, victim.thread(name), 0)
        done.append(name)
        saver.get_tuple(victim.thread(name))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1
    stranger.execute("BEGIN IMMEDIATE")
    stranger.execute("ROLLBACK")
victim.put(saver, victim.thread("last"), 0)
other = victim.open_store("durable", path, busy_timeout=3)
victim.put(other, victim.thread("other"), 0)
for name in ["first", *done, "last", "other"]:
    assert victim.whole(other.get_tuple(victim.thread(name))), name
print("acknowledged", len(done))
"""


def test_ctrl_c_amid_puts_leaves_neither_saver_nor_file_locked_and_loses_nothing(
    path: str, dice: Random
) -> None:
    assert run(STORM, path, seed=dice.random()).startswith("acknowledged")
    assert victim.intact(path)


def test_a_read_interrupted_as_it_ends_leaves_the_next_one_a_clean_connection(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = SqliteSaver(path)
    put_value(saver, thread("t"), 1)

    def interrupted(conn: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(schema, "rollback", interrupted)
        saver.get_tuple(thread("t"))
    assert value_at(saver, thread("t")) == 1


@pytest.mark.parametrize("at", [2, 3], ids=["at one's own", "at the other's"])
def test_an_interrupt_amid_writes_done_one_by_one_acknowledges_no_lost_write(
    at: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = SqliteSaver(path)
    put_value(saver, thread("source"), 1)
    put_value(saver, thread("target"), 1)
    acknowledged: list[Any] = []
    writer = threading.Thread(
        target=lambda: acknowledged.append(put_value(saver, thread("precious"), "kept"))
    )
    begin, begun = database.begin, itertools.count(1)
    queue, turn = saver._backend._queue, saver._backend._turn

    def let_in() -> None:
        soon(lambda: queue)
        turn.release()

    def begin_and_interrupt(conn: sqlite3.Connection, patience: float) -> None:
        n = next(begun)
        if n == 1:
            writer.start()
            soon(lambda: len(queue) == 2)
        if n == at:
            raise KeyboardInterrupt
        begin(conn, patience)

    monkeypatch.setattr(database, "begin", begin_and_interrupt)
    turn.acquire()  # a write that finds nobody else would not stand in the queue
    threading.Thread(target=let_in).start()
    with pytest.raises(KeyboardInterrupt):
        saver.copy_thread("source", "target")  # cannot be: that is why they go one by one
    writer.join()
    assert len(acknowledged) == 1
    assert value_at(SqliteSaver(path), acknowledged[0]) == "kept"


class InterruptedTurn:
    """Ctrl-C comes while a write waits for its turn, once; in the queue, or without one."""

    def __init__(self, *, queued: bool) -> None:
        self.lock, self.interrupts, self.queued = threading.Lock(), 1, queued

    def locked(self) -> bool:
        return self.queued

    def __enter__(self) -> None:
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("queued", [True, False], ids=["queued", "alone"])
def test_a_put_interrupted_while_it_waits_for_its_turn_never_lands(path: str, queued: bool) -> None:
    saver = SqliteSaver(path)
    first = put_value(saver, thread("t"), "old")
    saver._backend._turn = InterruptedTurn(queued=queued)
    with pytest.raises(KeyboardInterrupt):
        put_value(saver, first, "interrupted")
    put_value(saver, thread("another"), 1)
    assert [value_at(s, thread("t")) for s in (saver, SqliteSaver(path))] == ["old", "old"]


class InterruptedQueue(deque[Any]):
    """Ctrl-C comes while a write joins the queue, once."""

    interrupts = 1

    def __bool__(self) -> bool:
        return True  # somebody else stands there

    def extend(self, tickets: Any) -> None:
        super().extend(tickets)
        if self.interrupts:
            self.interrupts = 0
            raise KeyboardInterrupt


def test_a_put_interrupted_while_it_joins_the_queue_never_lands(path: str) -> None:
    saver = SqliteSaver(path)
    first = put_value(saver, thread("t"), "old")
    saver._backend._queue = InterruptedQueue()
    with pytest.raises(KeyboardInterrupt):
        put_value(saver, first, "interrupted")
    put_value(saver, thread("another"), 1)
    assert value_at(saver, thread("t")) == "old"


# -- forks and locks ------------------------------------------------------------------------------

FORKS = """
import itertools, os, threading, victim

saver = victim.open_store("durable", path, durability="normal")
victim.put(saver, victim.thread("t"), 0)
done = threading.Event()

def keep_writing():
    config = victim.thread("meanwhile")
    for step in itertools.count():
        if done.is_set():
            return
        config = victim.put(saver, config, step)

def fork(n):
    for _ in range(40):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

writer = threading.Thread(target=keep_writing)
writer.start()
victim.in_threads(3, fork)
done.set()
writer.join()
assert victim.whole(saver.get_tuple(victim.thread("t")))
print("nobody hangs")
"""


def test_threads_that_fork_at_once_do_not_hang_each_other_or_the_saver(path: str) -> None:
    assert run(FORKS, path) == "nobody hangs\n"
    assert victim.intact(path)


def test_busy_timeout_is_the_patience_of_a_call_however_many_wait(
    path: str, locked: Callable[[], sqlite3.Connection]
) -> None:
    saver = SqliteSaver(path, busy_timeout=1)
    put_value(saver, thread("t"), 1)
    locked()
    took: list[float] = []

    def wait_in_vain(n: int) -> None:
        began = time.monotonic()
        with pytest.raises(StorageBusy):
            put_value(saver, thread(f"t{n}"), 1)
        took.append(time.monotonic() - began)

    victim.in_threads(40, wait_in_vain)
    assert len(took) == 40
    assert min(took) >= 0.8
    assert max(took) < 20, "as if one waited after the other"


# -- commits that fail ----------------------------------------------------------------------------


class Disk(sqlite3.Connection):
    """A connection whose disk is full at the next commit, after what happens meanwhile."""

    meanwhile: Callable[[], None] | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full
        return super().execute(sql, *parameters)


@pytest.fixture
def disk(path: str) -> Iterator[Disk]:
    connection = sqlite3.connect(path, check_same_thread=False, factory=Disk, isolation_level=None)
    yield connection
    connection.close()


def _evict(saver: SqliteSaver) -> None:
    memory = saver._engine.memory
    memory.learn("other", 1, Learned([(os.urandom(16), n, b"x" * 50) for n in range(30)]))
    assert memory.part("t") is None


def _forget(saver: SqliteSaver) -> None:
    saver._engine.memory.forget("t")


def _keep(saver: SqliteSaver) -> None:
    assert saver._engine.memory.part("t")


@pytest.mark.parametrize("lose", [_keep, _evict, _forget])
def test_a_draft_made_from_items_whose_commit_failed_is_made_anew(
    lose: Callable[[SqliteSaver], None], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = SqliteSaver(disk, cache_bytes=3000 if lose is _evict else 1 << 20)
    config = put_value(saver, thread("t"), [{"id": 0, "text": "base" * 40}])
    item = {"id": 1, "text": "new" * 100}
    ready, go = threading.Event(), threading.Event()
    encode = encoder.Encoder.value

    def encode_late(self: encoder.Encoder, channel: str, value: Any) -> Any:
        if threading.current_thread() is second and not ready.is_set():
            ready.set()
            go.wait(120)
        return encode(self, channel, value)

    def meanwhile() -> None:  # the second draft finds the item under a number that will not last
        lose(saver)
        go.set()
        soon(lambda: len(saver._backend._queue) == 1)

    second = threading.Thread(target=saver.put_writes, args=(config, [("m", [item])], "second"))
    monkeypatch.setattr(encoder.Encoder, "value", encode_late)
    second.start()
    assert ready.wait(120)
    disk.meanwhile = meanwhile
    with pytest.raises(StorageFull):
        saver.put_writes(config, [("m", [item])], "first")
    second.join()
    found = SqliteSaver(disk).get_tuple(config)
    assert found is not None
    assert found.pending_writes == [("second", "m", [item])]


def test_a_reader_never_gets_a_value_that_was_never_committed(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = SqliteSaver(disk)
    first = put_value(saver, thread("t"), [{"id": 0, "text": "base" * 40}])
    ready, go, load = threading.Event(), threading.Event(), saver._engine.storage.load
    got: list[Any] = []

    async def load_late(*place: Any) -> Any:
        if threading.current_thread() is reader:
            ready.set()
            go.wait(120)
        return await load(*place)

    monkeypatch.setattr(saver._engine.storage, "load", load_late)
    reader = threading.Thread(target=lambda: got.append(value_at(saver, thread("t"))))
    reader.start()
    assert ready.wait(120)
    disk.meanwhile = lambda: None
    with pytest.raises(StorageFull):
        put_value(saver, first, [{"id": 1, "text": "lost" * 50}])
    put_value(saver, first, [{"id": 1, "text": "kept" * 50}])
    go.set()
    reader.join()
    assert got == [[{"id": 1, "text": "kept" * 50}]]


@pytest.mark.parametrize("by", ["deleted", "replaced"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(colour: str, by: str, path: str) -> None:
    saver = SqliteSaver(path)
    config = put_value(saver, thread("t"), "old")
    for file in Path(path).parent.iterdir():
        file.unlink()
    if by == "replaced":
        put_value(SqliteSaver(path), thread("stranger"), "new")
    for _ in range(2):
        with pytest.raises(StorageError, match="deleted or replaced"):
            if colour == "sync":
                victim.put(saver, config, 1)
            else:
                asyncio.run(victim.aput(saver, config, 1))
    assert Path(path).exists() == (by == "replaced")
    saver.close()
    assert value_at(SqliteSaver(path), thread("t")) is None


@pytest.mark.parametrize("by", ["deleted", "replaced"])
def test_who_has_only_read_makes_no_file_in_the_place_of_one_that_is_gone(
    by: str, path: str
) -> None:
    with SqliteSaver(path) as first:
        config = put_value(first, thread("t"), "old")
    saver = SqliteSaver(path)
    assert value_at(saver, thread("t")) == "old"
    for file in Path(path).parent.iterdir():
        file.unlink()
    if by == "replaced":
        put_value(SqliteSaver(path), thread("stranger"), "new")
    with pytest.raises(StorageError, match="deleted or replaced"):
        victim.put(saver, config, 1)
    assert Path(path).exists() == (by == "replaced")
    saver.close()


# -- runs that write late -------------------------------------------------------------------------


def _write_for_run(saver: Any, config: Any, task: str) -> None:
    saver.put_writes({**config, "metadata": {"run_id": "r"}}, [("m", task)], task)


def test_a_late_write_of_a_deleted_run_is_found_by_the_next_delete(path: str) -> None:
    writer, other = SqliteSaver(path), SqliteSaver(path)
    config = put_value(writer, thread("t"), 1)
    for task in ("first", "late"):
        _write_for_run(writer, config, task)
        assert [write[0] for write in other.get_tuple(config).pending_writes] == [task]
        other.delete_for_runs(["r"])
        assert other.get_tuple(config).pending_writes == []


def test_a_write_amid_a_delete_of_its_run_is_found_by_the_next_delete(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, other = SqliteSaver(path), SqliteSaver(path)
    config = put_value(writer, thread("t"), 1)
    _write_for_run(writer, config, "first")
    storage = other._engine.storage
    edit, amid = storage.edit, []

    async def write_after_edit(*order: Any) -> bool:
        edited = await edit(*order)
        if not amid:
            amid.append(_write_for_run(writer, config, "amid"))
        return edited

    monkeypatch.setattr(storage, "edit", write_after_edit)
    other.delete_for_runs(["r"])
    assert amid
    other.delete_for_runs(["r"])
    assert other.get_tuple(config).pending_writes == []


# -- one connection for two -----------------------------------------------------------------------


def test_two_savers_on_one_connection_do_not_disturb_each_other_or_its_row_factory(
    path: str,
) -> None:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    savers = [SqliteSaver(connection), SqliteSaver(connection)]

    def chain(n: int) -> None:
        config = thread(f"t{n}")
        for step in range(100):
            config = put_value(savers[n], config, step)
            assert value_at(savers[n], config) == step

    victim.in_threads(2, chain)
    assert connection.row_factory is sqlite3.Row
    assert [len(list(savers[0].list(thread(f"t{n}")))) for n in range(2)] == [100, 100]
    connection.close()


# -- values ---------------------------------------------------------------------------------------


def test_dict_keys_that_a_serde_of_the_users_refuses_are_refused_not_merged(path: str) -> None:
    saver = SqliteSaver(path, serde=JsonPlusSerializer())
    with pytest.raises(SerializationError, match="channel 'm'"):
        put_value(saver, thread("t"), {chr(n): "v" * 600 for n in (0xD800, 0xD801)})
    assert saver.get_tuple(thread("t")) is None
    proper = {"é": "v" * 600, "k": "w" * 600}
    assert value_at(saver, put_value(saver, thread("t"), proper)) == proper


@pytest.mark.parametrize("depth", [50, 120, 240, 300, 600, 5000])
@pytest.mark.parametrize("records", [True, False], ids=["with records", "plain"])
def test_nested_dicts_come_back_equal_or_are_refused(depth: int, records: bool, path: str) -> None:
    value: dict[str, Any] = {"x": 1}
    for n in range(depth):
        value = {"in": value, **({"records": [{"n": n}]} if records else {})}
    saver = SqliteSaver(path)
    try:
        config = put_value(saver, thread("t"), value)
    except SerializationError:
        assert depth > 50
        assert saver.get_tuple(thread("t")) is None
        return
    assert value_at(SqliteSaver(path), config) == value


def test_prune_of_a_graph_without_delta_channels_keeps_no_hidden_input(path: str) -> None:
    class Talk(TypedDict):
        log: Annotated[list[str], operator.add]
        document: str

    def stored() -> float:
        connection = sqlite3.connect(path)
        size: float = connection.execute("SELECT total(length(body)) FROM lgd_items").fetchone()[0]
        connection.close()
        return size

    def redact(state: Talk) -> dict[str, Any]:
        return {"log": ["read"], "document": ""}

    saver = SqliteSaver(path)
    builder = StateGraph(Talk).add_node("redact", redact).add_edge(START, "redact")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"log": [], "document": os.urandom(50_000).hex()}, thread("t"))
    assert stored() > 50_000
    saver.prune(["t"])
    assert stored() < 5_000
    assert graph.get_state(thread("t")).values == {"log": ["read"], "document": ""}
