"""The verbs that remove: `edit`, `drop`."""

from __future__ import annotations

from collections.abc import Callable, Collection

from langgraph_durable._core.records import Edit, Listing
from langgraph_durable._core.seal import name
from langgraph_durable._sqlite import rows
from langgraph_durable._sqlite.notes import Notes
from langgraph_durable._sqlite.rows import Connection
from langgraph_durable._sqlite.schema import BITS, MOST_ITEMS
from langgraph_durable._sqlite.writing import new_epoch

_PLACE = "tid = ? AND ns = ? AND id = ?"


def drop(conn: Connection, notes: Notes, thread_id: str) -> bool:
    notes.threads.pop(thread_id, None)
    tid = rows.thread_number(conn, thread_id)
    if tid is None:
        return False
    _keep_items(conn, tid, ())
    for table in ("checkpoints", "writes", "tallies", "runs", "threads"):
        conn.execute(f"DELETE FROM lgd_{table} WHERE tid = ?", (tid,))
    conn.execute("DELETE FROM lgd_heads WHERE thread_id = ?", (name(thread_id),))
    return True


def edit(conn: Connection, notes: Notes, thread_id: str, decide: Callable[[Listing], Edit]) -> bool:
    notes.threads.pop(thread_id, None)
    tid = rows.thread_number(conn, thread_id)
    if tid is None:
        return False
    before = rows.listing(conn, thread_id, tid)
    plan = decide(before)
    stays = {(row.ns, row.id) for row in before.rows} - plan.drop
    taken_back = {(w.ns, w.id, w.task_id, w.idx) for w in plan.drop_writes}
    writes_stay = any(
        (w.ns, w.id) not in plan.drop and (w.ns, w.id, w.task_id, w.idx) not in taken_back
        for w in before.writes
    )
    if not stays and not writes_stay:
        return drop(conn, notes, thread_id)
    _remove_rows(conn, tid, plan)
    _move_heads(conn, thread_id, tid, plan)
    _keep_items(conn, tid, plan.keep)
    conn.execute(
        "DELETE FROM lgd_runs WHERE tid = ?1 AND run NOT IN ("
        "SELECT run FROM lgd_checkpoints WHERE tid = ?1 AND run IS NOT NULL "
        "UNION SELECT run FROM lgd_writes WHERE tid = ?1 AND run IS NOT NULL)",
        (tid,),
    )
    conn.execute("UPDATE lgd_threads SET epoch = ? WHERE tid = ?", (new_epoch(), tid))
    return True


def _remove_rows(conn: Connection, tid: int, plan: Edit) -> None:
    dropped = [(tid, name(ns), name(id)) for ns, id in plan.drop]
    for table in ("checkpoints", "writes", "tallies"):
        conn.executemany(f"DELETE FROM lgd_{table} WHERE {_PLACE}", dropped)
    for write in plan.drop_writes:
        place = tid, name(write.ns), name(write.id)
        conn.execute(
            f"DELETE FROM lgd_writes WHERE {_PLACE} AND task_id = ? AND idx = ?",
            (*place, name(write.task_id), write.idx),
        )
        conn.execute(f"UPDATE lgd_tallies SET count = count - 1 WHERE {_PLACE}", place)
    for row in plan.replace:
        conn.execute(
            f"UPDATE lgd_checkpoints SET parent = ?, refs = ?, body = ? WHERE {_PLACE}",
            (rows.optional(row.parent), row.refs, row.body, tid, name(row.ns), name(row.id)),
        )


def _move_heads(conn: Connection, thread_id: str, tid: int, plan: Edit) -> None:
    key = name(thread_id)
    for ns, head in plan.heads.items():
        conn.execute("DELETE FROM lgd_heads WHERE thread_id = ? AND ns = ?", (key, name(ns)))
        if head is not None:
            values = key, name(ns), tid, name(head)
            conn.execute("INSERT INTO lgd_heads VALUES (?, ?, ?, ?)", values)


def _keep_items(conn: Connection, tid: int, keep: Collection[int]) -> None:
    """Remove the gaps between the items that stay."""
    start = tid << BITS
    following = 0
    for n in [*sorted(keep), MOST_ITEMS + 1]:
        if n > following:
            conn.execute(
                "DELETE FROM lgd_items WHERE key BETWEEN ? AND ?",
                (start + following, start + n - 1),
            )
        following = n + 1
