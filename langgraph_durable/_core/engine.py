"""Every operation of a saver, written once, as coroutines over the storage port.

    put     recognise what is stored already -> draft -> Storage.put -> remember
    load    Storage.load -> verify -> rebuild -> remember
    remove  Storage.edit with a rule from `lineage` -> forget

The engine knows values, records and the port. It knows no `RunnableConfig` and no driver, and it
never holds a lock while it waits. The serialiser comes with each call, because LangGraph swaps it
on a shallow copy of the saver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable._core import claims, lineage, outlines
from langgraph_durable._core.authors import ANYBODY, Author
from langgraph_durable._core.climbing import Known
from langgraph_durable._core.decoder import Decoder
from langgraph_durable._core.drafting import Copyist, Drafter, Task, remember
from langgraph_durable._core.evolution import Evolution
from langgraph_durable._core.header import Header
from langgraph_durable._core.lineage import Chain
from langgraph_durable._core.memory import Memory
from langgraph_durable._core.offload import Shelf, UnknownStore
from langgraph_durable._core.origin import Note
from langgraph_durable._core.outlines import Outline
from langgraph_durable._core.records import (
    CheckpointRow,
    Cursor,
    Edit,
    Guard,
    Held,
    Listing,
    Loaded,
    Removed,
    Rivalled,
    Selection,
)
from langgraph_durable._core.restored import Place, Restored
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable._core.steps import VERSION
from langgraph_durable._core.storage import Stale, Storage
from langgraph_durable._core.versions import Versions
from langgraph_durable.errors import (
    CheckpointRemoved,
    ConcurrentUpdate,
    CorruptionError,
    SchemaVersionError,
    StorageError,
)

__all__ = ["Engine", "Place", "Restored", "Task"]

T = TypeVar("T")
logger = logging.getLogger("langgraph_durable")

NOWHERE: Known = {}
"""A namespace that has no other name."""
TRIES = 20
"""Stale drafts are made anew this often: each time somebody else removed something in between."""


class Engine:
    """The operations; see the top of the file.

    `evolution` brings states of other versions to the program's; `origin` notes the program.
    """

    def __init__(
        self,
        storage: Storage,
        memory: Memory,
        plain: ExactSerializer,
        shelf: Shelf | None = None,
        evolution: Evolution | None = None,
        origin: Note | None = None,
    ) -> None:
        self.storage = storage
        self.memory = memory
        self._plain = plain
        self.shelf = shelf
        self.versions = None if evolution is None else Versions(self, evolution)
        self._schema = None if evolution is None else evolution.version
        self.drafter = Drafter(storage, memory, plain, shelf, origin, self.versions)

    def over(self, storage: Storage) -> Engine:
        """The same engine, with the same memory, over another way to the same store."""
        return Engine(storage, self.memory, self._plain, self.shelf)

    def as_stored(self, version: int | None = None) -> Engine:
        """The same engine for copies: it upgrades nothing, and what it puts has this version."""
        engine = self.over(self.storage)
        parts = self.storage, self.memory, self._plain, self.shelf
        engine.drafter = Copyist(*parts, version)
        return engine

    # ---- reading -----------------------------------------------------------------------------

    async def get(
        self, serde: SerializerProtocol, place: Place, above: Mapping[str, str] | None = None
    ) -> Restored | None:
        """The checkpoint at `place`; `above` says where the run is in the graphs above."""
        if self.versions is None:
            return await self._get(serde, place)
        return await self.versions.get(serde, place, above)

    async def _get(
        self, serde: SerializerProtocol, place: Place, known: Known = NOWHERE
    ) -> Restored | None:
        """The checkpoint that is stored at `place`; `known` says how other versions call it."""
        began = time.perf_counter()
        part = self.memory.part(place.thread_id)
        # What the store leaves out must be at hand afterwards: `part.raws` may be another by then.
        raws = part.raws if part else {}
        held = Held(part.epoch, raws) if part else Held()
        loaded = await self.storage.load(*place, held)
        if loaded is None:
            return None
        is_held = loaded.epoch == held.epoch
        if is_held and part is not None and part.void:  # what is held may never have been stored
            is_held, loaded = False, await self.storage.load(*place, Held())
            if loaded is None:
                return None
        decoder = Decoder(
            serde, loaded.thread_id, loaded.items, raws if is_held else None, self.shelf
        )
        header = lineage.read_row(loaded.thread_id, loaded.row)
        restored = await self._built(loaded, header, decoder, known)
        is_known = part is not None and (loaded.row.ns, loaded.row.id) in part.records
        if self.memory.limit and not (is_known and is_held and not decoder.raws):
            remember(self.memory, loaded, header, decoder)
        if logger.isEnabledFor(logging.DEBUG):
            self._log("restored", restored.place, restored.metadata, loaded.bytes, began)
        return restored

    async def _built(
        self, loaded: Loaded, header: Header, decoder: Decoder, known: Known
    ) -> Restored:
        if self.versions is not None and loaded.row.ns:
            known = await self.versions.known_to_writers(loaded, header, known)
        return await self._with_stores(partial(self._restore, loaded, header, decoder, known))

    async def _with_stores(self, build: Callable[[], T]) -> T:
        """What `build` makes of values, knowing all artifact stores that they name."""
        shelf = self.shelf
        if shelf is None:
            return build()
        try:
            built = build()
        except UnknownStore as error:
            await shelf.refresh(self.storage, error.store)
            return await self._with_stores(build)
        if shelf.is_behind:
            await shelf.refresh(self.storage)
        return built

    def _restore(
        self, loaded: Loaded, header: Header, decoder: Decoder, known: Known = NOWHERE
    ) -> Restored:
        row = loaded.row
        where = f"thread {loaded.thread_id!r}, checkpoint {row.id}"
        if row.ns:
            where += f" of {row.ns!r}"
        if loaded.orphan:
            lineage.miss_parent(where, header, row)
        origin = None if header.origin is None else decoder.raw(where, header.origin)
        pending = lineage.pending(loaded.thread_id, loaded.writes)
        if self.versions is not None and (
            header.schema != self._schema or any(w.schema != self._schema for w in pending)
        ):
            return self.versions.restore(loaded, header, decoder, known, origin)
        values = {
            channel: decoder.value(where, entry.ref, entry.form)
            for channel, entry in header.entries.items()
        }
        writes = [
            (w.task_id, w.ref.channel, decoder.value(where, w.ref, w.form, "pending write to"))
            for w in pending
        ]
        checkpoint = {
            **self._plain.loads_typed(("x1", header.rest)),
            "id": row.id,
            "channel_values": values,
            "channel_versions": header.versions,
            "versions_seen": header.seen,
        }
        return Restored(
            Place(loaded.thread_id, row.ns, row.id),
            row.parent,
            checkpoint,
            self._metadata(header),
            writes,
            origin,
            tuple(w.known for w in pending),
            header.author,
        )

    def _metadata(self, header: Header) -> dict[str, Any]:
        found = self.loads(header.metadata)
        schema, versions = header.schema, self.versions
        if schema is None and versions is not None:
            schema = versions.evolution.stored(None)
        if schema is not None:
            found[VERSION] = schema
        return found

    async def page(
        self,
        serde: SerializerProtocol,
        selection: Selection,
        filter: Mapping[str, Any] | None,
        after: Cursor | None,
        size: int,
    ) -> tuple[list[Restored], Cursor | None]:
        """One page of `list`, whole and, but under names of several versions, from one moment."""
        page = self._page if self.versions is None else self.versions.page
        return await page(serde, selection, filter, after, size)

    async def _page(
        self,
        serde: SerializerProtocol,
        selection: Selection,
        filter: Mapping[str, Any] | None,
        after: Cursor | None,
        size: int,
        known: Known = NOWHERE,
    ) -> tuple[list[Restored], Cursor | None]:
        several, versions = selection.thread_id is None, self.versions

        def accept(thread_id: str, row: CheckpointRow) -> bool:
            try:
                if known and versions and not versions.is_called(thread_id, row, known):
                    return False
                if not filter:
                    return True
                metadata = self._metadata(lineage.read_row(thread_id, row))
            except CorruptionError as error:
                if several:
                    logger.error("left out of the list: %s", error)
                    return False
                raise
            return all(metadata.get(key) == value for key, value in filter.items())

        began = time.perf_counter()
        page = await self.storage.page(selection, after, size, accept)
        decoders: dict[str, Decoder] = {}
        restored = []
        for loaded in page.rows:
            decoder = decoders.get(loaded.thread_id)
            if decoder is None:
                decoder = decoders[loaded.thread_id] = Decoder(
                    serde, loaded.thread_id, loaded.items, None, self.shelf
                )
            try:
                header = lineage.read_row(loaded.thread_id, loaded.row)
                found = await self._built(loaded, header, decoder, known)
            except (CorruptionError, SchemaVersionError) as error:
                if not several:
                    raise
                logger.error("left out of the list: %s", error)
                continue
            if logger.isEnabledFor(logging.DEBUG):
                self._log("restored", found.place, found.metadata, len(loaded.row.body), began)
            restored.append(found)
        return restored, page.cursor

    async def has(self, selection: Selection, filter: Mapping[str, Any]) -> bool:
        """Whether there is a checkpoint whose metadata fits; no values are looked at.

        One that cannot be read fits nothing.
        """

        def accept(thread_id: str, row: CheckpointRow) -> bool:
            try:
                metadata = self._metadata(lineage.read_row(thread_id, row))
            except CorruptionError as error:
                logger.error("not looked at: %s", error)
                return False
            return all(metadata.get(key) == value for key, value in filter.items())

        return bool((await self.storage.page(selection, None, 1, accept, items=False)).rows)

    async def outline(
        self, selection: Selection, after: Cursor | None, size: int, *, strict: bool = True
    ) -> tuple[list[Outline], Cursor | None]:
        """One page of checkpoints without their values, and where the next page begins.

        A damaged one is an error, or, unless `strict`, an outline that says so.
        """
        page = await self.storage.page(selection, after, size, lambda *_: True, items=False)
        found = []
        for loaded in page.rows:
            try:
                made = outlines.outline(loaded, self._plain)
                found.append(made if self.versions is None else self.versions.outline(made, loaded))
            except CorruptionError as error:
                if not strict:
                    found.append(outlines.damaged(loaded, error))
                elif selection.thread_id is not None:
                    raise
                else:
                    logger.error("left out of the list: %s", error)
        return found, page.cursor

    async def delta_history(
        self, serde: SerializerProtocol, place: Place, channels: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        if self.versions is not None:
            return await self.versions.delta_history(serde, place, channels)
        chain = await self.storage.chain(*place, channels)
        if chain is None:
            return {channel: {"writes": []} for channel in channels}
        return await self._with_stores(partial(self._history, serde, chain, channels))

    def _history(
        self, serde: SerializerProtocol, chain: Chain, channels: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        decoder = Decoder(serde, chain.thread_id, chain.items, None, self.shelf)
        where = f"thread {chain.thread_id!r}, checkpoint {chain.links[0].row.id}"
        return lineage.history(chain, decoder, channels, where)

    async def origin_of(self, place: Place) -> bytes | None:
        """The note of the program that stored a checkpoint."""
        loaded = await self.storage.load(*place, Held())
        if loaded is None:
            return None
        header = lineage.read_row(loaded.thread_id, loaded.row)
        decoder = Decoder(self._plain, loaded.thread_id, loaded.items)
        where = f"thread {loaded.thread_id!r}, checkpoint {loaded.row.id}"
        return None if header.origin is None else decoder.raw(where, header.origin)

    # ---- writing -----------------------------------------------------------------------------

    async def put(
        self,
        serde: SerializerProtocol,
        place: Place,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Collection[str],
        guard: Guard,
        by: Author = ANYBODY,
    ) -> None:
        """Store a checkpoint whose parent is `place.id`."""
        began = time.perf_counter()
        for _ in range(TRIES):
            draft, uploads = await self.drafter.checkpoint(
                serde, place, checkpoint, metadata, new_versions, guard, by
            )
            try:
                stored = await self.storage.put(draft)
            except Stale:
                self.memory.forget(place.thread_id)
                continue
            except ConcurrentUpdate as error:
                if draft.guard.lost and error.actual is not None:
                    raise CheckpointRemoved(place.thread_id, place.id, error.actual) from None
                raise
            self.drafter.confirm(uploads)
            if logger.isEnabledFor(logging.DEBUG):
                self._log("saved", place._replace(id=draft.id), metadata, stored.bytes, began)
            return
        raise _unsettled(place)

    async def put_writes(
        self,
        serde: SerializerProtocol,
        place: Place,
        writes: Sequence[tuple[str, Any]],
        task: Task,
        sole: Callable[[], bool],
        root: str | None = None,
        *,
        indices: Sequence[int] | None = None,
    ) -> None:
        """Store what a task has written; the index of a write is its position, or is given."""
        began = time.perf_counter()
        thread_id = place.thread_id
        if self.versions is not None:
            place = self.versions.stored_place(place)
        for _ in range(TRIES):
            draft, uploads = await self.drafter.writes(
                serde, place, writes, task, sole, root, indices
            )
            try:
                stored = await self.storage.put_writes(draft)
            except Stale:
                self.memory.forget(thread_id)
                continue
            except Rivalled:
                for part, at, own in task.parted(writes, indices):
                    await self.put_writes(serde, place, part, own, sole, root, indices=at)
                return
            self.drafter.confirm(uploads)
            if logger.isEnabledFor(logging.DEBUG):
                self._log("saved writes of", place, {}, stored.bytes, began)
            return
        raise _unsettled(place)

    # ---- removing and copying ----------------------------------------------------------------

    async def delete_thread(self, thread_id: str) -> Removed:
        removed = await self.storage.drop(thread_id)
        self.memory.forget(thread_id)
        return removed or Removed()

    async def delete_for_runs(self, runs: Sequence[str]) -> None:
        gone = set(runs)

        def decide(listing: Listing) -> Edit:
            drop = {(row.ns, row.id) for row in listing.rows if row.run in gone}
            writes = [write for write in listing.writes if write.run in gone]
            return lineage.remove(listing, drop, writes, self.delta_channels)

        for thread_id in await self.storage.threads_of(runs):
            await self.storage.edit(thread_id, decide)
            self.memory.forget(thread_id)
        await self.storage.forget_runs(runs)

    async def keep_latest(self, thread_id: str) -> None:
        def decide(listing: Listing) -> Edit:
            heads = set(listing.heads.items())
            drop = {(row.ns, row.id) for row in listing.rows} - heads
            return lineage.remove(listing, drop, (), self.delta_channels)

        await self.storage.edit(thread_id, decide)
        self.memory.forget(thread_id)

    async def copy_thread(self, source: str, target: str) -> None:
        await self._renew(source)
        await self.storage.copy(source, target)

    async def _renew(self, thread_id: str) -> None:
        """Keep the artifacts of a thread from being collected while it is copied.

        A collector that has looked at the copy before it was made, and comes to the thread after
        it was deleted, sees neither.
        """
        shelf = self.shelf
        if shelf is None:
            return
        found = {claims.unpack(packed) for _, packed in await self.storage.claims_of(thread_id)}
        if found:
            await shelf.refresh(self.storage)
            shelf.renew(found)

    def loads(self, data: bytes) -> dict[str, Any]:
        """A serialised dict of a header: its metadata, or the rest of the checkpoint."""
        found: dict[str, Any] = self._plain.loads_typed(("x1", data))
        return found

    def dumps(self, metadata: Mapping[str, Any]) -> bytes:
        return self.drafter.dump("metadata", dict(metadata))

    def delta_channels(self, metadata: bytes) -> Collection[str]:
        """The DeltaChannels that a header's metadata names."""
        counters = self.loads(metadata).get(lineage.COUNTERS)
        return counters if isinstance(counters, dict) else ()

    @staticmethod
    def _log(verb: str, place: Place, metadata: Mapping[str, Any], size: int, began: float) -> None:
        logger.debug(
            "%s thread=%s ns=%s checkpoint=%s step=%s bytes=%d ms=%.2f",
            verb,
            *place,
            metadata.get("step"),
            size,
            (time.perf_counter() - began) * 1e3,
        )


def _unsettled(place: Place) -> StorageError:
    return StorageError(
        f"thread {place.thread_id!r}: parts of it were removed by others {TRIES} times while this "
        "was being written. Nothing was written; try again."
    )
