"""Which items leave the row, and what stands there instead.

An item above the threshold is uploaded before its draft is sent; its payload is a claim. So
digests, sharing, copying and retention treat it like any other item. Items that hold `Artifact`
handles stay where they are; their claims are noted beside them. The claims of each new item go to
the store with it, in the same transaction, so that it is known what is alive without reading any
item. The I/O is behind `Shelf`, which `langgraph_durable.artifacts` implements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from langgraph_durable._core import seal
from langgraph_durable._core.claims import Claim, Desk

if TYPE_CHECKING:
    from langgraph_durable._core.storage import Storage


class UnknownStore(Exception):
    """A claim's store was entered, or its content moved, since the names were read: read them."""

    def __init__(self, store: str) -> None:
        super().__init__(store)
        self.store = store


class Upload(NamedTuple):
    """Content that must be in its store before the row that claims it."""

    claim: Claim
    content: Any
    """Bytes, a handle, or a function that opens a stream."""


class Shelf(Desk, Protocol):
    """The artifact stores of one saver."""

    above: float
    """Items with more bytes are offloaded; infinite where there is no store to write to."""
    writes: bool
    """There is a store to write to."""
    store: str
    """Its id."""
    is_ready: bool
    is_entered: bool
    is_behind: bool
    has_news: bool
    """Something was found missing or altered: a put of its content is to store it again."""

    async def prepare(self, storage: Storage) -> None: ...
    async def enter(self, storage: Storage) -> None: ...
    async def refresh(self, storage: Storage, unknown: str | None = None) -> bool: ...
    def claim_on(self, raw: bytes, sha: bytes) -> Claim: ...
    def broken(self) -> Sequence[Claim]: ...
    def renew(self, claims: Iterable[Claim]) -> None: ...
    def keep(self, uploads: Sequence[Upload]) -> None: ...
    def confirm(self, uploads: Sequence[Upload]) -> None: ...
    def fetch(self, claims: Sequence[Claim]) -> list[bytes | None]: ...


class Packed(NamedTuple):
    """New items, ready to be stored."""

    items: dict[bytes, bytes]
    claims: Mapping[bytes, tuple[Claim, ...]]
    """By the digest of the item, where it has any."""
    uploads: Sequence[Upload] = ()
    """What must be in its store, and is looked for again when the row is written."""


def pack(
    raws: Mapping[bytes, bytes],
    shelf: Shelf,
    handles: Mapping[Claim, Any],
    hashes: Mapping[bytes, bytes],
    *,
    readable: bool,
) -> Packed:
    """Pack new items; what leaves them is in its store when this returns.

    `hashes` are those of the large items. Where a serialiser of the user's makes items that are
    not `readable`, each may hold every handle that was met.
    """
    sha_of = {id(raw): sha for sha, raw in hashes.items()}
    items: dict[bytes, bytes] = {}
    claims: dict[bytes, tuple[Claim, ...]] = {}
    uploads: dict[Claim, Any] = {}
    for digest, raw in raws.items():
        # A claim's hash stands in the item as it is, so this finds every handle inside it.
        own = {
            claim: handle for claim, handle in handles.items() if claim.sha in raw or not readable
        }
        if id(raw) in sha_of and raw[:1] != seal.SPINE_MARK:
            claim = shelf.claim_on(raw, sha_of[id(raw)])
            items[digest] = seal.CLAIM + claim.packed()
            own[claim] = raw
        else:
            items[digest] = seal.pack(raw)
        if own:
            claims[digest] = tuple(own)
            uploads.update(own)
    at_hand = {claim.sha: content for claim, content in (*handles.items(), *uploads.items())}
    for claim in shelf.broken():  # is healed, though no new item claims it
        if claim.sha in at_hand:
            uploads.setdefault(claim, at_hand[claim.sha])
    wanted = [Upload(claim, content) for claim, content in uploads.items()]
    shelf.keep(wanted)
    return Packed(items, claims, wanted)
