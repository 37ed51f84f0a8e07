"""The tables of the stock saver, `langgraph-checkpoint-sqlite`, in the same file.

    checkpoints   a row for each checkpoint, its whole state in one blob
    writes        a row for each pending write; the older form has no column `task_path`

Plain functions of a connection inside a transaction, as everywhere in this room. `adoption` moves
what is here into our own tables. Once a file is taken over, triggers tell a stock saver that still
has it open, in words that its user can act on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from langgraph_durable._core.records import Removed
from langgraph_durable._sqlite.rows import Connection

_PLACE_COLUMNS = {"thread_id", "checkpoint_ns", "checkpoint_id"}
_CHECKPOINTS = {*_PLACE_COLUMNS, "parent_checkpoint_id", "type", "checkpoint", "metadata"}
_WRITES = {*_PLACE_COLUMNS, "task_id", "idx", "channel", "type", "value"}
_ANY = "SELECT 1 FROM sqlite_master WHERE name = 'checkpoints' COLLATE NOCASE"
_PLACE = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"

TOLD = (
    "langgraph_durable has taken this file over from langgraph-checkpoint-sqlite: close the stock "
    "saver and open the file with langgraph_durable.SqliteSaver. Nothing was written."
)


@dataclass(frozen=True, slots=True)
class Tables:
    """What there is of the stock saver in a file."""

    writes: bool
    task_path: bool

    @property
    def names(self) -> tuple[str, ...]:
        return ("checkpoints", "writes") if self.writes else ("checkpoints",)


class Place(NamedTuple):
    """The key of a checkpoint."""

    thread_id: str
    ns: str
    id: str


class StockCheckpoint(NamedTuple):
    parent: str | None
    type: str | None
    checkpoint: bytes | None
    metadata: bytes | str | None


class StockWrite(NamedTuple):
    task_id: str
    task_path: str
    idx: int
    channel: str
    type: str | None
    value: bytes | None


def tables(conn: Connection) -> Tables | None:
    """The stock saver's tables; None where there are none, or others of the same name."""
    # Most files have none. To list columns, SQLite makes a table of a function first: four times
    # as long.
    if conn.execute(_ANY).fetchone() is None:
        return None
    if not _columns(conn, "checkpoints") >= _CHECKPOINTS:
        return None
    writes = _columns(conn, "writes")
    return Tables(writes >= _WRITES, "task_path" in writes)


def _columns(conn: Connection, table: str) -> set[str]:
    return {row[0] for row in conn.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def threads(conn: Connection, found: Tables) -> list[str]:
    """The threads that have rows here; by jumps through the key, which is quick on a big file."""
    named: set[str] = set()
    for table in found.names:
        walk = conn.execute(
            f"WITH RECURSIVE t (id) AS (SELECT min(thread_id) FROM {table} UNION ALL "
            f"SELECT (SELECT min(thread_id) FROM {table} WHERE thread_id > t.id) FROM t "
            "WHERE t.id IS NOT NULL) SELECT id FROM t WHERE id IS NOT NULL"
        )
        named.update(id for (id,) in walk)
    return sorted(named)


def is_taken_over(conn: Connection, found: Tables) -> bool:
    sql = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'lgd_told_%'"
    return bool(conn.execute(sql).fetchone()[0] == 2 * len(found.names))


def take_over(conn: Connection, found: Tables) -> None:
    """From now on a stock saver can read and delete here, and is told when it writes."""
    for table in found.names:
        for event in ("INSERT", "UPDATE"):
            conn.execute(
                f"CREATE TRIGGER IF NOT EXISTS lgd_told_{table}_{event.lower()} "
                f"BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, '{TOLD}'); END"
            )


def places(conn: Connection, thread_id: str, after: Place | None, most: int) -> list[Place]:
    """The next checkpoints of a thread, oldest id first within a namespace."""
    _, ns, id = after or Place(thread_id, "", "")  # no id is empty
    found = conn.execute(
        "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? "
        "AND (checkpoint_ns, checkpoint_id) > (?, ?) ORDER BY 1, 2 LIMIT ?",
        (thread_id, ns, id, most),
    )
    return [Place(thread_id, ns, id) for ns, id in found.fetchall()]


def orphans(conn: Connection, found: Tables, thread_id: str) -> list[Place]:
    """Where there are writes and no checkpoint: a run died before it stored one."""
    if not found.writes:
        return []
    sql = "SELECT DISTINCT checkpoint_ns, checkpoint_id FROM writes WHERE thread_id = ?"
    keys = [Place(thread_id, ns, id) for ns, id in conn.execute(sql, (thread_id,)).fetchall()]
    return [place for place in keys if checkpoint(conn, place) is None]


def checkpoint(conn: Connection, place: Place) -> StockCheckpoint | None:
    sql = f"SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints WHERE {_PLACE}"
    row = conn.execute(sql, place).fetchone()
    return None if row is None else StockCheckpoint(*row)


def writes(conn: Connection, found: Tables, place: Place) -> Iterator[StockWrite]:
    """The pending writes of a checkpoint, task by task."""
    if not found.writes:
        return
    path = "task_path" if found.task_path else "''"
    rows = conn.execute(
        f"SELECT task_id, {path}, idx, channel, type, value FROM writes WHERE {_PLACE} "
        "ORDER BY 2, 1, 3",
        place,
    )
    yield from map(StockWrite._make, rows.fetchall())


def forget(conn: Connection, found: Tables, place: Place) -> None:
    """Remove a checkpoint and its writes from here."""
    for table in found.names:
        conn.execute(f"DELETE FROM {table} WHERE {_PLACE}", place)


def drop(conn: Connection, found: Tables, thread_id: str) -> Removed:
    """Remove all that is here of a thread; what that was."""
    sizes = {"checkpoints": "checkpoint", "writes": "value"}
    counts: dict[str, int] = {}
    size = 0
    for table in found.names:
        gone = conn.execute(
            f"DELETE FROM {table} WHERE thread_id = ? RETURNING length({sizes[table]})",
            (thread_id,),
        ).fetchall()
        counts[table] = len(gone)
        size += sum(length or 0 for (length,) in gone)
    return Removed(counts["checkpoints"], counts.get("writes", 0), 0, size)
