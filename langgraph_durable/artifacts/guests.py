"""Claims that come from another database: a place for their contents, before any row names them.

The ids are entered as they are, so no row is rewritten; `places` tells what is noted for them.
Other processes may enter a place for the same id at the same time: what is there is kept, and a
caller that brings many threads asks again before each.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO

from langgraph_durable._core.claims import Claim
from langgraph_durable._core.offload import Upload
from langgraph_durable._core.storage import Storage
from langgraph_durable.artifacts import media, places
from langgraph_durable.artifacts.shelf import Shelf, in_parallel
from langgraph_durable.artifacts.stores import ArtifactStore
from langgraph_durable.errors import ArtifactMissing


async def take_in(
    shelf: Shelf, storage: Storage, ids: Iterable[str], target: ArtifactStore
) -> None:
    """Have a place in `target` for what comes in under these ids; own ids have theirs."""
    await shelf.refresh(storage)
    for id in sorted(ids):
        urls = shelf.names.get(id, ())
        if places.is_own(urls):
            continue
        token = shelf.store or places.token_of(urls) or secrets.token_hex(8)
        await _enter(storage, id, urls, (places.guest(token, target.url),), ())
    await shelf.refresh(storage)


async def settle(shelf: Shelf, storage: Storage, ids: Iterable[str]) -> None:
    """`take_in` at the store that the saver writes to."""
    assert shelf.target is not None
    if not shelf.is_ready:
        await shelf.prepare(storage)
    if not shelf.is_entered:
        await shelf.enter(storage)
    await take_in(shelf, storage, ids, shelf.target)


async def borrow(shelf: Shelf, storage: Storage, lenders: Mapping[str, Sequence[str]]) -> None:
    """Read these ids at the places of another database, too."""
    for id, urls in lenders.items():
        await _enter(storage, id, shelf.names.get(id, ()), (), map(places.lent, urls))
    await shelf.refresh(storage)


async def _enter(
    storage: Storage,
    id: str,
    urls: tuple[str, ...],
    before: Iterable[str],
    after: Iterable[str],
) -> None:
    """Nobody writes to the last places: what is lent comes after everything else."""
    better = tuple(dict.fromkeys((*before, *urls, *after)))
    if better != urls:
        await storage.enter_store(id, better)


def receive(shelf: Shelf, claims: Iterable[Claim], opener: Callable[[Claim], BinaryIO]) -> None:
    """Have the contents of claims in their places; `opener` gives those that are not there yet."""

    def upload(claim: Claim) -> Upload:
        return Upload(claim, lambda: opener(claim))

    shelf.keep([upload(claim) for claim in claims])


def lacking(shelf: Shelf, claims: Sequence[Claim]) -> list[Claim]:
    """Those claims that lead nowhere, as far as this saver knows."""
    return _without(claims, lambda claim: map(shelf.at, shelf.names.get(claim.store, ())))


def lacking_at(
    shelf: Shelf, claims: Sequence[Claim], lenders: Mapping[str, Sequence[str]]
) -> list[Claim]:
    """Those that are not in the places of another database either."""
    return _without(claims, lambda claim: map(shelf.at, lenders.get(claim.store, ())))


def _without(
    claims: Sequence[Claim], stores: Callable[[Claim], Iterable[ArtifactStore]]
) -> list[Claim]:
    def is_there(claim: Claim) -> bool:
        try:
            return any(media.is_plausible(store.stat(claim.key), claim) for store in stores(claim))
        except ArtifactMissing:  # a folder that this saver does not know
            return False

    there = in_parallel(is_there, claims)
    return [claim for claim, found in zip(claims, there, strict=True) if not found]
