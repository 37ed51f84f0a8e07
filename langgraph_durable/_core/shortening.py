"""Taking many checkpoints out of one thread in small steps, each of which leaves a valid thread.

    Storage.watch  all rows of the thread, read while others write
    plan           which checkpoints go together, and what changes with them: a list of `Step`
    Storage.trim   one step, unless something that was written meanwhile stands against it

The newest go first. What a checkpoint that goes later needs (its parents, the memory of
a sub-graph as it was then) is older than itself, so it is complete until its turn comes; and a
survivor gets what it needs of all that goes, once, before any of it has gone. What a task's
sub-graph has stored goes in one step with the checkpoint that called it. So a prune that ends
anywhere has only done less, and the next one needs to know nothing about it.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from langgraph_durable._core import lineage
from langgraph_durable._core.records import CheckpointRow, Edit, Removed, WriteRow
from langgraph_durable._core.refs import Stretches, merged, without
from langgraph_durable._core.retention import Place, View, caller

Rows = Mapping[Place, CheckpointRow]

MOST = 256
"""Checkpoints that a step removes, and the rest of the sub-graphs' calls of which it has a part."""


@dataclass(slots=True)
class Step(Edit):
    """An edit that says what goes, and leaves alone what else there may be by now."""

    free: Stretches = ()
    """The items that go; `keep` is not used."""
    runs: Collection[str] = ()
    """Runs of which nothing is left."""
    records: Removed = field(default_factory=Removed)
    """What the records that go amount to."""

    def stays(self, number: int) -> bool:
        at = bisect.bisect_right(self.free, number, key=lambda stretch: stretch[0]) - 1
        return at < 0 or self.free[at][1] < number

    def stay(self, some: Iterable[int]) -> bool:
        return all(map(self.stays, some))


def plan(
    view: View, drop: set[Place], delta_channels: Callable[[bytes], Collection[str]]
) -> list[Step]:
    """The steps that take `drop` out, to be done in this order."""
    changed = lineage.changed(view.listing, drop, {}, delta_channels, ())
    planning = _Planning(view, drop, changed)
    steps = [planning.step(batch) for batch in _batches(view, drop)]
    for step, free in zip(steps, _freed(view, drop, steps, changed), strict=True):
        step.free = free
    return steps


def _batches(view: View, drop: set[Place]) -> Iterator[list[Place]]:
    """Newest first; children never after their parents, also where ids tell otherwise."""
    callers = {ns: caller(view, ns) for ns in {ns for ns, _ in drop}}
    taken: set[Place] = set()
    due: set[Place] = set()
    """What called the sub-graphs of which a part has gone: it goes with the rest of that."""
    batch: list[Place] = []
    for place in sorted(drop, key=lambda place: place[1], reverse=True):
        waiting = [place]
        while waiting:
            each = waiting.pop()
            if each not in taken:
                taken.add(each)
                batch.append(each)
                waiting += (child for child in view.children.get(each, ()) if child in drop)
                due.update(drop & {callers[each[0]]})
        due -= taken
        if len(batch) >= MOST and not due:
            yield batch
            batch = []
    if batch:
        yield batch


class _Planning:
    """The thread as it is after the steps so far."""

    def __init__(self, view: View, drop: set[Place], changed: Rows) -> None:
        self._view, self._drop, self._changed = view, drop, changed
        self._gone: set[Place] = set()
        self._ends: set[Place] = set()
        """What runs went on from, to nothing but what has gone."""
        self._heads = dict(view.listing.heads)
        self._lines = lineage.by_namespace(view.listing.rows)
        self._runs = Counter(row.run for row in view.listing.rows)
        self._runs.update(write.run for write in view.listing.writes)

    def step(self, batch: Sequence[Place]) -> Step:
        view = self._view
        drop = set(batch)
        self._gone |= drop
        rows: list[CheckpointRow | WriteRow] = [view.rows[place] for place in batch]
        writes = [write for place in batch for write in view.writes.get(place, ())]
        rows += writes
        size = sum(len(row.refs) + len(row.body) for row in rows)
        step = Step(drop=drop, records=Removed(len(batch), len(writes), 0, size))
        step.replace = [*self._replaced(batch)]
        step.heads = dict(self._moved(drop))
        self._heads.update({ns: head for ns, head in step.heads.items() if head is not None})
        self._runs.subtract(row.run for row in rows)
        step.runs = {row.run for row in rows if row.run and not self._runs[row.run]}
        return step

    def _replaced(self, batch: Sequence[Place]) -> Iterator[CheckpointRow]:
        """What is left on both sides of what goes, also if it goes with a later step."""
        view, beside = self._view, set[Place]()
        for place in batch:
            beside.update(view.children.get(place, ()))
            parent = place[0], view.rows[place].parent or ""
            if parent in view.rows and self._is_end(parent):
                self._ends.add(parent)
                beside.add(parent)
        for place in beside - self._gone:
            row = view.rows[place]
            if (row.ns, row.parent) in self._gone:
                row = self._changed[place]
            yield lineage.marked(view.listing.thread_id, row) if place in self._ends else row

    def _is_end(self, place: Place) -> bool:
        if place in self._gone or place in self._view.unfinished:
            return False
        return self._gone.issuperset(self._view.children[place])

    def _moved(self, drop: set[Place]) -> Iterator[tuple[str, str | None]]:
        for ns in {ns for ns, _ in drop}:
            if (ns, self._heads.get(ns, "")) in drop:
                yield ns, lineage.next_head(self._lines[ns], self._gone)


def _freed(view: View, drop: set[Place], steps: Sequence[Step], changed: Rows) -> list[Stretches]:
    """The items that nothing refers to after each step; with the last, all such that are known."""
    listing = view.listing
    rows = [changed.get(place, row) for place, row in view.rows.items() if place not in drop]
    writes = [write for write in listing.writes if (write.ns, write.id) not in drop]

    def held_by(rows: Iterable[CheckpointRow | WriteRow]) -> Stretches:
        return lineage.reached(listing, [row.refs for row in rows])

    kept = held = held_by([*rows, *writes])
    freed: list[Stretches] = []
    for step in reversed(steps):
        own = [view.rows[place] for place in step.drop]
        own_writes = [write for place in step.drop for write in view.writes.get(place, ())]
        needed = held_by([*own, *own_writes])
        freed.append(list(without(needed, held)))
        held = list(merged([*held, *needed]))
    if freed and held:
        freed[0] = list(without([(0, held[-1][1])], kept))
    return freed[::-1]
