"""The saver as an object: how it is made, opened, shown, logged and bounded.

What it stores and gives back is the contract's business (`test_contract.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from langgraph_durable import ConfigurationError, SqliteSaver, StorageError, open_saver
from langgraph_durable.testing.model import at, checkpoint, numbered


def put(saver: Any, thread: str, n: int, items: list[Any]) -> None:
    """Checkpoint `n` of a thread whose list `items` has come this far."""
    version = f"{n:032}.0"
    parent = numbered(n - 1) if n > 1 else None
    made = checkpoint(numbered(n), {"items": items}, {"items": version})
    saver.put(at(thread, parent), made, {"step": n}, {"items": version})


def items(saver: Any, thread: str, n: int | None = None) -> Any:
    found = saver.get_tuple(at(thread, None if n is None else numbered(n)))
    return found.checkpoint["channel_values"]["items"]


async def aput(saver: Any, thread: str, n: int, items: list[Any]) -> None:
    version = f"{n:032}.0"
    parent = numbered(n - 1) if n > 1 else None
    made = checkpoint(numbered(n), {"items": items}, {"items": version})
    await saver.aput(at(thread, parent), made, {"step": n}, {"items": version})


async def aitems(saver: Any, thread: str) -> Any:
    return (await saver.aget_tuple(at(thread))).checkpoint["channel_values"]["items"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


# ---- how it is shown ---------------------------------------------------------------------------


def test_a_saver_shows_where_it_stores_and_how_durably(path: Path) -> None:
    assert repr(SqliteSaver(path)) == f"SqliteSaver({str(path)!r}, durability='full')"
    assert repr(SqliteSaver(":memory:", durability="normal")) == (
        "SqliteSaver(':memory:', durability='normal')"
    )


def test_a_saver_on_a_given_connection_shows_the_connection(path: Path) -> None:
    conn = sqlite3.connect(path, check_same_thread=False)
    assert "sqlite3.Connection" in repr(SqliteSaver(conn))
    conn.close()


# ---- wrong arguments ---------------------------------------------------------------------------

WRONG: dict[str, Callable[[], Any]] = {
    "conn: a number": lambda: SqliteSaver(3),  # type: ignore[arg-type]
    "conn: none": lambda: SqliteSaver(None),  # type: ignore[arg-type]
    "conn: empty": lambda: SqliteSaver(""),
    "conn: a NUL in the path": lambda: SqliteSaver("a\0b"),
    "durability: unknown": lambda: SqliteSaver("x", durability="off"),  # type: ignore[arg-type]
    "durability: none": lambda: SqliteSaver("x", durability=None),  # type: ignore[arg-type]
    "durability: a list": lambda: SqliteSaver("x", durability=["full"]),  # type: ignore[arg-type]
    "busy_timeout: negative": lambda: SqliteSaver("x", busy_timeout=-1),
    "busy_timeout: not a number": lambda: SqliteSaver("x", busy_timeout=float("nan")),
    "busy_timeout: endless": lambda: SqliteSaver("x", busy_timeout=float("inf")),
    "busy_timeout: text": lambda: SqliteSaver("x", busy_timeout="5"),  # type: ignore[arg-type]
    "busy_timeout: a bool": lambda: SqliteSaver("x", busy_timeout=True),
    "types: unknown word": lambda: SqliteSaver("x", types="unsafe"),
    "types: a number inside": lambda: SqliteSaver("x", types=[3]),  # type: ignore[list-item]
    "types: not a dotted name": lambda: SqliteSaver("x", types=["os; import os"]),
    "types: none": lambda: SqliteSaver("x", types=None),  # type: ignore[arg-type]
    "metadata_keys: one string": lambda: SqliteSaver("x", metadata_keys="user_id"),
    "metadata_keys: numbers": lambda: SqliteSaver("x", metadata_keys=[1]),  # type: ignore[list-item]
    "metadata_keys: a number": lambda: SqliteSaver("x", metadata_keys=1),  # type: ignore[arg-type]
    "metadata_keys: used up by looking": lambda: SqliteSaver("x", metadata_keys=iter(["a"])),  # type: ignore[arg-type]
    "serde: a number": lambda: SqliteSaver("x", serde=3),  # type: ignore[arg-type]
    "on_conflict: unknown": lambda: SqliteSaver("x", on_conflict="retry"),  # type: ignore[arg-type]
    "cache_bytes: negative": lambda: SqliteSaver("x", cache_bytes=-1),
    "cache_bytes: a float": lambda: SqliteSaver("x", cache_bytes=1.5),  # type: ignore[arg-type]
    "cache_bytes: a bool": lambda: SqliteSaver("x", cache_bytes=True),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_refused_at_construction(
    make: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as refusal:
        make()
    assert isinstance(refusal.value, ValueError)
    assert os.listdir(tmp_path) == []


# ---- where the file is -------------------------------------------------------------------------


def test_the_file_is_made_by_the_first_use(path: Path) -> None:
    saver = SqliteSaver(path)
    assert not path.exists()
    assert saver.get_tuple(at("t")) is None
    assert path.exists()
    saver.close()


@pytest.mark.parametrize("make", [str, Path, lambda p: f"file:{p}"], ids=["str", "Path", "URI"])
def test_a_path_may_be_given_as(make: Callable[[str], Any], path: Path) -> None:
    with SqliteSaver(make(str(path))) as saver:
        put(saver, "t", 1, ["a"])
    assert path.exists()
    with SqliteSaver(path) as saver:
        assert items(saver, "t") == ["a"]


@pytest.mark.parametrize("name", ["agent.db", "file:agent.db", Path("agent.db")], ids=str)
def test_a_relative_path_is_meant_from_where_the_saver_was_made(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    with SqliteSaver(name) as saver:
        monkeypatch.chdir(there)
        put(saver, "t", 1, ["a"])
        assert items(saver, "t") == ["a"]
    assert (here / "agent.db").exists()
    assert os.listdir(there) == []


def test_a_store_in_memory_belongs_to_its_saver() -> None:
    with SqliteSaver(":memory:") as one, SqliteSaver(":memory:") as other:
        put(one, "t", 1, ["a"])
        assert items(one, "t") == ["a"]
        assert other.get_tuple(at("t")) is None


def test_a_memory_store_serves_event_loops_too() -> None:
    with SqliteSaver(":memory:") as saver:
        asyncio.run(aput(saver, "t", 1, ["a"]))
        assert asyncio.run(aitems(saver, "t")) == items(saver, "t") == ["a"]


# ---- opening, closing, setup -------------------------------------------------------------------


def test_from_conn_string_takes_the_place_of_the_stock_class(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        put(saver, "t", 1, ["a"])
        assert items(saver, "t") == ["a"]


async def test_from_conn_string_takes_the_place_of_the_stock_async_class(path: Path) -> None:
    async with SqliteSaver.from_conn_string(str(path)) as saver:
        await aput(saver, "t", 1, ["a"])
        assert await aitems(saver, "t") == ["a"]


def test_from_conn_string_takes_options(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path), durability="normal") as saver:
        assert "normal" in repr(saver)
    with pytest.raises(ConfigurationError):
        SqliteSaver.from_conn_string(str(path), durability="none")


async def test_setup_may_be_called_or_awaited_and_makes_the_file(path: Path) -> None:
    saver = SqliteSaver(path)
    saver.setup()
    assert path.exists()
    await saver.setup()
    saver.setup()
    saver.close()


def test_a_closed_saver_says_so_and_may_be_closed_again(path: Path) -> None:
    saver = SqliteSaver(path)
    saver.close()
    saver.close()
    with pytest.raises(StorageError, match="closed"):
        saver.get_tuple(at("t"))


async def test_closing_in_either_colour_closes_for_both(path: Path) -> None:
    saver = SqliteSaver(path)
    await aput(saver, "t", 1, ["a"])
    await saver.aclose()
    await saver.aclose()
    with pytest.raises(StorageError, match="closed"):
        saver.get_tuple(at("t"))
    with pytest.raises(StorageError, match="closed"):
        await saver.aget_tuple(at("t"))


# ---- by URL ------------------------------------------------------------------------------------


def test_a_url_names_a_relative_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_saver("sqlite:///data.db") as saver:
        put(saver, "t", 1, ["a"])
    assert (tmp_path / "data.db").exists()


def test_a_url_names_an_absolute_file(path: Path) -> None:
    with open_saver(f"sqlite:///{path}") as saver:
        put(saver, "t", 1, ["a"])
    assert path.exists()


@pytest.mark.parametrize(
    ("spelt", "name"),
    [("my%20agent.db", "my agent.db"), ("100%25.db", "100%.db"), ("a%3Fb%23c.db", "a?b#c.db")],
)
def test_a_url_is_percent_decoded(spelt: str, name: str, tmp_path: Path) -> None:
    with open_saver(f"sqlite:///{tmp_path}/{spelt}") as saver:
        put(saver, "t", 1, ["a"])
    assert (tmp_path / name).exists()


def test_a_url_names_memory() -> None:
    assert repr(open_saver("sqlite:///:memory:")) == "SqliteSaver(':memory:', durability='full')"


def test_a_url_carries_options_and_python_values_win() -> None:
    url = (
        "sqlite:///:memory:?durability=normal&busy_timeout=2.5&types=my_pkg.models,other"
        "&metadata_keys=user_id,tenant&on_conflict=allow&cache_bytes=1000&warn_bytes=1MB"
        "&on_environment_change=error"
    )
    saver = open_saver(url)
    assert "normal" in repr(saver)
    assert saver._metadata_keys == frozenset({"user_id", "tenant"})
    assert saver._on_conflict == "allow"
    assert saver._engine.memory.limit == 1000
    assert "full" in repr(open_saver(url, durability="full"))


@dataclass
class Note:
    text: str


def test_a_url_can_have_classes_read_as_plain_data(path: Path) -> None:
    with SqliteSaver(path) as saver:
        put(saver, "t", 1, [Note("hi")])
    with open_saver(f"sqlite:///{path}?types=plain") as saver:
        assert items(saver, "t") == [{"text": "hi"}]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "agent.db",
        "postgres://x/y",
        "sqlite:agent.db",
        "sqlite:/agent.db",
        "sqlite://agent.db",
        "sqlite://host/agent.db",
        "sqlite:///",
        "sqlite:///a.db#fragment",
        "sqlite:///a.db?colour=red",
        "sqlite:///a.db?durability=off",
        "sqlite:///a.db?busy_timeout=long",
        "sqlite:///a.db?cache_bytes=1.5",
        "sqlite:///a.db?durability=full&durability=normal",
        "sqlite:///a%00b.db",
        None,
        3,
    ],
)
def test_a_wrong_url_is_refused(url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError):
        open_saver(url)
    assert os.listdir(tmp_path) == []


# ---- a connection of the user's ----------------------------------------------------------------


@pytest.fixture
def conn(path: Path) -> Iterator[sqlite3.Connection]:
    conn = sqlite3.connect(path, check_same_thread=False)
    yield conn
    conn.close()


async def test_a_given_connection_serves_both_colours(conn: sqlite3.Connection) -> None:
    saver = SqliteSaver(conn)
    put(saver, "t", 1, ["a"])
    await aput(saver, "t", 2, ["a", "b"])
    assert items(saver, "t") == await aitems(saver, "t") == ["a", "b"]


def test_a_given_connection_is_the_users_to_close(conn: sqlite3.Connection) -> None:
    with SqliteSaver(conn) as saver:
        put(saver, "t", 1, ["a"])
    assert conn.execute("SELECT count(*) FROM lgd_checkpoints").fetchone() == (1,)


def test_a_connection_bound_to_one_thread_is_refused(path: Path) -> None:
    bound = sqlite3.connect(path)
    with pytest.raises(ConfigurationError, match="check_same_thread=False"):
        SqliteSaver(bound)
    bound.close()


def test_a_closed_connection_is_refused(path: Path) -> None:
    conn = sqlite3.connect(path, check_same_thread=False)
    conn.close()
    with pytest.raises(ConfigurationError, match="closed"):
        SqliteSaver(conn)


FACTORIES: dict[str, tuple[Any, Any]] = {
    "rows": (sqlite3.Row, str),
    "dicts": (lambda cursor, row: dict(enumerate(row)), str),
    "bytes": (None, bytes),
    "bytearrays": (sqlite3.Row, bytearray),
    "another encoding": (None, lambda raw: raw.decode("latin-1")),
}


@pytest.mark.parametrize(("rows", "texts"), FACTORIES.values(), ids=FACTORIES)
def test_the_users_factories_stay_and_change_nothing(
    conn: sqlite3.Connection, rows: Any, texts: Any
) -> None:
    conn.row_factory, conn.text_factory = rows, texts
    saver = SqliteSaver(conn)
    put(saver, "thrëad", 1, ["ä"])
    saver.put_writes(at("thrëad", numbered(1)), [("ö", "ü" * 100)], "täsk")
    assert items(saver, "thrëad") == ["ä"]
    [found] = saver.list(None)
    assert found.config["configurable"]["thread_id"] == "thrëad"
    assert found.pending_writes == [("täsk", "ö", "ü" * 100)]
    assert (conn.row_factory, conn.text_factory) == (rows, texts)


def test_a_connection_that_always_is_in_a_transaction_is_refused(path: Path) -> None:
    class Always(sqlite3.Connection):  # as Python makes them since 3.12 if it is asked to
        autocommit = False

    conn = sqlite3.connect(path, check_same_thread=False, factory=Always)
    with pytest.raises(ConfigurationError, match="autocommit=False"):
        SqliteSaver(conn)
    conn.close()


def test_the_users_tables_stay(conn: sqlite3.Connection) -> None:
    conn.execute("CREATE TABLE mine (x)")
    conn.execute("INSERT INTO mine VALUES (1)")
    conn.commit()
    put(SqliteSaver(conn), "t", 1, ["a"])
    assert conn.execute("SELECT x FROM mine").fetchall() == [(1,)]


def test_the_users_open_transaction_is_neither_joined_nor_ended(conn: sqlite3.Connection) -> None:
    saver = SqliteSaver(conn)
    put(saver, "t", 1, ["a"])
    conn.execute("CREATE TABLE mine (x)")
    conn.commit()
    conn.execute("INSERT INTO mine VALUES (1)")
    assert conn.in_transaction
    for call in (lambda: put(saver, "t", 2, ["a", "b"]), lambda: items(saver, "t")):
        with pytest.raises(StorageError, match="transaction of yours"):
            call()
    assert conn.in_transaction
    conn.rollback()
    assert conn.execute("SELECT x FROM mine").fetchall() == []
    put(saver, "t", 2, ["a", "b"])
    assert items(saver, "t") == ["a", "b"]


# ---- an aiosqlite connection -------------------------------------------------------------------


@pytest.fixture
async def aconn(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(path) as conn:
        yield conn


def test_aiosqlite_still_has_what_we_use_of_it(path: Path) -> None:
    """aiosqlite has no public way to run a function on its thread; see `AioConnection`."""
    conn = aiosqlite.connect(path)
    assert callable(conn._execute)
    assert conn._connection is None
    assert conn._thread.ident is None


async def test_an_aiosqlite_connection_serves_both_colours(aconn: aiosqlite.Connection) -> None:
    saver = SqliteSaver(aconn)
    await aput(saver, "t", 1, ["a"])
    assert await aitems(saver, "t") == ["a"]
    put(saver, "t", 2, ["a", "b"])  # a sync call on a running loop: it blocks, it works
    await asyncio.to_thread(put, saver, "t", 3, ["a", "b", "c"])
    assert items(saver, "t") == await aitems(saver, "t") == ["a", "b", "c"]


async def test_an_aiosqlite_connection_need_not_be_awaited_before(path: Path) -> None:
    conn = aiosqlite.connect(path)
    saver = SqliteSaver(conn)
    await aput(saver, "t", 1, ["a"])
    assert await aitems(saver, "t") == ["a"]
    await conn.close()


def test_an_aiosqlite_connection_may_be_used_without_any_loop(path: Path) -> None:
    conn = aiosqlite.connect(path)
    saver = SqliteSaver(conn)
    put(saver, "t", 1, ["a"])
    assert items(saver, "t") == ["a"]
    asyncio.run(conn.close())


async def test_many_calls_share_an_aiosqlite_connection(aconn: aiosqlite.Connection) -> None:
    saver = SqliteSaver(aconn)
    await asyncio.gather(*(aput(saver, f"t{k}", 1, [k]) for k in range(50)))
    found = await asyncio.gather(*(aitems(saver, f"t{k}") for k in range(50)))
    assert found == [[k] for k in range(50)]


async def test_an_aiosqlite_connection_is_the_users_to_close(aconn: aiosqlite.Connection) -> None:
    async with SqliteSaver(aconn) as saver:
        await aput(saver, "t", 1, ["a"])
    async with aconn.execute("SELECT count(*) FROM lgd_checkpoints") as cursor:
        assert await cursor.fetchone() == (1,)


async def test_a_closed_aiosqlite_connection_says_so(path: Path) -> None:
    async with aiosqlite.connect(path) as conn:
        saver = SqliteSaver(conn)
        await aput(saver, "t", 1, ["a"])
    with pytest.raises(StorageError, match="closed"):
        await aitems(saver, "t")
    with pytest.raises(StorageError, match="closed"):
        items(saver, "t")


async def test_the_factories_of_an_aiosqlite_connection_stay(
    aconn: aiosqlite.Connection,
) -> None:
    aconn.row_factory, aconn.text_factory = sqlite3.Row, bytes
    saver = SqliteSaver(aconn)
    await aput(saver, "t", 1, ["a"])
    assert await aitems(saver, "t") == ["a"]
    assert (aconn.row_factory, aconn.text_factory) == (sqlite3.Row, bytes)


# ---- logging -----------------------------------------------------------------------------------

NUMBERS = re.compile(r" bytes=(\d+) ms=(\d+\.\d+)$")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, without the two numbers, which must be above zero."""
    found = []
    for record in caplog.records:
        assert record.name == "langgraph_durable"
        text = record.getMessage()
        end = NUMBERS.search(text)
        assert end, text
        assert int(end[1]) > 0
        assert float(end[2]) > 0
        found.append(text[: end.start()])
    return found


def test_every_save_and_restore_is_logged_at_debug(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SqliteSaver(path) as saver, caplog.at_level(logging.DEBUG, "langgraph_durable"):
        put(saver, "t", 1, ["a"])
        saver.put_writes(at("t", numbered(1)), [("items", "b")], "task")
        items(saver, "t")
    place = f"thread=t ns= checkpoint={numbered(1)}"
    assert lines(caplog) == [
        f"saved {place} step=1",
        f"saved writes of {place} step=None",
        f"restored {place} step=1",
    ]


async def test_every_async_save_and_restore_is_logged_at_debug(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with SqliteSaver(path) as saver:
        with caplog.at_level(logging.DEBUG, "langgraph_durable"):
            await aput(saver, "t", 1, ["a"])
            await aitems(saver, "t")
    place = f"thread=t ns= checkpoint={numbered(1)}"
    assert lines(caplog) == [f"saved {place} step=1", f"restored {place} step=1"]


def test_nothing_is_logged_above_debug(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with SqliteSaver(path) as saver, caplog.at_level(logging.INFO, "langgraph_durable"):
        put(saver, "t", 1, ["a"])
        items(saver, "t")
    assert not caplog.records


def test_the_logged_bytes_are_those_of_what_is_new(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = [os.urandom(500).hex() for _ in range(50)]
    with SqliteSaver(path) as saver, caplog.at_level(logging.DEBUG, "langgraph_durable"):
        for n in range(1, 51):
            put(saver, "t", n, said[:n])
    sizes = [int(NUMBERS.search(record.getMessage())[1]) for record in caplog.records]  # type: ignore[index]
    assert max(sizes) < 2000


# ---- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache_bytes", [0, 1, 5_000, 64 << 20])
def test_any_cache_size_gives_the_same_answers(cache_bytes: int, path: Path) -> None:
    with SqliteSaver(path, cache_bytes=cache_bytes, durability="normal") as saver:
        said = [f"{k} " * 40 for k in range(40)]
        for n in range(1, 41):
            for thread in ("a", "b", "c"):
                put(saver, thread, n, said[:n])
            assert saver._engine.memory.size <= cache_bytes
        for thread in ("a", "b", "c"):
            assert items(saver, thread) == said
            assert items(saver, thread, 7) == said[:7]
        assert saver._engine.memory.size <= cache_bytes


@pytest.mark.parametrize("cache_bytes", [0, 5_000])
def test_a_small_cache_still_stores_each_item_once(cache_bytes: int, path: Path) -> None:
    said = [os.urandom(500).hex() for _ in range(40)]
    with SqliteSaver(path, cache_bytes=cache_bytes, durability="normal") as saver:
        for n in range(1, 41):
            for thread in ("a", "b"):
                put(saver, thread, n, said[:n])
    with sqlite3.connect(path) as conn:
        # and once for each thread which program stored it
        assert conn.execute("SELECT count(*) FROM lgd_items").fetchone() == (82,)
    conn.close()


def test_the_cache_lets_go_of_threads_that_are_not_used(path: Path) -> None:
    with SqliteSaver(path, cache_bytes=20_000, durability="normal") as saver:
        for k in range(200):
            put(saver, f"t{k}", 1, [f"{k} " * 40, "and another message, somewhat longer"])
            assert saver._engine.memory.size <= 20_000
        assert items(saver, "t0")[0].startswith("0 0 ")
