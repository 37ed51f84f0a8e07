"""Upgrading a whole thread ahead of time: read, rewrite, verify, and replace in one step.

Every checkpoint is brought to this version as a read would do it, encoded anew (what has not
changed is recognised and keeps its items), and read back from the new records, before one edit puts
them in the place of the old ones. If the thread has changed meanwhile, it all begins again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable._core import lineage, seal
from langgraph_durable._core.claims import collected
from langgraph_durable._core.climbing import Known, Opened
from langgraph_durable._core.decoder import Decoder
from langgraph_durable._core.edits import EditedWrite
from langgraph_durable._core.encoder import Encoder
from langgraph_durable._core.evolution import Edited
from langgraph_durable._core.header import Header
from langgraph_durable._core.memory import Entry, Part
from langgraph_durable._core.offload import Packed, Upload
from langgraph_durable._core.records import (
    CheckpointRow,
    Edit,
    Forms,
    Items,
    Listing,
    Loaded,
    Selection,
    WriteRow,
)
from langgraph_durable._core.refs import Ref, numbers, order_of, pack_refs, settled, unpack_refs
from langgraph_durable._core.versions import NOTHING, capsule, join, lasts
from langgraph_durable.errors import CorruptionError, ThreadBusy

if TYPE_CHECKING:
    from langgraph_durable._core.engine import Engine
    from langgraph_durable._core.versions import Versions

PAGE = 256
TRIES = 5


class Draft(NamedTuple):
    """A rewritten thread, and the thread it was made from."""

    before: frozenset[CheckpointRow | WriteRow]
    edit: Edit
    versions: Mapping[int, int]
    """How many checkpoints there were of each version."""
    rewritten: int
    uploads: Sequence[Upload] = ()


@dataclass(slots=True)
class _Made:
    """New records under construction."""

    thread_id: str
    encoder: Encoder
    rows: list[tuple[CheckpointRow, Header]] = field(default_factory=list)
    writes: list[tuple[WriteRow, list[Ref], Forms]] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    """Of the latest checkpoint of each namespace, as it is stored."""


class Rewriter:
    """Brings threads to this version."""

    def __init__(self, engine: Engine, versions: Versions) -> None:
        self._engine, self._versions = engine, versions
        self._evolution = versions.evolution

    async def upgrade(self, serde: SerializerProtocol, thread_id: str) -> Draft | None:
        """Rewrite a thread; what was done, or None if there is no such thread."""
        for _ in range(TRIES):
            draft = await self.draft(serde, thread_id, uploads=True)
            if draft is None or not draft.rewritten:
                return draft
            done = False

            def decide(listing: Listing, draft: Draft = draft) -> Edit | None:
                nonlocal done
                done = frozenset((*listing.rows, *listing.writes)) == draft.before
                return draft.edit if done else None

            await self._engine.storage.edit(thread_id, decide)
            self._engine.memory.forget(thread_id)
            if self._engine.versions is not None:
                self._engine.versions.forget(thread_id)
            if done:
                self._engine.drafter.confirm(draft.uploads)
                return draft
        raise ThreadBusy(
            f"thread {thread_id!r}: others wrote to it {TRIES} times while it was upgraded. "
            "Nothing was changed; try again."
        )

    async def draft(
        self, serde: SerializerProtocol, thread_id: str, *, uploads: bool = False
    ) -> Draft | None:
        """What an upgrade would store, verified; no row is written.

        Only with `uploads` can it be stored: without, large values are verified where they are.
        """
        storage = self._engine.storage
        listing = await storage.survey(thread_id)
        if listing is None:
            return None
        whole: list[Loaded] = []
        items: Items = {}
        cursor = None
        while True:
            page = await storage.page(
                Selection(thread_id), cursor, PAGE, lambda *_: True, items=True
            )
            whole += page.rows
            for loaded in page.rows:
                items |= loaded.items
            cursor = page.cursor
            if cursor is None:
                return await self._draft(serde, listing, whole, items, uploads)

    async def _draft(
        self,
        serde: SerializerProtocol,
        listing: Listing,
        whole: list[Loaded],
        items: Items,
        uploads: bool,
    ) -> Draft:
        engine, part = self._engine, Part(0)
        encoder = await engine.drafter.encoder(serde, part)
        apart = lineage.untangled(listing, engine.delta_channels)
        whole = [
            each._replace(row=apart.get((each.row.ns, each.row.id), each.row)) for each in whole
        ]
        opened = [
            self._versions.open(loaded, lineage.read_row(listing.thread_id, loaded.row))
            for loaded in whole
        ]
        stored = Counter(self._evolution.stored(each.header.schema) for each in opened)
        old = [each for each in opened if self._is_old(each)]
        known = self._namespaces(opened)
        today = self._evolution.version
        called = {
            (ns, each.row.id): known[self._named(each)].get(today, ns)
            for each in opened
            for ns in [each.row.ns]
        }
        moved = (each for each in opened if called[each.row.ns, each.row.id] != each.row.ns)
        old += [each for each in moved if each not in old]
        met = [each for each in opened if (each.row.ns, each.row.id) in apart and each not in old]
        old += met if old else []
        decoder = Decoder(serde, listing.thread_id, items, None, engine.shelf)

        parents = {(each.row.ns, each.row.parent) for each in opened}

        def rebuild() -> list[tuple[Opened, Edited]]:
            edit = self._evolution.edit
            return [
                (each, edit(each, decoder, known[self._named(each)], applied=place in parents))
                for each in old
                for place in [(each.row.ns, each.row.id)]
            ]

        edits = await engine._with_stores(rebuild)
        self._explain(edits)
        part.numbers.update((digest, n) for digest, n, _ in decoder.learned())
        made = _Made(listing.thread_id, encoder)
        for each in opened:
            if listing.heads.get(each.row.ns) == each.row.id:
                made.versions[each.row.ns] = self._evolution.stored(each.header.schema)
        for each, edited in edits:
            self._encode(made, each, edited, decoder)
        packed = await engine.drafter.packed(encoder) if uploads else encoder.packed(uploads=False)
        rows, start = {each.row for each in old}, max(items, default=-1) + 1
        edit = self._edit(listing, made, packed, start, rows, called)
        verify = partial(self._verify, serde, edits, edit, items | edit.add_items)
        await engine._with_stores(verify)
        before: frozenset[CheckpointRow | WriteRow] = frozenset((*listing.rows, *listing.writes))
        return Draft(before, edit, dict(stored), len(old), packed.uploads)

    def _is_old(self, opened: Opened) -> bool:
        version = self._evolution.version
        return opened.header.schema != version or any(w.schema != version for w in opened.writes)

    # ---- names -------------------------------------------------------------------------------

    def _named(self, each: Opened) -> tuple[str, int | None]:
        """A namespace, and, where its name alone may be another node's, the version of its name."""
        ns = each.row.ns
        return ns, self._evolution.stored(each.header.schema) if lasts(ns) else None

    def _namespaces(self, opened: list[Opened]) -> dict[tuple[str, int | None], Known]:
        """What each namespace is called by version; one whose parent is gone keeps its name."""
        by_place = {(each.row.ns, each.row.id): each for each in opened}
        by_id = {each.row.id: each for each in opened}
        # A checkpoint that only holds writes (of a run that stores its end) tells no parents.
        telling = sorted(opened, key=lambda each: "parents" in each.metadata)
        any_of = {self._named(each): each for each in telling}
        names: dict[tuple[str, int | None], Known] = {("", None): {}}
        others = {v for each in opened for v in self._evolution.parted(each)[1]}
        for ns, of in sorted(any_of.keys() - names.keys(), key=lambda named: named[0].count("|")):
            above, segment, count = _split(ns)
            own, known = any_of[ns, of], names.get((above, of if lasts(above) else None), {})
            version = self._evolution.stored(own.header.schema)
            id = (own.metadata.get("parents") or {}).get(above, "")
            parent = by_place.get((above, id)) or by_id.get(id)
            if ":" not in segment:
                below = self._evolution.lasting(above, segment, version)
            elif parent is not None:
                below = self._evolution.below(parent, known, segment, version)
                now = below.get(self._evolution.version, segment)
                below = self._evolution.besides(parent, known, now, others) | {**below}
            else:
                below = dict.fromkeys(known, segment)
            names[ns, of] = {v: join(known.get(v, above), part, count) for v, part in below.items()}
        return names

    @staticmethod
    def _explain(edits: list[tuple[Opened, Edited]]) -> None:
        """Give questions of sub-graphs the ids that the program knows them by."""
        known: dict[str, str] = {}
        for _, edited in edits:
            known |= edited.interrupts
        for _, edited in edits:
            for asked in edited.unknown:
                asked.id = known.get(asked.id, asked.id)

    # ---- records -----------------------------------------------------------------------------

    def _encode(self, made: _Made, opened: Opened, edited: Edited, decoder: Decoder) -> None:
        content, encoder, old = edited.content, made.encoder, opened.header
        entries = {}
        for channel, value in content.values.items():
            ref, form = encoder.value(channel, value)
            entries[channel] = Entry(content.versions.get(channel), form, ref)
        header = Header(
            entries=entries,
            versions=content.versions,
            seen=content.seen,
            rest=self._engine.dumps(content.rest),
            metadata=self._engine.dumps(content.metadata),
            linked=old.linked,
            continued=old.continued,
            schema=self._evolution.version,
            origin=old.origin,
            capsules={
                channel: capsule(encoder, channel, seeds[0] if seeds else NOTHING, parts)
                for channel, (seeds, parts) in content.held.items()
            },
        )
        row = opened.row
        if old.origin is not None:
            decoder.raw(opened.where, old.origin)
        made.rows.append((CheckpointRow(edited.ns, row.id, row.parent, row.run, b"", b""), header))
        for stretch in _stretches(content.writes):
            first = stretch[0]
            pairs = [encoder.value(write.channel, write.value) for write in stretch]
            made.writes.append(
                (
                    WriteRow(
                        edited.ns,
                        row.id,
                        first.task_id,
                        first.idx,
                        len(stretch),
                        first.path,
                        first.run,
                        b"",
                        b"",
                    ),
                    [ref for ref, _ in pairs],
                    Forms([form for _, form in pairs], self._evolution.version, first.by),
                )
            )

    def _edit(
        self,
        listing: Listing,
        made: _Made,
        packed: Packed,
        start: int,
        old: set[CheckpointRow],
        called: Mapping[tuple[str, str], str],
    ) -> Edit:
        thread_id = listing.thread_id
        edit = Edit(drop={(row.ns, row.id) for row in old})
        finals = range(start, start + len(packed.items))
        seed = seal.log_seed(thread_id)
        for n, (digest, payload) in zip(finals, packed.items.items(), strict=True):
            edit.add_items[n] = seal.seal_item(seed, n, payload)
            claims = packed.claims.get(digest, ())
            edit.add_claims += ((n, claim.packed()) for claim in claims)
        for row, header in made.rows:
            refs = pack_refs(settled(ref, finals) for ref in header.refs())
            bare = CheckpointRow(row.ns, row.id, row.parent, row.run, refs, header.body())
            edit.add.append(bare.sealed(thread_id))
        for write, own, forms in made.writes:
            refs = pack_refs(settled(ref, finals) for ref in own)
            place = write.ns, write.id, write.task_id, write.idx, write.width
            bare_write = WriteRow(*place, write.path, write.run, refs, forms.packed())
            edit.add_writes.append(bare_write.sealed(thread_id))
        edit.keep = _needed(listing, edit, seed)
        edit.heads = self._heads(listing, called, made.versions)
        return edit

    def _heads(
        self,
        listing: Listing,
        called: Mapping[tuple[str, str], str],
        versions: Mapping[str, int],
    ) -> dict[str, str | None]:
        """What is latest: where namespaces become one, what the newest program has stored.

        Of a sub-graph that remembers its calls, what was stored last, as it is read. So too where
        a namespace was of two nodes, of which one has the head.
        """
        today = self._evolution.version
        by_age = sorted(listing.heads, key=lambda ns: -abs(versions.get(ns, today) - today))
        by_age.sort(key=lambda ns: listing.heads[ns] if lasts(ns) else "")
        heads = {called.get((ns, listing.heads[ns]), ns): listing.heads[ns] for ns in by_age}
        newest = {now: id for (_, id), now in sorted(called.items(), key=lambda each: each[0][1])}
        heads = newest | heads
        gone: dict[str, str | None] = dict.fromkeys(listing.heads.keys() - heads.keys())
        return gone | {ns: id for ns, id in heads.items() if listing.heads.get(ns) != id}

    # ---- verifying ---------------------------------------------------------------------------

    def _verify(
        self,
        serde: SerializerProtocol,
        edits: list[tuple[Opened, Edited]],
        edit: Edit,
        items: Items,
    ) -> None:
        """Read the new records back, and compare."""
        rows = {(row.ns, row.id): row for row in edit.add}
        for opened, edited in edits:
            row = rows[edited.ns, opened.row.id]
            own = tuple(w for w in edit.add_writes if (w.ns, w.id) == (row.ns, row.id))
            loaded = Loaded(opened.thread_id, 0, row, own, items)
            header = lineage.read_row(opened.thread_id, row)
            decoder = Decoder(serde, opened.thread_id, items, None, self._engine.shelf)
            found = self._engine._restore(loaded, header, decoder)
            content = edited.content
            expected = (
                content.values,
                content.versions,
                content.seen,
                [(w.task_id, w.channel, w.value) for w in content.writes],
            )
            read = (
                found.checkpoint["channel_values"],
                found.checkpoint["channel_versions"],
                found.checkpoint["versions_seen"],
                found.writes,
            )
            if self._spelled(serde, expected) != self._spelled(serde, read) and expected != read:
                raise CorruptionError(
                    f"{opened.where}: after the upgrade it would read differently. Nothing was "
                    "changed; this is a mistake of langgraph_durable, please report it"
                )

    def _spelled(self, serde: SerializerProtocol, content: object) -> tuple[str, bytes]:
        """As bytes that can be compared, an `Artifact` by its claim."""
        with collected(self._engine.shelf):
            return serde.dumps_typed(content)


def _needed(listing: Listing, edit: Edit, seed: int) -> set[int]:
    """The stored items that survivors and new records refer to."""

    def spines(number: int) -> tuple[int, ...]:
        new = edit.add_items.get(number)
        return listing.spines(number) if new is None else seal.peek_spine(new)

    rows: list[CheckpointRow | WriteRow] = [*edit.add, *edit.add_writes]
    rows += [row for row in listing.rows if (row.ns, row.id) not in edit.drop]
    rows += [write for write in listing.writes if (write.ns, write.id) not in edit.drop]
    keep: set[int] = set()
    for row in rows:
        for ref in unpack_refs(row.refs):
            keep.update(numbers(ref.spine), order_of(ref, spines))
    return keep - edit.add_items.keys()


def _split(ns: str) -> tuple[str, str, str]:
    """The namespace above, the segment of the node, and the number of the call."""
    parts = ns.split("|")
    count = parts.pop() if len(parts) > 1 and parts[-1].isdigit() else ""
    segment = parts.pop()
    return "|".join(parts), segment, count


def _stretches(writes: Iterable[EditedWrite]) -> Iterator[list[EditedWrite]]:
    """Writes of one task with consecutive numbers; special ones alone."""
    stretch: list[EditedWrite] = []
    for write in sorted(writes, key=lambda w: (w.task_id, w.path, w.idx)):
        last = stretch[-1] if stretch else None
        if last and not (
            (write.task_id, write.path, write.run, write.by)
            == (last.task_id, last.path, last.run, last.by)
            and write.idx == last.idx + 1
            and last.idx >= 0
        ):
            yield stretch
            stretch = []
        stretch.append(write)
    if stretch:
        yield stretch
