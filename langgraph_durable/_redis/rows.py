"""Records as bytes and back: what a thread's hash holds.

A row is `length of parent + 1, length of refs, parent, refs, rest`: scripts read the first four,
and `rest` is msgpack. A parent that is a UUID, as nearly all are, takes 16 bytes, and UUID is its
length. A row of writes has no parent, and its `rest` begins with the task's name. In `rest`, tasks
and runs that are UUIDs take 16 bytes too, and the paths of nearly all tasks leave out how they all
begin: both stand behind a byte that is in no text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import ormsgpack

from langgraph_durable._core import seal
from langgraph_durable._core.records import CheckpointRow, WriteRow, lost_row, lost_writes
from langgraph_durable._core.refs import Ref, unpack_refs
from langgraph_durable._core.seal import name, unname
from langgraph_durable._redis.keys import DIGEST, decoded, encoded, id_bytes, id_text
from langgraph_durable.errors import CorruptionError

Accept = Callable[[str, CheckpointRow], bool]
_HEAD = struct.Struct(">HI")
UUID, UUID_BYTES = 0xFFFF, 16
"""As in `scripts/thread.lua`."""
_HALVED = b"\xff"
"""Stands before the bytes of a UUID where a name could be, and before a path without `_PULL`."""
_PULL = "~__pregel_pull, "
_GARBLED = (struct.error, ValueError, TypeError, AttributeError, seal.Damaged)
"""What taking apart bytes that were not written so can raise."""


def pack_checkpoint(row: CheckpointRow) -> bytes:
    length, parent = (0, b"") if row.parent is None else _pack_parent(row.parent)
    rest = ormsgpack.packb([None if row.run is None else _halved(row.run), row.body])
    return _HEAD.pack(length, len(row.refs)) + parent + row.refs + rest


def unpack_checkpoint(ns: str, id: str, blob: bytes) -> CheckpointRow:
    """A row; one that cannot be taken apart is handed on as one that no seal fits."""
    try:
        length, refs = _HEAD.unpack_from(blob)
        at = _HEAD.size + (UUID_BYTES if length == UUID else max(length - 1, 0))
        parent = _unpack_parent(length, blob[_HEAD.size : at])
        run, body = ormsgpack.unpackb(blob[at + refs :])
        run = None if run is None else _whole(run)
        return CheckpointRow(ns, id, parent, run, blob[at : at + refs], bytes(body))
    except _GARBLED:
        return lost_row(ns, id, blob)


def _pack_parent(parent: str) -> tuple[int, bytes]:
    packed = _uuid_bytes(parent)
    if packed is not None:
        return UUID, packed
    spelled = id_bytes(parent)
    return len(spelled) + 1, spelled


def _unpack_parent(length: int, packed: bytes) -> str | None:
    if not length:
        return None
    return _uuid(packed) if length == UUID else id_text(packed)


def _uuid_bytes(text: str) -> bytes | None:
    """What `_uuid` makes that text of, if there is something."""
    if len(text) != 36:
        return None
    try:
        packed = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    return packed if _uuid(packed) == text else None


@lru_cache(maxsize=1024)  # a task is named twice, a run in every row
def _halved(text: str) -> str | bytes:
    """A name, or half of it: most are UUIDs, and would outweigh what a task wrote."""
    packed = _uuid_bytes(text)
    return name(text) if packed is None else _HALVED + packed


def _whole(stored: str | bytes) -> str:
    """The inverse."""
    if type(stored) is bytes and stored.startswith(_HALVED):
        return _uuid(stored[1:])
    return unname(stored)


def _short_path(path: str) -> str | bytes:
    return _HALVED + encoded(path[len(_PULL) :]) if path.startswith(_PULL) else name(path)


def _long_path(stored: str | bytes) -> str:
    """The inverse."""
    if type(stored) is bytes and stored.startswith(_HALVED):
        return _PULL + decoded(stored[1:])
    return unname(stored)


def _uuid(packed: bytes) -> str:
    return f"{(h := packed.hex())[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def parent_of(blob: bytes) -> bytes | None:
    """The parent that a row names, as part of its place."""
    if len(blob) < _HEAD.size + UUID_BYTES:  # the reader will notice
        return None
    length, _ = _HEAD.unpack_from(blob)
    end = _HEAD.size + (UUID_BYTES if length == UUID else length - 1)
    if length == UUID:
        return _uuid(blob[_HEAD.size : end]).encode()
    return blob[_HEAD.size : end] if length else None


def pack_write(row: WriteRow) -> bytes:
    run = None if row.run is None else _halved(row.run)
    place = _halved(row.task_id), row.idx, row.width, _short_path(row.path)
    return _HEAD.pack(0, len(row.refs)) + row.refs + ormsgpack.packb([*place, run, row.body])


def _unpack_write(ns: str, id: str, blob: bytes) -> WriteRow:
    """The inverse; raises `_GARBLED`."""
    parent, refs = _HEAD.unpack_from(blob)
    if parent:
        raise ValueError("it has a parent")
    end = _HEAD.size + refs
    task, idx, count, path, run, body = ormsgpack.unpackb(blob[end:])
    named = _whole(task), idx, count, _long_path(path), None if run is None else _whole(run)
    return WriteRow(ns, id, *named, blob[_HEAD.size : end], bytes(body))


def refs(thread_id: str, row: CheckpointRow | WriteRow) -> Sequence[Ref]:
    try:
        return unpack_refs(row.refs)
    except seal.Damaged as error:
        raise seal.damaged(f"thread {thread_id!r}, checkpoint {row.id}", error) from error


def all_refs(thread_id: str, row: CheckpointRow, writes: Iterable[WriteRow]) -> Iterator[Ref]:
    """The refs of a checkpoint and its writes, verified: a damaged count could be of billions."""
    records: Sequence[CheckpointRow | WriteRow] = [row, *writes]
    for each in records:
        try:
            each.bare(thread_id)
        except seal.Damaged as error:
            raise seal.damaged(f"thread {thread_id!r}, checkpoint {row.id}", error) from error
        yield from refs(thread_id, each)


_ROW_OF_TASK = struct.Struct(">iII")


def pack_task(rows: Iterable[tuple[int, int, bytes]]) -> bytes:
    """All rows of one task: index, count and bytes of each."""
    return b"".join(_ROW_OF_TASK.pack(idx, many, len(row)) + row for idx, many, row in rows)


def unpack_task(packed: bytes) -> list[tuple[int, int, bytes]]:
    """The inverse; raises `struct.error`."""
    found, at = [], 0
    while at < len(packed):
        idx, many, length = _ROW_OF_TASK.unpack_from(packed, at)
        at += _ROW_OF_TASK.size + length
        if at > len(packed):
            raise struct.error("the rows of a task are cut off")
        found.append((idx, many, packed[at - length : at]))
    return found


def is_of(packed: bytes, name: bytes) -> bool:
    """Whether these are the rows of the task of that name, as msgpack; raises `struct.error`."""
    _, refs = _HEAD.unpack_from(packed, _ROW_OF_TASK.size)
    return packed.startswith(name, _ROW_OF_TASK.size + _HEAD.size + refs + 1)


def task_name(task_id: str) -> bytes:
    """A task's name as it stands at the beginning of its rows' `rest`."""
    return ormsgpack.packb(_halved(task_id))


# ---- pages of tasks ------------------------------------------------------------------------------

PAGE, INSIDE, APART = 1024, 256, 0xFFFFFFFF
"""Bytes with which a page is full, how many of a task's rows go on the first page, and the length
that stands for rows in a field of their own; as in `scripts/thread.lua`."""

_COUNT, _LENGTH = struct.Struct(">H"), struct.Struct(">I")


class Listed(NamedTuple):
    """A task on a page: its rows, or else the digest that names the field where they are."""

    rows: bytes | None
    digest: bytes = b""


def pack_page(tasks: Iterable[Listed]) -> bytes:
    """Tasks that wrote at a place: how many, of each the length of its rows, and these, or its
    digest."""
    packed = [
        _LENGTH.pack(APART) + digest if own is None else _LENGTH.pack(len(own)) + own
        for own, digest in tasks
    ]
    return _COUNT.pack(len(packed)) + b"".join(packed)


def unpack_page(page: bytes) -> list[Listed]:
    """The inverse; raises `struct.error`."""
    found: list[Listed] = []
    (count,), at = _COUNT.unpack_from(page), _COUNT.size
    while at < len(page):
        (length,) = _LENGTH.unpack_from(page, at)
        at += _LENGTH.size
        end = at + (DIGEST if length == APART else length)
        if not at < end <= len(page):
            raise struct.error("a page of tasks is cut off")
        some, at = page[at:end], end
        found.append(Listed(None, some) if length == APART else Listed(some))
    if len(found) != count:
        raise struct.error(f"of {count} tasks on a page {len(found)} are there")
    return found


def listed(page: bytes | None) -> list[Listed]:
    """The tasks on a stored page. What cannot be taken apart is handed on: a reader will notice."""
    if page is None:
        return []
    try:
        return unpack_page(page)
    except struct.error:
        return [Listed(page)]


def unpack_tasks(
    thread_id: str, ns: str, id: str, tasks: Sequence[bytes | None]
) -> tuple[WriteRow, ...]:
    """The rows of all tasks of a checkpoint, each as `pack_task` made it; none may be missing."""
    made: list[WriteRow] = []
    try:
        for packed in tasks:
            if packed is None:
                raise seal.Damaged("the writes of a task are missing")
            for idx, width, blob in unpack_task(packed):
                row = _unpack_write(ns, id, blob)
                if (row.idx, row.width) != (idx, width):
                    raise seal.Damaged("the writes of a task are of other indices")
                made.append(row)
    except _GARBLED as error:
        where = f"thread {thread_id!r}, checkpoint {id}"
        raise seal.damaged(where, seal.Damaged(f"a record of pending writes: {error}")) from error
    return tuple(made)


def tasks_or_lost(
    thread_id: str, ns: str, id: str, tasks: Sequence[bytes | None]
) -> tuple[WriteRow, ...]:
    """The same for a listing, in which one checkpoint's damage must not hide the others."""
    try:
        return unpack_tasks(thread_id, ns, id, tasks)
    except CorruptionError:
        return (lost_writes(ns, id),)
