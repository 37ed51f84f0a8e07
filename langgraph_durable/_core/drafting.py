"""What a call is about to store: drafts made of values, while nothing is stored yet.

A draft holds what is new, numbered for the time being, and refers to what the thread's memory knows
to be stored. It says which epoch that was true in, so that the store can refuse it: then the
`engine` forgets the thread and asks for another. What leaves the row for an artifact store is
there before the draft is returned, and confirmed when its row is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable._core import lineage
from langgraph_durable._core.authors import ANYBODY, Author
from langgraph_durable._core.decoder import Decoder
from langgraph_durable._core.encoder import Encoder
from langgraph_durable._core.header import Capsule, Header, Version, split_checkpoint
from langgraph_durable._core.memory import Entry, Learned, Memory, Part, Pledge, Record
from langgraph_durable._core.offload import Packed, Shelf, Upload
from langgraph_durable._core.origin import Note
from langgraph_durable._core.records import (
    CheckpointDraft,
    CheckpointRow,
    Guard,
    Held,
    Loaded,
    Selection,
    Write,
    WritesDraft,
    task_aside,
)
from langgraph_durable._core.refs import ORIGIN, Ref
from langgraph_durable._core.restored import Place
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable._core.storage import Storage
from langgraph_durable.errors import ArtifactMissing, ConfigurationError, SerializationError

if TYPE_CHECKING:
    from langgraph_durable._core.versions import Versions

PAGE = 256
"""Checkpoints looked through at once where one must be searched for."""
NOTE = ""
"""Stands for a channel in the ref of the program's note."""

Capsules = dict[str, tuple[Capsule, Ref]]


class Task(NamedTuple):
    """Who writes: a task, its place among the others, and the run it belongs to."""

    id: str
    path: str
    run: str | None
    by: Author = ANYBODY
    aside: bool = False

    def parted(
        self, writes: Sequence[tuple[str, Any]], indices: Sequence[int] | None
    ) -> Iterator[tuple[Sequence[tuple[str, Any]], Sequence[int], Task]]:
        """Writes some of which a rival has made first: special ones as ever, the others aside."""
        numbered = list(zip(writes, indices or count(), strict=False))
        for is_special in (True, False):
            part = [each for each in numbered if (each[0][0] in WRITES_IDX_MAP) is is_special]
            if part:
                own = self if is_special else self._replace(aside=True)
                yield [pair for pair, _ in part], [n for _, n in part], own


class _Base(NamedTuple):
    """What a draft goes on from."""

    part: Part | None
    record: Record
    """The parent, or without one the newest checkpoint of the namespace."""
    linked: bool
    """The parent is stored."""


class _Values(NamedTuple):
    """The channels of a checkpoint: taken over from its base, or encoded."""

    entries: dict[str, Entry]
    fresh: set[str]
    """Those that were encoded."""
    elsewhere: dict[str, Version]
    """Those without a value here: it may be stored under its version by another checkpoint."""
    kept: bool
    """Something was taken over."""


class Drafter:
    """Makes drafts; see the top of the file."""

    def __init__(
        self,
        storage: Storage,
        memory: Memory,
        plain: ExactSerializer,
        shelf: Shelf | None,
        origin: Note | None,
        versions: Versions | None,
    ) -> None:
        self._storage, self._memory, self._plain = storage, memory, plain
        self._shelf, self._origin, self._versions = shelf, origin, versions
        self._schema = None if versions is None else versions.evolution.version

    # ---- encoding ----------------------------------------------------------------------------

    async def encoder(self, serde: SerializerProtocol, part: Part | None) -> Encoder:
        """An encoder that knows what `part` knows."""
        shelf = self._shelf
        if shelf is not None and shelf.writes and not shelf.is_ready:
            await shelf.prepare(self._storage)
        return Encoder(serde, part, shelf)

    def _reconsider(self) -> None:
        """What the memory calls stored may be broken; where it is read again, that is seen."""
        if self._shelf is not None and self._shelf.has_news:
            self._shelf.has_news = False
            self._memory.clear()

    async def packed(self, encoder: Encoder) -> Packed:
        """The new items; what leaves them is uploaded first."""
        shelf = self._shelf
        if encoder.leaves and shelf is not None and shelf.writes and not shelf.is_entered:
            await shelf.enter(self._storage)
        try:
            return encoder.packed()
        except ArtifactMissing:  # unless it was moved since the names were read
            if shelf is None or not await shelf.refresh(self._storage):
                raise
            return encoder.packed()

    def confirm(self, uploads: Sequence[Upload]) -> None:
        """The row is written: no collector misses its claims from now on. Has one before?"""
        if uploads and self._shelf is not None:
            self._shelf.confirm(uploads)

    def dump(self, what: str, value: Any) -> bytes:
        """A part of a header, serialised; `what` says of which part an error tells."""
        try:
            tag, data = self._plain.dumps_typed(value)
        except SerializationError as error:
            raise SerializationError(error.reason, path=f"{what}{error.path}") from error
        assert tag == "x1"
        return data

    # ---- a checkpoint ------------------------------------------------------------------------

    async def checkpoint(
        self,
        serde: SerializerProtocol,
        place: Place,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Collection[str],
        guard: Guard,
        by: Author = ANYBODY,
    ) -> tuple[CheckpointDraft, Sequence[Upload]]:
        """A draft of a checkpoint whose parent is `place.id`, and what it has uploaded."""
        self._reconsider()
        part, record, linked = await self._base(serde, place)
        encoder = await self.encoder(serde, part)
        schema = record.schema
        capsules: Capsules = {}
        if self._versions is not None:
            schema = self._schema
            # Nothing of another version may be taken over.
            if record.schema != schema or self._versions.is_elsewhere(place):
                alone = by if guard.sole else ANYBODY
                carried = self._versions.carried(serde, place, checkpoint, metadata, encoder, alone)
                capsules = await carried
                record = Record({}, {}, schema=record.schema)
        entries, fresh, elsewhere, kept = _encoded(encoder, checkpoint, new_versions, record)
        if part and elsewhere and record.schema == schema:
            found = await self._stored_elsewhere(place, elsewhere)
            entries, kept = entries | found, kept or bool(found)
        if place.id is None and not capsules:
            capsules = _inherited(record, checkpoint, entries)
            kept = kept or bool(capsules)
        header = self._header(checkpoint, metadata, entries, linked, capsules, schema)
        if self._origin is not None:
            header.origin = Ref(NOTE, (encoder.raw(self._origin.raw), 1), ORIGIN)
        if place.id is not None and by.known is not None and metadata.get(lineage.COUNTERS):
            header.hand = by.hand
            needed = {None, *lineage.missing(header)} if by.known else ()
            header.known = frozenset(each[:2] for each in by.known if each.channel in needed)
            if not linked and {*lineage.missing(header)}.intersection(metadata[lineage.COUNTERS]):
                guard = guard._replace(sole=True, lenient=False, lost=True)
        run = metadata.get("run_id")
        run = str(run) if run is not None else None
        packed = await self.packed(encoder)
        learned = Learned(
            encoder.learned(),
            (place.ns, checkpoint["id"]),
            Record(header.versions, entries, capsules, schema),
            run,
            fresh,
        )
        draft = CheckpointDraft(
            thread_id=place.thread_id,
            epoch=part.epoch if part and (kept or linked or encoder.shared) else None,
            items=packed.items,
            claims=packed.claims,
            memory=Pledge(self._memory, place.thread_id, part, learned),
            ns=place.ns,
            id=checkpoint["id"],
            parent=place.id,
            run=run,
            refs=header.refs(),
            fresh=fresh.union(capsules, (NOTE,)),
            body=_body(header),
            guard=guard,
            root=guard.root,
            announce_run=_is_news(part, run),
        )
        return draft, packed.uploads

    def _header(
        self,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        entries: dict[str, Entry],
        linked: bool,
        capsules: Capsules,
        schema: int | None,
    ) -> Header:
        return Header(
            entries=entries,
            versions=dict(checkpoint["channel_versions"]),
            seen=checkpoint.get("versions_seen") or {},
            rest=self.dump("checkpoint", split_checkpoint(checkpoint)),
            metadata=self.dump("metadata", dict(metadata)),
            linked=linked,
            capsules=capsules,
            schema=schema,
        )

    async def _base(self, serde: SerializerProtocol, place: Place) -> _Base:
        """What is known of the thread, its parent, and whether the parent is stored.

        In a run the parent was loaded or put by this saver, so it is remembered; a cold writer
        loads it once, which also tells it which items are there. Without a parent, the newest
        checkpoint of the namespace serves: values stored under a version belong to that version.
        """
        thread_id, ns, parent = place
        part = self._memory.part(thread_id)
        if part is not None:
            known = part.newest(ns) if parent is None else part.records.get((ns, parent))
            if known is not None:
                return _Base(part, known, parent is not None)
        loaded = await self._storage.load(thread_id, ns, parent, Held())
        if loaded is None:
            return _Base(part, Record({}, {}, schema=self._schema), False)
        header = lineage.read_row(thread_id, loaded.row)
        decoder = Decoder(serde, thread_id, loaded.items)
        where = f"thread {thread_id!r}, checkpoint {loaded.row.id}"
        for entry in header.entries.values():
            decoder.check(where, entry.ref)
        if header.origin is not None:
            decoder.check(where, header.origin)
        record = Record(header.versions, header.entries, header.capsules, header.schema)
        part = remember(self._memory, loaded, header, decoder)
        return _Base(part, record, parent is not None)

    async def _stored_elsewhere(
        self, place: Place, wanted: Mapping[str, Version]
    ) -> dict[str, Entry]:
        """Values stored under these versions by checkpoints other than the parent.

        LangGraph always hands such values over, so this is for those who call `put` themselves.
        """
        found: dict[str, Entry] = {}

        def look(thread_id: str, row: CheckpointRow) -> bool:
            entries = lineage.read_row(thread_id, row).entries
            for channel, version in wanted.items():
                entry = entries.get(channel)
                if entry is not None and entry.version == version:
                    found.setdefault(channel, entry)
            return False

        selection, cursor = Selection(place.thread_id, place.ns), None
        while len(found) < len(wanted):
            page = await self._storage.page(selection, cursor, PAGE, look)
            cursor = page.cursor
            if cursor is None:
                break
        return found

    # ---- writes ------------------------------------------------------------------------------

    async def writes(
        self,
        serde: SerializerProtocol,
        place: Place,
        writes: Sequence[tuple[str, Any]],
        task: Task,
        sole: Callable[[], bool],
        root: str | None,
        indices: Sequence[int] | None,
    ) -> tuple[WritesDraft, Sequence[Upload]]:
        """A draft of what a task has written, and what it has uploaded."""
        thread_id = place.thread_id
        self._reconsider()
        part = self._memory.part(thread_id)
        encoder = await self.encoder(serde, part)
        ordinary, special = [], {}
        for position, (channel, value) in zip(indices or count(), writes, strict=False):
            ref, form = encoder.value(channel, value)
            idx = WRITES_IDX_MAP.get(channel, position)
            if idx < 0:
                special[idx] = Write(idx, ref, form)
            else:
                ordinary.append(Write(idx, ref, form))
        packed = await self.packed(encoder)
        learned = Learned(encoder.learned(), run=task.run)
        draft = WritesDraft(
            thread_id=thread_id,
            epoch=part.epoch if part and encoder.shared else None,
            items=packed.items,
            claims=packed.claims,
            memory=Pledge(self._memory, thread_id, part, learned),
            ns=place.ns,
            id=place.id or "",
            task_id=task_aside(task.id, task.by.hand) if task.aside else task.id,
            path=task.path,
            run=task.run,
            ordinary=tuple(ordinary),
            special=tuple(special.values()),
            announce_run=_is_news(part, task.run),
            schema=self._schema,
            sole=sole,
            root=root,
            by=task.by,
            aside=task.aside,
        )
        return draft, packed.uploads


class Copyist(Drafter):
    """Drafts of what is copied from elsewhere: under the version it has there, and without a note.

    So nothing of the parent's record is taken over, which may have another version. What has none
    has that of its parent: where nobody notes versions, programs go on in the one they found.
    """

    def __init__(
        self,
        storage: Storage,
        memory: Memory,
        plain: ExactSerializer,
        shelf: Shelf | None,
        version: int | None,
    ) -> None:
        super().__init__(storage, memory, plain, shelf, None, None)
        self._schema = version

    async def _base(self, serde: SerializerProtocol, place: Place) -> _Base:
        base, version = await super()._base(serde, place), self._schema
        if version is None and base.linked:
            version = base.record.schema
        return base._replace(record=Record({}, {}, schema=version))


def remember(memory: Memory, loaded: Loaded, header: Header, decoder: Decoder) -> Part:
    """Note what was read of a thread."""
    record = Record(header.versions.copy(), header.entries, header.capsules, header.schema)
    learned = Learned(decoder.learned(), (loaded.row.ns, loaded.row.id), record)
    return memory.learn(loaded.thread_id, loaded.epoch, learned)


def _encoded(
    encoder: Encoder, checkpoint: Mapping[str, Any], new_versions: Collection[str], base: Record
) -> _Values:
    """The channels of a checkpoint: those of unchanged versions as `base` has them."""
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    made = _Values({}, set(), {}, False)
    kept = False
    for channel in {**values, **versions}:
        version = versions.get(channel)
        if channel not in new_versions and version is not None:
            old = base.entries.get(channel)
            if old is not None and old.version == version:
                made.entries[channel], kept = old, True
                continue
        if channel in values:
            ref, form = encoder.value(channel, values[channel])
            made.entries[channel] = Entry(version, form, ref)
            made.fresh.add(channel)
        elif channel not in new_versions and base.versions.get(channel) != version:
            made.elsewhere[channel] = version
    return made._replace(kept=kept)


def _inherited(
    base: Record, checkpoint: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Capsules:
    """`update_state(as_node="__copy__")` after a prune: a copy has the history of its model."""
    versions = checkpoint["channel_versions"]
    return {
        channel: capsule
        for channel, capsule in base.capsules.items()
        if versions.get(channel) == base.versions.get(channel) and channel not in entries
    }


def _body(header: Header) -> bytes:
    try:
        return header.body()
    except (TypeError, AttributeError) as error:
        raise ConfigurationError(
            "the checkpoint's channel_versions or versions_seen cannot be stored: a version is a "
            f"string, a float or an int of 64 bits ({error})"
        ) from error


def _is_news(part: Part | None, run: str | None) -> bool:
    return run is not None and (part is None or run not in part.runs)
