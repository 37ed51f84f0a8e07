"""Bytes that know their place: checksums, and compression under them.

Everything a store keeps passes through here last on the way in and first on the way out. A
*sealed* blob is eight bytes of checksum followed by the payload, and the checksum covers the
payload **and the place** it was written for, so that a flipped bit and a row in the wrong place
look the same: `CorruptionError`. The checksum (xxh3, 64 bit) is against accidents, not attackers.

Items are many and small, so their place is folded into the seed: `log_seed` once per log, plus
the item's number. Records are few, so their place is spelled out and hashed with them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import lru_cache

import ormsgpack
import xxhash
import zstandard

from langgraph_durable._core.dictionary import DICTIONARY
from langgraph_durable.errors import CorruptionError

SUM = 8
_MASK = (1 << 64) - 1

PLAIN, ZSTD = 0, 1
"""First byte of a packed payload: as it is, or zstd with the dictionary of this release."""

SMALLEST_TO_COMPRESS = 96
LARGEST_PAYLOAD = 2 << 30
"""A declared size above this is refused before anything is inflated."""


class Damaged(Exception):
    """A checksum does not fit. The caller knows the place and raises `CorruptionError` with it."""


class _Zstd(threading.local):
    """zstd contexts are not thread-safe, so each thread has its own."""

    def __init__(self) -> None:
        dictionary = zstandard.ZstdCompressionDict(DICTIONARY)
        self.compress = zstandard.ZstdCompressor(
            level=3, dict_data=dictionary, write_checksum=False, write_dict_id=False
        ).compress
        self.decompress = zstandard.ZstdDecompressor(dict_data=dictionary).decompress


_zstd = _Zstd()


def pack(raw: bytes) -> bytes:
    """`raw`, compressed where that saves something."""
    if len(raw) >= SMALLEST_TO_COMPRESS:
        small = _zstd.compress(raw)
        if len(small) < len(raw):
            return b"\x01" + small
    return b"\x00" + raw


def unpack(payload: bytes) -> bytes:
    """What `pack` was given."""
    if payload[:1] == b"\x00":
        return payload[1:]
    if payload[:1] != b"\x01":
        raise Damaged("unknown packing")
    body = payload[1:]
    try:
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= LARGEST_PAYLOAD:
            raise Damaged(f"a size of {size} bytes is declared")
        return _zstd.decompress(body)
    except zstandard.ZstdError as error:
        raise Damaged(str(error)) from error


@lru_cache(maxsize=4096)
def log_seed(thread_id: str, log: str) -> int:
    """The place of a log, to which an item's number is added."""
    return xxhash.xxh3_64_intdigest(names(("i", thread_id, log)))


def seal_item(seed: int, number: int, payload: bytes) -> bytes:
    return xxhash.xxh3_64_digest(payload, (seed + number) & _MASK) + payload


def open_item(seed: int, number: int, blob: bytes) -> bytes:
    payload = blob[SUM:]
    if xxhash.xxh3_64_digest(payload, (seed + number) & _MASK) != blob[:SUM]:
        raise Damaged("checksum")
    return payload


def seal(place: bytes, payload: bytes) -> bytes:
    return xxhash.xxh3_64_digest(place + payload) + payload


def open_sealed(place: bytes, blob: bytes) -> bytes:
    payload = blob[SUM:]
    if xxhash.xxh3_64_digest(place + payload) != blob[:SUM]:
        raise Damaged("checksum")
    return payload


def name(text: str) -> str | bytes:
    """`text` as stores and msgpack can hold it: UTF-8 text, or bytes if it has lone surrogates.

    The two never meet (a str and its surrogate bytes are different keys), so this is exact.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unname(stored: str | bytes) -> str:
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")


def names(parts: Iterable[str | bytes | int | None]) -> bytes:
    """Parts of a place as unambiguous bytes."""
    return ormsgpack.packb([name(part) if isinstance(part, str) else part for part in parts])


def damaged(where: str, error: Damaged) -> CorruptionError:
    """The error for bytes that do not fit, naming where they are."""
    return CorruptionError(
        f"{where}: the stored bytes are not what was written ({error}). Other threads are not "
        "affected; restore this one from a backup, or continue from an earlier checkpoint."
    )
