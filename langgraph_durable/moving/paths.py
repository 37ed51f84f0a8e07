"""What savers keep of a pending write and do not give out: its task path and its index.

LangGraph's interface returns pending writes in order, without the path that orders them. Where a
saver is known, what it has stored is looked up; where it is not, writes are given paths that keep
them in the order in which they came, if their task ids alone would not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from langgraph_durable.moving.colours import LATER, Colour, Saver

Write = tuple[str, str, Any]
"""Task id, channel and value, as LangGraph has it."""


class Place(NamedTuple):
    thread_id: str
    ns: str
    id: str


class Known(NamedTuple):
    """What is stored with a pending write; these sort as pending writes do."""

    path: str
    task_id: str
    idx: int
    run: str | None = None


@dataclass(frozen=True, slots=True)
class TaskWrites:
    """The writes of one task to one checkpoint."""

    task_id: str
    path: str
    run: str | None
    indices: tuple[int, ...] | None
    """None where only their order is known."""
    pairs: tuple[tuple[str, Any], ...]

    def arranged(self) -> list[tuple[str, Any]]:
        """The pairs so that, as far as possible, the position of each is its index.

        Special writes have negative indices; where they came in one call with others, they have
        left gaps among the positions.
        """
        if self.indices is None:
            return list(self.pairs)
        placed = sorted(zip(self.indices, self.pairs, strict=True), key=lambda each: each[0])
        special = [pair for idx, pair in placed if idx < 0]
        out: list[tuple[str, Any]] = []
        for idx, pair in placed:
            if idx >= 0:
                while len(out) < idx and special:
                    out.append(special.pop(0))
                out.append(pair)
        return [*out, *special]


def by_task(writes: Iterable[Write], known: Sequence[Known] | None) -> tuple[TaskWrites, ...]:
    """Pending writes, task by task; `known` tells more of each, in the same order."""
    listed = list(writes)
    if known is None or [k.task_id for k in known] != [task_id for task_id, _, _ in listed]:
        return _in_order(listed)
    found: dict[tuple[str, str, str | None], list[tuple[int, tuple[str, Any]]]] = {}
    for more, (_, channel, value) in zip(known, listed, strict=True):
        own = found.setdefault((more.task_id, more.path, more.run), [])
        own.append((more.idx, (channel, value)))
    return tuple(
        TaskWrites(*task, tuple(idx for idx, _ in own), tuple(pair for _, pair in own))
        for task, own in found.items()
    )


def _in_order(writes: Sequence[Write]) -> tuple[TaskWrites, ...]:
    found: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in writes:
        found.setdefault(task_id, []).append((channel, value))
    is_sorted = list(found) == sorted(found)
    return tuple(
        TaskWrites(task_id, "" if is_sorted else f"{n:08}", None, None, tuple(pairs))
        for n, (task_id, pairs) in enumerate(found.items())
    )


_SQLITE = (
    "SELECT task_path, task_id, idx FROM writes "
    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)
_POSTGRES = (
    "SELECT task_path, task_id, idx FROM checkpoint_writes "
    "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"
)


async def known_of(colour: Colour, saver: Saver, place: Place) -> list[Known] | None:
    """What a saver keeps of the pending writes of a checkpoint; None if it is not known how."""
    for cls in type(saver).__mro__:
        look_up = _LOOK_UPS.get((cls.__module__, cls.__name__))
        if look_up is not None:
            rows = await look_up(colour, saver, place)
            return None if rows is None else sorted(Known(*row) for row in rows)
    return None


async def _memory(colour: Colour, saver: Any, place: Place) -> list[Any] | None:
    stored = saver.writes.get((place.thread_id, place.ns, place.id), {})
    return [(path, task_id, idx) for (_, idx), (task_id, _, _, path) in stored.items()]


async def _sqlite(colour: Colour, saver: Any, place: Place) -> list[Any] | None:
    def ask() -> list[Any]:
        with saver.cursor(transaction=False) as cursor:
            return list(cursor.execute(_SQLITE, place))

    return await colour.aside(ask) if saver._has_task_path else None


async def _async_sqlite(colour: Colour, saver: Any, place: Place) -> list[Any] | None:
    if colour is not LATER or not getattr(saver, "_has_task_path", True):
        return None
    async with saver.lock:
        return list(await saver.conn.execute_fetchall(_SQLITE, place))


async def _postgres(colour: Colour, saver: Any, place: Place) -> list[Any] | None:
    def ask() -> list[Any]:
        with saver._cursor() as cursor:
            return [tuple(row.values()) for row in cursor.execute(_POSTGRES, place)]

    return await colour.aside(ask)


async def _async_postgres(colour: Colour, saver: Any, place: Place) -> list[Any] | None:
    if colour is not LATER:
        return None
    async with saver._cursor() as cursor:
        await cursor.execute(_POSTGRES, place)
        return [tuple(row.values()) for row in await cursor.fetchall()]


_LOOK_UPS = {
    ("langgraph.checkpoint.memory", "InMemorySaver"): _memory,
    ("langgraph.checkpoint.sqlite", "SqliteSaver"): _sqlite,
    ("langgraph.checkpoint.sqlite.aio", "AsyncSqliteSaver"): _async_sqlite,
    ("langgraph.checkpoint.postgres", "PostgresSaver"): _postgres,
    ("langgraph.checkpoint.postgres.aio", "AsyncPostgresSaver"): _async_postgres,
}
"""By name, so that nobody needs the packages of savers that they do not use."""
