"""The verbs that remove: `edit`, `trim`, `drop`, `replace`, `reclaim`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from langgraph_durable._core.dumps import Dump
from langgraph_durable._core.records import Edit, Listing, Removed, Watched
from langgraph_durable._core.refs import Stretches
from langgraph_durable._core.seal import name
from langgraph_durable._core.shortening import Step
from langgraph_durable._sqlite import measuring, rows, tombs, watching, writing
from langgraph_durable._sqlite.notes import Notes
from langgraph_durable._sqlite.rows import Connection, Name, new_epoch
from langgraph_durable._sqlite.schema import BITS, MOST_ITEMS
from langgraph_durable._sqlite.writing import restore

PAGES = 64
"""Pages that a removal gives back at once, so that it stays short."""
RECLAIM = 1024

_PLACE = "tid = ? AND ns = ? AND id = ?"


def drop(conn: Connection, notes: Notes, thread_id: str) -> Removed | None:
    notes.threads.pop(thread_id, None)
    tid = rows.thread_number(conn, thread_id)
    if tid is None:
        return None
    measured = measuring.measure(conn, thread_id)
    assert measured is not None
    tombs.bury(conn, thread_id)
    claims = _keep_items(conn, tid, ())[2]
    runs = conn.execute(
        "SELECT run FROM lgd_checkpoints WHERE tid = :tid "
        "UNION SELECT run FROM lgd_writes WHERE tid = :tid",
        {"tid": tid},
    )
    _forget_runs(conn, tid, [run for (run,) in runs])
    for table in ("checkpoints", "writes", "tallies", "touched", "threads"):
        conn.execute(f"DELETE FROM lgd_{table} WHERE tid = ?", (tid,))
    conn.execute("DELETE FROM lgd_heads WHERE thread_id = ?", (name(thread_id),))
    return Removed(*measured[:4], claims, _give_back(conn))


def replace(conn: Connection, notes: Notes, dump: Dump) -> None:
    """Put a dump in the place of the thread of that name, if there is one."""
    drop(conn, notes, dump.thread_id)
    restore(conn, notes, dump)


def edit(
    conn: Connection,
    notes: Notes,
    thread_id: str,
    decide: Callable[[Listing], Edit | None],
    weigh: bool,
) -> Removed | None:
    tid = rows.thread_number(conn, thread_id)
    if tid is None:
        return None
    before = rows.listing(conn, thread_id, tid, weigh=weigh)
    plan = decide(before)
    if plan is None:
        return Removed()
    notes.threads.pop(thread_id, None)
    stays = {(row.ns, row.id) for row in before.rows} - plan.drop
    taken_back = {(w.ns, w.id, w.task_id, w.idx) for w in plan.drop_writes}
    writes = [
        w
        for w in before.writes
        if (w.ns, w.id) in plan.drop or (w.ns, w.id, w.task_id, w.idx) in taken_back
    ]
    if not stays and not plan.add and len(writes) == len(before.writes):
        return drop(conn, notes, thread_id)
    _remove_rows(conn, tid, plan)
    _move_heads(conn, thread_id, tid, plan)
    items, size, claims = _keep_items(conn, tid, plan.keep)
    _add_rows(conn, tid, plan)
    _begin_epoch(conn, tid, plan)
    watching.forget(conn, tid)
    freed = _give_back(conn)
    gone = [row for row in before.rows if (row.ns, row.id) in plan.drop]
    left = Counter(row.run for row in (*before.rows, *plan.add))
    left.update(write.run for write in (*before.writes, *plan.add_writes))
    left.subtract(row.run for row in gone)
    left.subtract(write.run for write in writes)
    _forget_runs(conn, tid, (rows.optional(run) for run, count in left.items() if not count))
    size += sum(len(row.refs) + len(row.body) for row in gone)
    size += sum(len(write.refs) + len(write.body) for write in writes)
    return Removed(len(gone), len(writes), items, size, claims, freed)


def _begin_epoch(conn: Connection, tid: int, plan: Edit) -> int:
    old, new = rows.epoch(conn, tid), new_epoch()
    conn.execute("UPDATE lgd_threads SET epoch = ? WHERE tid = ?", (new, tid))
    plan.epochs = old, new
    return new


def trim(
    conn: Connection, notes: Notes, watched: Watched, step: Step, last: bool
) -> tuple[Removed, Watched] | None:
    if watching.is_against(conn, watched, step):
        return None
    thread_id, since = watched.listing.thread_id, watched.since
    tid = since.tid
    notes.threads.pop(thread_id, None)
    removed = Removed()
    if step.drop:
        _remove_rows(conn, tid, step)
        _move_heads(conn, thread_id, tid, step)
        items, size, claims = _free_items(conn, tid, step.free)
        runs = set(step.runs) - watching.runs_since(conn, since)
        _forget_runs(conn, tid, map(name, runs))
        since = since._replace(epoch=_begin_epoch(conn, tid, step))
        gone = step.records
        removed = gone._replace(items=items, bytes=gone.bytes + size, artifacts=claims)
        removed = removed._replace(reclaimed=_give_back(conn))
    if last:
        watching.forget(conn, tid)
    return removed, Watched(watched.listing, since)


def _forget_runs(conn: Connection, tid: int, runs: Iterable[Name | None]) -> None:
    """Drop the notes that these runs wrote to the thread. They are found by run only."""
    gone = [(run, tid) for run in runs if run is not None]
    conn.executemany("DELETE FROM lgd_runs WHERE run = ? AND tid = ?", gone)


def reclaim(conn: Connection, notes: Notes) -> int:
    """Give some free pages back to the file system; how many bytes."""
    return _give_back(conn, RECLAIM)


def _give_back(conn: Connection, pages: int = PAGES) -> int:
    free = conn.execute("PRAGMA freelist_count").fetchone()[0]
    if not free:
        return 0
    for _ in range(min(free, pages)):
        # One by one: before Python 3.12 a call ends after the first, whatever number it is given.
        conn.execute("PRAGMA incremental_vacuum(1)").fetchall()
    size, left = (conn.execute(f"PRAGMA {p}").fetchone() for p in ("page_size", "freelist_count"))
    return int(size[0] * (free - left[0]))


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


def _add_rows(conn: Connection, tid: int, plan: Edit) -> None:
    start = tid << BITS
    items = ((start + n, blob) for n, blob in plan.add_items.items())
    conn.executemany("INSERT INTO lgd_items VALUES (?, ?)", items)
    claims = ((start + n, claim) for n, claim in plan.add_claims)
    conn.executemany("INSERT INTO lgd_claims VALUES (?, ?)", claims)
    for row in plan.add:
        conn.execute(f"INSERT {writing.PUT}", rows.checkpoint_values(tid, row))
    for write in plan.add_writes:
        conn.execute(f"INSERT {writing.PUT_WRITE}", rows.write_values(tid, write))
        place = tid, name(write.ns), name(write.id)
        conn.execute(writing.ADD_TO_TALLY, (*place, 1))


def _move_heads(conn: Connection, thread_id: str, tid: int, plan: Edit) -> None:
    key = name(thread_id)
    for ns, head in plan.heads.items():
        conn.execute("DELETE FROM lgd_heads WHERE thread_id = ? AND ns = ?", (key, name(ns)))
        if head is not None:
            values = key, name(ns), tid, name(head)
            conn.execute("INSERT INTO lgd_heads VALUES (?, ?, ?, ?)", values)


def _keep_items(conn: Connection, tid: int, keep: Collection[int]) -> tuple[int, int, int]:
    """Remove the gaps between the items that stay; how many items, bytes and claims that were."""
    following, gaps = 0, list[tuple[int, int]]()
    for n in [*sorted(keep), MOST_ITEMS + 1]:
        if n > following:
            gaps.append((following, n - 1))
        following = n + 1
    return _free_items(conn, tid, gaps)


def _free_items(conn: Connection, tid: int, gone: Stretches) -> tuple[int, int, int]:
    start = tid << BITS
    items = size = claims = 0
    any_claim = conn.execute(
        "SELECT 1 FROM lgd_claims WHERE key BETWEEN ? AND ? LIMIT 1", (start, start + MOST_ITEMS)
    ).fetchone()
    for first, last in gone:
        found = conn.execute(
            "DELETE FROM lgd_items WHERE key BETWEEN ? AND ? RETURNING length(body)",
            (start + first, start + last),
        ).fetchall()
        items += len(found)
        size += sum(length for (length,) in found)
        if any_claim:
            sql = "DELETE FROM lgd_claims WHERE key BETWEEN ? AND ?"
            claims += conn.execute(sql, (start + first, start + last)).rowcount
    return items, size, claims
