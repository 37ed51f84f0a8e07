"""Questions to the stores of savers that are known, which LangGraph's interface cannot ask.

It gives no ids without values, and of a pending write neither its path nor its index. What a
subclass has made its own is not gone around: then nothing is known, and `None` is the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langgraph_durable.moving.colours import LATER, Colour, Saver
from langgraph_durable.moving.official_redis import OFFICIAL_REDIS
from langgraph_durable.moving.sources import Place, Rows, Source, Writing


async def threads_in(colour: Colour, saver: Saver) -> list[str] | None:
    """The threads of a saver, in order."""
    source = _source(saver)
    rows = None if source is None else await source.threads(colour, saver)
    return None if rows is None else sorted({str(thread_id) for (thread_id,) in rows})


async def keys_in(colour: Colour, saver: Saver, thread_id: str) -> Rows | None:
    """Namespace, id and parent of the checkpoints of a thread."""
    source = _source(saver)
    return None if source is None else await source.keys(colour, saver, thread_id)


async def writes_in(colour: Colour, saver: Saver, place: Place) -> list[Writing] | None:
    """The pending writes of a checkpoint, in the order in which LangGraph wants them."""
    source = _source(saver)
    found = None if source is None else await source.writes(colour, saver, place)
    return None if found is None else sorted(found, key=lambda each: each[:3])


def _source(saver: Saver) -> Source | None:
    cls = type(saver)
    for base in cls.__mro__:
        source = _SOURCES.get((base.__module__, base.__name__))
        if source is not None:
            verbs = ("list", "alist", "get_tuple", "aget_tuple")
            its_own = all(getattr(cls, verb) is getattr(base, verb) for verb in verbs)
            return source if its_own else None
    return None


# ---- in memory -----------------------------------------------------------------------------------


async def _threads_in_memory(colour: Colour, saver: Any) -> Rows:
    return [
        (thread_id,) for thread_id, spaces in list(saver.storage.items()) if any(spaces.values())
    ]


async def _keys_in_memory(colour: Colour, saver: Any, thread_id: str) -> Rows:
    spaces = saver.storage.get(thread_id, {})
    return [(ns, id, row[2]) for ns, rows in spaces.items() for id, row in rows.items()]


async def _writes_in_memory(colour: Colour, saver: Any, place: Place) -> list[Writing]:
    stored = saver.writes.get(place, {})
    return [Writing(path, task_id, idx) for (_, idx), (task_id, _, _, path) in stored.items()]


# ---- SQL -----------------------------------------------------------------------------------------

_THREADS = "SELECT DISTINCT thread_id FROM checkpoints"
_KEYS = (
    "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
    "WHERE thread_id = {}"
)
_WRITES = (
    "SELECT task_path, task_id, idx FROM {writes} "
    "WHERE thread_id = {} AND checkpoint_ns = {} AND checkpoint_id = {}"
)
Ask = Callable[[Colour, Any, str, Sequence[str]], Awaitable[Rows | None]]


def _by_sql(ask: Ask, table: str) -> Source:
    async def threads(colour: Colour, saver: Any) -> Rows | None:
        return await ask(colour, saver, _THREADS, ())

    async def keys(colour: Colour, saver: Any, thread_id: str) -> Rows | None:
        return await ask(colour, saver, _KEYS, (thread_id,))

    async def writes(colour: Colour, saver: Any, place: Place) -> list[Writing] | None:
        if not getattr(saver, "_has_task_path", True):
            return None
        rows = await ask(colour, saver, _WRITES.replace("{writes}", table), place)
        return None if rows is None else [Writing(*row) for row in rows]

    return Source(threads, keys, writes)


async def _sqlite(colour: Colour, saver: Any, sql: str, values: Sequence[str]) -> Rows:
    def ask() -> Rows:
        with saver.cursor(transaction=False) as cursor:
            return list(cursor.execute(sql.replace("{}", "?"), values))

    return await colour.aside(ask)


async def _async_sqlite(colour: Colour, saver: Any, sql: str, values: Sequence[str]) -> Rows | None:
    if colour is not LATER:
        return None
    await saver.setup()
    async with saver.lock:
        return list(await saver.conn.execute_fetchall(sql.replace("{}", "?"), values))


async def _postgres(colour: Colour, saver: Any, sql: str, values: Sequence[str]) -> Rows:
    def ask() -> Rows:
        with saver._cursor() as cursor:
            return [tuple(row.values()) for row in cursor.execute(sql.replace("{}", "%s"), values)]

    return await colour.aside(ask)


async def _async_postgres(
    colour: Colour, saver: Any, sql: str, values: Sequence[str]
) -> Rows | None:
    if colour is not LATER:
        return None
    async with saver._cursor() as cursor:
        await cursor.execute(sql.replace("{}", "%s"), values)
        return [tuple(row.values()) for row in await cursor.fetchall()]


_SOURCES = {
    ("langgraph.checkpoint.memory", "InMemorySaver"): Source(
        _threads_in_memory, _keys_in_memory, _writes_in_memory
    ),
    ("langgraph.checkpoint.sqlite", "SqliteSaver"): _by_sql(_sqlite, "writes"),
    ("langgraph.checkpoint.sqlite.aio", "AsyncSqliteSaver"): _by_sql(_async_sqlite, "writes"),
    ("langgraph.checkpoint.postgres", "PostgresSaver"): _by_sql(_postgres, "checkpoint_writes"),
    ("langgraph.checkpoint.postgres.aio", "AsyncPostgresSaver"): _by_sql(
        _async_postgres, "checkpoint_writes"
    ),
    ("langgraph.checkpoint.redis", "RedisSaver"): OFFICIAL_REDIS,
    ("langgraph.checkpoint.redis.aio", "AsyncRedisSaver"): OFFICIAL_REDIS,
}
"""By name, so that nobody needs the packages of savers that they do not use."""
