"""An archive: threads in one file, block by block.

    file    MAGIC, then blocks
    block   kind (1 byte), length of the payload (4, big-endian), digest (16), payload
    digest  xxh3-128 of: offset of the block in the file (8, big-endian), kind, payload
    payload a zstd frame (with its size declared) of one msgpack value

    A   the archive: {"format": 1, "artifacts": "include" or "reference"}; the first block
    O   a piece of an artifact: [sha256, size of the whole, offset, bytes]; its pieces follow each
        other, and come once, before the first thread that claims the artifact
    S   where artifacts lie that are not included: {id of a store: [URL, ...]}
    T   a thread begins: [thread id, [[namespace, head], ...], checkpoints, rows of writes, items,
        claims]
    I   items: [[number, bytes], ...]
    K   what items claim: [[number, claim], ...]; a claim is msgpack: [id of a store, sha256, size,
        packing in the store (0 none, 1 zstd)]. An item that is 0xfd and a claim lies in the store
    C   checkpoints: [[ns, id, parent, run, refs, body], ...]
    W   rows of pending writes: [[ns, id, task id, idx, count, path, run, refs, body], ...]
    E   the thread ends: null
    Z   the archive ends: the number of threads; nothing comes after it

Items and bodies are the serialised bytes themselves, so an archive can be read with any backend;
artifacts are their content, whatever the packing. An artifact must have its SHA-256.
The digests are against accidents: a byte that changed, a block that moved, an end that is missing.
Against malice, `soundness` looks at all that a thread is made of, and blocks are bounded before
they are unpacked. What is wrong is a `DamagedArchive` that names file, byte and thread.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal

import ormsgpack
import xxhash
import zstandard

from langgraph_durable._core import claims
from langgraph_durable._core.claims import Claim
from langgraph_durable._core.dumps import Dump
from langgraph_durable._core.records import CheckpointRow, WriteRow
from langgraph_durable._core.seal import Damaged, name, unname
from langgraph_durable.errors import ConfigurationError, DamagedArchive
from langgraph_durable.moving import soundness

Artifacts = Literal["include", "reference"]
MAGIC = b"\x89LGD\r\n\x1a\n"
"""As PNG's: a transfer that changes line ends, or drops the eighth bit, is noticed at once."""
FORMAT = 1
BLOCK = 1 << 20
"""Bytes gathered in a block, before it is compressed."""
LARGEST = (1 << 32) - 1
LARGEST_APART = 64 * BLOCK
"""What a block that is not part of a thread may unpack to."""
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

    def __init__(self, file: BinaryIO, artifacts: Artifacts) -> None:
        self._file = file
        self._zstd = zstandard.ZstdCompressor(level=3)
        self._contents: set[bytes] = set()
        self.threads = 0
        self.size = file.write(MAGIC)
        self._block(b"A", {"format": FORMAT, "artifacts": artifacts})

    def has(self, claim: Claim) -> bool:
        return claim.sha in self._contents

    def include(self, claim: Claim, content: BinaryIO) -> None:
        """Append an artifact; `content` verifies itself."""
        at = 0
        piece = content.read(BLOCK)
        while True:  # an empty one has a piece, too
            self._block(b"O", [claim.sha, claim.size, at, piece])
            at += len(piece)
            if not (piece := content.read(BLOCK)):
                break
        self._contents.add(claim.sha)

    def refer(self, stores: Mapping[str, Sequence[str]]) -> None:
        """Append where artifacts lie."""
        self._block(b"S", {id: list(urls) for id, urls in stores.items()})

    def add(self, dump: Dump) -> None:
        """Append a thread; `dump` is unpacked."""
        heads = [[name(ns), name(id)] for ns, id in dump.heads.items()]
        counts = len(dump.rows), len(dump.writes), len(dump.items), len(dump.claims)
        self._block(b"T", [name(dump.thread_id), heads, *counts])
        self._blocks(b"I", ([n, raw] for n, raw in dump.items.items()))
        self._blocks(b"K", map(list, dump.claims))
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
    place = [name(row.ns), name(row.id), name(row.task_id), row.idx, row.width, name(row.path)]
    return [*place, _optional(row.run), row.refs, row.body]


class _Blocks:
    """The blocks of a file from one on, each verified before it is given out."""

    def __init__(self, file: BinaryIO, path: str, at: int) -> None:
        self._file, self._path, self._at = file, path, at
        self._begin = at
        """Where the block begins that was read last."""
        self._thread: str | None = None
        self._room: int | None = None
        """How many bytes the thread that is being read may still unpack to."""

    def _next(self, *passed_over: bytes) -> tuple[bytes, Any]:
        """Kind and value of the next block; none of those that are passed over are read."""
        while True:
            head = self._file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                raise self._damaged("the file ends here, and is cut off")
            kind, length, digest = _HEAD.unpack(head)
            if kind not in passed_over:
                break
            self._file.seek(length, io.SEEK_CUR)
            self._at += len(head) + length
        payload = self._read(length)
        if _digest(self._at, kind, payload) != digest:
            raise self._damaged("the bytes are not what was written")
        value = self._unpacked(payload)
        self._begin, self._at = self._at, self._at + len(head) + length
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
        except zstandard.ZstdError as error:
            raise self._damaged(f"a block cannot be read: {error}") from error
        self._make_room(size)
        try:
            return ormsgpack.unpackb(zstandard.ZstdDecompressor().decompress(payload))
        except (zstandard.ZstdError, ValueError) as error:
            raise self._damaged(f"a block cannot be read: {error}") from error

    def _make_room(self, size: int) -> None:
        if self._room is None:
            if size > LARGEST_APART:
                raise self._damaged(f"a block declares {size} bytes")
            return
        self._room -= size
        if self._room < 0:
            raise ConfigurationError(
                f"{self._path}: thread {self._thread!r} unpacks to more than max_bytes= allows; "
                "nothing was written. Raise it if you trust whoever made the file."
            )

    def _damaged(self, what: str) -> DamagedArchive:
        thread = "" if self._thread is None else f", in thread {self._thread!r}"
        return DamagedArchive(f"{self._path}, at byte {self._at:,}{thread}: {what}")


class Reader(_Blocks):
    """Reads an archive, a thread at a time; everything is verified before it is given out.

    `contents` are the artifacts met so far, by SHA-256: where their first piece is; `Content` reads
    one. Who has read an archive through may pass them over the next time.
    """

    def __init__(
        self, file: BinaryIO, path: str, most: int, *, without_contents: bool = False
    ) -> None:
        super().__init__(file, path, len(MAGIC))
        self._most = most
        self._passed_over = (b"O",) if without_contents else ()
        self.contents: dict[bytes, int] = {}
        self.stores: dict[str, list[str]] = {}
        if file.read(len(MAGIC)) != MAGIC:
            raise DamagedArchive(f"{path} is not an archive of langgraph_durable")
        kind, header = self._next()
        version = header.get("format") if kind == b"A" and isinstance(header, dict) else None
        if version != FORMAT:
            raise DamagedArchive(
                f"{path}: the archive has format {version}, and this version of "
                f"langgraph_durable reads format {FORMAT}: upgrade the package"
            )
        self.includes = header.get("artifacts") == "include"

    def threads(self) -> Iterator[Dump]:
        """All threads, unpacked; the end of the file is verified too."""
        count = 0
        while (block := self._next(*self._passed_over))[0] in (b"T", b"O", b"S"):
            kind, value = block
            if kind == b"T":
                self._room = self._most
                yield self._dump(value)
                self._thread = self._room = None
                count += 1
            elif kind == b"O":
                self._look_at(value)
            else:
                self._learn(value)
        if block[0] != b"Z" or block[1] != count or self._file.read(1):
            raise self._damaged("the end of the archive does not fit what comes before")

    def _look_at(self, piece: Any) -> None:
        """Verify an artifact."""
        begin = self._begin
        digest, at = hashlib.sha256(), 0
        try:
            named, whole, _, _ = piece
            while True:
                sha, size, offset, data = piece
                if [sha, size, offset] != [named, whole, at] or at + len(data) > whole:
                    raise self._damaged("the pieces of an artifact do not follow each other")
                digest.update(data)
                at += len(data)
                if at == whole:
                    break
                kind, piece = self._next()
                if kind != b"O" or not data:
                    raise self._damaged("an artifact is not whole")
        except (TypeError, ValueError) as error:
            raise self._damaged(f"an artifact cannot be read: {error}") from error
        if digest.digest() != named:
            raise self._damaged("an artifact is not what its name says")
        self.contents[named] = begin

    def _learn(self, stores: Any) -> None:
        try:
            self.stores.update(soundness.check_places(stores.items()))
        except (AttributeError, TypeError, ValueError, Damaged) as error:
            raise self._damaged(f"a record cannot be read: {error}") from error

    def _dump(self, begin: Any) -> Dump:
        try:
            key, heads, *counts = begin
            self._thread = thread_id = unname(key)
            items: dict[int, bytes] = {}
            claimed: list[tuple[int, bytes]] = []
            rows: list[CheckpointRow] = []
            writes: list[WriteRow] = []
            while (block := self._next())[0] != b"E":
                kind, records = block
                if kind == b"I":
                    items.update(records)
                elif kind == b"K":
                    claimed += [(number, claim) for number, claim in records]
                elif kind == b"C":
                    rows += map(_read_checkpoint, records)
                elif kind == b"W":
                    writes += map(_read_write, records)
                else:
                    raise self._damaged(f"a block of kind {kind!r} does not belong here")
            if counts != [len(rows), len(writes), len(items), len(claimed)]:
                raise self._damaged("parts of the thread are missing")
            placed = {unname(ns): unname(id) for ns, id in heads}
            dump = Dump(thread_id, tuple(rows), tuple(writes), placed, items, tuple(claimed))
            soundness.check(dump)
            self._check_claims(dump)
            return dump
        except ConfigurationError:  # a ValueError, too
            raise
        except (TypeError, ValueError, Damaged) as error:
            raise self._damaged(f"a record cannot be read: {error}") from error

    def _check_claims(self, dump: Dump) -> None:
        found = [claims.unpack(packed) for _, packed in dump.claims]
        if not self.includes or self._passed_over:
            return
        if any(claim.sha not in self.contents for claim in found):
            raise self._damaged("an artifact that the thread needs is missing")


class Content(_Blocks, io.RawIOBase):
    """An artifact in an archive, as a stream; it closes the file."""

    def __init__(self, file: BinaryIO, path: str, at: int, size: int) -> None:
        super().__init__(file, path, at)
        file.seek(at)
        self._left, self._rest = size, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest and self._left:
            kind, piece = self._next()
            if kind != b"O":
                raise self._damaged("an artifact is not whole")
            self._rest = memoryview(piece[3])
            self._left -= len(self._rest)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _read_checkpoint(record: Sequence[Any]) -> CheckpointRow:
    ns, id, parent, run, refs, body = record
    return CheckpointRow(unname(ns), unname(id), _text(parent), _text(run), refs, body)


def _read_write(record: Sequence[Any]) -> WriteRow:
    ns, id, task, idx, count, path, run, refs, body = record
    return WriteRow(
        unname(ns), unname(id), unname(task), idx, count, unname(path), _text(run), refs, body
    )
