"""The verbs that read: `load`, `page`, `chain`, `threads_of`."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from langgraph_durable._core.lineage import Chain, Link, Search
from langgraph_durable._core.records import (
    CheckpointRow,
    Cursor,
    Held,
    Items,
    Loaded,
    Page,
    Selection,
    WriteRow,
    lost_writes,
)
from langgraph_durable._core.refs import Ref
from langgraph_durable._core.seal import name, unname
from langgraph_durable._sqlite import rows
from langgraph_durable._sqlite.rows import CHECKPOINT, WRITE, Accept, Connection, Name
from langgraph_durable.errors import CorruptionError

logger = logging.getLogger("langgraph_durable")

WINDOW = 4096
"""Checkpoints looked at for one page at most, of which those are taken that are accepted."""
GENERATIONS = 32
"""Ancestors fetched at once; four times as many each time that was not enough."""

_WHOLE = f"""{CHECKPOINT}, c.parent IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM lgd_checkpoints p WHERE p.tid = c.tid AND p.ns = c.ns AND p.id = c.parent
), (
    SELECT count FROM lgd_tallies t WHERE t.tid = c.tid AND t.ns = c.ns AND t.id = c.id
), EXISTS (
    SELECT 1 FROM lgd_writes w WHERE w.tid = c.tid AND w.ns = c.ns AND w.id = c.id
)"""
"""A checkpoint, whether its parent is missing, how many rows of writes it should have, and has."""

_FIND = f"""
SELECT t.tid, t.epoch, h.tid, h.id, {_WHOLE}
FROM (SELECT ? AS k) LEFT JOIN lgd_threads t ON t.thread_id = k
LEFT JOIN lgd_heads h ON h.thread_id = k AND h.ns = ?
LEFT JOIN lgd_checkpoints c ON c.tid = t.tid AND c.ns = ? AND c.id = coalesce(?, h.id)"""

_ROW = f"SELECT {_WHOLE} FROM lgd_checkpoints c WHERE c.tid = ? AND c.ns = ? AND c.id = ?"

_ANCESTORS = f"""
WITH RECURSIVE up (n, id) AS (
    SELECT 0, :id
    UNION ALL
    SELECT n + 1, c.parent FROM up JOIN lgd_checkpoints c
    ON c.tid = :tid AND c.ns = :ns AND c.id = up.id WHERE c.parent IS NOT NULL AND n < :most
)
SELECT {_WHOLE} FROM up JOIN lgd_checkpoints c
ON c.tid = :tid AND c.ns = :ns AND c.id = up.id ORDER BY n"""


class _Found(NamedTuple):
    tid: int
    epoch: int
    row: CheckpointRow
    orphan: bool
    tally: int | None
    has_writes: bool


def load(conn: Connection, thread_id: str, ns: str, id: str | None, held: Held) -> Loaded | None:
    found = _find(conn, thread_id, ns, id)
    if found is None:
        return None
    writes = _writes_of(conn, thread_id, found)
    there = held.numbers if held.epoch == found.epoch else ()
    items = rows.items(conn, found.tid, _refs(thread_id, found.row, writes), there)
    return Loaded(thread_id, found.epoch, found.row, writes, items, found.orphan)


def _find(conn: Connection, thread_id: str, ns: str, id: str | None) -> _Found | None:
    """A checkpoint, or the head of the namespace; what contradicts itself is corrupt."""
    key = name(thread_id), name(ns), name(ns), None if id is None else name(id)
    tid, epoch, head_tid, head, *row = conn.execute(_FIND, key).fetchone()
    if tid is None and head_tid is None:
        return None
    where = f"thread {thread_id!r}" + (f", namespace {ns!r}" if ns else "")
    if tid is None or (head_tid is not None and head_tid != tid):
        raise CorruptionError(f"{where}: its entry in the table of threads is missing or damaged")
    if head is None and _any_checkpoint(conn, tid, key[1]):
        raise CorruptionError(f"{where}: there are checkpoints, but no head names the latest one")
    if row[1] is None:
        if head is not None and (id is None or key[3] == head):
            raise CorruptionError(f"{where}: checkpoint {unname(head)}, the latest, is missing")
        return None
    return _found(tid, epoch, row)


def _found(tid: int, epoch: int, row: Sequence[Any]) -> _Found:
    return _Found(tid, epoch, rows.checkpoint(row[:6]), bool(row[6]), row[7], bool(row[8]))


def _any_checkpoint(conn: Connection, tid: int, ns: Name) -> bool:
    sql = "SELECT 1 FROM lgd_checkpoints WHERE tid = ? AND ns = ? LIMIT 1"
    return conn.execute(sql, (tid, ns)).fetchone() is not None


def _writes_of(conn: Connection, thread_id: str, found: _Found) -> tuple[WriteRow, ...]:
    if found.tally is None and not found.has_writes:
        return ()
    row = found.row
    writes = conn.execute(
        f"SELECT {WRITE} FROM lgd_writes WHERE tid = ? AND ns = ? AND id = ?",
        (found.tid, name(row.ns), name(row.id)),
    ).fetchall()
    if len(writes) != (found.tally or 0):
        raise CorruptionError(
            f"thread {thread_id!r}, checkpoint {row.id}: of its pending writes "
            f"{found.tally or 0} records were stored, but {len(writes)} are there"
        )
    return tuple(map(rows.write, writes))


def _refs(thread_id: str, row: CheckpointRow, writes: Sequence[WriteRow]) -> Iterator[Ref]:
    yield from rows.refs(thread_id, row)
    for write in writes:
        yield from rows.refs(thread_id, write)


def page(
    conn: Connection,
    selection: Selection,
    after: Cursor | None,
    size: int,
    accept: Accept,
    *,
    items: bool,
) -> Page:
    """Up to `size` checkpoints.

    Those of a namespace stand in order in their table. Others are sorted first, and only by keys.
    """
    tid = None
    if selection.thread_id is not None:
        tid = rows.thread_number(conn, selection.thread_id)
        if tid is None:
            return Page((), None)
        if selection.ns is None:
            selection = selection._replace(ns=_sole_namespace(conn, tid))
    ordered = tid is not None and selection.ns is not None
    seen = 0
    last: Cursor | None = None
    picked: list[tuple[str, _Found]] = []
    with closing(_keys(conn, tid, selection, after, ordered=ordered)) as keys:
        # What is sorted is fetched at once: between two steps others are asked for their rows.
        for tid, epoch, thread_key, ns, id, *row in keys if ordered else keys.fetchall():
            if len(picked) == size:
                break
            seen += 1
            # The name asked for, not the one that is stored: if they differ, the seals tell.
            thread_id = selection.thread_id or unname(thread_key)
            found = _found(tid, epoch, row or conn.execute(_ROW, (tid, ns, id)).fetchone())
            last = Cursor(unname(id), thread_id, unname(ns))
            if accept(thread_id, found.row):
                picked.append((thread_id, found))
        else:
            last = last if seen == WINDOW else None
    several = selection.thread_id is None
    return Page(tuple(_completed(conn, picked, several=several, items=items)), last)


def _sole_namespace(conn: Connection, tid: int) -> str | None:
    """The namespace of all checkpoints of a thread, if there is but one."""
    first, last = conn.execute(_NAMESPACES, (tid, tid)).fetchone()
    return unname(first) if first is not None and first == last else None


_NAMESPACES = """
SELECT (SELECT ns FROM lgd_checkpoints WHERE tid = ? ORDER BY ns LIMIT 1),
(SELECT ns FROM lgd_checkpoints WHERE tid = ? ORDER BY ns DESC LIMIT 1)"""


def _keys(
    conn: Connection,
    tid: int | None,
    selection: Selection,
    after: Cursor | None,
    *,
    ordered: bool,
) -> sqlite3.Cursor:
    """Thread number, epoch, thread id, namespace and id of the next checkpoints, in order.

    Where they are `ordered` by the table's own key, their rows come with them.
    """
    conditions: dict[str, Sequence[Any]] = {}
    if tid is not None:
        conditions["c.tid = ?"] = (tid,)
    if selection.ns is not None:
        conditions["c.ns = ?"] = (name(selection.ns),)
    if selection.id is not None:
        conditions["c.id = ?"] = (name(selection.id),)
    if selection.before is not None:
        conditions["c.id < ?"] = (name(selection.before),)
    if after is not None:
        place = name(after.id), name(after.thread_id), name(after.ns)
        conditions["c.id <= ?"] = place[:1]
        conditions["(c.id, t.thread_id, c.ns) < (?, ?, ?)"] = place
    return conn.execute(
        f"SELECT c.tid, t.epoch, t.thread_id, c.ns, c.id{f', {_WHOLE}' if ordered else ''} "
        "FROM lgd_checkpoints c JOIN lgd_threads t ON t.tid = c.tid "
        f"WHERE {' AND '.join(conditions) or '1'} "
        f"ORDER BY c.id DESC{'' if ordered else ', t.thread_id DESC, c.ns DESC'} LIMIT ?",
        (*(value for values in conditions.values() for value in values), WINDOW),
    )


def _completed(
    conn: Connection, picked: Sequence[tuple[str, _Found]], *, several: bool, items: bool
) -> Iterator[Loaded]:
    """The rows with their writes and items; what several rows of a thread share is read once.

    Where threads are listed together, one that is damaged is left out: it is not the others' fault.
    """
    whole: list[tuple[str, _Found, tuple[WriteRow, ...]]] = []
    wanted: dict[tuple[str, int], list[Ref]] = {}
    for thread_id, found in picked:
        refs: list[Ref] = []
        try:
            own = _writes_of(conn, thread_id, found)
            if items:
                refs += _refs(thread_id, found.row, own)
        except CorruptionError as error:
            if not items:  # its outline will say so
                own = (lost_writes(found.row.ns, found.row.id),)
            elif not several:
                raise
            else:
                logger.error("left out of the list: %s", error)
                continue
        whole.append((thread_id, found, own))
        wanted.setdefault((thread_id, found.tid), []).extend(refs)
    shared: dict[str, Items] = {
        thread_id: rows.items(conn, tid, refs) for (thread_id, tid), refs in wanted.items()
    }
    for thread_id, found, own in whole:
        yield Loaded(thread_id, found.epoch, found.row, own, shared[thread_id], found.orphan)


def chain(
    conn: Connection, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
) -> Chain | None:
    found = _find(conn, thread_id, ns, id)
    if found is None:
        return None
    search = Search(set(channels))
    links: list[Link] = []
    refs: list[Ref] = []
    for each in _ancestors(conn, found):
        row, writes = each.row, _writes_of(conn, thread_id, each) if links else ()
        links.append(Link(row, writes))
        refs += [ref for ref in _refs(thread_id, row, writes) if ref.channel in search.channels]
        search.visit(tuple(rows.refs(thread_id, row)))
        if not search.channels:
            break
    last = links[-1].row
    cut = bool(search.channels) and last.parent is not None and not _in(links, last.parent)
    return Chain(thread_id, tuple(links), rows.items(conn, found.tid, refs), cut)


def _in(links: Sequence[Link], id: str) -> bool:
    return any(link.row.id == id for link in links)


def _ancestors(conn: Connection, found: _Found) -> Iterator[_Found]:
    """The checkpoint and its ancestors, newest first; a cycle of parents ends the walk."""
    yield found
    seen, row, most = {found.row.id}, found.row, GENERATIONS
    while row.parent is not None and row.parent not in seen:
        place = {"tid": found.tid, "ns": name(row.ns), "id": name(row.parent), "most": most}
        window = conn.execute(_ANCESTORS, place).fetchall()
        for values in window:
            above = _found(found.tid, found.epoch, values)
            row = above.row
            if row.id in seen:
                return
            seen.add(row.id)
            yield above
        if not window:
            return
        most *= 4


def threads_of(conn: Connection, runs: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    for run in runs:
        threads = conn.execute(
            "SELECT t.thread_id FROM lgd_runs r JOIN lgd_threads t ON t.tid = r.tid "
            "WHERE r.run = ?",
            (name(run),),
        )
        found.update((unname(thread_id), None) for (thread_id,) in threads)
    return list(found)
