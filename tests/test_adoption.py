"""A file of the stock SQLite saver is opened with ours: everything is there, and goes on."""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import histories
import ormsgpack
import pytest
from forks import import_path
from golden import stock as golden
from histories import contents, graph, thread
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver
from langgraph.types import Command

from langgraph_durable import (
    ConfigurationError,
    KeepLast,
    SqliteSaver,
    StorageReadOnly,
    UnsafeTypeError,
)
from langgraph_durable._core import shortening
from langgraph_durable._core.storage import Storage
from langgraph_durable._sqlite.adoption import AdoptingStorage
from langgraph_durable.testing.model import Coloured, finish

THREADS = ("t", "u", "deltas")
Before = dict[Any, Any]


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[StockSaver]:
    """A stock saver that still has its file open."""
    with StockSaver.from_conn_string(str(tmp_path / "old.db")) as saver:
        yield saver


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "old.db"


@pytest.fixture
def before(stock: StockSaver) -> Before:
    """Three threads, and what the stock saver says of them."""
    histories.run(stock, "t")
    histories.run(stock, "u", turns=1)
    histories.run_deltas(stock, "deltas")
    return contents(stock)


@pytest.fixture
def ours(path: Path, before: Before) -> Iterator[SqliteSaver]:
    with SqliteSaver(path, durability="normal") as saver:
        yield saver


@pytest.fixture(params=["sync", "async"])
def coloured(request: pytest.FixtureRequest, ours: SqliteSaver) -> Coloured:
    return Coloured(ours, request.param)


def stock_rows(path: Path, thread_id: str = "%") -> int:
    with sqlite3.connect(path) as conn:
        counts = [
            conn.execute(f"SELECT count(*) FROM {t} WHERE thread_id LIKE ?", (thread_id,))
            for t in ("checkpoints", "writes")
        ]
        return sum(count.fetchone()[0] for count in counts)


def test_all_threads_are_there_with_their_ids_parents_metadata_and_writes(
    coloured: Coloured, before: Before, path: Path
) -> None:
    async def body() -> None:
        found = await coloured.list(None)
        told = [histories.told(each) for each in found]
        assert {tuple(t["config"]["configurable"].values()): t for t in told} == before

    finish(coloured.colour, body())
    assert stock_rows(path) == 0


def test_each_thread_is_adopted_when_it_is_first_used(
    coloured: Coloured, before: Before, path: Path
) -> None:
    async def body() -> None:
        for thread_id in THREADS:
            left = stock_rows(path)
            latest = max(key for key in before if key[:2] == (thread_id, ""))
            assert histories.told(await coloured.get_tuple(thread(thread_id))) == {**before[latest]}
            assert stock_rows(path) < left
            assert stock_rows(path, thread_id) == 0

    finish(coloured.colour, body())


def test_task_paths_and_indices_are_kept(ours: SqliteSaver, path: Path) -> None:
    with sqlite3.connect(path) as conn:
        sql = "SELECT checkpoint_ns, checkpoint_id, task_id, task_path, idx FROM writes"
        old = {tuple(row) for row in conn.execute(f"{sql} WHERE thread_id = 't'")}
    ours.adopt()
    listing = ours._backend.finish(ours._engine.storage.survey("t"))
    assert listing is not None
    assert any(row[3] for row in old)
    new = {
        (row.ns, row.id, row.task_id, row.path, row.idx + k)
        for row in listing.writes
        for k in range(row.width)
    }
    assert new == old


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
def test_a_question_is_answered_where_the_stock_saver_asked_it(
    ours: SqliteSaver, colour: str
) -> None:
    made = graph(ours)
    assert made.get_state(thread("t")).next == ("ask",)
    if colour == "invoke":
        state = made.invoke(Command(resume="yes"), thread("t"))
    else:
        state = asyncio.run(made.ainvoke(Command(resume="yes"), thread("t")))
    assert state["log"][-1] == "told yes"
    state = made.invoke({"messages": [HumanMessage("more")]}, thread("t"))
    assert [m.content for m in state["messages"]][-2:] == ["more", "answer 7"]


def test_time_travel_and_forks_work_as_before(ours: SqliteSaver, before: Before) -> None:
    made = graph(ours)
    past = list(made.get_state_history(thread("t")))
    old = next(each for each in past if each.next == ("talk",))
    fork = made.update_state(old.config, {"log": ["another way"]})
    state = made.invoke(None, fork)
    assert "another way" in state["log"]
    kept = contents(ours, "t")
    assert all(kept[key] == each for key, each in before.items() if key[0] == "t")


def test_delta_channels_go_on_from_their_chain(ours: SqliteSaver, stock: StockSaver) -> None:
    expected = histories.delta_graph(stock).get_state(thread("deltas")).values
    made = histories.delta_graph(ours)
    assert made.get_state(thread("deltas")).values == expected
    made.invoke({"lines": ["once more"]}, thread("deltas"))
    assert (
        made.get_state(thread("deltas")).values["lines"][: len(expected["lines"])]
        == (expected["lines"])
    )


def test_a_deleted_thread_never_comes_back(
    coloured: Coloured, ours: SqliteSaver, before: Before, path: Path
) -> None:
    async def body() -> None:
        gone = await coloured.delete_thread("t")
        assert gone.checkpoints == sum(key[0] == "t" for key in before)
        assert await coloured.get_tuple(thread("t")) is None

    finish(coloured.colour, body())
    assert stock_rows(path, "t") == 0
    with SqliteSaver(path) as again:
        assert again.get_tuple(thread("t")) is None
        assert {key[0] for key in contents(again)} == {"u", "deltas"}


def test_a_thread_is_copied_pruned_and_counted_without_being_read_first(
    coloured: Coloured, before: Before
) -> None:
    async def body() -> None:
        await coloured.copy_thread("t", "copy")
        assert len(await coloured.list(thread("copy"))) == sum(key[0] == "t" for key in before)
        with pytest.raises(ConfigurationError):
            await coloured.copy_thread("t", "u")
        stats = await coloured.stats(["deltas"])
        assert stats.checkpoints == sum(key[0] == "deltas" for key in before)
        await coloured.prune(["u"], strategy="keep_latest")
        assert (
            len(
                [
                    t
                    for t in await coloured.list(thread("u"))
                    if not t.config["configurable"]["checkpoint_ns"]
                ]
            )
            == 1
        )

    finish(coloured.colour, body())


def test_a_long_thread_is_pruned_without_being_read_first(stock: StockSaver, path: Path) -> None:
    config: Any = {"configurable": {"thread_id": "long", "checkpoint_ns": ""}}
    for turn in range(shortening.MOST + 50):
        checkpoint = {**empty_checkpoint(), "channel_values": {"turn": turn}}
        config = stock.put(config, checkpoint, {}, {})
    with SqliteSaver(path, durability="normal") as saver:
        assert saver.prune(["long"], strategy=KeepLast(3)).checkpoints == shortening.MOST + 47
        kept = [t.checkpoint["channel_values"]["turn"] for t in saver.list(thread("long"))]
    assert kept == [shortening.MOST + 49 - n for n in range(3)]


def test_what_is_adopted_is_stored_linearly(tmp_path: Path) -> None:
    sizes = {}
    for turns in (10, 20):
        path = tmp_path / f"{turns}.db"
        with StockSaver.from_conn_string(str(path)) as stock:
            histories.run(stock, "t", turns)
        with SqliteSaver(path) as ours:
            ours.adopt()
            sizes[turns] = ours.stats().bytes
    assert sizes[20] < 2.4 * sizes[10]


def test_a_file_from_before_task_paths_is_adopted(path: Path, stock: StockSaver) -> None:
    histories.run(stock, "t")
    before = contents(stock)
    stock.conn.execute("ALTER TABLE writes DROP COLUMN task_path")
    stock.conn.commit()
    with SqliteSaver(path) as ours:
        found = contents(ours)
        for key, each in found.items():
            assert sorted(map(str, each.pop("writes"))) == sorted(
                map(str, before[key].pop("writes"))
            )
        assert found == before
        assert graph(ours).invoke(Command(resume="yes"), thread("t"))["log"][-1] == "told yes"


OLD = sorted((Path(__file__).parent / "golden").glob("stock-*.db.gz"))


@pytest.mark.parametrize("old", OLD, ids=lambda old: old.name)
def test_files_of_earlier_releases_are_adopted_and_go_on(old: Path, tmp_path: Path) -> None:
    for name in ("ours.db", "stock.db"):
        (tmp_path / name).write_bytes(gzip.decompress(old.read_bytes()))
    with (
        StockSaver.from_conn_string(str(tmp_path / "stock.db")) as stock,
        SqliteSaver(tmp_path / "ours.db") as ours,
    ):
        expected = contents(stock)
        assert contents(ours) == expected
        threads = {key[0] for key in expected}
        assert threads >= {"stopped", "sends"}
        for name in threads:
            ends = [go_on(saver, name) for saver in (stock, ours)]
            assert ends[0] == ends[1]
            assert [m.content for m in ends[1]["messages"]] == ["one", "answer 1"]
            assert ends[1]["log"][-1] == "yes"


def go_on(saver: Any, name: str) -> Any:
    """To the question of a thread, and with its answer to the end."""
    made = golden.graph(saver)
    if name != "asking":
        made.invoke(None, thread(name))
    return made.invoke(Command(resume="yes"), thread(name))


def test_old_files_are_what_they_are_said_to_be() -> None:
    assert len(OLD) == 3
    before = gzip.decompress(OLD[0].read_bytes())
    assert b"task_path" not in before
    assert b"langgraph.constants" in before


def test_writes_whose_checkpoint_was_never_stored_are_kept(path: Path, stock: StockSaver) -> None:
    early: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1ef"}}
    stock.put_writes(early, [("__interrupt__", "?"), ("a", 1), ("b", 2)], "task", "path")
    with SqliteSaver(path) as ours:
        assert ours.adopt().writes == 3
        ours.put(thread("t"), {**empty_checkpoint(), "id": "1ef"}, {}, {})
        found = ours.get_tuple(thread("t"))
        assert found is not None
        assert found.pending_writes == [
            ("task", "__interrupt__", "?"),
            ("task", "a", 1),
            ("task", "b", 2),
        ]


def test_no_verb_about_threads_forgets_those_of_the_stock_saver() -> None:
    verbs = {name for name in vars(Storage) if not name.startswith("_")}
    after_watching = {"trim"}  # a thread that `watch` has moved
    not_about_threads = {"reclaim", "forget_runs", "stores", "enter_store"}
    about_artifacts = {"claims", "claims_of"}  # which the stock saver has none of
    needless = not_about_threads | about_artifacts | after_watching
    assert verbs - needless <= set(vars(AdoptingStorage))


# ---- what cannot be read -----------------------------------------------------------------------


def spoil(stock: StockSaver, thread_id: str, blob: bytes, where: str = "min") -> None:
    """Put other bytes in place of one of a thread's checkpoints."""
    stock.conn.execute(
        "UPDATE checkpoints SET checkpoint = ? WHERE thread_id = ? AND checkpoint_id = "
        f"(SELECT {where}(checkpoint_id) FROM checkpoints WHERE thread_id = ?)",
        (blob, thread_id, thread_id),
    )
    stock.conn.commit()


def test_data_that_asks_to_run_code_is_refused_for_its_thread_only(
    coloured: Coloured, stock: StockSaver, path: Path, before: Before, caplog: Any
) -> None:
    touched = path.parent / "touched"
    call = ormsgpack.Ext(0, ormsgpack.packb(["os", "mkdir", str(touched)]))
    spoil(stock, "t", ormsgpack.packb({"channel_values": {"x": call}}))
    left = stock_rows(path, "t")

    async def body() -> None:
        for _ in range(2):
            with pytest.raises(UnsafeTypeError, match=r"thread 't', checkpoint .*os\.mkdir"):
                await coloured.get_tuple(thread("t"))
        listed = await coloured.list(None)
        assert {t.config["configurable"]["thread_id"] for t in listed} == {"u", "deltas"}

    finish(coloured.colour, body())
    assert "left out" in caplog.text
    assert not touched.exists()
    assert stock_rows(path, "t") == left


def test_a_damaged_checkpoint_stops_its_thread_before_any_of_it_is_moved(
    path: Path, stock: StockSaver
) -> None:
    histories.run(stock, "t", turns=12)
    histories.run(stock, "u")
    assert stock_rows(path, "t") > 200
    spoil(stock, "t", b"\xc1 damaged", where="max")
    left = stock_rows(path, "t")
    with SqliteSaver(path) as ours:
        report = ours.adopt()
        assert list(report.failed) == ["t"]
        assert "thread 't'" in str(report.failed["t"])
        assert report.threads == 1
        assert stock_rows(path, "u") == 0
        assert stock_rows(path, "t") == left
        assert {key[0] for key in contents(ours)} == {"u"}
        ours.delete_thread("t")
        assert stock_rows(path) == 0


def test_a_serialiser_of_the_users_own_reads_what_it_wrote(tmp_path: Path) -> None:
    class Own(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            tag, data = super().dumps_typed(obj)
            return f"own {tag}", bytes(b ^ 0x55 for b in data)

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            tag, body = data
            assert tag.startswith("own ")
            return super().loads_typed((tag[4:], bytes(b ^ 0x55 for b in body)))

    path = tmp_path / "old.db"
    conn = sqlite3.connect(path, check_same_thread=False)
    stock = StockSaver(conn, serde=Own())
    histories.run(stock, "t")
    before = contents(stock)
    conn.close()
    with SqliteSaver(path, serde=Own()) as ours:
        assert contents(ours) == before


# ---- a stock saver that still has the file open ------------------------------------------------


def test_a_stock_saver_that_still_writes_is_told_and_changes_nothing(
    ours: SqliteSaver, stock: StockSaver, before: Before, path: Path
) -> None:
    assert contents(ours) == before
    with pytest.raises(sqlite3.IntegrityError, match="langgraph_durable has taken this file over"):
        graph(stock).invoke({"messages": [HumanMessage("too late")]}, thread("t"))
    somewhere: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "x"}}
    for channel in ("a", "__interrupt__"):
        with pytest.raises(sqlite3.IntegrityError, match="open the file with"):
            stock.put_writes(somewhere, [(channel, 1)], "task")
    assert stock_rows(path) == 0
    assert contents(ours) == before


def test_a_stock_saver_that_has_not_written_yet_is_told_too(path: Path, stock: StockSaver) -> None:
    stock.setup()
    with SqliteSaver(path) as ours:
        histories.run(ours, "t", turns=0)
        with pytest.raises(sqlite3.IntegrityError, match="langgraph_durable has taken this file"):
            histories.run(stock, "t", turns=0)
    assert stock_rows(path) == 0


def test_a_read_only_file_without_old_threads_is_read(path: Path, stock: StockSaver) -> None:
    with SqliteSaver(path) as ours:
        histories.run(ours, "t", turns=0)
        before = contents(ours)
    stock.setup()
    with SqliteSaver(f"file:{path}?mode=ro") as reader:
        assert contents(reader) == before


def test_a_read_only_file_with_old_threads_says_what_to_do(before: Before, path: Path) -> None:
    with (
        SqliteSaver(f"file:{path}?mode=ro") as reader,
        pytest.raises(StorageReadOnly, match=r"open a copy of the file that can be written"),
    ):
        reader.get_tuple(thread("t"))
    assert stock_rows(path) > 0


def test_rows_that_come_after_all_the_same_are_adopted_by_the_next_saver(
    ours: SqliteSaver, stock: StockSaver, before: Before, path: Path
) -> None:
    assert contents(ours) == before
    with sqlite3.connect(path) as conn:  # as if somebody had restored the tables
        named = conn.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in named:
            conn.execute(f"DROP TRIGGER {name}")
    histories.run(stock, "late")
    with SqliteSaver(path) as again:
        assert {key[0] for key in contents(again)} == {*THREADS, "late"}


def test_somebody_elses_table_of_the_same_name_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE checkpoints (thread_id TEXT, note TEXT)")
        conn.execute("INSERT INTO checkpoints VALUES ('t', 'mine')")
    with SqliteSaver(path) as ours:
        histories.run(ours, "t")
        assert ours.adopt().threads == 0
    with sqlite3.connect(path) as conn:
        conn.execute("INSERT INTO checkpoints VALUES ('t', 'more')")
        assert conn.execute("SELECT count(*) FROM checkpoints").fetchone() == (2,)


def test_a_connection_of_the_users_own_is_adopted_from_too(before: Before, path: Path) -> None:
    conn = sqlite3.connect(path, check_same_thread=False)
    assert contents(SqliteSaver(conn)) == before
    conn.close()


# ---- reports and interruptions -----------------------------------------------------------------


def test_adopt_says_what_it_moved_and_how_far_it_is(coloured: Coloured, before: Before) -> None:
    steps: list[tuple[int, int]] = []

    async def body() -> None:
        report = await coloured.adopt(["u"])
        assert (report.threads, report.failed) == (1, {})
        assert report.checkpoints == sum(key[0] == "u" for key in before)
        report = await coloured.adopt(progress=lambda *step: steps.append(step))
        assert report.threads == 2
        assert steps == [(1, 2), (2, 2)]
        assert (await coloured.adopt()).threads == 0

    finish(coloured.colour, body())


def test_a_long_adoption_reports_its_progress(
    ours: SqliteSaver, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_durable._sqlite.adoption.QUIET", -1.0)
    with caplog.at_level(logging.INFO, "langgraph_durable"):
        list(ours.list(None))
    assert "3 threads of langgraph-checkpoint-sqlite will be adopted" in caplog.text
    assert "adopted 2 of 3 threads so far" in caplog.text


def test_a_long_thread_reports_how_much_was_read_and_moved(
    ours: SqliteSaver, before: Before, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_durable._sqlite.adoption.QUIET", -1.0)
    monkeypatch.setattr("langgraph_durable._sqlite.adoption.MANY", 5)
    assert contents(ours, "t") == {key: told for key, told in before.items() if key[0] == "t"}
    for step in ("10 checkpoints read", "10 checkpoints moved"):
        assert f"adopting thread 't': {step} so far" in caplog.text


ADOPT = """
import os, signal, sys
from langgraph_durable import SqliteSaver
import langgraph_durable._sqlite.adoption as adoption
import histories
adoption.MANY, slices_left = 5, int(sys.argv[2])
def say(text, *told):
    global slices_left
    slices_left -= "moved so far" in text
    if slices_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
if slices_left:
    adoption._Patience = lambda: say
print("begin", flush=True)
saver = SqliteSaver(sys.argv[1])
saver.adopt()
print("end", flush=True)
"""


def places(path: Path) -> set[tuple[str, str, str]]:
    """Every checkpoint of the file, in the old tables or in the new ones."""
    found = "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints"
    moved = "SELECT thread_id, ns, id FROM lgd_checkpoints JOIN lgd_threads USING (tid)"
    with sqlite3.connect(path) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        sql = "SELECT 1 FROM sqlite_master WHERE name = 'lgd_checkpoints'"
        both = f"{found} UNION ALL {moved}" if conn.execute(sql).fetchone() else found
        rows = conn.execute(both).fetchall()
    assert len(rows) == len(set(rows))
    return set(rows)


def test_an_adoption_killed_at_any_instant_loses_nothing(tmp_path: Path, long: bool) -> None:
    path, dice = tmp_path / "old.db", random.Random(9)
    with StockSaver.from_conn_string(str(path)) as stock:
        for thread_id in ("t", "u", "v"):
            histories.run(stock, thread_id, turns=8 if long else 4)
        histories.run_deltas(stock, "deltas", turns=10)
        before = contents(stock)
        counts = stock_rows(path)
    cut_short = 0
    environment = {**os.environ, "PYTHONPATH": import_path()}
    # The first ones die after a slice; the others wherever they are at that time.
    for slices in [1, 2, *[0] * (100 if long else 4)]:
        command = [sys.executable, "-c", ADOPT, str(path), str(slices)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begin\n"
            if not slices:
                time.sleep(dice.random() * 0.12)
                child.send_signal(signal.SIGKILL)
            ended = b"end" in child.stdout.read()
        left = stock_rows(path)
        cut_short += 0 < left < counts
        assert places(path) == set(before)
        if ended or not left:
            break
    assert cut_short
    with SqliteSaver(path) as ours:
        assert contents(ours) == before
        assert stock_rows(path) == 0


def test_several_processes_may_adopt_one_file_at_once(before: Before, path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": import_path()}
    command = [sys.executable, "-c", ADOPT, str(path), "0"]
    children = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    with SqliteSaver(path) as ours:
        assert contents(ours) == before
        assert ours.stats().checkpoints == len(before)
