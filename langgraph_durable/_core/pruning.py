"""Pruning by policies over the port: plan without touching anything, apply, and a step at a time.

    survey  Storage.survey -> View -> policy -> what would go        (plan)
    edit    Storage.edit with the same rule, inside the transaction  (apply)

A plan names the checkpoints that may go. Applying it looks again, inside the transaction: what is
not named stays, and so does what has become a head, or waits for an answer, since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from langgraph_durable._core import lineage, retention
from langgraph_durable._core.engine import Engine, Place
from langgraph_durable._core.records import (
    CheckpointRow,
    Edit,
    Listing,
    Measured,
    Removed,
    WriteRow,
)
from langgraph_durable._core.refs import ORIGIN, Ref, Spines, numbers, order_of, unpack_refs
from langgraph_durable._core.retention import TAGS, Rule, View

THREADS = 500
"""Names of threads fetched at once."""


class Policed(Rule, Protocol):
    """A policy, as far as pruning knows it."""

    @property
    def needs_sizes(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """What would go of one thread."""

    thread_id: str
    kept: dict[str, int]
    """How many checkpoints stay, by namespace."""
    removed: dict[str, tuple[str, ...]]
    """The ids that go, by namespace."""
    bytes: dict[str, int]
    """Of the records that go, by namespace; items come on top once nothing points at them."""
    whole: bool
    """Nothing would be left."""

    @property
    def drop(self) -> set[retention.Place]:
        return {(ns, id) for ns, ids in self.removed.items() for id in ids}


class Pruned(NamedTuple):
    """What was removed of a thread, and how many checkpoints are left."""

    removed: Removed
    left: int


class Pruner:
    """The operations; see the top of the file."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._storage = engine, engine.storage

    def _view(self, listing: Listing, now: float) -> View:
        return View(listing, self._engine.loads, now)

    async def threads(self, after: str | None) -> list[str]:
        """The next threads there are."""
        return await self._storage.threads(after, THREADS)

    async def plan(self, thread_id: str, policy: Policed, now: float) -> ThreadPlan | None:
        """What `policy` would remove; None if there is no such thread."""
        listing = await self._storage.survey(thread_id, weigh=policy.needs_sizes)
        if listing is None:
            return None
        view = self._view(listing, now)
        drop = retention.to_drop(view, policy)
        kept: dict[str, int] = {}
        removed: dict[str, list[str]] = {}
        size: dict[str, int] = {}
        for ns, places in view.newest_first.items():
            removed[ns] = [id for _, id in places if (ns, id) in drop]
            kept[ns] = len(places) - len(removed[ns])
            size[ns] = 0
        for row in _rows(listing):
            if (row.ns, row.id) in drop:
                size[row.ns] += len(row.refs) + len(row.body)
        gone = {ns: tuple(ids) for ns, ids in removed.items()}
        return ThreadPlan(thread_id, kept, gone, size, bool(drop) and drop == view.places)

    async def apply(self, plan: ThreadPlan) -> Removed:
        """Remove what the plan names, without what must stay by now."""

        def drop(view: View) -> set[retention.Place]:
            named = plan.drop & view.places
            if plan.whole and named == view.places:
                return named
            return retention.must_stay(view, named)

        return await self._edit(plan.thread_id, drop, time.time(), weigh=False)

    async def prune(self, thread_id: str, policy: Policed, now: float) -> Pruned:
        """Remove what `policy` lets go."""
        left = 0

        def drop(view: View) -> set[retention.Place]:
            nonlocal left
            found = retention.to_drop(view, policy)
            left = len(view.places) - len(found)
            return found

        removed = await self._edit(thread_id, drop, now, weigh=policy.needs_sizes)
        return Pruned(removed, left)

    async def is_longer(self, thread_id: str, count: int) -> bool:
        """Whether a thread has more checkpoints than so many."""
        return await self._storage.count(thread_id, count + 1) > count

    async def _edit(
        self,
        thread_id: str,
        choose: Callable[[View], set[retention.Place]],
        now: float,
        *,
        weigh: bool,
    ) -> Removed:
        edit = Edit()

        def decide(listing: Listing) -> Edit | None:
            nonlocal edit
            view = self._view(listing, now)
            drop = choose(view)
            if not drop:
                return None
            channels = self._engine.delta_channels
            edit = lineage.remove(listing, drop, (), channels, view.continued(drop))
            return edit

        removed = await self._storage.edit(thread_id, decide, weigh=weigh)
        if removed is not None and removed != Removed():
            self._engine.memory.edited(thread_id, edit)
        return removed or Removed()

    async def retag(self, place: Place, change: Callable[[list[str]], list[str]]) -> bool:
        """Change the tags of a checkpoint (or the head); False if there is none."""
        found = False

        def decide(listing: Listing) -> Edit | None:
            nonlocal found
            id = place.id or listing.heads.get(place.ns)
            row = next((r for r in listing.rows if (r.ns, r.id) == (place.ns, id)), None)
            if row is None:
                return None
            found = True
            header = lineage.read_row(listing.thread_id, row)
            metadata = self._engine.loads(header.metadata)
            old = metadata.get(TAGS, [])
            new = change(list(old))
            if new == old:
                return None
            metadata = {k: v for k, v in metadata.items() if k != TAGS}
            header.metadata = self._engine.dumps({**metadata, TAGS: new} if new else metadata)
            edit = lineage.remove(listing, set(), (), self._engine.delta_channels)
            edit.replace = [lineage.resealed(listing.thread_id, row, header)]
            return edit

        await self._storage.edit(place.thread_id, decide)
        return found

    async def reclaim(self) -> int:
        """Give all free room back, a bounded piece at a time; how many bytes."""
        total = 0
        while freed := await self._storage.reclaim():
            total += freed
        return total

    async def measure(self, thread_id: str) -> Measured | None:
        return await self._storage.measure(thread_id)

    async def channels(self, thread_id: str) -> dict[str, Measured]:
        """How much there is of each channel: who holds a value of it, and what that takes."""
        listing = await self._storage.survey(thread_id, weigh=True)
        if listing is None:
            return {}
        found: dict[str, _Held] = {}
        for row in _rows(listing):
            for ref in unpack_refs(row.refs):
                if ref.kind != ORIGIN:
                    found.setdefault(ref.channel, _Held()).add(row, ref, listing.spines)
        return {channel: held.measured(listing.sizes) for channel, held in sorted(found.items())}


@dataclass(slots=True)
class _Held:
    """The records that hold something of a channel, and the items that they refer to."""

    ids: set[retention.Place] = field(default_factory=set)
    writes: int = 0
    items: set[int] = field(default_factory=set)

    def add(self, row: CheckpointRow | WriteRow, ref: Ref, spines: Spines) -> None:
        if isinstance(row, WriteRow):
            self.writes += 1
        else:
            self.ids.add((row.ns, row.id))
        self.items.update(numbers(ref.spine), order_of(ref, spines))

    def measured(self, sizes: Mapping[int, int]) -> Measured:
        size = sum(sizes.get(n, 0) for n in self.items)
        ids = [id for _, id in self.ids]
        ends = min(ids, default=None), max(ids, default=None)
        return Measured(len(ids), self.writes, len(self.items), size, *ends)


def _rows(listing: Listing) -> Iterator[CheckpointRow | WriteRow]:
    yield from listing.rows
    yield from listing.writes


def added(some: Sequence[Removed]) -> Removed:
    return Removed(*(sum(values) for values in zip(*some, strict=True))) if some else Removed()
