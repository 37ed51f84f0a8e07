"""Pruning by policies over the port: plan without touching anything, apply, and a step at a time.

    survey       Storage.survey -> View -> policy -> what would go        (plan)
    edit         Storage.edit with the same rule, inside the transaction  (apply, a short thread)
    watch, trim  the same outside of it, in steps: see `shortening`       (apply, a long thread)

A plan names the checkpoints that may go. Applying it looks again: what is not named stays, and so
does what has become a head, or waits for an answer, since.
"""

from __future__ import annotations

import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from langgraph_durable._core import lineage, retention, shortening
from langgraph_durable._core.engine import Engine, Place
from langgraph_durable._core.records import (
    CheckpointRow,
    Edit,
    Listing,
    Measured,
    Removed,
    Watched,
    WriteRow,
)
from langgraph_durable._core.refs import ORIGIN, Ref, Spines, numbers, order_of, unpack_refs
from langgraph_durable._core.retention import TAGS, Rule, View
from langgraph_durable._core.shortening import MOST, Step
from langgraph_durable.errors import CorruptionError


class Do(Protocol):
    """Carries coroutines out, one after the other, for a sync or an async caller."""

    def __call__(self, step: Coroutine[Any, Any, T], /, *, writes: bool = True) -> Awaitable[T]: ...
    async def rest(self, seconds: float) -> None: ...


T = TypeVar("T")
THREADS = 500
"""Names of threads fetched at once."""
REST, SHORTEST = 2, 0.01
"""Between two steps others get their turn: for so many times as long as the step took, and for so
many seconds at least. Processes that wait for SQLite's lock look for it every 10 ms, and what is
read of Redis in several round trips is read again if parts were removed in between."""
PATIENCE = 10.0
"""Seconds for which steps may be in vain, because of what others write, before one takes all."""


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


class Choice(NamedTuple):
    """What is to go of a thread, and whether bytes of items are looked at for that."""

    choose: Callable[[View], set[retention.Place]]
    weigh: bool = False


def by_policy(policy: Policed) -> Choice:
    """What `policy` lets go."""
    return Choice(lambda view: retention.to_drop(view, policy), policy.needs_sizes)


def by_plan(plan: ThreadPlan, policy: Policed) -> Choice:
    """What the plan names, without what must stay by now, or what its policy keeps by now."""
    planned = plan.drop

    def choose(view: View) -> set[retention.Place]:
        named = planned & retention.to_drop(view, policy)
        as_planned = sum(map(_size, _rows(view.listing))) == sum(plan.bytes.values())
        if plan.whole and named == view.places and as_planned:
            return named
        return named & retention.must_stay(view, named)

    return Choice(choose, policy.needs_sizes)


class Pruned(NamedTuple):
    """What a step removed of a thread, and how many checkpoints are left after the last one."""

    removed: Removed
    left: int
    more: bool = False
    """There are more steps to come."""


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
                size[row.ns] += _size(row)
        gone = {ns: tuple(ids) for ns, ids in removed.items()}
        return ThreadPlan(thread_id, kept, gone, size, bool(drop) and drop == view.places)

    def shorten(self, do: Do, thread_id: str, choice: Choice, now: float) -> AsyncIterator[Pruned]:
        """Remove what is chosen, a step at a time; a short thread, or a whole one, in one step."""
        return _Shortening(self._engine, thread_id, choice, now).steps(do)

    async def once(self, thread_id: str, choice: Choice, now: float) -> Pruned:
        """Remove what is chosen in one step."""
        return await _Shortening(self._engine, thread_id, choice, now).once()

    async def is_longer(self, thread_id: str, count: int) -> bool:
        """Whether a thread has more checkpoints than so many."""
        return await self._storage.count(thread_id, count + 1) > count

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
            old = retention.tags_in(metadata)
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
        """Give a bounded piece of the free room back; how many bytes."""
        return await self._storage.reclaim()

    async def measure(self, thread_id: str) -> Measured | None:
        return await self._storage.measure(thread_id)

    async def channels(self, thread_id: str) -> dict[str, Measured]:
        """How much there is of each channel: who holds a value of it, and what that takes."""
        listing = await self._storage.survey(thread_id, weigh=True)
        if listing is None:
            return {}
        found: dict[str, _Held] = {}
        for row in _rows(listing):
            with lineage.blamed(thread_id, row):
                for ref in unpack_refs(row.refs):
                    if ref.kind != ORIGIN:
                        found.setdefault(ref.channel, _Held()).add(row, ref, listing.spines)
        return {channel: held.measured(listing.sizes) for channel, held in sorted(found.items())}


class _Shortening:
    """One thread while parts of it are removed."""

    def __init__(self, engine: Engine, thread_id: str, choice: Choice, now: float) -> None:
        self._engine, self._storage = engine, engine.storage
        self._thread_id, self._choice, self._now = thread_id, choice, now
        self._watched: Watched | None = None
        self._steps: list[Step] = []
        self._left = 0

    async def steps(self, do: Do) -> AsyncIterator[Pruned]:
        if not await do(self._is_long(), writes=False):
            yield await do(self.once())
            return
        if not await do(self._has_much(), writes=False):
            yield Pruned(Removed(), self._left)
            return
        patience = time.monotonic() + PATIENCE
        while time.monotonic() < patience and await do(self._plan(), writes=False):
            while self._steps:
                began = time.monotonic()
                removed = await do(self._next())
                if removed is None:
                    break
                if self._steps:
                    await do.rest(max(SHORTEST, REST * (time.monotonic() - began)))
                yield Pruned(removed, self._left, more=bool(self._steps))
                patience = time.monotonic() + PATIENCE
            else:
                return
        yield await do(self.once())

    async def _is_long(self) -> bool:
        return await self._storage.count(self._thread_id, MOST + 1) > MOST

    def _view(self, listing: Listing) -> tuple[View, set[retention.Place]]:
        view = View(listing, self._engine.loads, self._now)
        drop = self._choice.choose(view)
        self._left = len(view.places) - len(drop)
        return view, drop

    async def _has_much(self) -> bool:
        """Whether anything goes: that is asked often, and must not cost a write."""
        listing = await self._storage.survey(self._thread_id, weigh=self._choice.weigh)
        return listing is not None and bool(self._view(listing)[1])

    async def _plan(self) -> bool:
        """Look at the thread, and plan the steps; False if there are none: it goes whole, or has
        gone, or steps would have to know of what goes what is damaged."""
        self._watched = await self._storage.watch(self._thread_id, weigh=self._choice.weigh)
        if self._watched is None:
            return False
        view, drop = self._view(self._watched.listing)
        if not self._left:
            return False
        try:
            self._steps = shortening.plan(view, drop, self._engine.delta_channels) or [Step()]
        except CorruptionError:
            return False
        return True

    async def _next(self) -> Removed | None:
        """Carry out the next step; None if something that was written stands against it."""
        assert self._watched is not None
        step = self._steps[0]
        done = await self._storage.trim(self._watched, step, last=len(self._steps) == 1)
        if done is None:
            return None
        del self._steps[0]
        removed, self._watched = done
        self._engine.memory.edited(self._thread_id, step)
        return removed

    async def once(self) -> Pruned:
        edit = Edit()

        def decide(listing: Listing) -> Edit | None:
            nonlocal edit
            view, drop = self._view(listing)
            if not drop:
                return None
            channels = self._engine.delta_channels
            edit = lineage.remove(listing, drop, (), channels, view.continued(drop))
            return edit

        removed = await self._storage.edit(self._thread_id, decide, weigh=self._choice.weigh)
        if removed is not None and removed != Removed():
            self._engine.memory.edited(self._thread_id, edit)
        return Pruned(removed or Removed(), self._left)


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


def _size(row: CheckpointRow | WriteRow) -> int:
    return len(row.refs) + len(row.body)


def added(some: Sequence[Removed]) -> Removed:
    return Removed(*(sum(values) for values in zip(*some, strict=True))) if some else Removed()
