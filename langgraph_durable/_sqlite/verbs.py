"""The verbs of the storage port as plain functions of a connection inside a transaction.

`database` begins and ends the transaction; nothing here commits. Reads see one moment; writes
hold the write lock. Statements are constants, every value is bound.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from langgraph_durable._core import seal
from langgraph_durable._core.lineage import Chain, Link, Search
from langgraph_durable._core.records import (
    CheckpointDraft,
    CheckpointRow,
    Cursor,
    Draft,
    Edit,
    Items,
    Listing,
    Loaded,
    Page,
    Ref,
    Selection,
    Stored,
    WriteRow,
    WritesDraft,
    spans,
    unpack_refs,
)
from langgraph_durable._core.seal import name, unname
from langgraph_durable._core.storage import Stale
from langgraph_durable._sqlite.schema import BITS, ITEMS_PER_LOG
from langgraph_durable.errors import ConcurrentUpdate, ConfigurationError, CorruptionError

Connection = sqlite3.Connection
Accept = Callable[[str, CheckpointRow], bool]

_CHECKPOINT = "id, ns, parent, run, refs, body"
_WRITE = "id, ns, task_id, idx, count, path, run, refs, body"


def _checkpoint(row: Sequence[Any]) -> CheckpointRow:
    id, ns, parent, run, refs, body = row
    return CheckpointRow(
        unname(ns),
        unname(id),
        None if parent is None else unname(parent),
        None if run is None else unname(run),
        refs,
        body,
    )


def _write(row: Sequence[Any]) -> WriteRow:
    id, ns, task_id, idx, count, path, run, refs, body = row
    return WriteRow(
        unname(ns),
        unname(id),
        unname(task_id),
        idx,
        count,
        unname(path),
        None if run is None else unname(run),
        refs,
        body,
    )


def _named(text: str | None) -> str | bytes | None:
    return None if text is None else name(text)


# ---- reading ---------------------------------------------------------------------------------


def load(conn: Connection, thread_id: str, ns: str, id: str | None) -> Loaded | None:
    found = _find(conn, thread_id, ns, id)
    if found is None:
        return None
    tid, epoch, row = found
    writes = _writes_of(conn, tid, row)
    refs = [*_refs(thread_id, row), *(ref for w in writes for ref in _refs(thread_id, w))]
    return Loaded(thread_id, epoch, row, writes, _items(conn, tid, refs))


def _find(
    conn: Connection, thread_id: str, ns: str, id: str | None
) -> tuple[int, int, CheckpointRow] | None:
    """Thread number, epoch and row of a checkpoint, or of the head."""
    key = name(thread_id), name(ns)
    thread = conn.execute(
        "SELECT t.tid, t.epoch, h.tid, h.id FROM (SELECT ?1 AS k) LEFT JOIN lgd_threads t "
        "ON t.thread_id = k LEFT JOIN lgd_heads h ON h.thread_id = k AND h.ns = ?2",
        key,
    ).fetchone()
    tid, epoch, head_tid, head = thread
    if tid is None and head_tid is None:
        return None
    where = f"thread {thread_id!r}" + (f", namespace {ns!r}" if ns else "")
    if tid is None or (head_tid is not None and head_tid != tid):
        raise CorruptionError(f"{where}: its entry in the table of threads is missing or damaged")
    if head is None and _any_checkpoint(conn, tid, key[1]):
        raise CorruptionError(f"{where}: there are checkpoints, but no head names the latest one")
    wanted = name(id) if id is not None else head
    if wanted is None:
        return None
    row = conn.execute(
        f"SELECT {_CHECKPOINT} FROM lgd_checkpoints WHERE tid = ? AND id = ? AND ns = ?",
        (tid, wanted, key[1]),
    ).fetchone()
    if row is None:
        if wanted == head:
            raise CorruptionError(f"{where}: checkpoint {unname(head)}, the latest, is missing")
        return None
    return tid, epoch, _checkpoint(row)


def _any_checkpoint(conn: Connection, tid: int, ns: str | bytes) -> bool:
    sql = "SELECT 1 FROM lgd_checkpoints WHERE tid = ? AND ns = ? LIMIT 1"
    return conn.execute(sql, (tid, ns)).fetchone() is not None


def _writes_of(conn: Connection, tid: int, row: CheckpointRow) -> tuple[WriteRow, ...]:
    found = conn.execute(
        f"SELECT {_WRITE} FROM lgd_writes WHERE tid = ? AND id = ? AND ns = ?",
        (tid, name(row.id), name(row.ns)),
    )
    return tuple(map(_write, found))


def _refs(thread_id: str, row: CheckpointRow | WriteRow) -> Iterable[Ref]:
    try:
        return unpack_refs(row.refs)
    except seal.Damaged as error:
        raise seal.damaged(f"thread {thread_id!r}, checkpoint {row.id}", error) from error


def _items(conn: Connection, tid: int, refs: Iterable[Ref]) -> Items:
    """The items that `refs` name; one that is not there is simply left out."""
    wanted = {(ref.log, span) for ref in refs for span in spans(ref.runs)}
    if not wanted:
        return {}
    logs = _logs(conn, tid)
    items: Items = {}
    for log, (first, last) in wanted:
        if log in logs:
            start = logs[log] << BITS
            rows = conn.execute(
                "SELECT key - ?, body FROM lgd_items WHERE key BETWEEN ? AND ?",
                (start, start + first, start + last),
            )
            items.setdefault(log, {}).update(rows.fetchall())
    return items


def _logs(conn: Connection, tid: int) -> dict[str, int]:
    rows = conn.execute("SELECT log, lid FROM lgd_logs WHERE tid = ?", (tid,))
    return {unname(log): lid for log, lid in rows}


def page(
    conn: Connection, selection: Selection, after: Cursor | None, size: int, accept: Accept
) -> Page:
    """A page of checkpoints. Reads rows until enough are accepted, then their items."""
    conditions, values, order = _conditions(conn, selection, after)
    if conditions is None:
        return Page((), None)
    cursor = conn.execute(
        f"SELECT c.tid, t.thread_id, t.epoch, c.id, c.ns, c.parent, c.run, c.refs, c.body "
        f"FROM lgd_checkpoints c JOIN lgd_threads t ON t.tid = c.tid WHERE {conditions} "
        f"ORDER BY {order} LIMIT ?",
        (*values, -1 if selection.thread_id is not None else max(4 * size, 512)),
    )
    found: list[tuple[int, int, str, CheckpointRow]] = []
    last: Cursor | None = None
    seen = 0
    more = False
    for tid, thread_key, epoch, *rest in cursor:
        if len(found) == size:
            more = True
            break
        seen += 1
        thread_id, row = unname(thread_key), _checkpoint(rest)
        last = Cursor(row.id, thread_id, row.ns)
        if accept(thread_id, row):
            found.append((tid, epoch, thread_id, row))
    cursor.close()
    more = more or (selection.thread_id is None and seen == max(4 * size, 512))
    loaded = [_with_items(conn, *one) for one in found]
    return Page(tuple(loaded), last if more else None)


def _with_items(
    conn: Connection, tid: int, epoch: int, thread_id: str, row: CheckpointRow
) -> Loaded:
    writes = _writes_of(conn, tid, row)
    refs = [*_refs(thread_id, row), *(ref for w in writes for ref in _refs(thread_id, w))]
    return Loaded(thread_id, epoch, row, writes, _items(conn, tid, refs))


def _conditions(
    conn: Connection, selection: Selection, after: Cursor | None
) -> tuple[str | None, list[Any], str]:
    """WHERE and ORDER BY of a page; no condition at all when the thread does not exist."""
    conditions, values = ["1"], []
    if selection.thread_id is not None:
        found = conn.execute(
            "SELECT tid FROM lgd_threads WHERE thread_id = ?", (name(selection.thread_id),)
        ).fetchone()
        if found is None:
            return None, [], ""
        conditions.append("c.tid = ?")
        values.append(found[0])
    for column, wanted in (("c.ns = ?", selection.ns), ("c.id = ?", selection.id)):
        if wanted is not None:
            conditions.append(column)
            values.append(name(wanted))
    if selection.before is not None:
        conditions.append("c.id < ?")
        values.append(name(selection.before))
    if selection.thread_id is not None:
        if after is not None:
            conditions.append("(c.id, c.ns) < (?, ?)")
            values += (name(after.id), name(after.ns))
        return " AND ".join(conditions), values, "c.id DESC, c.ns DESC"
    if after is not None:
        conditions.append("(c.id, t.thread_id, c.ns) < (?, ?, ?)")
        values += (name(after.id), name(after.thread_id), name(after.ns))
    return " AND ".join(conditions), values, "c.id DESC, t.thread_id DESC, c.ns DESC"


def chain(
    conn: Connection, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
) -> Chain | None:
    found = _find(conn, thread_id, ns, id)
    if found is None:
        return None
    tid, _, target = found
    search = Search(set(channels))
    links: list[Link] = []
    refs: list[Ref] = []
    seen: set[str] = set()
    row: CheckpointRow | None = target
    while row is not None and row.id not in seen:
        seen.add(row.id)
        writes = _writes_of(conn, tid, row) if links else ()
        links.append(Link(row, writes))
        own = _refs(thread_id, row)
        refs += [ref for ref in own if ref.log in search.channels]
        refs += [r for w in writes for r in _refs(thread_id, w) if r.log in search.channels]
        search.visit(tuple(own))
        if not search.channels or row.parent is None:
            break
        above = conn.execute(
            f"SELECT {_CHECKPOINT} FROM lgd_checkpoints WHERE tid = ? AND id = ? AND ns = ?",
            (tid, name(row.parent), name(ns)),
        ).fetchone()
        row = _checkpoint(above) if above else None
    return Chain(thread_id, tuple(links), _items(conn, tid, refs))


# ---- writing ---------------------------------------------------------------------------------


def put(conn: Connection, draft: CheckpointDraft) -> Stored:
    thread_key, ns = name(draft.thread_id), name(draft.ns)
    tid, epoch = _thread_for(conn, draft)
    found = conn.execute(
        "SELECT id FROM lgd_heads WHERE thread_id = ? AND ns = ?", (thread_key, ns)
    ).fetchone()
    head = unname(found[0]) if found else None
    if draft.guard.sole and head not in (draft.parent, draft.id):
        raise ConcurrentUpdate(draft.thread_id, draft.parent, head)
    bases, size = _append(conn, tid, draft)
    row = draft.row(bases)
    values = (
        tid,
        name(row.id),
        ns,
        _named(row.parent),
        _named(row.run),
        row.refs,
        row.body,
    )
    added = conn.execute(
        "INSERT OR IGNORE INTO lgd_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", values
    ).rowcount
    if not added:
        conn.execute("REPLACE INTO lgd_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    leads = draft.guard.lead or head == draft.parent or (head or "") < draft.id
    if head is None or (added and leads):
        conn.execute(
            "REPLACE INTO lgd_heads VALUES (?, ?, ?, ?)", (thread_key, ns, tid, name(row.id))
        )
    if draft.announce_run:
        conn.execute("INSERT OR IGNORE INTO lgd_runs VALUES (?, ?)", (_named(row.run), tid))
    return Stored(epoch, bases, size + len(row.refs) + len(row.body))


def put_writes(conn: Connection, draft: WritesDraft) -> Stored:
    tid, epoch = _thread_for(conn, draft)
    place = tid, name(draft.id), name(draft.ns), name(draft.task_id)
    taken: set[int] = set()
    if draft.ordinary:
        stretches = conn.execute(
            "SELECT idx, count FROM lgd_writes "
            "WHERE tid = ? AND id = ? AND ns = ? AND task_id = ? AND idx >= 0",
            place,
        )
        for first, count in stretches:
            taken.update(range(first, first + count))
    if not draft.special and taken.issuperset(write.idx for write in draft.ordinary):
        return Stored(epoch, {}, 0)
    bases, size = _append(conn, tid, draft)
    for row in draft.rows(bases, taken):
        conn.execute(
            "REPLACE INTO lgd_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, row.idx, row.count, name(row.path), _named(row.run), row.refs, row.body),
        )
        size += len(row.refs) + len(row.body)
    if draft.announce_run:
        conn.execute("INSERT OR IGNORE INTO lgd_runs VALUES (?, ?)", (_named(draft.run), tid))
    return Stored(epoch, bases, size)


def _thread_for(conn: Connection, draft: Draft) -> tuple[int, int]:
    """The thread's number and epoch, made if need be; `Stale` if the draft's epoch has passed."""
    key = name(draft.thread_id)
    found = conn.execute(
        "SELECT tid, epoch FROM lgd_threads WHERE thread_id = ?", (key,)
    ).fetchone()
    if found is not None:
        tid, epoch = found
        if draft.epoch is not None and draft.epoch != epoch:
            raise Stale
        return tid, epoch
    if draft.epoch is not None:
        raise Stale
    return _new_thread(conn, key)


def _new_thread(conn: Connection, key: str | bytes) -> tuple[int, int]:
    epoch = _new_epoch()
    tid = conn.execute(
        "INSERT INTO lgd_threads (thread_id, epoch) VALUES (?, ?)", (key, epoch)
    ).lastrowid
    assert tid is not None
    return tid, epoch


def _new_epoch() -> int:
    return int.from_bytes(os.urandom(7), "little")


def _append(conn: Connection, tid: int, draft: Draft) -> tuple[dict[str, int], int]:
    """Number and store the draft's new items; the first number in each log, and the bytes."""
    bases: dict[str, int] = {}
    lids: dict[str, int] = {}
    for log, payloads in draft.items.items():
        if payloads:
            lids[log], bases[log] = _next_in_log(conn, tid, log)
        else:
            bases[log] = 0
    size = 0
    for log, base, blobs in draft.numbered(bases):
        if not blobs:
            continue
        first = (lids[log] << BITS) + base
        conn.executemany(
            "INSERT INTO lgd_items VALUES (?, ?)",
            [(first + k, blob) for k, blob in enumerate(blobs)],
        )
        size += sum(map(len, blobs))
    return bases, size


def _next_in_log(conn: Connection, tid: int, log: str) -> tuple[int, int]:
    """The log's number, made if need be, and the number its next item gets."""
    key = name(log)
    found = conn.execute(
        "SELECT lid, (SELECT max(key) FROM lgd_items WHERE key BETWEEN lid << 32 "
        "AND (lid << 32) + 4294967295) FROM lgd_logs WHERE tid = ? AND log = ?",
        (tid, key),
    ).fetchone()
    if found is not None:
        lid, highest = found
        return lid, 0 if highest is None else (highest & ITEMS_PER_LOG) + 1
    # Items of a thread that was removed are gone with it, so a number may be used again.
    lid = conn.execute("SELECT coalesce(max(lid), 0) + 1 FROM lgd_logs").fetchone()[0]
    conn.execute("INSERT INTO lgd_logs VALUES (?, ?, ?)", (tid, key, lid))
    return lid, 0


# ---- removing and copying --------------------------------------------------------------------


def drop(conn: Connection, thread_id: str) -> bool:
    key = name(thread_id)
    found = conn.execute("SELECT tid FROM lgd_threads WHERE thread_id = ?", (key,)).fetchone()
    if found is None:
        return False
    tid = found[0]
    for lid in _logs(conn, tid).values():
        start = lid << BITS
        conn.execute(
            "DELETE FROM lgd_items WHERE key BETWEEN ? AND ?", (start, start + ITEMS_PER_LOG)
        )
    for table in ("lgd_checkpoints", "lgd_writes", "lgd_logs", "lgd_runs", "lgd_threads"):
        conn.execute(f"DELETE FROM {table} WHERE tid = ?", (tid,))
    conn.execute("DELETE FROM lgd_heads WHERE thread_id = ?", (key,))
    return True


def listing(conn: Connection, thread_id: str, tid: int) -> Listing:
    rows = conn.execute(f"SELECT {_CHECKPOINT} FROM lgd_checkpoints WHERE tid = ?", (tid,))
    writes = conn.execute(f"SELECT {_WRITE} FROM lgd_writes WHERE tid = ?", (tid,))
    heads = conn.execute("SELECT ns, id FROM lgd_heads WHERE thread_id = ?", (name(thread_id),))
    return Listing(
        thread_id,
        tuple(map(_checkpoint, rows)),
        tuple(map(_write, writes)),
        {unname(ns): unname(id) for ns, id in heads},
    )


def edit(conn: Connection, thread_id: str, decide: Callable[[Listing], Edit]) -> bool:
    key = name(thread_id)
    found = conn.execute("SELECT tid FROM lgd_threads WHERE thread_id = ?", (key,)).fetchone()
    if found is None:
        return False
    tid = found[0]
    before = listing(conn, thread_id, tid)
    plan = decide(before)
    if len(plan.drop) == len(before.rows) and not any(
        (w.ns, w.id) not in plan.drop and w not in plan.drop_writes for w in before.writes
    ):
        return drop(conn, thread_id)
    for ns, id in plan.drop:
        place = tid, name(id), name(ns)
        conn.execute("DELETE FROM lgd_checkpoints WHERE tid = ? AND id = ? AND ns = ?", place)
        conn.execute("DELETE FROM lgd_writes WHERE tid = ? AND id = ? AND ns = ?", place)
    for write in plan.drop_writes:
        conn.execute(
            "DELETE FROM lgd_writes "
            "WHERE tid = ? AND id = ? AND ns = ? AND task_id = ? AND idx = ?",
            (tid, name(write.id), name(write.ns), name(write.task_id), write.idx),
        )
    for row in plan.replace:
        conn.execute(
            "UPDATE lgd_checkpoints SET parent = ?, refs = ?, body = ? "
            "WHERE tid = ? AND id = ? AND ns = ?",
            (_named(row.parent), row.refs, row.body, tid, name(row.id), name(row.ns)),
        )
    for ns, head in plan.heads.items():
        conn.execute("DELETE FROM lgd_heads WHERE thread_id = ? AND ns = ?", (key, name(ns)))
        if head is not None:
            conn.execute(
                "INSERT INTO lgd_heads VALUES (?, ?, ?, ?)", (key, name(ns), tid, name(head))
            )
    for log, lid in _logs(conn, tid).items():
        _keep_items(conn, lid, plan.keep.get(log, set()))
    conn.execute("UPDATE lgd_threads SET epoch = ? WHERE tid = ?", (_new_epoch(), tid))
    return True


def _keep_items(conn: Connection, lid: int, keep: Collection[int]) -> None:
    """Remove the gaps between the items that stay."""
    start = lid << BITS
    following = 0
    for n in [*sorted(keep), ITEMS_PER_LOG + 1]:
        if n > following:
            conn.execute(
                "DELETE FROM lgd_items WHERE key BETWEEN ? AND ?",
                (start + following, start + n - 1),
            )
        following = n + 1


def copy(conn: Connection, source: str, target: str) -> bool:
    """Copy a thread, sealing everything anew for its new place."""
    found = conn.execute(
        "SELECT tid FROM lgd_threads WHERE thread_id = ?", (name(source),)
    ).fetchone()
    if found is None:
        return False
    if conn.execute("SELECT 1 FROM lgd_threads WHERE thread_id = ?", (name(target),)).fetchone():
        raise ConfigurationError(
            f"thread {target!r} exists already: delete it first, or copy to another id"
        )
    old = found[0]
    tid, _ = _new_thread(conn, name(target))
    before = listing(conn, source, old)
    try:
        _copy_rows(conn, tid, target, before)
        for log, lid in _logs(conn, old).items():
            _copy_items(conn, tid, log, lid, source, target)
    except seal.Damaged as error:
        raise seal.damaged(f"thread {source!r}", error) from error
    conn.execute("INSERT INTO lgd_runs SELECT run, ? FROM lgd_runs WHERE tid = ?", (tid, old))
    return True


def _copy_rows(conn: Connection, tid: int, target: str, before: Listing) -> None:
    rows = (row.bare(before.thread_id).sealed(target) for row in before.rows)
    conn.executemany(
        "INSERT INTO lgd_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (tid, name(r.id), name(r.ns), _named(r.parent), _named(r.run), r.refs, r.body)
            for r in rows
        ),
    )
    writes = (write.bare(before.thread_id).sealed(target) for write in before.writes)
    conn.executemany(
        "INSERT INTO lgd_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (tid, name(w.id), name(w.ns), name(w.task_id), w.idx, w.count)
            + (name(w.path), _named(w.run), w.refs, w.body)
            for w in writes
        ),
    )
    conn.executemany(
        "INSERT INTO lgd_heads VALUES (?, ?, ?, ?)",
        ((name(target), name(ns), tid, name(id)) for ns, id in before.heads.items()),
    )


def _copy_items(
    conn: Connection, tid: int, log: str, lid: int, source: str, target: str
) -> None:
    new_lid, _ = _next_in_log(conn, tid, log)
    start, new_start = lid << BITS, new_lid << BITS
    seed, new_seed = seal.log_seed(source, log), seal.log_seed(target, log)
    rows = conn.execute(
        "SELECT key - ?, body FROM lgd_items WHERE key BETWEEN ? AND ?",
        (start, start, start + ITEMS_PER_LOG),
    ).fetchall()
    conn.executemany(
        "INSERT INTO lgd_items VALUES (?, ?)",
        (
            (new_start + n, seal.seal_item(new_seed, n, seal.open_item(seed, n, body)))
            for n, body in rows
        ),
    )


def threads_of(conn: Connection, runs: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    for run in runs:
        rows = conn.execute(
            "SELECT t.thread_id FROM lgd_runs r JOIN lgd_threads t ON t.tid = r.tid "
            "WHERE r.run = ?",
            (name(run),),
        )
        found.update((unname(thread_id), None) for (thread_id,) in rows)
    return list(found)


def forget_runs(conn: Connection, runs: Sequence[str]) -> None:
    conn.executemany("DELETE FROM lgd_runs WHERE run = ?", ((name(run),) for run in runs))
