"""Where checkpoints of other versions are met: reading them, going on from them, finding them.

The engine comes here when it has a schema. A checkpoint of the program's own version passes after
one comparison; any other is brought to this version by `evolution`. Three things need more than
one record:

*A sub-graph of a renamed node* lives in a namespace that carries the old name and the old id of
its task. It is looked for by working out, level by level, what today's namespace was called. Writes
that the program adds to such a checkpoint go where it is stored.

*A put that goes on from another version* takes nothing over from its parent's record. What its
DeltaChannels need of older ancestors is stored with it, upgraded, as a capsule (see `lineage`), so
that no chain ever crosses from one version to another.

*A question asked by a sub-graph* is noted on the levels above by an id that only the sub-graph's
own checkpoint can explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_durable._core import lineage
from langgraph_durable._core.codec import Decoder, Encoder
from langgraph_durable._core.evolution import VERSION, Edited, Evolution, Opened
from langgraph_durable._core.header import Capsule, Header
from langgraph_durable._core.ops import RenameNode
from langgraph_durable._core.outlines import Outline, OutlinedWrite
from langgraph_durable._core.records import (
    CAPSULE,
    CheckpointRow,
    Held,
    Loaded,
    Ref,
    Selection,
    extend,
    length,
)
from langgraph_durable._core.restored import Place, Restored

if TYPE_CHECKING:
    from langgraph_durable._core.engine import Engine

MOST_ALIASES = 10_000
Capsules = dict[str, tuple[Capsule, Ref]]


class Versions:
    """The engine's way with checkpoints of other versions; see the top of the file."""

    def __init__(self, engine: Engine, evolution: Evolution) -> None:
        self._engine, self.evolution = engine, evolution
        self._aliases: dict[tuple[str, str, str | None], str] = {}
        """Namespaces in which checkpoints are stored, where it is not the one of today."""

    def open(self, loaded: Loaded, header: Header) -> Opened:
        rest, metadata = self._engine.loads(header.rest), self._engine.loads(header.metadata)
        writes = lineage.pending(loaded.thread_id, loaded.writes)
        return Opened(loaded.thread_id, loaded.row, header, rest, metadata, writes)

    # ---- reading -----------------------------------------------------------------------------

    async def get(
        self, serde: SerializerProtocol, place: Place, above: Mapping[str, str] | None
    ) -> Restored | None:
        found = await self._engine._get(serde, place)
        if found is None and place.ns:
            stored = await self._elsewhere(place, above or {})
            found = None if stored is None else await self._engine._get(serde, stored, place.ns)
            if found is not None and stored is not None:
                self._remember(place, found.place.id, stored.ns)
        if found is not None and found.edited is not None and found.edited.unknown:
            await self._explain(serde, found, found.edited)
        return found

    def restore(
        self,
        loaded: Loaded,
        header: Header,
        decoder: Decoder,
        ns: str | None,
        origin: bytes | None,
    ) -> Restored:
        """A stored checkpoint in this version, known as `ns` today."""
        row = loaded.row
        ns = row.ns if ns is None else ns
        edited = self.evolution.edit(self.open(loaded, header), decoder, ns)
        content = edited.content
        checkpoint = {
            **content.rest,
            "id": row.id,
            "channel_values": content.values,
            "channel_versions": content.versions,
            "versions_seen": content.seen,
        }
        metadata = {**content.metadata, VERSION: self.evolution.stored(header.schema)}
        writes = [(write.task_id, write.channel, write.value) for write in content.writes]
        place = Place(loaded.thread_id, ns, row.id)
        return Restored(place, row.parent, checkpoint, metadata, writes, origin, edited)

    def outline(self, made: Outline, loaded: Loaded) -> Outline:
        """An outline in the names of this version."""
        shown = {**made.metadata, VERSION: self.evolution.stored(made.header.schema)}
        if made.header.schema == self.evolution.version:
            return replace(made, metadata=shown)
        content = self.evolution.probe(self.open(loaded, made.header))._content
        header = replace(made.header, versions=content.versions, seen=content.seen)
        writes = tuple(OutlinedWrite(w.task_id, w.channel, w.path) for w in content.writes)
        shown = {**content.metadata, VERSION: shown[VERSION]}
        return replace(made, header=header, metadata=shown, rest=content.rest, writes=writes)

    async def _explain(self, serde: SerializerProtocol, found: Restored, edited: Edited) -> None:
        """Give questions of sub-graphs the ids that the program knows them by."""
        above = {**(edited.content.metadata.get("parents") or {})}
        above[found.place.ns] = found.place.id
        for moved in edited.moved:
            below = await self.get(serde, Place(found.place.thread_id, moved.new_ns, None), above)
            if below is not None and below.edited is not None:
                edited.interrupts |= below.edited.interrupts
        for asked in edited.unknown:
            asked.id = edited.interrupts.get(asked.id, asked.id)

    # ---- namespaces --------------------------------------------------------------------------

    def _remember(self, place: Place, id: str | None, ns: str) -> None:
        if len(self._aliases) >= MOST_ALIASES:
            self._aliases.clear()
        self._aliases[place.thread_id, place.ns, id] = ns

    def is_elsewhere(self, place: Place) -> bool:
        return bool(self._aliases) and (place.thread_id, place.ns, place.id) in self._aliases

    def stored_place(self, place: Place) -> Place:
        """Where a checkpoint is stored that was found under another name."""
        if not self._aliases:
            return place
        return place._replace(ns=self._aliases.get((place.thread_id, place.ns, place.id), place.ns))

    async def _elsewhere(self, place: Place, above: Mapping[str, str]) -> Place | None:
        """Where a namespace of today may be stored; None if under its own name at best."""
        stored = wanted = ""
        for segment, count in _segments(place.ns):
            name, _, task_id = segment.partition(":")
            if task_id:
                was = await self._task_before(place, (stored, wanted), above, name, task_id)
                was = was or segment
            else:
                was = await self._node_before(place.thread_id, stored, name)
            stored, wanted = _below(stored, was, count), _below(wanted, segment, count)
        return None if stored == place.ns else place._replace(ns=stored)

    async def _task_before(
        self,
        place: Place,
        parent: tuple[str, str],
        above: Mapping[str, str],
        name: str,
        task_id: str,
    ) -> str | None:
        stored, wanted = parent
        opened = await self._parent(place.thread_id, stored, above.get(wanted))
        if opened is None:
            return None
        tasks = self.evolution.tasks(opened, self.evolution.probe(opened).noted, wanted, [name])
        moved = None if tasks is None else tasks.back(name, task_id)
        return None if moved is None else moved.old_ns.rpartition("|")[2]

    async def _parent(self, thread_id: str, ns: str, id: str | None) -> Opened | None:
        """The checkpoint that a sub-graph runs from, unless it is of this version."""
        part = self._engine.memory.part(thread_id)
        known = None if part is None or id is None else part.records.get((ns, id))
        if known is not None and known.schema == self.evolution.version:
            return None
        if id is None:
            loaded = await self._engine.storage.load(thread_id, ns, None, Held())
        else:
            page = await self._engine.storage.page(
                Selection(thread_id, ns, id), None, 1, lambda *_: True, items=False
            )
            loaded = page.rows[0] if page.rows else None
        if loaded is None:
            return None
        header = lineage.read_row(thread_id, loaded.row)
        return None if header.schema == self.evolution.version else self.open(loaded, header)

    async def _node_before(self, thread_id: str, above: str, name: str) -> str:
        """The oldest-known name of a sub-graph that keeps one namespace for all its calls."""
        row = CheckpointRow(above, "", None, None, b"", b"")
        empty = Opened(thread_id, row, Header({}, {}, {}, b"", b""), {}, {}, ())
        was = name
        for each in reversed(self.evolution.probe(empty).noted):
            if isinstance(each.op, RenameNode) and each.op.new == was:
                was = each.op.old
                ns = _below(above, was, "")
                if await self._engine.storage.load(thread_id, ns, None, Held()) is not None:
                    return was
        return name

    async def selected(self, selection: Selection) -> Selection:
        """What a list in a namespace of today is to read, if nothing is stored there."""
        if not selection.ns or selection.thread_id is None:
            return selection
        own = Selection(selection.thread_id, selection.ns)
        page = await self._engine.storage.page(own, None, 1, lambda *_: True, items=False)
        if page.rows:
            return selection
        place = Place(selection.thread_id, selection.ns, None)
        stored = await self._elsewhere(place, {})
        return selection if stored is None else selection._replace(ns=stored.ns)

    # ---- going on ----------------------------------------------------------------------------

    async def carried(
        self,
        serde: SerializerProtocol,
        place: Place,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        encoder: Encoder,
    ) -> Capsules:
        """What a checkpoint that goes on from another version needs of its DeltaChannels' past."""
        values = checkpoint["channel_values"]
        missing = [name for name in checkpoint["channel_versions"] if name not in values]
        parent = await self.get(serde, place, None) if missing else None
        if parent is None:
            return {}
        found = await self.delta_history(serde, place, missing)
        named = {*(metadata.get(lineage.COUNTERS) or ())}
        named |= {*(parent.metadata.get(lineage.COUNTERS) or ())}
        capsules: Capsules = {}
        for channel in missing:
            seed = found[channel].get("seed", NOTHING)
            writes = [(task, value) for task, _, value in found[channel]["writes"]]
            own = parent.checkpoint["channel_values"].get(channel, NOTHING)
            if own is not NOTHING:
                seed, writes = own, []
            writes += [(task, value) for task, name, value in parent.writes if name == channel]
            if channel in named or type(seed) is _DeltaSnapshot:
                capsules[channel] = capsule(encoder, channel, seed, writes)
        return capsules

    async def delta_history(
        self, serde: SerializerProtocol, place: Place, channels: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        engine, place = self._engine, self.stored_place(place)
        chain = await engine.storage.chain(*place, channels)
        if chain is None:
            return {channel: {"writes": []} for channel in channels}
        row = chain.links[0].row
        header = lineage.read_row(chain.thread_id, row)
        if header.schema == self.evolution.version:
            return await engine._with_stores(partial(engine._history, serde, chain, channels))
        opened = self.open(Loaded(chain.thread_id, 0, row, (), {}), header)
        names = self.evolution.channels_before(opened, channels)
        both = sorted({*names, *names.values()})
        chain = await engine.storage.chain(place.thread_id, place.ns, row.id, both) or chain
        decoder = Decoder(serde, chain.thread_id, chain.items, None, engine.shelf)
        build = partial(self.evolution.history, opened, chain, decoder, names)
        return await engine._with_stores(build)


NOTHING = object()


def capsule(
    encoder: Encoder, channel: str, seed: Any, writes: Sequence[tuple[str, Any]]
) -> tuple[Capsule, Ref]:
    """A capsule of values."""
    runs: list[int] = []
    form = None
    if seed is not NOTHING:
        own, form = encoder.pieces(channel, seed)
        extend(runs, own)
    sized, seed_items = [], length(runs)
    for task_id, value in writes:
        own, part = encoder.pieces(channel, value)
        extend(runs, own)
        sized.append((task_id, part, length(own)))
    return Capsule(form, tuple(sized), seed_items), Ref(channel, tuple(runs), CAPSULE)


def _segments(ns: str) -> Iterator[tuple[str, str]]:
    """The parts of a namespace, each with the number of the call that may follow it."""
    parts = ns.split("|")
    for at, part in enumerate(parts):
        if not part.isdigit():
            count = parts[at + 1] if at + 1 < len(parts) and parts[at + 1].isdigit() else ""
            yield part, count


def _below(above: str, segment: str, count: str) -> str:
    return "|".join(part for part in (above, segment, count) if part)
