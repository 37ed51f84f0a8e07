"""The verbs that look over whole threads: `survey`, `threads`, `measure`, `dump`."""

from __future__ import annotations

from langgraph_durable._core.dumps import Dump, taken
from langgraph_durable._core.records import Listing, Measured
from langgraph_durable._core.seal import name, unname
from langgraph_durable._sqlite import claims, rows
from langgraph_durable._sqlite.rows import Connection
from langgraph_durable._sqlite.schema import BITS, MOST_ITEMS

_ITEMS = "FROM lgd_items WHERE key BETWEEN ? AND ?"


def survey(conn: Connection, thread_id: str, weigh: bool) -> Listing | None:
    tid = rows.thread_number(conn, thread_id)
    return None if tid is None else rows.listing(conn, thread_id, tid, weigh=weigh)


def threads(conn: Connection, after: str | None, size: int) -> list[str]:
    sql = "SELECT thread_id FROM lgd_threads WHERE thread_id > ? ORDER BY 1 LIMIT ?"
    return [unname(key) for (key,) in conn.execute(sql, (name(after or ""), size))]


def count(conn: Connection, thread_id: str, most: int) -> int:
    tid = rows.thread_number(conn, thread_id)
    sql = "SELECT count(*) FROM (SELECT 1 FROM lgd_checkpoints WHERE tid = ? LIMIT ?)"
    return int(conn.execute(sql, (tid, most)).fetchone()[0])


def measure(conn: Connection, thread_id: str) -> Measured | None:
    """By aggregates; SQLite knows the length of a value without reading it."""
    tid = rows.thread_number(conn, thread_id)
    if tid is None:
        return None
    counted = "SELECT count(*), coalesce(sum(length(refs) + length(body)), 0)"
    checkpoints, size, oldest, newest = conn.execute(
        f"{counted}, min(id), max(id) FROM lgd_checkpoints WHERE tid = ?", (tid,)
    ).fetchone()
    writes, more = conn.execute(f"{counted} FROM lgd_writes WHERE tid = ?", (tid,)).fetchone()
    start = tid << BITS
    items, most = conn.execute(
        f"SELECT count(*), coalesce(sum(length(body)), 0) {_ITEMS}", (start, start + MOST_ITEMS)
    ).fetchone()
    ends = [None if end is None else unname(end) for end in (oldest, newest)]
    return Measured(checkpoints, writes, items, size + more + most, *ends)


def dump(conn: Connection, thread_id: str) -> Dump | None:
    tid = rows.thread_number(conn, thread_id)
    if tid is None:
        return None
    start = tid << BITS
    items = conn.execute(f"SELECT key - ?, body {_ITEMS}", (start, start, start + MOST_ITEMS))
    return taken(rows.listing(conn, thread_id, tid), dict(items), claims.of_thread(conn, thread_id))
