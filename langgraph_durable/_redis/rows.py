"""Records as bytes and back: what a thread's hash holds.

A row is `length of parent + 1, length of refs, parent, refs, rest`: scripts read the first four,
and `rest` is msgpack. A row of writes has no parent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence

import ormsgpack

from langgraph_durable._core import seal
from langgraph_durable._core.records import CheckpointRow, WriteRow
from langgraph_durable._core.refs import Ref, unpack_refs
from langgraph_durable._core.seal import name, unname
from langgraph_durable._redis.keys import DIGEST, id_bytes, id_text, unplace

Accept = Callable[[str, CheckpointRow], bool]
_HEAD = struct.Struct(">HI")
_GARBLED = (struct.error, ValueError, TypeError, AttributeError, seal.Damaged)
"""What taking apart bytes that were not written so can raise."""


def pack_checkpoint(row: CheckpointRow) -> bytes:
    parent = b"" if row.parent is None else id_bytes(row.parent)
    length = 0 if row.parent is None else len(parent) + 1
    rest = ormsgpack.packb([None if row.run is None else name(row.run), row.body])
    return _HEAD.pack(length, len(row.refs)) + parent + row.refs + rest


def unpack_checkpoint(thread_id: str, place: bytes, blob: bytes) -> CheckpointRow:
    ns, id = unplace(place)
    try:
        length, refs = _HEAD.unpack_from(blob)
        at = _HEAD.size + max(length - 1, 0)
        parent = id_text(blob[_HEAD.size : at]) if length else None
        run, body = ormsgpack.unpackb(blob[at + refs :])
        run = None if run is None else unname(run)
        return CheckpointRow(ns, id, parent, run, blob[at : at + refs], bytes(body))
    except _GARBLED as error:
        raise _unreadable(thread_id, id, error) from error


def pack_write(row: WriteRow) -> bytes:
    run = None if row.run is None else name(row.run)
    place = name(row.task_id), row.idx, row.width, name(row.path)
    return _HEAD.pack(0, len(row.refs)) + row.refs + ormsgpack.packb([*place, run, row.body])


def unpack_write(thread_id: str, place: bytes, blob: bytes) -> WriteRow:
    ns, id = unplace(place)
    try:
        _, refs = _HEAD.unpack_from(blob)
        end = _HEAD.size + refs
        task, idx, count, path, run, body = ormsgpack.unpackb(blob[end:])
        named = unname(task), idx, count, unname(path), None if run is None else unname(run)
        return WriteRow(ns, id, *named, blob[_HEAD.size : end], bytes(body))
    except _GARBLED as error:
        raise _unreadable(thread_id, id, error) from error


def unpack_writes(
    thread_id: str, place: bytes, blobs: Sequence[bytes | None]
) -> tuple[WriteRow, ...]:
    """All rows of writes of a checkpoint; one that is missing is an error."""
    if None in blobs:
        there = sum(blob is not None for blob in blobs)
        raise seal.damaged(
            f"thread {thread_id!r}, checkpoint {unplace(place)[1]}",
            seal.Damaged(f"of {len(blobs)} records of pending writes {there} are there"),
        )
    return tuple(unpack_write(thread_id, place, blob) for blob in blobs if blob is not None)


def _unreadable(thread_id: str, id: str, error: Exception) -> Exception:
    where = f"thread {thread_id!r}, checkpoint {id}"
    return seal.damaged(where, seal.Damaged(f"a record cannot be read: {error}"))


def refs(thread_id: str, row: CheckpointRow | WriteRow) -> Sequence[Ref]:
    try:
        return unpack_refs(row.refs)
    except seal.Damaged as error:
        raise seal.damaged(f"thread {thread_id!r}, checkpoint {row.id}", error) from error


def all_refs(thread_id: str, row: CheckpointRow, writes: Iterable[WriteRow]) -> Iterable[Ref]:
    yield from refs(thread_id, row)
    for write in writes:
        yield from refs(thread_id, write)


_ROW_OF_TASK = struct.Struct(">iII")


def pack_task(rows: Iterable[tuple[int, int, bytes]]) -> bytes:
    """All rows of one task: index, count and bytes of each."""
    return b"".join(_ROW_OF_TASK.pack(idx, many, len(row)) + row for idx, many, row in rows)


def unpack_task(packed: bytes) -> list[tuple[int, int, bytes]]:
    found, at = [], 0
    while at < len(packed):
        idx, many, length = _ROW_OF_TASK.unpack_from(packed, at)
        at += _ROW_OF_TASK.size + length
        found.append((idx, many, packed[at - length : at]))
    return found


# ---- pages of tasks ------------------------------------------------------------------------------

PAGE, INSIDE, APART = 1024, 256, 0xFFFFFFFF
"""Bytes with which a page is full, how many of a task's rows go on the first page, and the length
that stands for rows in a field of their own; as in `scripts/thread.lua`."""

Listed = tuple[bytes, bytes | None]
"""The digest of a task, and its rows if they are on the page."""
_LENGTH = struct.Struct(">I")


def pack_page(tasks: Iterable[Listed]) -> bytes:
    """The tasks that wrote at a place: the digest of each, the length of its rows, its rows."""
    return b"".join(
        digest + _LENGTH.pack(APART if packed is None else len(packed)) + (packed or b"")
        for digest, packed in tasks
    )


def unpack_page(page: bytes) -> list[Listed]:
    """The inverse; raises `struct.error`."""
    found: list[Listed] = []
    at = 0
    while at < len(page):
        (length,) = _LENGTH.unpack_from(page, at + DIGEST)
        digest, at = page[at : at + DIGEST], at + DIGEST + _LENGTH.size
        if length == APART:
            found.append((digest, None))
            continue
        if not 0 < length <= len(page) - at:
            raise struct.error("a page of tasks is cut off")
        found.append((digest, page[at : at + length]))
        at += length
    return found


def listed(thread_id: str, place: bytes, page: bytes | None) -> list[Listed]:
    """The tasks on a stored page."""
    try:
        return unpack_page(page or b"")
    except struct.error as error:
        raise _unreadable(thread_id, unplace(place)[1], error) from error


def unpack_tasks(
    thread_id: str, place: bytes, tasks: Iterable[bytes | None]
) -> tuple[WriteRow, ...]:
    """The rows of all tasks of a checkpoint."""
    blobs: list[bytes | None] = []
    try:
        for packed in tasks:
            blobs += [None] if packed is None else [row for _, _, row in unpack_task(packed)]
    except struct.error as error:
        raise _unreadable(thread_id, unplace(place)[1], error) from error
    return unpack_writes(thread_id, place, blobs)
