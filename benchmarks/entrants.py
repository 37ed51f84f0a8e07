"""Who takes part: how each saver is opened, closed and weighed.

`ours sqlite` and `ours redis`; `stock sqlite`, `stock postgres` and `official redis`, each in its
own class per colour; `memory` (InMemorySaver) and `reference` (see there). A level is `full` (an
acknowledged write survives a power cut) or `normal` (it survives the death of the process), and
means the same for everybody:

            SQLite              Redis                  Postgres
    full    synchronous=FULL    appendfsync always     synchronous_commit=on
    normal  synchronous=NORMAL  appendfsync everysec   synchronous_commit=off
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hosts import Hosts, NotAvailable
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from measure import Pace, folder_in
from reference import ReferenceSaver

from langgraph_durable import RedisSaver, SqliteSaver

Level = Literal["full", "normal"]
Saver = BaseCheckpointSaver[Any]
FILE = "agent.db"
OURS = ("ours sqlite", "ours redis")
STOCK = ("stock sqlite", "stock postgres", "official redis")
PEERS = (*OURS, *STOCK)
SERVER = {
    "ours redis": "redis",
    "bare redis": "redis",
    "official redis": "stack",
    "stock postgres": "postgres",
}


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one entrant stores things: plain data, so that it can be told to another process."""

    name: str
    folder: str
    level: Level
    url: str = ""

    @property
    def prefix(self) -> str:
        """What belongs to this spot on a server that others use too."""
        return "b" + "".join(c for c in "".join(Path(self.folder).parts[-2:]) if c.isalnum())


@dataclass(slots=True)
class Plan:
    """What a section gets: how thorough to be, where to put things, and who is there."""

    pace: Pace
    directory: Path
    hosts: Hosts
    missing: dict[str, str]
    chosen: tuple[str, ...] = ()

    def pick(self, tiny: Any, quick: Any, full: Any) -> Any:
        """A size for each pace."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.pace.name]

    def entrants(self, *names: str) -> tuple[str, ...]:
        """Those of the named who can take part; why the others cannot is noted."""
        return tuple(name for name in names if self._is_there(name))

    def _is_there(self, name: str) -> bool:
        if self.chosen and name in PEERS and name not in self.chosen:
            return False
        if name in self.missing:
            return False
        try:
            self._check(name)
        except (ImportError, NotAvailable) as error:
            self.missing[name] = str(error)
            return False
        return True

    def _check(self, name: str) -> None:
        if name == "stock sqlite":
            import langgraph.checkpoint.sqlite  # noqa: F401
        if name in SERVER:
            self.hosts.url(SERVER[name])

    def spot(self, name: str, level: Level, label: str = "") -> Spot:
        """A new, empty place for an entrant."""
        folder = folder_in(self.directory, f"{name} {label} {level}")
        url = self.hosts.url(SERVER[name]) if name in SERVER else ""
        if name == "stock postgres":
            url = _new_database(url, Spot(name, str(folder), level).prefix)
        return Spot(name, str(folder), level, url)

    def weigh(self, spot: Spot) -> int:
        """The bytes an entrant occupies: on disk, or in the memory of a Redis server."""
        if spot.name in ("ours redis", "official redis"):
            return _redis_bytes(spot)
        if spot.name == "stock postgres":
            return _postgres_bytes(spot.url)
        return _file_bytes(Path(spot.folder))


# ---- opening -------------------------------------------------------------------------------------


@contextmanager
def open_saver(spot: Spot) -> Iterator[Saver]:
    """Open a saver for synchronous calls."""
    with OPEN[spot.name](spot) as saver:
        yield saver


@contextmanager
def open_async_saver(spot: Spot, runner: asyncio.Runner) -> Iterator[Saver]:
    """Open a saver for asynchronous calls on the runner's loop."""
    if spot.name not in OPEN_ASYNC:
        with open_saver(spot) as saver:
            yield saver
        return
    context = OPEN_ASYNC[spot.name](spot)
    saver = runner.run(_enter(context))
    try:
        yield saver
    finally:
        runner.run(_leave(context))


async def _enter(context: Any) -> Any:
    return await context.__aenter__()


async def _leave(context: Any) -> None:
    await context.__aexit__(None, None, None)


@contextmanager
def _memory(spot: Spot) -> Iterator[Saver]:
    yield InMemorySaver()


@contextmanager
def _reference(spot: Spot) -> Iterator[Saver]:
    yield ReferenceSaver()


def make_ours(spot: Spot) -> Any:
    """Our saver; the caller closes it in the colour it used it in."""
    if spot.name == "ours redis":
        return RedisSaver(spot.url, prefix=spot.prefix)
    return SqliteSaver(str(Path(spot.folder) / FILE), durability=spot.level)


@contextmanager
def _ours(spot: Spot) -> Iterator[Saver]:
    with make_ours(spot) as saver:
        saver.setup()
        yield saver


@contextmanager
def _stock_sqlite(spot: Spot) -> Iterator[Saver]:
    from langgraph.checkpoint.sqlite import SqliteSaver as Stock

    path = Path(spot.folder) / FILE
    with closing(sqlite3.connect(path, check_same_thread=False, timeout=60)) as connection:
        saver = Stock(connection)
        saver.setup()
        connection.execute(f"PRAGMA synchronous={spot.level}")
        yield saver


@contextmanager
def _official_redis(spot: Spot) -> Iterator[Saver]:
    from langgraph.checkpoint.redis import RedisSaver as Official

    with Official.from_conn_string(spot.url, **_prefixes(spot)) as saver:
        saver.setup()
        yield saver


@contextmanager
def _stock_postgres(spot: Spot) -> Iterator[Saver]:
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg_pool import ConnectionPool

    with ConnectionPool(spot.url, **_pool(spot)) as pool:
        saver = PostgresSaver(pool)
        saver.setup()
        yield saver


def _prefixes(spot: Spot) -> dict[str, str]:
    return {
        "checkpoint_prefix": f"{spot.prefix}c",
        "checkpoint_write_prefix": f"{spot.prefix}w",
    }


def _pool(spot: Spot) -> dict[str, Any]:
    """A pool as the documentation of the saver advises, with the level for each connection."""
    from psycopg.rows import dict_row

    commit = "on" if spot.level == "full" else "off"
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    options["options"] = f"-c synchronous_commit={commit}"
    return {"kwargs": options, "min_size": 1, "max_size": 20, "open": False}


class _AsyncOurs:
    def __init__(self, spot: Spot) -> None:
        self.saver = make_ours(spot)

    async def __aenter__(self) -> Saver:
        return self.saver

    async def __aexit__(self, *error: object) -> None:
        await self.saver.aclose()


class _AsyncSqlite:
    def __init__(self, spot: Spot) -> None:
        self.spot = spot

    async def __aenter__(self) -> Saver:
        import aiosqlite
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        self.saver = AsyncSqliteSaver(
            await aiosqlite.connect(Path(self.spot.folder) / FILE, timeout=60)
        )
        await self.saver.setup()
        await self.saver.conn.execute(f"PRAGMA synchronous={self.spot.level}")
        return self.saver

    async def __aexit__(self, *error: object) -> None:
        await self.saver.conn.close()


def _async_redis(spot: Spot) -> Any:
    from langgraph.checkpoint.redis.aio import AsyncRedisSaver

    return AsyncRedisSaver(spot.url, **_prefixes(spot))


class _AsyncPostgres:
    def __init__(self, spot: Spot) -> None:
        self.spot = spot

    async def __aenter__(self) -> Saver:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg_pool import AsyncConnectionPool

        self.pool = AsyncConnectionPool(self.spot.url, **_pool(self.spot))
        await self.pool.open()
        saver = AsyncPostgresSaver(self.pool)
        await saver.setup()
        return saver

    async def __aexit__(self, *error: object) -> None:
        await self.pool.close()


OPEN: dict[str, Any] = {
    "ours sqlite": _ours,
    "ours redis": _ours,
    "stock sqlite": _stock_sqlite,
    "stock postgres": _stock_postgres,
    "official redis": _official_redis,
    "memory": _memory,
    "reference": _reference,
}
OPEN_ASYNC: dict[str, Any] = {
    "ours sqlite": _AsyncOurs,
    "ours redis": _AsyncOurs,
    "stock sqlite": _AsyncSqlite,
    "stock postgres": _AsyncPostgres,
    "official redis": _async_redis,
}


# ---- weighing ------------------------------------------------------------------------------------


def _new_database(url: str, name: str) -> str:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name.lower()}"')
    return url.rpartition("/")[0] + f"/{name.lower()}"


def _postgres_bytes(url: str) -> int:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(relid)) FROM pg_catalog.pg_statio_user_tables"
        ).fetchone()
    return int(row[0]) if row and row[0] else 0


def _redis_bytes(spot: Spot) -> int:
    """The memory of the spot's keys, without that of the official saver's search indexes."""
    import redis

    with redis.Redis.from_url(spot.url) as client:
        keys = list(client.scan_iter(match=f"*{spot.prefix}*", count=1_000))
        total = 0
        for start in range(0, len(keys), 500):
            with client.pipeline(transaction=False) as pipe:
                for key in keys[start : start + 500]:
                    pipe.memory_usage(key, samples=0)
                total += sum(size or 0 for size in pipe.execute())
    return total


def _file_bytes(folder: Path) -> int:
    """Every file of the folder, the log folded in first; SQLite's shared index holds no data."""
    with closing(sqlite3.connect(folder / FILE, timeout=60)) as connection:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise RuntimeError(f"{folder}: the log could not be folded in; a reader is still open")
    return sum(
        file.stat().st_size
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith("-shm")
    )
