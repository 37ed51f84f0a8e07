"""Removing parts of a long thread while others write to it: `watch`.

Somebody who is to remove parts sets a mark on the thread, and reads it without keeping anybody
from writing. Whoever writes to a marked thread notes the place, so that each short step of
removing can tell what has been written since. Steps change the epoch, so of two who remove, one
begins anew. A mark that a killed process has left costs each write a note, until parts of the
thread are removed again, or until there are so many notes that nobody can be served by them.
"""

from __future__ import annotations

from typing import NamedTuple

from langgraph_durable._core.records import CheckpointDraft, Watched, WritesDraft
from langgraph_durable._core.refs import merged, reach, without
from langgraph_durable._core.seal import name, unname
from langgraph_durable._core.shortening import Step
from langgraph_durable._sqlite import rows
from langgraph_durable._sqlite.notes import Notes, ThreadNote
from langgraph_durable._sqlite.rows import Connection, new_epoch

MOST_TOUCHED = 1_000
"""Writes beside the steps, after which it is better to look again."""
MOST_NOTED = 10_000
"""Notes on a thread: then nobody watches it any more, and whoever still does will look again."""

_LAST = "SELECT coalesce(max(number), 0) FROM lgd_touched WHERE tid = ?"


class Since(NamedTuple):
    """From when on a thread is watched."""

    tid: int
    epoch: int
    mark: int
    touched: int


def watch(conn: Connection, notes: Notes, thread_id: str) -> bool:
    notes.threads.pop(thread_id, None)
    sql = "UPDATE lgd_threads SET watched = iif(watched, watched, ?) WHERE thread_id = ?"
    return conn.execute(sql, (new_epoch(), name(thread_id))).rowcount > 0


def read(conn: Connection, thread_id: str, weigh: bool) -> Watched | None:
    """All rows, once the thread is watched; None if it is not, by now."""
    sql = "SELECT tid, epoch, watched FROM lgd_threads WHERE thread_id = ?"
    found = conn.execute(sql, (name(thread_id),)).fetchone()
    if not found or not found[2]:
        return None
    tid, epoch, mark = found
    touched = conn.execute(_LAST, (tid,)).fetchone()[0]
    listing = rows.listing(conn, thread_id, tid, weigh=weigh)
    return Watched(listing, Since(tid, epoch, mark, touched))


def touch(conn: Connection, note: ThreadNote, draft: CheckpointDraft | WritesDraft) -> None:
    if note.watched:
        last = conn.execute(_LAST, (note.tid,)).fetchone()[0]
        if last >= MOST_NOTED:
            forget(conn, note.tid)
            note.watched = 0
            return
        values = note.tid, last + 1, name(draft.ns), name(draft.id)
        conn.execute("INSERT INTO lgd_touched VALUES (?, ?, ?, ?)", values)


def forget(conn: Connection, tid: int) -> None:
    """Watch a thread no more."""
    sql = "UPDATE lgd_threads SET watched = 0 WHERE tid = ? AND watched"
    if conn.execute(sql, (tid,)).rowcount:
        conn.execute("DELETE FROM lgd_touched WHERE tid = ?", (tid,))


def is_against(conn: Connection, watched: Watched, step: Step) -> bool:
    """Whether the thread is not what the step was made for."""
    thread_id, since = watched.listing.thread_id, watched.since
    sql = "SELECT tid, epoch, watched FROM lgd_threads WHERE thread_id = ?"
    if conn.execute(sql, (name(thread_id),)).fetchone() != since[:3]:
        return True
    touched = _touched(conn, since)
    if len(touched) > MOST_TOUCHED:
        return True
    changes = step.drop.union((row.ns, row.id) for row in step.replace)
    refs: list[bytes] = []
    for ns, id in touched:
        place = since.tid, name(ns), name(id)
        for parent, held in conn.execute(_ROWS, place):
            if parent is not None and (ns, unname(parent)) in step.drop:
                return True
            refs.append(held)
        refs += (held for (held,) in conn.execute(_REFS, place))
    if not changes.isdisjoint(touched) or step.heads.keys() & {ns for ns, _ in touched}:
        return True
    needed = list(merged(reach(refs, rows.spines(conn, thread_id, since.tid))))
    return list(without(needed, step.free)) != needed


_ROWS = "SELECT parent, refs FROM lgd_checkpoints WHERE tid = ? AND ns = ? AND id = ?"
_REFS = "SELECT refs FROM lgd_writes WHERE tid = ? AND ns = ? AND id = ?"


def runs_since(conn: Connection, since: Since) -> set[str]:
    """Those of what was touched."""
    found: set[str] = set()
    for ns, id in _touched(conn, since):
        for table in ("checkpoints", "writes"):
            sql = f"SELECT run FROM lgd_{table} WHERE tid = ? AND ns = ? AND id = ?"
            named = conn.execute(sql, (since.tid, name(ns), name(id))).fetchall()
            found.update(unname(run) for (run,) in named if run is not None)
    return found


def _touched(conn: Connection, since: Since) -> set[tuple[str, str]]:
    sql = "SELECT ns, id FROM lgd_touched WHERE tid = ? AND number > ?"
    return {(unname(ns), unname(id)) for ns, id in conn.execute(sql, (since.tid, since.touched))}
