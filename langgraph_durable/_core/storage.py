"""The port: what the rules ask of a store. Bytes only; one verb, one transaction, one round trip.

Every verb is a coroutine. A store whose driver never suspends lets the sync API finish it with a
single `send(None)`; see `_sqlite.database` for how one store serves both colours.

A store keeps, for each thread: an epoch (any number that is never used twice for one thread id), a
log of numbered items, checkpoint rows, write rows, one head per namespace, and which runs wrote
to it. It does not look into bodies; refs are all it understands. Drafts talk to
the memory they were made from through `Draft.memory` while the store carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from langgraph_durable._core.dumps import Dump
from langgraph_durable._core.lineage import Chain
from langgraph_durable._core.records import (
    CheckpointDraft,
    CheckpointRow,
    Cursor,
    Edit,
    Held,
    Listing,
    Loaded,
    Measured,
    Page,
    Removed,
    Selection,
    Stored,
    Watched,
    WritesDraft,
)
from langgraph_durable._core.shortening import Step


class Stale(Exception):
    """The draft shares items remembered from an epoch that has passed: forget, load, try again."""


class Storage(Protocol):
    """The verbs."""

    async def load(self, thread_id: str, ns: str, id: str | None, held: Held) -> Loaded | None:
        """The checkpoint with its writes and items; the head when `id` is None."""

    async def page(
        self,
        selection: Selection,
        after: Cursor | None,
        size: int,
        accept: Callable[[str, CheckpointRow], bool],
        *,
        items: bool = True,
    ) -> Page:
        """Up to `size` accepted checkpoints, newest id first, below `after`.

        With their writes, and with their items unless `items` is False.
        """

    async def chain(
        self, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> Chain | None:
        """The checkpoint and its ancestors up to where `lineage.Search` is satisfied."""

    async def put(self, draft: CheckpointDraft) -> Stored:
        """Add or replace a checkpoint and move the head; `Stale`, `ConcurrentUpdate`.

        The head moves to a checkpoint whose parent is the head, or that leads (`Guard.lead`), or
        whose id is greater; never because of a checkpoint that was there before.
        """

    async def put_writes(self, draft: WritesDraft) -> Stored:
        """Add pending writes; `Stale`, `ConcurrentUpdate`, `records.Rivalled`."""

    async def edit(
        self, thread_id: str, decide: Callable[[Listing], Edit | None], *, weigh: bool = False
    ) -> Removed | None:
        """Apply what `decide` makes of the thread, in a new epoch; None if there is no thread.

        Nothing happens if it makes nothing of it. `weigh` fills in `Listing.sizes`.
        """

    async def watch(self, thread_id: str, *, weigh: bool = False) -> Watched | None:
        """All rows of a thread, to be followed by some `trim`; None if there is no thread.

        Nobody is kept from writing meanwhile.
        """

    async def trim(
        self, watched: Watched, step: Step, *, last: bool
    ) -> tuple[Removed, Watched] | None:
        """Apply one step to what was watched, in a new epoch; what to go on with.

        None, and nothing has happened, if what was written since stands against it: then watch
        again. After the last one nothing is watched any more.
        """

    async def drop(self, thread_id: str) -> Removed | None:
        """Remove a thread and everything of it, leaving a tombstone; None if there was none."""

    async def survey(self, thread_id: str, *, weigh: bool = False) -> Listing | None:
        """All rows of a thread, from one moment."""

    async def threads(self, after: str | None, size: int) -> list[str]:
        """The next `size` threads after one, in the order of the store; [] at the end."""

    async def count(self, thread_id: str, most: int) -> int:
        """How many checkpoints a thread has; `most` if there are more."""

    async def measure(self, thread_id: str) -> Measured | None:
        """How much there is of a thread."""

    async def reclaim(self) -> int:
        """Give a bounded amount of free room back to the system: bytes; 0 when there is no more."""

    async def copy(self, source: str, target: str) -> bool:
        """Copy a whole thread; False if there is no source. The target must not exist."""

    async def stores(self) -> dict[str, tuple[str, ...]]:
        """The artifact stores that were ever used: their ids, and where each is found."""

    async def enter_store(self, id: str, urls: Sequence[str]) -> None:
        """Note where the objects of an artifact store are found."""

    async def claims(self, after: str | None) -> tuple[list[bytes], str | None]:
        """A page of what items claim in artifact stores, and where the next page begins.

        A claim that is there from the first page to the last is on one of them.
        """

    async def claims_of(self, thread_id: str) -> list[tuple[int, bytes]]:
        """The claims of one thread, each with the number of its item."""

    async def dump(self, thread_id: str) -> Dump | None:
        """A whole thread, from one moment; None if there is none."""

    async def restore(self, dump: Dump) -> bool:
        """Make a thread of a dump, in one step; False if there is one of that name."""

    async def replace(self, dump: Dump) -> None:
        """The same, in place of the thread of that name, if there is one."""

    async def threads_of(self, runs: Sequence[str]) -> list[str]:
        """The threads these runs wrote to."""

    async def forget_runs(self, runs: Sequence[str]) -> None:
        """Drop the notes of which threads these runs wrote to."""
