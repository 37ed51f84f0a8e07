"""Tombstones: which threads were deleted lately, so that late writes of their runs are refused.

A tombstone names the greatest checkpoint id that was deleted or could have been made by then. A
write that goes on from an id up to that one, which is not stored any more, comes from a run that
began before.
"""

from __future__ import annotations

import os
import time

from langgraph_durable._core.retention import id_at
from langgraph_durable._core.seal import name, unname
from langgraph_durable._sqlite import rows
from langgraph_durable._sqlite.notes import ThreadNote
from langgraph_durable._sqlite.rows import Connection
from langgraph_durable.errors import ThreadDeleted

MOST_TOMBS = 10_000
LIFE = 7 * 86_400
"""How many tombstones are kept, and for how many seconds, give or take some."""
SWEEP = 64
"""One delete in so many clears old tombstones away."""


def bury(conn: Connection, thread_id: str) -> None:
    """Note that a thread, which is still there, is deleted."""
    now, key = time.time(), name(thread_id)
    last = conn.execute(
        "SELECT max(id) FROM lgd_checkpoints WHERE tid = ?", (rows.thread_number(conn, thread_id),)
    ).fetchone()[0]
    if last is None:
        return
    conn.execute(
        "REPLACE INTO lgd_tombs VALUES (?, ?, ?)",
        (key, name(max(unname(last), id_at(now))), int(now)),
    )
    if os.urandom(1)[0] < 256 // SWEEP:
        _sweep(conn, int(now))


def _sweep(conn: Connection, now: int) -> None:
    """Drop the tombstones that are old or too many; it looks at all, so not with each delete."""
    conn.execute("DELETE FROM lgd_tombs WHERE time < ?", (now - LIFE,))
    conn.execute(
        "DELETE FROM lgd_tombs WHERE thread_id IN ("
        "SELECT thread_id FROM lgd_tombs ORDER BY time DESC, thread_id LIMIT -1 OFFSET ?)",
        (MOST_TOMBS,),
    )


def check(conn: Connection, note: ThreadNote | None, thread_id: str, root: str | None) -> None:
    """Raise if a write goes on from a checkpoint of the root that was deleted with its thread."""
    if root is None or (note is not None and note.heads.get("") == root):
        return
    sql = "SELECT id FROM lgd_tombs WHERE thread_id = ?"
    tomb = conn.execute(sql, (name(thread_id),)).fetchone()
    if tomb is None or unname(tomb[0]) < root:
        return
    if note is not None:
        sql = "SELECT 1 FROM lgd_checkpoints WHERE tid = ? AND ns = '' AND id = ?"
        if conn.execute(sql, (note.tid, name(root))).fetchone():
            return
    raise ThreadDeleted(thread_id, root)
