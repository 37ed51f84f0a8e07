"""An archive: threads in one file, block by block.

    file    MAGIC, then blocks
    block   kind (1 byte), length of the payload (4, big-endian), digest (16), payload
    digest  xxh3-128 of: offset of the block in the file (8, big-endian), kind, payload
    payload a zstd frame (with its size declared) of one msgpack value

    A   the archive: {"format": 1}; the first block
    T   a thread begins: [thread id, {namespace: head}, checkpoints, rows of writes, items]
    I   items: [[number, bytes], ...]
    C   checkpoints: [[ns, id, parent, run, refs, body], ...]
    W   rows of pending writes: [[ns, id, task id, idx, count, path, run, refs, body], ...]
    E   the thread ends: null
    Z   the archive ends: the number of threads; nothing comes after it

Items and bodies are the serialised bytes themselves, so an archive can be read with any backend.
The digests are against accidents: a byte that changed, a block that moved, an end that is missing.
What is wrong is a `DamagedArchive` that names the file, the byte and the thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import ormsgpack
import xxhash
import zstandard

from langgraph_durable._core.dumps import Dump
from langgraph_durable._core.records import CheckpointRow, WriteRow
from langgraph_durable._core.seal import name, unname
from langgraph_durable.errors import ConfigurationError, DamagedArchive

MAGIC = b"\x89LGD\r\n\x1a\n"
"""As PNG's: a transfer that changes line ends, or drops the eighth bit, is noticed at once."""
FORMAT = 1
BLOCK = 1 << 20
"""Bytes gathered in a block, before it is compressed."""
LARGEST = (1 << 32) - 1
_HEAD = struct.Struct(">cI16s")
_OFFSET = struct.Struct(">Q")
_MOST_IN_A_BYTE = 1 << 15


def _digest(offset: int, kind: bytes, payload: bytes) -> bytes:
    return xxhash.xxh3_128_digest(_OFFSET.pack(offset) + kind + payload)


def _optional(text: str | None) -> str | bytes | None:
    return None if text is None else name(text)


def _text(stored: Any) -> str | None:
    return None if stored is None else unname(stored)


class Writer:
    """Writes an archive to a file that is open for writing, from its beginning."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._zstd = zstandard.ZstdCompressor(level=3)
        self.threads = 0
        self.size = file.write(MAGIC)
        self._block(b"A", {"format": FORMAT})

    def add(self, dump: Dump) -> None:
        """Append a thread; `dump` is unpacked."""
        heads = [[name(ns), name(id)] for ns, id in dump.heads.items()]
        counts = len(dump.rows), len(dump.writes), len(dump.items)
        self._block(b"T", [name(dump.thread_id), heads, *counts])
        self._blocks(b"I", ([n, raw] for n, raw in dump.items.items()))
        self._blocks(b"C", map(_checkpoint, dump.rows))
        self._blocks(b"W", map(_write, dump.writes))
        self._block(b"E", None)
        self.threads += 1

    def end(self) -> None:
        self._block(b"Z", self.threads)

    def _blocks(self, kind: bytes, records: Iterable[list[Any]]) -> None:
        gathered: list[list[Any]] = []
        size = 0
        for record in records:
            gathered.append(record)
            size += sum(len(part) for part in record if isinstance(part, bytes)) + 64
            if size >= BLOCK:
                self._block(kind, gathered)
                gathered, size = [], 0
        if gathered:
            self._block(kind, gathered)

    def _block(self, kind: bytes, value: Any) -> None:
        payload = self._zstd.compress(ormsgpack.packb(value))
        if len(payload) > LARGEST:
            raise ConfigurationError("a value of more than 4 GiB does not fit into an archive")
        head = _HEAD.pack(kind, len(payload), _digest(self.size, kind, payload))
        self.size += self._file.write(head) + self._file.write(payload)


def _checkpoint(row: CheckpointRow) -> list[Any]:
    place = [name(row.ns), name(row.id), _optional(row.parent), _optional(row.run)]
    return [*place, row.refs, row.body]


def _write(row: WriteRow) -> list[Any]:
    place = [name(row.ns), name(row.id), name(row.task_id), row.idx, row.count, name(row.path)]
    return [*place, _optional(row.run), row.refs, row.body]


class Reader:
    """Reads an archive, a thread at a time; everything is verified before it is given out."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path, self._at = file, path, len(MAGIC)
        self._thread: str | None = None
        if file.read(len(MAGIC)) != MAGIC:
            raise DamagedArchive(f"{path} is not an archive of langgraph_durable")
        header = self._expect(b"A")
        version = header.get("format") if isinstance(header, dict) else None
        if version != FORMAT:
            raise DamagedArchive(
                f"{path}: the archive has format {version}, and this version of "
                f"langgraph_durable reads format {FORMAT}: upgrade the package"
            )

    def threads(self) -> Iterator[Dump]:
        """All threads, unpacked; the end of the file is verified too."""
        count = 0
        while (block := self._next())[0] == b"T":
            yield self._dump(block[1])
            self._thread = None
            count += 1
        if block[0] != b"Z" or block[1] != count or self._file.read(1):
            raise self._damaged("the end of the archive does not fit what comes before")

    def _dump(self, begin: Any) -> Dump:
        try:
            key, heads, *counts = begin
            self._thread = thread_id = unname(key)
            items: dict[int, bytes] = {}
            rows: list[CheckpointRow] = []
            writes: list[WriteRow] = []
            while (block := self._next())[0] != b"E":
                kind, records = block
                if kind == b"I":
                    items.update(records)
                elif kind == b"C":
                    rows += map(_read_checkpoint, records)
                elif kind == b"W":
                    writes += map(_read_write, records)
                else:
                    raise self._damaged(f"a block of kind {kind!r} does not belong here")
            if counts != [len(rows), len(writes), len(items)]:
                raise self._damaged("parts of the thread are missing")
            placed = {unname(ns): unname(id) for ns, id in heads}
            return Dump(thread_id, tuple(rows), tuple(writes), placed, items)
        except (TypeError, ValueError) as error:
            raise self._damaged(f"a record cannot be read: {error}") from error

    def _expect(self, kind: bytes) -> Any:
        found, value = self._next()
        if found != kind:
            raise self._damaged(f"a block of kind {found!r} does not belong here")
        return value

    def _next(self) -> tuple[bytes, Any]:
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise self._damaged("the file ends here, and is cut off")
        kind, length, digest = _HEAD.unpack(head)
        payload = self._read(length)
        if _digest(self._at, kind, payload) != digest:
            raise self._damaged("the bytes are not what was written")
        value = self._unpacked(payload)
        self._at += len(head) + length
        return kind, value

    def _read(self, length: int) -> bytes:
        """So many bytes; in pieces, because a length that was altered may be any."""
        parts = []
        while length:
            part = self._file.read(min(length, 16 * BLOCK))
            if not part:
                raise self._damaged("the file ends in this block, and is cut off")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _unpacked(self, payload: bytes) -> Any:
        try:
            size = zstandard.frame_content_size(payload)
            if not 0 < size <= max(len(payload), 1) * _MOST_IN_A_BYTE:
                raise self._damaged(f"a block declares {size} bytes")
            return ormsgpack.unpackb(zstandard.ZstdDecompressor().decompress(payload))
        except (zstandard.ZstdError, ValueError) as error:
            raise self._damaged(f"a block cannot be read: {error}") from error

    def _damaged(self, what: str) -> DamagedArchive:
        thread = "" if self._thread is None else f", in thread {self._thread!r}"
        return DamagedArchive(f"{self._path}, at byte {self._at:,}{thread}: {what}")


def _read_checkpoint(record: Sequence[Any]) -> CheckpointRow:
    ns, id, parent, run, refs, body = record
    return CheckpointRow(unname(ns), unname(id), _text(parent), _text(run), refs, body)


def _read_write(record: Sequence[Any]) -> WriteRow:
    ns, id, task, idx, count, path, run, refs, body = record
    return WriteRow(
        unname(ns), unname(id), unname(task), idx, count, unname(path), _text(run), refs, body
    )
