"""One saver seen from outside, in either colour: what is there, read it, store it.

`Theirs` is any `BaseCheckpointSaver`, through LangGraph's interface. `Ours` goes through the
engine: it lists without reading values, keeps indices and paths, and moves no head by accident.
Both speak of checkpoints as `Carried`, and of the versions of a state (`schema=`) in metadata: a
source says in which version it gives something out, and a target of ours stores it in that one.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_durable._core import lineage
from langgraph_durable._core.engine import Place as EnginePlace
from langgraph_durable._core.engine import Task
from langgraph_durable._core.evolution import VERSION
from langgraph_durable._core.outlines import Outline
from langgraph_durable._core.records import Cursor, Edit, Guard, Held, Listing, Loaded, Selection
from langgraph_durable.errors import ConfigurationError
from langgraph_durable.moving.colours import Colour, Saver
from langgraph_durable.moving.paths import TaskWrites, by_task
from langgraph_durable.moving.queries import keys_in, threads_in, writes_in
from langgraph_durable.moving.sources import Place, Writing
from langgraph_durable.saver import DurableSaver

PAGE = 256
REMEMBERED = 512
"""Checkpoints whose versions are kept at hand: parents come shortly before their children."""


class Key(NamedTuple):
    """A checkpoint without anything in it."""

    ns: str
    id: str
    parent: str | None


def _key(ns: str, id: str, parent: str | None) -> Key:
    """A parent's id is that of a key, too: one string for both, where there are many."""
    above = sys.intern(str(parent)) if parent else None
    return Key(sys.intern(str(ns)), sys.intern(str(id)), above)


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is of one thread."""

    thread_id: str
    keys: Sequence[Key]
    capsules: bool = False
    """Parts of it are kept in a form that LangGraph's interface lacks."""

    @property
    def places(self) -> set[tuple[str, str]]:
        return {(key.ns, key.id) for key in self.keys}

    def oldest_first(self) -> Iterator[Key]:
        """By id, but parents before their children; a cycle of parents does no harm."""
        left = {(key.ns, key.id): key for key in self.keys}
        for first in sorted(self.keys, key=lambda key: (key.id, key.ns)):
            line: list[Key] = []
            key: Key | None = left.pop((first.ns, first.id), None)
            while key is not None:
                line.append(key)
                key = left.pop((key.ns, key.parent), None) if key.parent is not None else None
            yield from reversed(line)

    def newest(self) -> dict[str, str]:
        """The greatest id of each namespace: what LangGraph takes for the latest."""
        found: dict[str, str] = {}
        for key in self.keys:
            found[key.ns] = max(found.get(key.ns, ""), key.id)
        return found


@dataclass(frozen=True, slots=True)
class Carried:
    """A checkpoint on its way."""

    place: Place
    parent: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: tuple[TaskWrites, ...]
    schema: int | None = None
    """The version of a program's state that it is in, if that is known."""


class Side(Protocol):
    def plans(self, named: Sequence[str] | None) -> AsyncIterator[Plan]: ...
    async def plan(self, thread_id: str) -> Plan: ...
    async def read(self, place: Place) -> Carried | None: ...
    async def write(self, carried: Carried) -> None: ...
    async def heads(self, plan: Plan) -> Mapping[str, str]: ...
    async def set_heads(self, thread_id: str, heads: Mapping[str, str]) -> bool:
        """Make these the latest checkpoints; False if that cannot be said."""


def side_of(colour: Colour, saver: Saver, *, as_stored: bool = False) -> Side:
    """`as_stored` says that states are not to be upgraded, as what is read back from a target."""
    if isinstance(saver, DurableSaver):
        return Ours(colour, saver, as_stored=as_stored)
    return Theirs(colour, saver)


class Theirs:
    """Any saver, through LangGraph's interface."""

    def __init__(self, colour: Colour, saver: Saver) -> None:
        self._colour, self._saver = colour, saver
        self._stored: OrderedDict[Place, tuple[Mapping[str, Any], frozenset[str]]] = OrderedDict()

    async def plans(self, named: Sequence[str] | None) -> AsyncIterator[Plan]:
        if named is not None:
            for thread_id in named:
                yield await self.plan(thread_id)
            return
        known = await threads_in(self._colour, self._saver)
        if known is not None:
            for thread_id in known:
                yield await self.plan(thread_id)
            return
        found: dict[str, list[Key]] = {}
        async for thread_id, key in self._keys(None):
            found.setdefault(thread_id, []).append(key)
        while found:
            thread_id = next(iter(found))
            yield Plan(thread_id, found.pop(thread_id))

    async def plan(self, thread_id: str) -> Plan:
        rows = await keys_in(self._colour, self._saver, thread_id)
        if rows is not None:
            return Plan(thread_id, [_key(*row) for row in rows])
        config = {"configurable": {"thread_id": thread_id}}
        return Plan(thread_id, [key async for _, key in self._keys(config)])

    async def _keys(self, config: Any) -> AsyncIterator[tuple[str, Key]]:
        async for found in self._colour.list(self._saver, config):
            place = found.config["configurable"]
            ns, id = place.get("checkpoint_ns", ""), place["checkpoint_id"]
            above = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            yield str(place["thread_id"]), _key(ns, id, above)

    async def read(self, place: Place) -> Carried | None:
        found = await self._colour.call(self._saver, "get_tuple", _config(*place))
        if found is None:
            return None
        above = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        known = await writes_in(self._colour, self._saver, place)
        writes = by_task(found.pending_writes or (), known)
        schema = found.metadata.get(VERSION)  # what came from one of ours says it
        own = place, above or None, found.checkpoint, found.metadata, writes
        return Carried(*own, schema if type(schema) is int and schema >= 0 else None)

    async def write(self, carried: Carried) -> None:
        thread_id, ns, id = carried.place
        await self._colour.call(
            self._saver,
            "put",
            _config(thread_id, ns, carried.parent),
            carried.checkpoint,
            carried.metadata,
            self._new_versions(carried),
        )
        for task in carried.writes:
            config, pairs = _config(thread_id, ns, id), task.arranged()
            await self._colour.call(
                self._saver, "put_writes", config, pairs, task.task_id, task.path
            )

    def _new_versions(self, carried: Carried) -> dict[str, Any]:
        """What the checkpoint has and its parent has not.

        Savers that keep values by version take a version without a value for an empty channel, so
        a channel that is only passed on must not be named.
        """
        versions = carried.checkpoint.get("channel_versions") or {}
        values = frozenset(carried.checkpoint.get("channel_values") or {})
        thread_id, ns, _ = carried.place
        self._stored[carried.place] = versions, values
        if len(self._stored) > REMEMBERED:
            self._stored.popitem(last=False)
        if carried.parent is None:
            return dict(versions)
        parent = self._stored.get(Place(thread_id, ns, carried.parent))
        if parent is None:
            return {channel: v for channel, v in versions.items() if channel in values}
        return {
            channel: v
            for channel, v in versions.items()
            if parent[0].get(channel) != v or (channel in values and channel not in parent[1])
        }

    async def heads(self, plan: Plan) -> Mapping[str, str]:
        return plan.newest()

    async def set_heads(self, thread_id: str, heads: Mapping[str, str]) -> bool:
        return False


def _config(thread_id: str, ns: str, id: str | None) -> Any:
    place = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": place if id is None else {**place, "checkpoint_id": id}}


class Ours:
    """One of our savers, through its engine."""

    def __init__(self, colour: Colour, saver: DurableSaver, *, as_stored: bool = False) -> None:
        self._colour, self._saver, self._engine = colour, saver, saver._engine
        if as_stored:
            self._engine = saver._engine.over(saver._engine.storage)

    async def plans(self, named: Sequence[str] | None) -> AsyncIterator[Plan]:
        async for thread_id in thread_names(self._colour, self._saver, named):
            yield await self.plan(thread_id)

    async def plan(self, thread_id: str) -> Plan:
        keys: list[Key] = []
        capsules = is_marked = False
        cursor: Cursor | None = None
        while True:
            work = self._engine.outline(Selection(thread_id), cursor, PAGE)
            found, cursor = await self._colour.do(self._saver, work)
            for each in found:
                keys.append(_key(each.ns, each.id, each.parent))
                capsules = capsules or bool(each.header.capsules) or self._is_mixed(each)
                is_marked = is_marked or each.header.hand is not None
            if cursor is None:
                break
        return Plan(thread_id, keys, capsules or (is_marked and await self._is_tangled(thread_id)))

    def _is_mixed(self, found: Outline) -> bool:
        """Whether programs of several versions have written to it, and nobody brings it to one."""
        known = None, found.header.schema
        return self._engine.versions is None and any(w.schema not in known for w in found.writes)

    async def _is_tangled(self, thread_id: str) -> bool:
        """Whether runs have met in it, so that not all writes count for what comes after them."""
        listing = await self._colour.do(self._saver, self._engine.storage.survey(thread_id))
        return bool(listing and lineage.untangled(listing, self._engine.delta_channels))

    async def read(self, place: Place) -> Carried | None:
        found = await self._colour.do(self._saver, self._engine.get(self._saver.serde, _at(place)))
        if found is None:
            return None
        row = await self._row(place) if found.writes or VERSION in found.metadata else None
        writes = by_task(found.writes, None if row is None else _known(row))
        if self._engine.versions is not None:
            schema: int | None = self._engine.versions.evolution.version
            found.metadata[VERSION] = schema
        else:
            schema = None if row is None else lineage.read_row(place.thread_id, row.row).schema
        own = place, found.parent, found.checkpoint, found.metadata, writes
        return Carried(*own, schema)

    async def _row(self, place: Place) -> Loaded | None:
        selection = Selection(place.thread_id, place.ns, place.id)
        work = self._engine.storage.page(selection, None, 1, lambda *_: True, items=False)
        page = await self._colour.do(self._saver, work)
        return page.rows[0] if page.rows else None

    async def write(self, carried: Carried) -> None:
        thread_id, ns, _ = carried.place
        checkpoint = {
            **carried.checkpoint,
            "channel_values": carried.checkpoint.get("channel_values") or {},
            "channel_versions": carried.checkpoint.get("channel_versions") or {},
            "id": carried.place.id,
        }
        new = [*checkpoint["channel_versions"], *checkpoint["channel_values"]]
        above = EnginePlace(thread_id, ns, carried.parent)
        serde, metadata = self._saver.serde, carried.metadata
        engine = self._engine
        if carried.schema is not None:
            engine = engine.over(engine.storage, carried.schema)
            metadata = {key: value for key, value in metadata.items() if key != VERSION}
        put = engine.put(serde, above, checkpoint, metadata, new, Guard())
        await self._colour.do(self._saver, put, writes=True)
        for task in carried.writes:
            own = Task(task.task_id, task.path, task.run)
            work = engine.put_writes(
                serde, _at(carried.place), task.pairs, own, bool, indices=task.indices
            )
            await self._colour.do(self._saver, work, writes=True)

    async def heads(self, plan: Plan) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for ns in _namespaces(plan.keys):
            work = self._engine.storage.load(plan.thread_id, ns, None, Held())
            head = await self._colour.do(self._saver, work)
            if head is not None:
                found[ns] = head.row.id
        return found

    async def set_heads(self, thread_id: str, heads: Mapping[str, str]) -> bool:
        def decide(listing: Listing) -> Edit:
            edit = lineage.remove(listing, set(), (), self._engine.delta_channels)
            edit.heads = dict(heads)
            return edit

        work = self._engine.storage.edit(thread_id, decide)
        await self._colour.do(self._saver, work, writes=True)
        self._engine.memory.forget(thread_id)
        return True


def _at(place: Place) -> EnginePlace:
    return EnginePlace(*place)


def _known(found: Loaded) -> list[Writing]:
    runs = {(row.path, row.task_id): row.run for row in found.writes}
    return [
        Writing(w.path, w.task_id, w.idx, runs[w.path, w.task_id])
        for w in lineage.pending(found.thread_id, found.writes)
    ]


def _namespaces(keys: Iterable[Key]) -> list[str]:
    return sorted({key.ns for key in keys})


async def thread_names(
    colour: Colour, saver: DurableSaver, named: Sequence[str] | None
) -> AsyncIterator[str]:
    """The threads of one of our savers: these, or all."""
    if named is not None:
        for thread_id in named:
            yield thread_id
        return
    after = None
    while page := await colour.do(saver, saver._engine.storage.threads(after, PAGE)):
        after = page[-1]
        for thread_id in page:
            yield thread_id


def check_saver(what: str, saver: object) -> None:
    if not isinstance(saver, BaseCheckpointSaver):
        raise ConfigurationError(f"{what} is a checkpoint saver, not {saver!r}")
