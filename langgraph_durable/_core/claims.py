"""A claim: what stands in a row for content that lies in an artifact store.

It names the store by the id under which the database knows it (see `Storage.stores`), and the
content by its SHA-256 and size; `packing` says whether the object is compressed. An item whose
bytes were offloaded *is* a claim; an `Artifact` inside a value is stored as one, with its name and
media type. While values are encoded, the handles met are collected per thread of execution, so
that the serialiser, which knows no saver, can still say what has to be uploaded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import ormsgpack
import xxhash

from langgraph_durable._core import seal
from langgraph_durable._core.kinds import GONE, LEAD
from langgraph_durable._core.memory import SEED
from langgraph_durable.errors import CorruptionError

PLAIN, ZSTD = 0, 1
_GONE_LEAD = bytes((0, LEAD, GONE))
_ID = re.compile(r"[0-9a-f]{16}")
_SUFFIX = {PLAIN: "", ZSTD: ".zst"}
KEY = re.compile(r"lgd-([0-9a-f]{16})/([0-9a-f])/(\2[0-9a-f]{63})(\.zst)?")
"""The names of our objects, and of nobody else's."""


class Claim(NamedTuple):
    store: str
    sha: bytes
    size: int
    """Of the content, before compression."""
    packing: int = PLAIN

    @property
    def key(self) -> str:
        """The name of the object in its store; made of hexadecimal digits, so it leads nowhere."""
        name = self.sha.hex()
        return f"{folder(self.store)}{name[0]}/{name}{_SUFFIX[self.packing]}"

    def packed(self) -> bytes:
        return ormsgpack.packb([*self])


def mark_of(sha: bytes) -> bytes:
    """What the memory knows an offloaded item by, where its bytes are not at hand."""
    return xxhash.xxh3_128_digest(b"claim" + sha, SEED)


def folder(store: str) -> str:
    """What the keys of all objects of a store begin with."""
    return f"lgd-{store}/"


def is_store(id: object) -> bool:
    """Whether this can be the id of a store."""
    return isinstance(id, str) and _ID.fullmatch(id) is not None


@lru_cache(maxsize=4096)
def unpack(packed: bytes) -> Claim:
    """The inverse of `Claim.packed`; raises `Damaged`. Nothing else gets into a key."""
    try:
        store, sha, size, packing = ormsgpack.unpackb(packed)
        fits = is_store(store) and type(sha) is bytes and len(sha) == 32
        if fits and type(size) is int and size >= 0 and packing in _SUFFIX:
            return Claim(store, sha, size, packing)
    except (ValueError, TypeError):
        pass
    raise seal.Damaged("a claim on an artifact cannot be read")


class MissingArtifact:
    """Stands for a value whose artifact is gone, with `on_missing_artifact="placeholder"`.

    It says what was there, and cannot be stored again.
    """

    __slots__ = ("claim",)

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    def __repr__(self) -> str:
        return f"<MissingArtifact {self.claim.key}, {self.claim.size:,} bytes>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MissingArtifact) and other.claim == self.claim

    def __hash__(self) -> int:
        return hash(self.claim)


def missing(packed: Any) -> MissingArtifact:
    """What a record of kind `GONE` stands for."""
    try:
        return MissingArtifact(unpack(packed))
    except seal.Damaged as error:
        raise CorruptionError(str(error)) from error


def gone_item(claim: Claim) -> bytes:
    """An item that stands for one whose artifact is gone; never stored."""
    return _GONE_LEAD + ormsgpack.packb(claim.packed())


def load_gone(raw: bytes) -> MissingArtifact | None:
    """What `gone_item` stands for; None if it is another item."""
    return missing(ormsgpack.unpackb(raw[3:])) if raw.startswith(_GONE_LEAD) else None


class Desk(Protocol):
    """Says under which claim a handle is to be stored; raises `Unstorable`."""

    def claim_for(self, handle: Any) -> Claim: ...


class _Collecting(threading.local):
    desk: Desk | None = None
    found: dict[Claim, Any] | None = None
    place: tuple[str, ...] = ()


collecting = _Collecting()
"""The desk of the value that is being encoded in this thread, and the handles met so far."""


def place() -> str:
    """Which thread, checkpoint and channel the value that is being decoded here belongs to."""
    if not collecting.place:
        return ""
    where, role, channel = collecting.place
    return f"{where}, {role} {channel!r}: "


def collect(handle: Any) -> Claim | None:
    """The claim of a handle inside a value that is being encoded; None if no saver encodes it."""
    if collecting.desk is None or collecting.found is None:
        return None
    claim = collecting.desk.claim_for(handle)
    collecting.found[claim] = handle
    return claim


@contextmanager
def collected(desk: Desk | None) -> Iterator[None]:
    """Serialise values that are not stored: a handle inside them is told by its claim."""
    collecting.desk, collecting.found = desk, {}
    try:
        yield
    finally:
        collecting.desk = collecting.found = None
