"""Rows of the tables as records, and the few look-ups that all verbs share.

Verbs are plain functions of a connection inside a transaction; `database` begins and ends it.
Statements are constants, every value is bound. Reads see one moment; writes hold the write lock.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from langgraph_durable._core import seal
from langgraph_durable._core.records import CheckpointRow, Items, Listing, WriteRow
from langgraph_durable._core.refs import Ref, Runs, Spines, merged, spans, unpack_refs
from langgraph_durable._core.seal import name, unname
from langgraph_durable._sqlite.schema import BITS, MOST_ITEMS

Connection = sqlite3.Connection
Accept = Callable[[str, CheckpointRow], bool]
Name = str | bytes

CHECKPOINT = "c.ns, c.id, c.parent, c.run, c.refs, c.body"
WRITE = "ns, id, task_id, idx, count, path, run, refs, body"


def optional(text: str | None) -> Name | None:
    return None if text is None else name(text)


def _unname(stored: Name | None) -> str | None:
    return None if stored is None else unname(stored)


def checkpoint(row: Sequence[Any]) -> CheckpointRow:
    ns, id, parent, run, refs, body = row
    return CheckpointRow(unname(ns), unname(id), _unname(parent), _unname(run), refs, body)


def write(row: Sequence[Any]) -> WriteRow:
    ns, id, task_id, idx, count, path, run, refs, body = row
    named = unname(ns), unname(id), unname(task_id)
    return WriteRow(*named, idx, count, unname(path), _unname(run), refs, body)


def checkpoint_values(tid: int, row: CheckpointRow) -> tuple[Any, ...]:
    """The columns of `lgd_checkpoints`."""
    named = name(row.ns), name(row.id), optional(row.parent), optional(row.run)
    return (tid, *named, row.refs, row.body)


def write_values(tid: int, row: WriteRow) -> tuple[Any, ...]:
    """The columns of `lgd_writes`."""
    place = tid, name(row.ns), name(row.id), name(row.task_id), row.idx, row.width
    return (*place, name(row.path), optional(row.run), row.refs, row.body)


def thread_number(conn: Connection, thread_id: str) -> int | None:
    sql = "SELECT tid FROM lgd_threads WHERE thread_id = ?"
    found = conn.execute(sql, (name(thread_id),)).fetchone()
    return found[0] if found else None


def epoch(conn: Connection, tid: int) -> int:
    found = conn.execute("SELECT epoch FROM lgd_threads WHERE tid = ?", (tid,)).fetchone()
    return int(found[0])


def refs(thread_id: str, row: CheckpointRow | WriteRow) -> Sequence[Ref]:
    try:
        return unpack_refs(row.refs)
    except seal.Damaged as error:
        raise seal.damaged(f"thread {thread_id!r}, checkpoint {row.id}", error) from error


def items(conn: Connection, tid: int, wanted: Iterable[Ref], held: Container[int] = ()) -> Items:
    """The items that `wanted` name; one that is held or not there is simply left out."""
    wanted = [ref for ref in wanted if ref.runs or ref.spine]
    found: Items = {}
    if not wanted:
        return found
    stretches = {span for ref in wanted if ref.spine for span in spans(ref.spine)}
    if stretches:
        # Spines are read anew even if they are held: they are few, and say what else is needed.
        found = _fetch(conn, tid, stretches)
        for blob in list(found.values()):
            wanted.append(Ref("", seal.peek_spine(blob)))
    stretches = {span for ref in wanted for span in _missing(ref.runs, held)}
    if stretches:
        found.update(_fetch(conn, tid, stretches))
    return found


def _missing(runs: Runs, held: Container[int]) -> Iterable[tuple[int, int]]:
    """`(first, last)` of every run, without what is held at its front: mostly nothing is left."""
    if not held:
        return spans(runs)
    left = []
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        end = first + count
        while first < end and first in held:
            first += 1
        if first < end:
            left.append((first, end - 1))
    return left


def _fetch(conn: Connection, tid: int, stretches: Iterable[tuple[int, int]]) -> Items:
    """Items by number: long stretches one by one, all the short ones together."""
    found: Items = {}
    start = tid << BITS
    short: list[int] = []
    for first, last in merged(stretches):
        if last - first < SHORT:
            short += range(start + first, start + last + 1)
        else:
            found.update(conn.execute(_BETWEEN, (start, start + first, start + last)))
    if short and short[-1] - short[0] < SHORT:
        found.update(conn.execute(_BETWEEN, (start, short[0], short[-1])))
    elif short and len(short) <= SHORT:
        found.update(conn.execute(_THESE, (start, *short, *[None] * (SHORT - len(short)))))
    elif short:
        found.update(conn.execute(_AMONG, (start, json.dumps(short))))
    return found


_BETWEEN = "SELECT key - ?, body FROM lgd_items WHERE key BETWEEN ? AND ?"
_AMONG = "SELECT key - ?, body FROM lgd_items WHERE key IN (SELECT value FROM json_each(?))"
_SIZES = "SELECT key - ?, length(body) FROM lgd_items WHERE key BETWEEN ? AND ?"
SHORT = 8
_THESE = f"SELECT key - ?, body FROM lgd_items WHERE key IN ({', '.join('?' * SHORT)})"
"""For a few: `json_each` is a table that SQLite has to make first, 60 us in each file."""


def listing(conn: Connection, thread_id: str, tid: int, *, weigh: bool = False) -> Listing:
    rows = conn.execute(f"SELECT {CHECKPOINT} FROM lgd_checkpoints c WHERE tid = ?", (tid,))
    writes = conn.execute(f"SELECT {WRITE} FROM lgd_writes WHERE tid = ?", (tid,))
    heads = conn.execute("SELECT ns, id FROM lgd_heads WHERE thread_id = ?", (name(thread_id),))

    start = tid << BITS
    sizes = dict(conn.execute(_SIZES, (start, start, start | MOST_ITEMS))) if weigh else {}
    return Listing(
        thread_id,
        tuple(map(checkpoint, rows)),
        tuple(map(write, writes)),
        {unname(ns): unname(id) for ns, id in heads},
        spines(conn, thread_id, tid),
        sizes,
    )


def spines(conn: Connection, thread_id: str, tid: int) -> Spines:
    """Looks up the runs of spine items, inside this transaction."""

    @functools.cache
    def look_up(number: int) -> Runs:
        stored = _fetch(conn, tid, [(number, number)]).get(number, b"")
        try:
            seal.open_item(seal.log_seed(thread_id), number, stored)
        except seal.Damaged as error:
            raise seal.damaged(f"thread {thread_id!r}, item {number}", error) from error
        return seal.peek_spine(stored)

    return look_up


def new_epoch() -> int:
    """A number that no epoch of this thread has had or will have."""
    return int.from_bytes(os.urandom(7), "little")
