"""The verbs about artifacts: `stores`, `enter_store`, `claims`, `claims_of`.

All claims are read at once: in one transaction nothing moves, and a claim is about 60 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from langgraph_durable._sqlite import rows
from langgraph_durable._sqlite.notes import Notes
from langgraph_durable._sqlite.rows import Connection
from langgraph_durable._sqlite.schema import BITS, MOST_ITEMS


def stores(conn: Connection) -> dict[str, tuple[str, ...]]:
    found = conn.execute("SELECT id, urls FROM lgd_stores")
    return {id: tuple(json.loads(urls)) for id, urls in found}


def enter_store(conn: Connection, notes: Notes, id: str, urls: Sequence[str]) -> None:
    conn.execute("REPLACE INTO lgd_stores VALUES (?, ?)", (id, json.dumps(list(urls))))


def everywhere(conn: Connection) -> list[bytes]:
    return [claim for (claim,) in conn.execute("SELECT DISTINCT claim FROM lgd_claims")]


def of_thread(conn: Connection, thread_id: str) -> list[tuple[int, bytes]]:
    tid = rows.thread_number(conn, thread_id)
    if tid is None:
        return []
    start = tid << BITS
    sql = "SELECT key - ?, claim FROM lgd_claims WHERE key BETWEEN ? AND ?"
    return conn.execute(sql, (start, start, start + MOST_ITEMS)).fetchall()
