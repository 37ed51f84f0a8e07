"""Who descends from whom: the history of DeltaChannels, and removing checkpoints without harm.

A DeltaChannel stores its value now and then; in between, a checkpoint's value is *seed + writes*:
the nearest ancestor that has a value, and every write stored on the way from there. Removing an
ancestor would cut that chain. A saver cannot run the reducer to make a snapshot, but it need not:
the survivor is given a `Capsule` that names the seed and the writes it still needs. Their items
stay because the survivor now refers to them, and everything else about the ancestors can go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langgraph_durable._core import seal
from langgraph_durable._core.authors import KnownWrite
from langgraph_durable._core.decoder import Decoder
from langgraph_durable._core.forms import Form
from langgraph_durable._core.header import Capsule, Header, read_header
from langgraph_durable._core.records import (
    ASIDE,
    CheckpointRow,
    Edit,
    Forms,
    Items,
    Listing,
    WriteRow,
)
from langgraph_durable._core.refs import (
    CAPSULE,
    Ref,
    Refs,
    Stretches,
    joined,
    merged,
    numbers,
    order_of,
    pack_refs,
    reach,
    unpack_refs,
)

COUNTERS = "counters_since_delta_snapshot"
"""The metadata key under which LangGraph names a thread's DeltaChannels."""


class Pending(NamedTuple):
    """One pending write of a stored row."""

    path: str
    task_id: str
    idx: int
    ref: Ref
    form: Form
    schema: int | None = None
    """The version of the program that wrote it, if that is known."""
    run: str | None = None
    by: int = 0
    aside: bool = False

    @property
    def known(self) -> KnownWrite:
        return KnownWrite(self.task_id, self.idx, self.ref.channel)


def pending(thread_id: str, rows: Iterable[WriteRow], *, aside: bool = False) -> list[Pending]:
    """The single writes of `rows`, verified, in the order LangGraph applies them.

    What was put `aside` is of no use but to `counted`.
    """
    found = []
    for row in rows:
        try:
            body = Forms.unpacked(row.bare(thread_id).body)
            if body.aside and not aside:
                continue
            refs = unpack_refs(row.refs)
            task_id = row.task_id.rpartition(ASIDE)[0] if body.aside else row.task_id
            found += [
                Pending(row.path, task_id, row.idx + k, ref, form, body.schema, row.run, *body[2:])
                for k, (ref, form) in enumerate(zip(refs, body.forms, strict=True))
            ]
        except (seal.Damaged, ValueError) as error:
            where = f"thread {thread_id!r}, checkpoint {row.id}, writes of task {row.task_id}"
            raise seal.damaged(where, seal.Damaged(str(error))) from error
    found.sort(key=lambda write: write[:3])
    return found


def counted(header: Header, writes: Iterable[Pending]) -> list[Pending]:
    """Those of the parent's writes that a checkpoint was made with, not its rivals' ones.

    Where one is known, what lies aside is by an earlier run: its hand may have been the same.
    """
    hand, known = header.hand, header.known
    if hand is None:
        return [w for w in writes if not w.aside]
    return [w for w in writes if (not w.aside if (w.task_id, w.idx) in known else w.by == hand)]


class Link(NamedTuple):
    row: CheckpointRow
    writes: tuple[WriteRow, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """A checkpoint and its ancestors, newest first, as far up as was asked for."""

    thread_id: str
    links: tuple[Link, ...]
    items: Items
    orphan: bool = False
    """The last one names a parent that is not stored."""


@dataclass(slots=True)
class Search:
    """Which channels still need older ancestors; the store asks while it walks up."""

    channels: set[str]
    started: bool = field(default=False)

    def visit(self, refs: Refs) -> None:
        for ref in refs:
            if self.started or ref.kind == CAPSULE:
                self.channels.discard(ref.channel)
        self.started = True


def history(
    chain: Chain, decoder: Decoder, channels: Sequence[str], where: str
) -> dict[str, dict[str, Any]]:
    """LangGraph's per-channel `{"writes": [...], "seed": ...}` for the first link of `chain`."""
    headers = [read_row(chain.thread_id, link.row) for link in chain.links]
    if chain.orphan:
        miss_parent(where, headers[-1], chain.links[-1].row)
    writes = [
        counted(child, pending(chain.thread_id, link.writes, aside=True))
        for child, link in zip(headers[:1] + headers, chain.links, strict=False)
    ]
    return {channel: _history_of(channel, headers, writes, decoder, where) for channel in channels}


def _history_of(
    channel: str,
    headers: Sequence[Header],
    writes: Sequence[list[Pending]],
    decoder: Decoder,
    where: str,
) -> dict[str, Any]:
    blocks: list[list[tuple[str, str, Any]]] = []
    found: dict[str, Any] = {}
    for depth, header in enumerate(headers):
        if depth:
            blocks.append(
                [
                    (w.task_id, channel, decoder.value(where, w.ref, w.form))
                    for w in writes[depth]
                    if w.ref.channel == channel
                ]
            )
            entry = header.entries.get(channel)
            if entry is not None:
                found["seed"] = decoder.value(where, entry.ref, entry.form)
                break
        if channel in header.capsules:
            parts = unfold(*header.capsules[channel])
            seed = next(parts)
            if seed is not None:
                found["seed"] = decoder.value(where, seed[1], seed[2])
            blocks.append(
                [(t, channel, decoder.value(where, r, f)) for t, r, f in parts]  # type: ignore[misc]
            )
            break
    return {"writes": [write for block in reversed(blocks) for write in block], **found}


def unfold(capsule: Capsule, ref: Ref) -> Iterator[tuple[str, Ref, Form] | None]:
    """The seed (or None), then the writes of a capsule, each with its own ref."""
    order = list(numbers(ref.runs))
    at = capsule.seed_items
    seed = Ref(ref.channel, joined(order[:at]))
    yield None if capsule.seed is None else ("", seed, capsule.seed)
    for task_id, form, count in capsule.writes:
        yield task_id, Ref(ref.channel, joined(order[at : at + count])), form
        at += count


def read_row(thread_id: str, row: CheckpointRow) -> Header:
    """The verified header of a stored row."""
    try:
        return read_header(row.bare(thread_id))
    except seal.Damaged as error:
        raise seal.damaged(f"thread {thread_id!r}, checkpoint {row.id}", error) from error


@contextmanager
def blamed(thread_id: str, row: CheckpointRow | WriteRow) -> Iterator[None]:
    """Say of which record it was that its bytes are damaged."""
    try:
        yield
    except seal.Damaged as error:
        raise seal.damaged(f"thread {thread_id!r}, checkpoint {row.id}", error) from error


def resealed(thread_id: str, row: CheckpointRow, header: Header) -> CheckpointRow:
    """`row` with another header."""
    return row._replace(refs=pack_refs(header.refs()), body=header.body()).sealed(thread_id)


def miss_parent(where: str, header: Header, row: CheckpointRow) -> None:
    """Raise if a parent that is not stored ought to be: it was there, and no rule removed it."""
    if header.linked:
        raise seal.damaged(where, seal.Damaged(f"its parent {row.parent} is missing"))


def marked(thread_id: str, row: CheckpointRow) -> CheckpointRow:
    """`row` as one that a run went on from, although nothing is left of that."""
    header = read_row(thread_id, row)
    header.continued = True
    return resealed(thread_id, row, header)


def changed(
    listing: Listing,
    drop: Collection[tuple[str, str]],
    thinned: Mapping[tuple[str, str], Sequence[WriteRow]],
    delta_channels: Callable[[bytes], Collection[str]],
    continued: Collection[tuple[str, str]],
) -> dict[tuple[str, str], CheckpointRow]:
    """The survivors that have to be stored anew, with what they need of what goes.

    Of `thinned` these writes go, and survivors in `continued` are marked as such.
    """
    thread = _Thread(listing, delta_channels)
    found = {}
    for each in listing.rows:
        row = each
        if (row.ns, row.id) in drop:
            continue
        parent = row.ns, row.parent or ""
        is_orphan = parent in drop
        if is_orphan or (parent in thinned and thread.misses(row, thinned[parent])):
            row = thread.independent(row, orphan=is_orphan)
        if (row.ns, row.id) in continued:
            row = marked(listing.thread_id, row)
        if row is not each:
            found[row.ns, row.id] = row
    return found


def remove(
    listing: Listing,
    drop: set[tuple[str, str]],
    drop_writes: Collection[WriteRow],
    delta_channels: Callable[[bytes], Collection[str]],
    continued: Collection[tuple[str, str]] = (),
) -> Edit:
    """How to take `drop` out of a thread so that every survivor still reads as before.

    `delta_channels` tells the DeltaChannels that a header's metadata names. `continued` are
    survivors from which runs went on to what goes.
    """
    edit = Edit(drop=drop, drop_writes=[w for w in drop_writes if (w.ns, w.id) not in drop])
    gone = set(edit.drop_writes)
    thinned: dict[tuple[str, str], list[WriteRow]] = {}
    for write in gone:
        thinned.setdefault((write.ns, write.id), []).append(write)
    anew = changed(listing, drop, thinned, delta_channels, continued)
    edit.replace = list(anew.values())
    rows = ((row.ns, row.id) for row in listing.rows)
    kept = [
        anew.get(place, row).refs
        for place, row in zip(rows, listing.rows, strict=True)
        if place not in drop
    ]
    kept += (
        write.refs
        for write in listing.writes
        if (write.ns, write.id) not in drop and write not in gone
    )
    for first, last in reached(listing, kept):
        edit.keep.update(range(first, last + 1))
    lines = by_namespace(listing.rows)
    edit.heads = {
        ns: next_head(lines[ns], drop) for ns, head in listing.heads.items() if (ns, head) in drop
    }
    return edit


def reached(listing: Listing, refs: Collection[bytes]) -> Stretches:
    """The items that these refs name."""
    try:
        found = list(merged(reach(refs, listing.spines)))
    except seal.Damaged as error:
        _verify(listing, refs)
        raise seal.damaged(f"thread {listing.thread_id!r}", error) from error
    if sum(last - first for first, last in found) > MANY_ITEMS:
        _verify(listing, refs)
    return found


MANY_ITEMS = 1_000_000
"""More than a record is believed to need without having been verified."""


def _verify(listing: Listing, kept: Collection[bytes]) -> None:
    """Raise at the first record with one of these refs whose seal does not fit."""
    records: list[CheckpointRow | WriteRow] = [*listing.rows, *listing.writes]
    for row in records:
        try:
            if row.refs in kept:
                row.bare(listing.thread_id)
        except seal.Damaged as error:
            where = f"thread {listing.thread_id!r}, checkpoint {row.id}"
            raise seal.damaged(where, error) from error


def by_namespace(rows: Iterable[CheckpointRow]) -> dict[str, list[CheckpointRow]]:
    found: dict[str, list[CheckpointRow]] = {}
    for row in rows:
        found.setdefault(row.ns, []).append(row)
    return found


def next_head(line: Iterable[CheckpointRow], drop: Collection[tuple[str, str]]) -> str | None:
    """The newest survivor of a namespace that nobody continues: where it was without what goes."""
    left = {row.id: row for row in line if (row.ns, row.id) not in drop}
    return max(left.keys() - {row.parent for row in left.values()} or left, default=None)


def untangled(
    listing: Listing, delta_channels: Callable[[bytes], Collection[str]]
) -> dict[tuple[str, str], CheckpointRow]:
    """Checkpoints whose writes met with a rival's on their parent, as they read without both."""
    thread = _Thread(listing, delta_channels)
    found = {}
    for row in listing.rows:
        if thread.is_tangled(row, read_row(listing.thread_id, row)):
            found[row.ns, row.id] = thread.independent(row, orphan=False)
    return found


def missing(header: Header) -> list[str]:
    """The channels whose value, if they have one, lies with the ancestors."""
    return [
        channel
        for channel in header.versions
        if channel not in header.entries and channel not in header.capsules
    ]


def _is_snapshot(form: Form) -> bool:
    return isinstance(form, list) and len(form) == 1


class _Thread:
    """A listing that can be walked from child to parent."""

    def __init__(
        self, listing: Listing, delta_channels: Callable[[bytes], Collection[str]]
    ) -> None:
        self.thread_id = listing.thread_id
        self.spines = listing.spines
        self.rows = {(row.ns, row.id): row for row in listing.rows}
        self.writes: dict[tuple[str, str], list[WriteRow]] = {}
        for write in listing.writes:
            self.writes.setdefault((write.ns, write.id), []).append(write)
        self._delta_channels = delta_channels

    def ancestors(self, row: CheckpointRow) -> Iterator[CheckpointRow]:
        """Parents upwards; a cycle ends the walk."""
        seen = {row.id}
        parent = self.rows.get((row.ns, row.parent or ""))
        while parent is not None and parent.id not in seen:
            seen.add(parent.id)
            yield parent
            parent = self.rows.get((row.ns, parent.parent or ""))

    def misses(self, row: CheckpointRow, writes: Iterable[WriteRow]) -> bool:
        """Whether the value of a channel that these write to lies with the ancestors of `row`."""
        above_only = missing(read_row(self.thread_id, row))
        if not above_only:  # then what is damaged may go, too
            return False
        written = pending(self.thread_id, writes, aside=True)
        return any(write.ref.channel in above_only for write in written)

    def independent(self, row: CheckpointRow, *, orphan: bool) -> CheckpointRow:
        """`row` with all that its DeltaChannels need of its ancestors, and maybe no parent."""
        header = read_row(self.thread_id, row)
        header.linked = header.linked and not orphan
        header.capsules = {**header.capsules, **self._capsules(row, header)}
        return resealed(self.thread_id, row._replace(parent=None if orphan else row.parent), header)

    def _pending(self, row: CheckpointRow) -> list[Pending]:
        return pending(self.thread_id, self.writes.get((row.ns, row.id), ()), aside=True)

    def is_tangled(self, row: CheckpointRow, header: Header) -> bool:
        """Whether DeltaChannels leave out some of the parent's writes, or need what lies aside."""
        parent = self.rows.get((row.ns, row.parent or ""))
        if header.hand is None or parent is None:
            return False
        above, writes = set(missing(header)), self._pending(parent)
        own = counted(header, writes)
        return any(w.ref.channel in above and w.aside == (w in own) for w in writes)

    def _capsules(self, row: CheckpointRow, header: Header) -> Mapping[str, tuple[Capsule, Ref]]:
        above_only = missing(header)
        if not above_only:
            return {}
        named = set(self._delta_channels(header.metadata))
        above = [(read_row(self.thread_id, parent), parent) for parent in self.ancestors(row)]
        last_header, last = above[-1] if above else (header, row)
        if last.parent is not None and (last.ns, last.parent) not in self.rows:
            miss_parent(f"thread {self.thread_id!r}, checkpoint {last.id}", last_header, last)
        for parent_header, _ in above:
            named.update(self._delta_channels(parent_header.metadata))
        built = {channel: self._capsule(channel, header, above) for channel in above_only}
        return {
            channel: (capsule, ref)
            for channel, (capsule, ref) in built.items()
            if channel in named or _is_snapshot(capsule.seed)
        }

    def _capsule(
        self, channel: str, child: Header, above: Iterable[tuple[Header, CheckpointRow]]
    ) -> tuple[Capsule, Ref]:
        blocks: list[list[tuple[str, Ref, Form]]] = []
        seed: tuple[Ref, Form] | None = None
        for header, row in above:
            stored = counted(child, self._pending(row))
            blocks.append([(w.task_id, w.ref, w.form) for w in stored if w.ref.channel == channel])
            child = header
            entry = header.entries.get(channel)
            if entry is not None:
                seed = entry.ref, entry.form
                break
            if channel in header.capsules:
                first, *others = unfold(*header.capsules[channel])
                seed = (first[1], first[2]) if first else None
                blocks.append([part for part in others if part])
                break
        writes = [write for block in reversed(blocks) for write in block]
        order = order_of(seed[0], self.spines) if seed else []
        seed_items = len(order)
        sized = []
        for task_id, ref, form in writes:
            own = order_of(ref, self.spines)
            order += own
            sized.append((task_id, form, len(own)))
        capsule = Capsule(seed[1] if seed else None, tuple(sized), seed_items)
        return capsule, Ref(channel, joined(order), CAPSULE)
