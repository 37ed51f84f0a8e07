"""`copy_store`: from any saver to any other, and back, exactly."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import backends
import histories
import postgres
import pytest
import servers
from forks import import_path
from histories import contents, graph, thread
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from langgraph_durable import (
    ConfigurationError,
    CopyMismatch,
    KeepLast,
    SqliteSaver,
    acopy_store,
    copy_store,
)
from langgraph_durable.moving.colours import NOW, finish
from langgraph_durable.moving.sides import Key, Plan, side_of
from langgraph_durable.moving.sources import Place
from langgraph_durable.saver import DurableSaver

Open = Callable[[str], Any]
KINDS = ("memory", "stock", *backends.EVERYWHERE, "scriptless")
PAIRS = [
    *((kind, "sqlite") for kind in KINDS),
    *(("sqlite", kind) for kind in KINDS[:2]),
    *((one, other) for one in ("memory", "stock") for other in ("memory", "stock")),
    *((kind, "valkey") for kind in ("memory", "stock", "sqlite", "valkey")),
    ("sqlite", "redis"),
    ("sqlite", "scriptless"),
    ("valkey", "memory"),
]


@pytest.fixture
def open_saver(tmp_path: Path) -> Iterator[Callable[[str, str], Any]]:
    with ExitStack() as opened:

        def open_one(kind: str, name: str) -> Any:
            place = tmp_path / name
            place.mkdir(exist_ok=True)
            if kind == "memory":
                return InMemorySaver()
            if kind == "stock":
                path = str(place / "stock.db")
                return opened.enter_context(StockSaver.from_conn_string(path))
            return opened.enter_context(backends.ALL[kind](place))

        yield open_one


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, open_saver: Any) -> tuple[Any, Any]:
    source, target = request.param
    return open_saver(source, "source"), open_saver(target, "target")


FEW = [("memory", "sqlite"), ("sqlite", "stock"), ("sqlite", "valkey"), ("valkey", "scriptless")]


@pytest.fixture(params=FEW, ids="-".join)
def few(request: pytest.FixtureRequest, open_saver: Any) -> tuple[Any, Any]:
    source, target = request.param
    return open_saver(source, "source"), open_saver(target, "target")


@pytest.fixture(params=["sync", "async"])
def copy(request: pytest.FixtureRequest) -> Any:
    """`copy_store` in either colour."""
    if request.param == "sync":
        return copy_store
    return lambda *args, **more: asyncio.run(acopy_store(*args, **more))


def fill(saver: Any) -> None:
    histories.run(saver, "t")
    histories.run(saver, "u", turns=1)
    histories.run_deltas(saver, "deltas", turns=4)


def same(one: Any, other: Any) -> bool:
    """Whether two stores hold the same; LangGraph's own serialiser makes lists of tuples."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value

    found = [contents(saver) for saver in (one, other)]
    if all(isinstance(saver, DurableSaver) for saver in (one, other)):
        return bool(found[0] == found[1])
    return bool(plain(found[0]) == plain(found[1]))


def test_a_copy_is_equal_to_the_last_write_and_is_done_once(
    pair: tuple[Any, Any], copy: Any
) -> None:
    source, target = pair
    fill(source)
    before = contents(source)
    report = copy(source, target)
    assert same(target, source)
    assert (report.threads, report.checkpoints, report.skipped) == (3, len(before), 0)
    again = copy(source, target)
    assert (again.checkpoints, again.skipped) == (len(before), len(before))
    assert same(target, source)


def test_a_copied_thread_is_answered_and_goes_on(pair: tuple[Any, Any]) -> None:
    source, target = pair
    fill(source)
    copy_store(source, target, ["t", "deltas"])
    state = graph(target).invoke(Command(resume="yes"), thread("t"))
    assert state["log"][-1] == "told yes"
    expected = histories.delta_graph(source).get_state(thread("deltas")).values
    made = histories.delta_graph(target)
    assert made.get_state(thread("deltas")).values == expected
    made.invoke({"lines": ["more"]}, thread("deltas"))
    kept = made.get_state(thread("deltas")).values["lines"][: len(expected["lines"])]
    assert kept == expected["lines"]
    assert target.get_tuple(thread("u")) is None


def known(saver: Any) -> set[Any]:
    """Path, task and index of every pending write of thread t."""

    async def look() -> set[Any]:
        side, found = side_of(NOW, saver), set()
        for key in (await side.plan("t")).keys:
            carried = await side.read(Place("t", key.ns, key.id))
            for task in carried.writes if carried else ():
                assert task.indices is not None
                found |= {(key.id, task.path, task.task_id, idx) for idx in task.indices}
        return found

    return finish(look())


def test_task_paths_and_indices_are_kept(pair: tuple[Any, Any]) -> None:
    source, target = pair
    histories.run(source, "t")
    copy_store(source, target)
    assert known(target) == known(source)
    assert any(path for _, path, _, _ in known(source))


def test_writes_of_a_saver_nobody_knows_keep_their_order(
    copy: Any, open_saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = InMemorySaver(), open_saver("sqlite", "target")
    histories.run(source, "t")
    at = source.get_tuple(thread("t"))
    assert at is not None
    for task, path in (("z", "1"), ("a", "2"), ("m", "1")):
        source.put_writes(at.config, [("log", [f"{task} {path}"])], task, path)
    monkeypatch.setattr("langgraph_durable.moving.queries._SOURCES", {})
    copy(source, target)
    assert contents(target) == contents(source)


@pytest.mark.parametrize("base", [InMemorySaver, StockSaver])
def test_what_a_subclass_hides_is_not_gone_around(base: Any, open_saver: Any) -> None:
    class OneTenant(base):  # type: ignore[misc]
        def list(self, config: Any, **more: Any) -> Iterator[Any]:
            for found in super().list(config, **more):
                if found.config["configurable"]["thread_id"] != "of another tenant":
                    yield found

    conn = sqlite3.connect(":memory:", check_same_thread=False)
    source, target = OneTenant(*([conn] if base is StockSaver else [])), open_saver("sqlite", "new")
    for name in ("mine", "of another tenant"):
        histories.run(source, name, turns=0)
    assert copy_store(source, target).threads == 1
    assert {key[0] for key in contents(target)} == {"mine"}


def test_async_savers_are_copied_on_their_loop(tmp_path: Path) -> None:
    async def body() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "stock.db")) as stock:
            made = graph(stock)
            await made.ainvoke({"messages": [HumanMessage("hi", id="1")]}, thread("t"))
            with SqliteSaver(tmp_path / "ours.db") as ours:
                report = await acopy_store(stock, ours)
                assert report.checkpoints == len([c async for c in stock.alist(None)])
                found = [histories.told(c) async for c in ours.alist(thread("t"))]
                assert found == [histories.told(c) async for c in stock.alist(thread("t"))]
            back = tmp_path / "back.db"
            async with AsyncSqliteSaver.from_conn_string(str(back)) as other:
                with SqliteSaver(tmp_path / "ours.db") as ours:
                    await acopy_store(ours, other)
                again = [histories.told(c) async for c in other.alist(thread("t"))]
                assert again == found
                sql = "SELECT task_path, idx FROM writes ORDER BY 1, 2"
                paths = [await each.conn.execute_fetchall(sql) for each in (stock, other)]
                assert list(paths[0]) == list(paths[1])

    asyncio.run(body())


def test_an_async_saver_without_its_loop_is_refused_by_name(tmp_path: Path) -> None:
    async def body() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "stock.db")) as stock:
            with (
                SqliteSaver(tmp_path / "ours.db") as ours,
                pytest.raises(ConfigurationError, match="acopy_store"),
            ):
                copy_store(stock, ours)

    asyncio.run(body())


# ---- ours --------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "stepwise"])
@pytest.mark.parametrize("target", ["sqlite", "valkey", "memory"])
def test_the_latest_stays_the_latest_whatever_its_id(
    target: str, whole: bool, open_saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, other = open_saver("sqlite", "source"), open_saver(target, "target")
    if not whole:
        monkeypatch.setattr("langgraph_durable.moving.copying.WHOLE", -1)
    ids = sorted(str(uuid6()) for _ in range(3))
    last = thread("t")
    for id in (ids[1], ids[2], ids[0]):  # the clock has stepped back
        last = source.put(last, {**empty_checkpoint(), "id": id}, {}, {})
    assert source.get_tuple(thread("t")).checkpoint["id"] == ids[0]
    if target == "memory":
        with pytest.raises(CopyMismatch, match="greatest id"):
            copy_store(source, other)
    else:
        copy_store(source, other)
        assert other.get_tuple(thread("t")).checkpoint["id"] == ids[0]
        assert contents(other) == contents(source)


@pytest.mark.parametrize("target", ["sqlite", "valkey", "scriptless"])
def test_tags_runs_and_pruned_deltas_move_between_ours(target: str, open_saver: Any) -> None:
    source, other = open_saver("valkey", "source"), open_saver(target, "target")
    histories.run_deltas(source, "deltas", turns=8)
    expected = histories.delta_graph(source).get_state(thread("deltas")).values
    source.prune(strategy=KeepLast(1))
    source.tag(thread("deltas"), "good")
    copy_store(source, other)
    assert histories.delta_graph(other).get_state(thread("deltas")).values == expected
    found = other.get_tuple(thread("deltas"))
    assert found.metadata["checkpoint_tags"] == ["good"]
    with pytest.raises(ConfigurationError, match="was pruned"):
        copy_store(source, InMemorySaver())


def test_a_source_that_has_grown_is_copied_again(few: tuple[Any, Any], copy: Any) -> None:
    source, target = few
    histories.run(source, "t", turns=1)
    copy(source, target)
    graph(source).invoke(Command(resume="go"), thread("t"))
    copy(source, target)
    assert same(target, source)


def test_another_thread_of_the_same_name_is_not_touched(few: tuple[Any, Any], copy: Any) -> None:
    source, target = few
    histories.run(source, "t", turns=0)
    histories.run(target, "t", turns=0)
    before = contents(target)
    with pytest.raises(ConfigurationError, match="the target has a thread 't'"):
        copy(source, target)
    assert contents(target) == before


def test_an_answer_that_only_the_copy_has_is_not_taken_back(
    few: tuple[Any, Any], copy: Any
) -> None:
    source, target = few
    histories.run(source, "t", turns=0)
    copy(source, target)
    asked = target.get_tuple(thread("t"))
    target.put_writes(asked.config, [("__resume__", "go")], asked.pending_writes[0][0])
    before = contents(target)
    with pytest.raises((ConfigurationError, CopyMismatch), match="pending writes"):
        copy(source, target)
    assert contents(target) == before


def test_what_does_not_read_back_is_told_with_its_place(copy: Any, open_saver: Any) -> None:
    source, target = open_saver("sqlite", "source"), open_saver("stock", "target")
    source.put(thread("t"), empty_checkpoint(), {"note": "a\0b"}, {})
    with pytest.raises(CopyMismatch, match=r"thread 't', checkpoint .*metadata\['note'\] differs"):
        copy(source, target)
    assert copy(source, target, verify=False).checkpoints == 1


@pytest.mark.parametrize(("source", "value"), [("sqlite", range(3)), ("memory", print)])
def test_a_value_that_the_target_refuses_is_told_with_its_place(
    source: str, value: Any, copy: Any, open_saver: Any
) -> None:
    target = InMemorySaver() if source == "sqlite" else open_saver("sqlite", "target")
    saver = open_saver("sqlite", "source")
    if source == "memory":
        saver = InMemorySaver(serde=JsonPlusSerializer(pickle_fallback=True))
    made = {**empty_checkpoint(), "channel_values": {"a": value}, "channel_versions": {"a": 1}}
    saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, made, {}, {"a": 1})
    with pytest.raises(TypeError, match=r"range|builtin_function") as raised:
        copy(saver, target)
    assert raised.value.__notes__ == [f"while it was copied: thread 't', checkpoint {made['id']}"]


def test_wrong_arguments_are_told_before_anything_is_written(copy: Any) -> None:
    source, target = InMemorySaver(), InMemorySaver()
    with pytest.raises(ConfigurationError, match="no thread 'nobody'"):
        copy(source, target, ["nobody"])
    with pytest.raises(ConfigurationError, match="target is a checkpoint saver"):
        copy(source, "file.db")
    with pytest.raises(ConfigurationError, match="the same saver"):
        copy(source, source)
    with pytest.raises(ConfigurationError, match="threads is a list"):
        copy(source, target, "t")


def test_progress_is_told_thread_by_thread(copy: Any, open_saver: Any) -> None:
    source, target, steps = InMemorySaver(), open_saver("sqlite", "target"), []
    fill(source)
    copy(source, target, progress=lambda *step: steps.append(step))
    assert [threads for threads, _ in steps] == [1, 2, 3]
    assert steps[-1][1] == len(contents(source))


def test_parents_come_before_children_and_cycles_end() -> None:
    keys = [Key("", "1", "3"), Key("", "2", "1"), Key("", "3", None), Key("n", "1", None)]
    order = [(key.ns, key.id) for key in Plan("t", keys).oldest_first()]
    assert order == [("", "3"), ("", "1"), ("n", "1"), ("", "2")]
    circle = [Key("", "1", "2"), Key("", "2", "1")]
    assert len(list(Plan("t", circle).oldest_first())) == 2


# ---- killed, and large -------------------------------------------------------------------------

COPY = """
import sys, time
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver
from langgraph_durable import copy_store, open_saver
from langgraph_durable.moving import copying
import histories
copying.OFTEN, stand_still_at = 1, int(sys.argv[3])
def progress(threads, checkpoints):
    if checkpoints == stand_still_at:
        print("begin", flush=True)
        time.sleep(600)
with StockSaver.from_conn_string(sys.argv[1]) as source, open_saver(sys.argv[2]) as target:
    if not stand_still_at:
        print("begin", flush=True)
    copy_store(source, target, progress=progress)
"""


@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
def test_a_copy_killed_at_any_instant_is_done_again(
    kind: str, tmp_path: Path, long: bool, open_saver: Any
) -> None:
    source, dice, cut_short = open_saver("stock", "source"), random.Random(9), 0
    for name in ("t", "u"):
        histories.run(source, name, turns=6 if long else 3)
    before = contents(source)
    target = open_saver(kind, "target")
    place = tmp_path / "target"
    url = f"sqlite:///{place}/agent.db"
    if kind == "valkey":
        url = f"{servers.shared('valkey').url}?prefix={servers.prefix_for(place)}"
    command = [sys.executable, "-c", COPY, str(tmp_path / "source" / "stock.db"), url]
    environment = {"PYTHONPATH": import_path(), "PATH": ""}
    # The first ones stand still half way; the others run on to wherever they get in that time.
    for stop_at in [2, 5, *[0] * (60 if long else 2)]:
        order = [*command, str(stop_at)]
        with subprocess.Popen(order, env=environment, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begin\n"
            time.sleep(0 if stop_at else dice.random() * 0.1)
            child.send_signal(signal.SIGKILL)
        found = contents(target)
        cut_short += 0 < len(found) < len(before)
    assert cut_short
    copy_store(source, target)
    assert contents(target) == before


MEASURE = """
import re, sys
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver
from langgraph_durable import SqliteSaver, copy_store

def peak():
    # Not getrusage: that of a child begins with what its parent had at the fork.
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

savers = {"stock": StockSaver, "postgres": PostgresSaver}
source = savers[sys.argv[3]].from_conn_string(sys.argv[1]) if sys.argv[3] in savers else None
target = SqliteSaver(sys.argv[2], durability="normal", cache_bytes=1 << 20)
with (source or SqliteSaver(sys.argv[1], cache_bytes=1 << 20)) as source, target:
    copy_store(source, target, ["small"])
    small = peak()
    copy_store(source, target, ["large"])
    print(small, peak(), flush=True)
"""


@pytest.mark.timeout(1800)  # of the long version
@pytest.mark.parametrize("kind", ["stock", "sqlite", "postgres"])
def test_memory_stays_flat_however_long_a_thread_is(
    kind: str, tmp_path: Path, long: bool, open_saver: Any
) -> None:
    count = 100_000 if long else 3_000
    paths = [str(tmp_path / "source.db"), str(tmp_path / "target.db")]
    with StockSaver.from_conn_string(paths[0]) as stock:
        for name, many in (("small", 1_000), ("large", count)):
            put_many(stock, name, many)
    if kind == "sqlite":
        with SqliteSaver(paths[0], durability="normal") as ours:
            ours.adopt()
    if kind == "postgres":
        paths[0] = in_a_database(paths[0])
    command = [sys.executable, "-c", MEASURE, *paths, kind]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print("MiB after 1,000 and after", count, "checkpoints:", told)
    small, large = map(int, told.split())
    # The ids of a thread are held, about 400 bytes for each, and one checkpoint at a time.
    assert large - small < 24 + 500 * count / 2**20


def put_many(stock: StockSaver, name: str, many: int) -> None:
    """A line of checkpoints with 2 kB of text each, stored quickly."""
    stock.setup()
    rows, parent = [], None
    for n in range(many):
        text = random.Random(n).randbytes(1000).hex()
        checkpoint = {
            **empty_checkpoint(),
            "id": str(uuid6()),
            "channel_values": {"text": text},
            "channel_versions": {"text": n + 1},
        }
        tag, data = stock.serde.dumps_typed(checkpoint)
        rows.append((name, "", checkpoint["id"], parent, tag, data, b'{"step": %d}' % n))
        parent = checkpoint["id"]
    with sqlite3.connect(stock.conn.execute("PRAGMA database_list").fetchone()[2]) as conn:
        conn.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def in_a_database(path: str) -> str:
    """The checkpoints of such a file in Postgres, where text lies inside of the checkpoint."""
    address = postgres.database(f"t{uuid6()}")
    with PostgresSaver.from_conn_string(address) as saver, sqlite3.connect(path) as file:
        saver.setup()
        rows = file.execute(
            "SELECT thread_id, checkpoint_id, parent_checkpoint_id, * FROM checkpoints"
        )
        columns = "thread_id, checkpoint_id, parent_checkpoint_id, checkpoint, metadata"
        with (
            saver._cursor() as cursor,
            cursor.copy(f"COPY checkpoints ({columns}) FROM STDIN") as copy,
        ):
            for *place, _, _, _, _, tag, data, metadata in rows:
                checkpoint = json.dumps(StockSaver(file).serde.loads_typed((tag, data)))
                copy.write_row([*place, checkpoint, metadata.decode()])
    return address


# ---- Postgres ----------------------------------------------------------------------------------


@pytest.fixture
def in_postgres() -> Iterator[PostgresSaver]:
    with PostgresSaver.from_conn_string(postgres.database(f"t{uuid6()}")) as saver:
        saver.setup()
        yield saver


@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
def test_threads_move_from_postgres_and_back(
    kind: str, in_postgres: PostgresSaver, open_saver: Any
) -> None:
    ours = open_saver(kind, "ours")
    fill(in_postgres)
    copy_store(in_postgres, ours)
    assert same(ours, in_postgres)
    assert known(ours) == known(in_postgres)
    assert graph(ours).get_state(thread("t")).next == ("ask",)
    with PostgresSaver.from_conn_string(postgres.database(f"t{uuid6()}")) as other:
        other.setup()
        copy_store(ours, other)
        assert same(ours, other)
        assert known(ours) == known(other)
        assert graph(other).invoke(Command(resume="yes"), thread("t"))["log"][-1] == "told yes"
        deltas = [histories.delta_graph(s).get_state(thread("deltas")) for s in (ours, other)]
        assert deltas[0].values == deltas[1].values


def test_the_async_postgres_saver_is_copied_on_its_loop(
    in_postgres: PostgresSaver, open_saver: Any
) -> None:
    ours = open_saver("sqlite", "ours")
    fill(in_postgres)

    async def body() -> None:
        address = in_postgres.conn.info.dsn  # type: ignore[union-attr]
        async with AsyncPostgresSaver.from_conn_string(address) as saver:
            await acopy_store(saver, ours)

    asyncio.run(body())
    assert same(ours, in_postgres)
    assert known(ours) == known(in_postgres)


def test_values_that_only_look_alike_are_no_copy_of_one_another() -> None:
    from langgraph_durable.moving.sameness import _equal

    nested: Any = 1
    for _ in range(5_000):
        nested = [nested]
    assert not _equal([1], [True])
    assert not _equal({"a": (1, [2])}, {"a": (1, [2.0])})
    assert not _equal([1], [1, 2])
    assert _equal({"b": 1, "a": [(2, float("nan"))]}, {"a": [(2, float("nan"))], "b": 1})
    assert not _equal(nested, [nested])
