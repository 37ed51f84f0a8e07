"""Bytes that know their place: checksums, and compression under them.

Everything a store keeps passes through here last on the way in and first on the way out. A
*sealed* blob is eight bytes of checksum followed by the payload, and the checksum covers the
payload **and the place** it was written for, so that a flipped bit and a row in the wrong place
look the same: `CorruptionError`. The checksum (xxh3, 64 bit) is against accidents, not attackers.

Items are many and small, so their place is folded into the seed: `log_seed` of the thread, plus
the item's number. Records are few, so their place is spelled out and hashed with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import ormsgpack
import xxhash
import zstandard

from langgraph_durable._core.dictionary import DICTIONARY
from langgraph_durable.errors import CorruptionError

SUM = 8
_MASK = (1 << 64) - 1

# First byte of a packed payload. Stored data holds these: never reuse one.
_PLAIN, _ZSTD = b"\x00", b"\x01"  # as it is; zstd with the dictionary of this release
_SPINE = b"\x02"  # runs of numbers, as they are, so that a store can read them
CLAIM = b"\x03"
"""Starts the payload of an item whose bytes are in an artifact store; see `claims`."""
SPINE_MARK = b"\xfe"
"""The first byte of the raw form of a spine item; no serialised value starts with it."""

CLAIM_MARK = b"\xfd"
"""The same for an item that is a claim, in a dump; see `dumps.unpacked`."""

LEVEL = 3
"""A message of 600 bytes: 5 us, and 5 % smaller than level 1 in 4 us; level 6 takes 19 us for 5 %.

`benchmarks/train_dictionary.py` measures it. Without the dictionary it is 50 % larger, in 8 us.
"""
SMALLEST_TO_COMPRESS = 256
"""Between other work a call takes 14 us, however short the input: less saves too little."""
LARGEST_TO_COMPRESS = 2 << 30
"""A larger declared size is refused before anything is inflated."""

_MAGIC = b"\x28\xb5\x2f\xfd"  # starts every zstd frame, so it is not stored
_ALONE = 0, False, False  # no size from us, and nothing behind the frame
_USUAL = b"\x60"
"""How a frame begins that declares 256 to 65,791 bytes: it has no room to declare more."""
_MOST_IN_A_BYTE = 1 << 15  # zstd spends at least four bytes on a block of 128 KiB


class Damaged(Exception):
    """A checksum does not fit. The caller knows the place and raises `CorruptionError` with it."""


_dictionary = zstandard.ZstdCompressionDict(DICTIONARY)
# Digested once, then only read: zstd lets any number of contexts and threads share it.
_dictionary.precompute_compress(level=LEVEL)


class _Pool:
    """zstd contexts, for one call at a time each: they are not thread-safe.

    Not one per thread, because LangGraph starts new threads for every run, and a new context takes
    17 us for its first call, an idle one 1.4.
    """

    def __init__(self, make: Callable[[], Callable[..., bytes]]) -> None:
        self._make = make
        self._idle: deque[Callable[..., bytes]] = deque(maxlen=IDLE_CONTEXTS)

    def __call__(self, *data: Any) -> bytes:
        work = self.take()
        out = work(*data)
        self.give(work)
        return out

    def take(self) -> Callable[..., bytes]:
        """One for several calls; one that has failed is not given back."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def give(self, work: Callable[..., bytes]) -> None:
        self._idle.append(work)


IDLE_CONTEXTS = 8
_compress = _Pool(
    lambda: (
        zstandard.ZstdCompressor(
            level=LEVEL, dict_data=_dictionary, write_checksum=False, write_dict_id=False
        ).compress
    )
)
_decompress = _Pool(lambda: zstandard.ZstdDecompressor(dict_data=_dictionary).decompress)


def pack(raw: bytes) -> bytes:
    """`raw`, compressed where that saves something."""
    if raw[:1] == SPINE_MARK:
        return _SPINE + raw[1:]
    if SMALLEST_TO_COMPRESS <= len(raw) <= LARGEST_TO_COMPRESS:
        small = _compress(raw)
        if len(small) < len(raw):
            return _ZSTD + small[len(_MAGIC) :]
    return _PLAIN + raw


def unpack(payload: bytes) -> bytes:
    """What `pack` was given."""
    code = payload[:1]
    if code == _PLAIN:
        return payload[1:]
    if code == _SPINE:
        return SPINE_MARK + payload[1:]
    if code != _ZSTD:
        raise Damaged("unknown packing")
    frame = _MAGIC + payload[1:]
    try:
        size = zstandard.frame_content_size(frame)
        # python-zstandard reserves the declared size, and takes a size of 0 at its word.
        if not 0 < size <= min(LARGEST_TO_COMPRESS, len(frame) * _MOST_IN_A_BYTE):
            raise Damaged(f"a size of {size} bytes is declared")
        return _decompress(frame, *_ALONE)
    except zstandard.ZstdError as error:
        raise Damaged(str(error)) from error


@lru_cache(maxsize=4096)
def log_seed(thread_id: str) -> int:
    """The place of a thread's log, to which an item's number is added."""
    return xxhash.xxh3_64_intdigest(names(("i", thread_id)))


def seal_item(seed: int, number: int, payload: bytes) -> bytes:
    return xxhash.xxh3_64_digest(payload, (seed + number) & _MASK) + payload


def open_item(seed: int, number: int, blob: bytes) -> bytes:
    payload = blob[SUM:]
    if xxhash.xxh3_64_digest(payload, (seed + number) & _MASK) != blob[:SUM]:
        raise Damaged("checksum")
    return payload


def unpack_items(
    seed: int, numbers: Iterable[int], items: Mapping[int, bytes], out: dict[int, bytes]
) -> dict[int, bytes]:
    """`open_item` and `unpack` of many, into `out`; the payloads that are claims are returned.

    A conversation that is not in memory passes through here whole.
    """
    digest, decompress, elsewhere = xxhash.xxh3_64_digest, _decompress.take(), {}
    try:
        for n in numbers:
            blob = items.get(n)
            if blob is None:
                raise Damaged(f"item {n} is missing")
            payload = blob[SUM:]
            if digest(payload, (seed + n) & _MASK) != blob[:SUM]:
                raise Damaged("checksum")
            code = payload[:1]
            if code == _ZSTD and payload[1:2] == _USUAL:
                out[n] = decompress(_MAGIC + payload[1:], *_ALONE)
            elif code == CLAIM:
                elsewhere[n] = payload
            else:
                out[n] = unpack(payload)
    except zstandard.ZstdError as error:
        raise Damaged(str(error)) from error
    _decompress.give(decompress)
    return elsewhere


def peek_spine(blob: bytes) -> tuple[int, ...]:
    """The runs in a sealed spine item, unverified; none if it is something else."""
    if blob[SUM : SUM + 1] != _SPINE:
        return ()
    try:
        runs = ormsgpack.unpackb(blob[SUM + 1 :])
        return tuple(runs) if set(map(type, runs)) == {int} and min(runs) >= 0 else ()
    except (ValueError, TypeError):
        return ()


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
    return _name(text)


@lru_cache(maxsize=4096)
def _name(text: str) -> str | bytes:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def unname(stored: str | bytes) -> str:
    if isinstance(stored, str):
        return stored
    if not isinstance(stored, bytes):
        raise Damaged(f"{stored!r} is not a name")
    return stored.decode("utf-8", "surrogatepass")


def names(parts: Iterable[str | bytes | int | None]) -> bytes:
    """Parts of a place as unambiguous bytes."""
    listed = list(parts)
    try:
        return ormsgpack.packb(listed)
    except TypeError:  # a lone surrogate
        return ormsgpack.packb([name(part) if isinstance(part, str) else part for part in listed])


def damaged(where: str, error: Damaged) -> CorruptionError:
    """The error for bytes that do not fit, naming where they are."""
    return CorruptionError(
        f"{where}: the stored bytes are not what was written ({error}). Other threads are not "
        "affected; restore this one from a backup, or continue from an earlier checkpoint."
    )
