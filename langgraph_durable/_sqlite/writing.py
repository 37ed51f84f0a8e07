"""The verbs that write: `put`, `put_writes`, `copy`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from langgraph_durable._core import seal
from langgraph_durable._core.records import (
    CheckpointDraft,
    Draft,
    Finals,
    Listing,
    Stored,
    WriteRow,
    WritesDraft,
)
from langgraph_durable._core.seal import name, unname
from langgraph_durable._core.storage import Stale
from langgraph_durable._sqlite import rows
from langgraph_durable._sqlite.rows import Connection, Name
from langgraph_durable._sqlite.schema import BITS, ITEMS_PER_LOG
from langgraph_durable.errors import ConcurrentUpdate, ConfigurationError, CorruptionError

_PUT = "INTO lgd_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_WRITE = "INTO lgd_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def put(conn: Connection, draft: CheckpointDraft) -> Stored:
    thread, ns = name(draft.thread_id), name(draft.ns)
    tid, epoch, head = _thread_for(conn, draft, ns)
    if draft.guard.sole and head not in (draft.parent, draft.id):
        raise ConcurrentUpdate(draft.thread_id, draft.parent, head)
    finals, size = _append(conn, tid, epoch, draft)
    row = draft.row(finals)
    values = rows.checkpoint_values(tid, row)
    added = conn.execute(f"INSERT OR IGNORE {_PUT}", values).rowcount
    if not added:
        conn.execute(f"REPLACE {_PUT}", values)
    leads = draft.guard.lead or head == draft.parent or (head or "") < draft.id
    if head is None:
        conn.execute("INSERT INTO lgd_heads VALUES (?, ?, ?, ?)", (thread, ns, tid, values[2]))
    elif added and leads:
        sql = "UPDATE lgd_heads SET id = ? WHERE thread_id = ? AND ns = ?"
        conn.execute(sql, (values[2], thread, ns))
    _announce(conn, tid, draft.run, draft.announce_run)
    stored = Stored(epoch, finals, size + len(row.refs) + len(row.body))
    draft.memory.keep(stored)
    return stored


def put_writes(conn: Connection, draft: WritesDraft) -> Stored:
    tid, epoch, _ = _thread_for(conn, draft, name(draft.ns))
    place = tid, name(draft.ns), name(draft.id)
    taken: set[int] = set()
    if draft.ordinary:
        stretches = conn.execute(
            "SELECT idx, count FROM lgd_writes "
            "WHERE tid = ? AND ns = ? AND id = ? AND task_id = ? AND idx >= 0",
            (*place, name(draft.task_id)),
        )
        for first, count in stretches:
            taken.update(range(first, first + count))
    if not draft.special and taken.issuperset(write.idx for write in draft.ordinary):
        return Stored(epoch, {}, 0)
    finals, size = _append(conn, tid, epoch, draft)
    new = draft.rows(finals, taken)
    added = sum(_put_write(conn, tid, row) for row in new)
    if added:
        conn.execute(
            "INSERT INTO lgd_tallies VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET count = count + excluded.count",
            (*place, added),
        )
    _announce(conn, tid, draft.run, draft.announce_run)
    stored = Stored(epoch, finals, size + sum(len(row.refs) + len(row.body) for row in new))
    draft.memory.keep(stored)
    return stored


def _put_write(conn: Connection, tid: int, row: WriteRow) -> int:
    """Store a row of writes; how many rows that adds (a special write replaces its like)."""
    values = rows.write_values(tid, row)
    added = conn.execute(f"INSERT OR IGNORE {_PUT_WRITE}", values).rowcount
    if not added:
        conn.execute(f"REPLACE {_PUT_WRITE}", values)
    return added


def _announce(conn: Connection, tid: int, run: str | None, news: bool) -> None:
    if news and run is not None:
        conn.execute("INSERT OR IGNORE INTO lgd_runs VALUES (?, ?)", (name(run), tid))


def _thread_for(conn: Connection, draft: Draft, ns: Name) -> tuple[int, int, str | None]:
    """The thread's number and epoch, made if need be, and the head of the namespace.

    `Stale` if the draft's epoch has passed.
    """
    key = name(draft.thread_id)
    tid, epoch, head_tid, head = conn.execute(
        "SELECT t.tid, t.epoch, h.tid, h.id FROM (SELECT ?1 AS k) LEFT JOIN lgd_threads t "
        "ON t.thread_id = k LEFT JOIN lgd_heads h ON h.thread_id = k AND h.ns = ?2",
        (key, ns),
    ).fetchone()
    if head_tid is not None and head_tid != tid:
        raise CorruptionError(
            f"thread {draft.thread_id!r}: its entry in the table of threads is missing or damaged"
        )
    if draft.epoch is not None and (draft.epoch != epoch or draft.memory.is_void()):
        raise Stale
    if tid is None:
        tid, epoch = _new_thread(conn, key)
    return tid, epoch, None if head is None else unname(head)


def _new_thread(conn: Connection, key: Name) -> tuple[int, int]:
    epoch = new_epoch()
    sql = "INSERT INTO lgd_threads (thread_id, epoch) VALUES (?, ?) RETURNING tid"
    return conn.execute(sql, (key, epoch)).fetchone()[0], epoch


def new_epoch() -> int:
    """A number that no epoch of this thread has had or will have."""
    return int.from_bytes(os.urandom(7), "little")


def _append(conn: Connection, tid: int, epoch: int, draft: Draft) -> tuple[Finals, int]:
    """Number and store the draft's new items; the numbers they got, and the bytes."""
    finals: dict[str, list[int]] = {}
    size = 0
    for log, payloads in draft.items.items():
        if not payloads:
            continue
        lid, following = _next_in_log(conn, tid, log)
        finals[log], add = draft.number(epoch, log, lambda n=following: n)  # type: ignore[misc]
        start = lid << BITS
        conn.executemany("INSERT INTO lgd_items VALUES (? + ?, ?)", [(start, *new) for new in add])
        size += sum(len(blob) for _, blob in add)
    return finals, size


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


def copy(conn: Connection, source: str, target: str) -> bool:
    """Copy a thread, sealing everything anew for its new place."""
    old = rows.thread_number(conn, source)
    if old is None:
        return False
    if rows.thread_number(conn, target) is not None:
        raise ConfigurationError(
            f"thread {target!r} exists already: delete it first, or copy to another id"
        )
    tid, _ = _new_thread(conn, name(target))
    try:
        _copy_rows(conn, tid, target, rows.listing(conn, source, old))
        for log, lid in rows.logs(conn, old).items():
            _copy_items(conn, (tid, target), (lid, source), log)
    except seal.Damaged as error:
        raise seal.damaged(f"thread {source!r}", error) from error
    for table, columns in (("lgd_runs", "run, ?"), ("lgd_tallies", "?, ns, id, count")):
        conn.execute(f"INSERT INTO {table} SELECT {columns} FROM {table} WHERE tid = ?", (tid, old))
    return True


def _copy_rows(conn: Connection, tid: int, target: str, before: Listing) -> None:
    source = before.thread_id
    checkpoints = (row.bare(source).sealed(target) for row in before.rows)
    writes = (row.bare(source).sealed(target) for row in before.writes)
    heads: Sequence[tuple[Any, ...]] = [
        (name(target), name(ns), tid, name(id)) for ns, id in before.heads.items()
    ]
    conn.executemany(f"INSERT {_PUT}", (rows.checkpoint_values(tid, row) for row in checkpoints))
    conn.executemany(f"INSERT {_PUT_WRITE}", (rows.write_values(tid, row) for row in writes))
    conn.executemany("INSERT INTO lgd_heads VALUES (?, ?, ?, ?)", heads)


def _copy_items(conn: Connection, to: tuple[int, str], of: tuple[int, str], log: str) -> None:
    (tid, target), (lid, source) = to, of
    start, new_start = lid << BITS, _next_in_log(conn, tid, log)[0] << BITS
    seed, new_seed = seal.log_seed(source, log), seal.log_seed(target, log)
    stored = conn.execute(
        "SELECT key - ?, body FROM lgd_items WHERE key BETWEEN ? AND ?",
        (start, start, start + ITEMS_PER_LOG),
    ).fetchall()
    conn.executemany(
        "INSERT INTO lgd_items VALUES (?, ?)",
        (
            (new_start + n, seal.seal_item(new_seed, n, seal.open_item(seed, n, body)))
            for n, body in stored
        ),
    )
