"""What a policy may remove of a thread, and what stays whatever it says. No I/O.

    View      what a policy sees of a thread, made from a `Listing`; reads bodies only when asked
    to_drop   the checkpoints that a policy lets go, without those that must stay

Always kept: the head of each namespace that is alive, checkpoints that wait for an answer or have
unfinished tasks, and what a resume from, or a return to, a kept checkpoint needs of sub-graphs; for
that of a fork, the checkpoint it was made of.
(What a kept DeltaChannel needs is seen to by `lineage.remove`.) The namespace of a sub-graph's call
(`node:task`) is alive as long as the checkpoint that made the call; one of a sub-graph
with a memory of its own (`node`) always.
"""

from __future__ import annotations

import bisect
import uuid
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from langgraph_durable._core import lineage
from langgraph_durable._core.ops import SENDS
from langgraph_durable._core.records import CheckpointRow, Listing, WriteRow
from langgraph_durable._core.refs import VALUE, Ref, numbers, order_of, unpack_refs
from langgraph_durable._core.serde import TAG, TAG_CODES
from langgraph_durable._core.tasks import BRANCH, JOIN
from langgraph_durable.errors import DurableError

Place = tuple[str, str]
"""Namespace and id."""
TAGS = "checkpoint_tags"
"""The metadata key under which a checkpoint's tags are."""
INTERRUPT = -3
"""The index of an interrupt among the writes of a task."""
OWN = TAG_CODES[TAG]
"""How a small value begins that our own serialiser has made."""
UUID_EPOCH = 0x01B21DD213814000
"""100 ns steps from the epoch of UUIDs to that of Unix."""

Loads = Callable[[bytes], dict[str, Any]]
"""Rebuilds a serialised dict."""


class Rule(Protocol):
    """What is asked of a policy."""

    def keeps(self, view: View) -> Set[Place]: ...
    def releases(self, view: View) -> bool: ...
    @property
    def exact(self) -> bool: ...


def id_time(id: str) -> float | None:
    """When an id was made, in seconds, if it says so: LangGraph's do."""
    try:
        found = uuid.UUID(id)
    except ValueError:
        return None
    if found.version != 6:
        return None
    value = found.int
    ticks = (value >> 80) << 12 | (value >> 64) & 0x0FFF
    return (ticks - UUID_EPOCH) / 1e7


def id_at(moment: float) -> str:
    """The greatest id that can have been made until then."""
    ticks = int(moment * 1e7) + UUID_EPOCH
    return f"{ticks >> 28:08x}-{ticks >> 12 & 0xFFFF:04x}-6{ticks & 0xFFF:03x}-ffff-{'f' * 12}"


def tags_in(metadata: Mapping[str, Any]) -> list[Any]:
    """The tags of a checkpoint; what else a program has put under their key is none."""
    found = metadata.get(TAGS)
    return found if isinstance(found, list) else []


class View:
    """One thread as a policy sees it."""

    def __init__(self, listing: Listing, loads: Loads, now: float) -> None:
        self.listing, self.now, self._loads = listing, now, loads
        self.rows: dict[Place, CheckpointRow] = {(row.ns, row.id): row for row in listing.rows}
        self.places: Set[Place] = frozenset(self.rows)
        self.heads: Set[Place] = set(listing.heads.items()) & self.places
        self._metadata: dict[Place, dict[str, Any]] = {}
        self._times: dict[Place, float] = {}

    @cached_property
    def newest_first(self) -> Mapping[str, list[Place]]:
        """The checkpoints of each namespace; the head comes first, whatever its id."""
        found: dict[str, list[Place]] = {}
        for place in self.places:
            found.setdefault(place[0], []).append(place)
        for places in found.values():
            places.sort(key=lambda p: (p in self.heads, p[1]), reverse=True)
        return found

    @cached_property
    def writes(self) -> Mapping[Place, list[WriteRow]]:
        found: dict[Place, list[WriteRow]] = {}
        for write in self.listing.writes:
            found.setdefault((write.ns, write.id), []).append(write)
        return found

    @cached_property
    def children(self) -> Mapping[Place, list[Place]]:
        found: dict[Place, list[Place]] = {}
        for place, row in self.rows.items():
            if row.parent is not None:
                found.setdefault((row.ns, row.parent), []).append(place)
        return found

    def metadata(self, place: Place) -> dict[str, Any]:
        if place not in self._metadata:
            header = lineage.read_row(self.listing.thread_id, self.rows[place])
            self._metadata[place] = self._loads(header.metadata)
        return self._metadata[place]

    def time(self, place: Place) -> float:
        """When a checkpoint was made: its id says so, or else its `ts`."""
        if place not in self._times:
            made = id_time(place[1])
            if made is None:
                header = lineage.read_row(self.listing.thread_id, self.rows[place])
                made = _timestamp(self._loads(header.rest).get("ts"), self.now)
            self._times[place] = made
        return self._times[place]

    def since(self, moment: float) -> Set[Place]:
        return {place for place in self.places if self.time(place) >= moment}

    def tags(self, place: Place) -> Set[str]:
        return set(tags_in(self.metadata(place)))

    @cached_property
    def idle(self) -> float:
        """Seconds since the last checkpoint."""
        return self.now - max(map(self.time, self.places), default=self.now)

    @cached_property
    def interrupted(self) -> Set[Place]:
        return {(w.ns, w.id) for w in self.listing.writes if w.idx == INTERRUPT} & self.places

    @cached_property
    def unfinished(self) -> Set[Place]:
        """Where a run can go on: nothing continues it, and there is something to do."""
        return {place for place in self.places if self._is_unfinished(place)}

    def _is_unfinished(self, place: Place) -> bool:
        children = self.children.get(place, ())
        if children:
            # A fork answers nobody: its model still waits, unless a run of its own went on.
            if place not in self.interrupted or self._answered(place):
                return False
            return all(self.is_made_later(child) for child in children)
        if lineage.read_row(self.listing.thread_id, self.rows[place]).continued:
            return False
        if self.writes.get(place):
            return True
        return any(self._is_due(place, ref) for ref in unpack_refs(self.rows[place].refs))

    def is_made_later(self, place: Place) -> bool:
        """Whether a checkpoint was made of its parent by hand, or for a return to that."""
        return self.metadata(place).get("source") in ("fork", "update")

    def _is_due(self, place: Place, ref: Ref) -> bool:
        """Whether a channel makes a node run: LangGraph's own ones tell by their names."""
        if ref.kind != VALUE:
            return False
        if ref.channel == SENDS:
            return bool(ref.runs or ref.spine)
        if ref.channel.startswith(JOIN):
            return self._has_met_all(place, ref.channel)
        return ref.channel == "__start__" or ref.channel.startswith(BRANCH)

    def _has_met_all(self, place: Place, join: str) -> bool:
        """Whether all nodes have come that a join waits for; it holds the names of those who have.

        Where those cannot be read here, the checkpoint tells which channels its step has filled.
        """
        header = lineage.read_row(self.listing.thread_id, self.rows[place])
        form = header.entries[join].form
        if isinstance(form, bytes) and form[:1] == OWN:
            with suppress(DurableError, TypeError, ValueError):
                value: Any = self._loads(form[1:])
                met, ended = value if isinstance(value, (tuple, list)) else (value, True)
                came = {*"+".join(met).split("+")}
                return bool(ended) and came.issuperset(join.split(":")[1].split("+"))
        updated = self._loads(header.rest).get("updated_channels")
        return updated is None or join in updated

    def continued(self, drop: Set[Place]) -> Set[Place]:
        """Survivors that a run went on from, to nothing but checkpoints that go."""
        left = self.places - drop - self.unfinished
        return {
            place
            for place, children in self.children.items()
            if place in left and all(child in drop for child in children)
        }

    def _answered(self, place: Place) -> bool:
        rows = self.writes.get(place, ())
        asked = {write.task_id for write in rows if write.idx == INTERRUPT}
        return asked <= {write.task_id for write in rows if write.idx >= 0}

    @cached_property
    def is_waiting(self) -> bool:
        """Somebody may still answer or go on, at the newest checkpoint of the thread."""
        return bool(self.unfinished & self.heads) or self.is_under_way

    @cached_property
    def is_finished(self) -> bool:
        root = self.listing.heads.get("")
        return root is not None and ("", root) not in self.unfinished and not self.is_under_way

    @cached_property
    def is_under_way(self) -> bool:
        """A run has stored what a sub-graph did, and not yet where that was called.

        Under "exit" the root comes last.
        """
        root = self.listing.heads.get("", "")
        called = (_parents(self, ns).get("", "") for ns in self.newest_first if ns)
        return any(str(id) > root for id in called)

    def within(self, budget: int) -> Set[Place]:
        """The newest checkpoints whose records, and items counted once, fit into `budget`."""
        sizes, spines = self.listing.sizes, self.listing.spines
        counted: set[int] = set()
        kept: set[Place] = set()
        for place in sorted(self.places, key=lambda p: (p in self.heads, p[1]), reverse=True):
            for row in (self.rows[place], *self.writes.get(place, ())):
                budget -= len(row.refs) + len(row.body)
                with lineage.blamed(self.listing.thread_id, row):
                    for ref in unpack_refs(row.refs):
                        new = {*numbers(ref.spine), *order_of(ref, spines)} - counted
                        counted |= new
                        budget -= sum(sizes.get(n, 0) for n in new)
            if budget < 0:
                break
            kept.add(place)
        return kept


def _timestamp(text: object, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return otherwise


def to_drop(view: View, rule: Rule) -> set[Place]:
    """The checkpoints that may go; all of them if the thread is over."""
    wanted = rule.keeps(view)
    if rule.exact:
        return set(view.places - wanted)
    if not wanted and rule.releases(view):
        return set(view.places)
    return must_stay(view, set(view.places - wanted))


def must_stay(view: View, drop: set[Place]) -> set[Place]:
    """`drop` without what has to stay, as long as other checkpoints do."""
    kept: set[Place] = set(view.places - drop)
    for ns in sorted(view.newest_first, key=lambda ns: (ns.count("|"), ns)):
        places = set(view.newest_first[ns])
        owner = caller(view, ns)
        if owner is not None and owner in view.places and owner not in kept:
            kept -= places
            continue
        kept |= places & (view.heads | view.unfinished)
        if not ns:
            kept |= _models(view, kept)
        if ns and owner is None:
            kept |= _seen_from(view, ns, kept)
    return set(view.places - kept)


def is_call(ns: str) -> bool:
    """Whether a namespace is for one call of a sub-graph."""
    return ":" in ns.rpartition("|")[2]


def caller(view: View, ns: str) -> Place | None:
    """The checkpoint whose task called the sub-graph that `ns` is for; None if it is not one."""
    if not is_call(ns):
        return None
    above = ((str(name), str(id)) for name, id in _parents(view, ns).items())
    return max(above, key=lambda place: len(place[0]), default=None)


def _parents(view: View, ns: str) -> Mapping[str, Any]:
    """Where in the graphs above the newest checkpoint of a sub-graph was called."""
    found = view.metadata(view.newest_first[ns][0]).get("parents")
    return found if isinstance(found, dict) else {}


def _models(view: View, kept: Set[Place]) -> Set[Place]:
    """Parents of what was made later, where sub-graphs have remembered something in between.

    A return to a fork finds of these what was there at its parent, if that is still stored.
    """
    ids = sorted(id for ns, id in view.places if ns and ":" not in ns)
    found = set()
    waiting = [id for ns, id in kept if not ns] if ids else []
    while waiting:
        place = "", waiting.pop()
        parent = "", view.rows[place].parent or ""
        if parent not in view.places or parent in kept or parent in found:
            continue
        at = bisect.bisect_left(ids, parent[1])
        if at < len(ids) and ids[at] < place[1] and view.is_made_later(place):
            found.add(parent)
            waiting.append(parent[1])
    return found


def _seen_from(view: View, ns: str, kept: Set[Place]) -> Set[Place]:
    """What a return to a kept checkpoint finds in a sub-graph that has a memory of its own."""
    above = ns.rpartition("|")[0]
    ids = sorted(place[1] for place in view.newest_first[ns])
    found = set()
    for owner, id in kept:
        if owner == above:
            at = bisect.bisect_left(ids, id)
            if at:
                found.add((ns, ids[at - 1]))
    return found
