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
from langgraph_durable._core.authors import Author, KnownWrite
from langgraph_durable._core.climbing import Known, Opened, namespace_of
from langgraph_durable._core.decoder import Decoder
from langgraph_durable._core.encoder import Encoder
from langgraph_durable._core.evolution import NOBODY, Edited, Evolution
from langgraph_durable._core.header import Capsule, Header
from langgraph_durable._core.outlines import Outline, OutlinedWrite
from langgraph_durable._core.records import CheckpointRow, Cursor, Held, Loaded, Selection
from langgraph_durable._core.refs import CAPSULE, Ref, extend, length
from langgraph_durable._core.restored import Place, Restored
from langgraph_durable._core.steps import VERSION
from langgraph_durable.errors import ConcurrentUpdate

if TYPE_CHECKING:
    from langgraph_durable._core.engine import Engine

MOST_ALIASES = 10_000
Capsules = dict[str, tuple[Capsule, Ref]]


class Versions:
    """The engine's way with checkpoints of other versions; see the top of the file."""

    def __init__(self, engine: Engine, evolution: Evolution) -> None:
        self._engine, self.evolution = engine, evolution
        self._aliases: dict[tuple[str, str, str | None], str] = {}
        """Namespaces in which checkpoints are stored: of those that no put may take over from,
        because it is not the one of today, or because they have writes of other versions."""
        self._names: dict[tuple[str, int], Known] = {}
        """What namespaces without ids are called, as their steps always tell the same."""

    def open(self, loaded: Loaded, header: Header) -> Opened:
        rest, metadata = self._engine.loads(header.rest), self._engine.loads(header.metadata)
        writes = lineage.pending(loaded.thread_id, loaded.writes)
        return Opened(loaded.thread_id, loaded.row, header, rest, metadata, writes)

    # ---- reading -----------------------------------------------------------------------------

    async def get(
        self, serde: SerializerProtocol, place: Place, above: Mapping[str, str] | None
    ) -> Restored | None:
        if place.id is None and lasts(place.ns):
            found = await self._get_lasting(serde, place)
        else:
            found = await self._get_called(serde, place, above or {})
        if found is not None and found.edited is not None and found.edited.unknown:
            await self._explain(serde, found, found.edited)
        return found

    async def _get_called(
        self, serde: SerializerProtocol, place: Place, above: Mapping[str, str]
    ) -> Restored | None:
        """A checkpoint under the first of its names that has one."""
        found = await self._engine._get(serde, place)
        known = await self._known(place, above) if found is None and place.ns else {}
        for ns in _others(known, place.ns):
            found = await self._engine._get(serde, place._replace(ns=ns), known)
            if found is not None:
                self._remember(place, found.place.id, ns)
                break
        return found

    async def _get_lasting(self, serde: SerializerProtocol, place: Place) -> Restored | None:
        """What a sub-graph with a state of its own has come to, whichever program added to it."""
        known = await self._known(place, {})
        others = _others(known, place.ns)
        if {*known.values()} <= {place.ns}:
            return await self._engine._get(serde, place)
        newest: Place | None = None
        for ns in (*others, place.ns):
            id = await self._newest(place._replace(ns=ns), known)
            if id is not None and (newest is None or str(newest.id) < id):
                newest = place._replace(ns=ns, id=id)
        if newest is None:
            return None
        if newest.ns != place.ns:
            self._remember(place, newest.id, newest.ns)
        return await self._engine._get(serde, newest, known)

    async def _newest(self, place: Place, known: Known) -> str | None:
        """The newest checkpoint under one of the names in `known`."""
        loaded = await self._bare(place)
        if loaded is None or self.is_called(loaded.thread_id, loaded.row, known):
            return None if loaded is None else loaded.row.id
        selection, after = Selection(place.thread_id, place.ns), None
        accept = partial(self.is_called, known=known)
        while True:  # the name was another node's as well
            page = await self._engine.storage.page(selection, after, 1, accept, items=False)
            if page.rows or page.cursor is None:
                return page.rows[0].row.id if page.rows else None
            after = page.cursor

    def is_called(self, thread_id: str, row: CheckpointRow, known: Known) -> bool:
        """Whether a node was called so by the program that stored a checkpoint; not another one."""
        version = self.evolution.stored(lineage.read_row(thread_id, row).schema)
        return known.get(version, row.ns) == row.ns

    def restore(
        self,
        loaded: Loaded,
        header: Header,
        decoder: Decoder,
        known: Known,
        origin: bytes | None,
    ) -> Restored:
        """A stored checkpoint in this version; `known` says what its namespace is called."""
        row = loaded.row
        edited = self.evolution.edit(self.open(loaded, header), decoder, known)
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
        place = Place(loaded.thread_id, edited.ns, row.id)
        if header.schema == self.evolution.version or edited.ns != row.ns:
            self._remember(place, row.id, row.ns)
        given_out = (
            KnownWrite(write.task_id, write.idx, write.channel) for write in content.writes
        )
        stored = (w.known for w in lineage.pending(loaded.thread_id, loaded.writes))
        both = tuple({*stored, *given_out})
        own = place, row.parent, checkpoint, metadata, writes
        return Restored(*own, origin, both, header.author, edited)

    def outline(self, made: Outline, loaded: Loaded) -> Outline:
        """An outline in the names of this version."""
        shown = {**made.metadata, VERSION: self.evolution.stored(made.header.schema)}
        version = self.evolution.version
        if made.header.schema == version and all(w.schema == version for w in made.writes):
            return replace(made, metadata=shown)
        stored, ns = self.evolution.stored(made.header.schema), made.ns
        ns = self._lasting(ns, stored).get(version, ns) if lasts(ns) else ns
        content = self.evolution.probe(self.open(loaded, made.header))._content
        header = replace(made.header, versions=content.versions, seen=content.seen)
        writes = tuple(OutlinedWrite(w.task_id, w.channel, w.path) for w in content.writes)
        shown = {**content.metadata, VERSION: shown[VERSION]}
        return replace(made, ns=ns, header=header, metadata=shown, rest=content.rest, writes=writes)

    async def _explain(self, serde: SerializerProtocol, found: Restored, edited: Edited) -> None:
        """Give questions of sub-graphs the ids that the program knows them by."""
        above = {**(edited.content.metadata.get("parents") or {})}
        above[found.place.ns] = found.place.id
        # A sub-graph with a checkpointer of its own has a namespace without the ids of tasks.
        own = [moved.new_ns for moved in edited.moved]
        for ns in dict.fromkeys([*own, *map(namespace_of, own)]):
            below = await self.get(serde, Place(found.place.thread_id, ns, None), above)
            if below is not None and below.edited is not None:
                edited.interrupts |= below.edited.interrupts
        for asked in edited.unknown:
            asked.id = edited.interrupts.get(asked.id, asked.id)

    # ---- namespaces --------------------------------------------------------------------------

    def _remember(self, place: Place, id: str | None, ns: str) -> None:
        if len(self._aliases) >= MOST_ALIASES:
            self._aliases.clear()
        self._aliases[place.thread_id, place.ns, id] = ns

    def forget(self, thread_id: str) -> None:
        """Forget where checkpoints of a thread are stored: it was rewritten."""
        for key in [key for key in self._aliases if key[0] == thread_id]:
            del self._aliases[key]

    def is_elsewhere(self, place: Place) -> bool:
        return bool(self._aliases) and (place.thread_id, place.ns, place.id) in self._aliases

    def stored_place(self, place: Place) -> Place:
        """Where a checkpoint is stored that was found under another name."""
        if not self._aliases:
            return place
        return place._replace(ns=self._aliases.get((place.thread_id, place.ns, place.id), place.ns))

    async def _known(self, place: Place, above: Mapping[str, str]) -> Known:
        """What a namespace of today is called in other versions, oldest first."""
        if lasts(place.ns):
            return self._lasting(place.ns, self.evolution.version)
        known: Known = {}
        wanted, today = "", self.evolution.version
        for segment, count in _segments(place.ns):
            if ":" not in segment:
                below = self.evolution.lasting(wanted, segment, today)
            elif parent := await self._parent(place.thread_id, wanted, known, above.get(wanted)):
                below = self.evolution.below(parent, known, segment, today)
            else:
                below = {today: segment}
            known = {v: join(known.get(v, wanted), part, count) for v, part in below.items()}
            wanted = join(wanted, segment, count)
        return known

    async def known_to_writers(self, loaded: Loaded, header: Header, known: Known) -> Known:
        """`known`, and what programs that wrote pending writes, and were taken back, call it."""
        today, row = self.evolution.version, loaded.row
        pending = lineage.pending(loaded.thread_id, loaded.writes) if ":" in row.ns else ()
        if all(write.schema in (None, today, header.schema) for write in pending):
            return known
        opened = self.open(loaded, header)
        versions = self.evolution.parted(opened)[1].keys() - known.keys()
        parents = opened.metadata.get("parents") or {}
        if not versions or header.schema != today:
            return known
        names: dict[int, str] = {}
        wanted = ""
        for segment, count in _segments(row.ns):
            parts: dict[int, str] = {today: segment}
            if ":" not in segment:
                parts |= self._lasting(segment, today)
            elif parent := await self._bare(Place(loaded.thread_id, wanted, parents.get(wanted))):
                above = self.open(parent, lineage.read_row(loaded.thread_id, parent.row))
                parts |= self.evolution.besides(above, names, segment, versions)
            names = {v: join(names.get(v, wanted), part, count) for v, part in parts.items()}
            wanted = join(wanted, segment, count)
        return {**names, **known}

    def _lasting(self, ns: str, version: int) -> Known:
        """The same for sub-graphs with a state of their own, from their name in one version."""
        if (ns, version) not in self._names:
            known: Known = {}
            above = ""
            for segment, count in _segments(ns):
                below = self.evolution.lasting(above, segment, version)
                known = {v: join(known.get(v, above), part, count) for v, part in below.items()}
                above = join(above, segment, count)
            if len(self._names) >= MOST_ALIASES:
                self._names.clear()
            self._names[ns, version] = known
        return self._names[ns, version]

    async def _parent(
        self, thread_id: str, wanted: str, known: Known, id: str | None
    ) -> Opened | None:
        """The checkpoint that a sub-graph runs from, unless it is of this version."""
        part = self._engine.memory.part(thread_id)
        for ns in (wanted, *_others(known, wanted)):
            record = None if part is None or id is None else part.records.get((ns, id))
            if record is not None and record.schema == self.evolution.version:
                return None
            loaded = await self._bare(Place(thread_id, ns, id))
            if loaded is not None:
                header = lineage.read_row(thread_id, loaded.row)
                is_old = header.schema != self.evolution.version
                return self.open(loaded, header) if is_old else None
        return None

    async def _bare(self, place: Place) -> Loaded | None:
        """A stored checkpoint without its values."""
        storage = self._engine.storage
        if place.id is None:
            return await storage.load(*place, Held())
        page = await storage.page(Selection(*place), None, 1, lambda *_: True, items=False)
        return page.rows[0] if page.rows else None

    async def page(
        self,
        serde: SerializerProtocol,
        selection: Selection,
        filter: Mapping[str, Any] | None,
        after: Cursor | None,
        size: int,
    ) -> tuple[list[Restored], Cursor | None]:
        """One page of `list`, of a namespace under all the names that it has had."""
        several, known = await self._selected(selection)
        pages = [
            await self._engine._page(serde, each, filter, after, size, known) for each in several
        ]
        if len(pages) == 1:
            return pages[0]
        found = {one.place.id: one for rows, _ in pages for one in rows}
        # Below the last row of a page that goes on, there may be more in it.
        last = max((cursor for _, cursor in pages if cursor is not None), default=None)
        newest = sorted(found.items(), reverse=True, key=lambda each: str(each[0]))
        told = [one for id, one in newest if last is None or str(id) >= last.id]
        if len(told) > size:
            place = told[size - 1].place
            last = Cursor(str(place.id), place.thread_id, "")  # below it, whatever its name
        return told[:size], last

    async def _selected(self, selection: Selection) -> tuple[list[Selection], Known]:
        """What a list in a namespace of today is to read, today's name last."""
        thread_id, ns = selection.thread_id, selection.ns
        if not ns or thread_id is None:
            return [selection], {}
        if not lasts(ns) and await self._is_there(thread_id, ns):
            return [selection], {}
        known = await self._known(Place(thread_id, ns, None), {})
        if {*known.values()} <= {ns}:
            return [selection], {}
        others = _others(known, ns)
        if lasts(ns):
            return [selection._replace(ns=name) for name in (*others, ns)], known
        for other in others:
            if await self._is_there(thread_id, other):
                return [selection._replace(ns=other)], known
        return [selection], {}

    async def _is_there(self, thread_id: str, ns: str) -> bool:
        storage = self._engine.storage
        page = await storage.page(Selection(thread_id, ns), None, 1, lambda *_: True, items=False)
        return bool(page.rows)

    # ---- going on ----------------------------------------------------------------------------

    async def carried(
        self,
        serde: SerializerProtocol,
        place: Place,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        encoder: Encoder,
        by: Author,
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
        if named:
            await self._check_rivals(parent, by)
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

    async def _check_rivals(self, parent: Restored, by: Author) -> None:
        """What rivals have written since a run loaded the parent cannot be left out here."""
        if by.known is None:
            return
        place = self.stored_place(parent.place)
        loaded = await self._bare(place)
        writes = lineage.pending(place.thread_id, loaded.writes) if loaded else ()
        known = set(by.known)
        if any(w.by != by.hand and w.known not in known for w in writes):
            raise ConcurrentUpdate(place.thread_id, place.id, place.id)

    async def delta_history(
        self, serde: SerializerProtocol, place: Place, channels: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        engine, today = self._engine, place
        place = self.stored_place(today)
        chain = await engine.storage.chain(*place, channels)
        if chain is None and place != today:  # somebody has upgraded the thread meanwhile
            place, chain = today, await engine.storage.chain(*today, channels)
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


def lasts(ns: str) -> bool:
    """Whether a namespace is that of a sub-graph with a state of its own: without ids of tasks."""
    return bool(ns) and ":" not in ns


def _others(known: Known, today: str) -> list[str]:
    """Other names of a namespace, newest first."""
    names = [ns for ns in dict.fromkeys(reversed(list(known.values()))) if ns != today]
    return [ns for ns in names if NOBODY not in ns.split("|")]


def _segments(ns: str) -> Iterator[tuple[str, str]]:
    """The parts of a namespace, each with the number of the call that may follow it."""
    parts = ns.split("|")
    for at, part in enumerate(parts):
        if not part.isdigit():
            count = parts[at + 1] if at + 1 < len(parts) and parts[at + 1].isdigit() else ""
            yield part, count


def join(above: str, segment: str, count: str) -> str:
    return "|".join(part for part in (above, segment, count) if part)
