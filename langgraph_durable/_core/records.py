"""What crosses the port between the rules and a store: rows of bytes, and drafts of rows.

A row says by `refs` which items of its thread it needs.

A draft is a row whose new items have no numbers yet: they are written `~0, ~1, ...` (negative)
in the order they stand in `Draft.items`. The store alone knows which number comes next,
so it calls `number` inside its transaction: no reservation, no gap, no clash between processes.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import ormsgpack

from langgraph_durable._core import seal
from langgraph_durable._core.authors import ANYBODY, Author
from langgraph_durable._core.refs import Finals, Ref, Refs, Spines, pack_refs, settled

Items = dict[int, bytes]
"""Sealed items by number."""


class CheckpointRow(NamedTuple):
    """A stored checkpoint: its place, what it needs of the logs, and its sealed body."""

    ns: str
    id: str
    parent: str | None
    run: str | None
    refs: bytes
    body: bytes

    def place(self, thread_id: str) -> bytes:
        return seal.names(("c", thread_id, self.ns, self.id, self.parent, self.run, self.refs))

    def _with(self, body: bytes) -> CheckpointRow:
        return CheckpointRow(*self[:-1], body)  # `_replace` takes 1 us more

    def sealed(self, thread_id: str) -> CheckpointRow:
        """The same row with its (so far bare) body sealed for its place."""
        return self._with(seal.seal(self.place(thread_id), self.body))

    def bare(self, thread_id: str) -> CheckpointRow:
        """The inverse of `sealed`; raises `Damaged`."""
        return self._with(seal.open_sealed(self.place(thread_id), self.body))


class WriteRow(NamedTuple):
    """Stored pending writes of one task: `width` indices from `idx` on, one ref for each."""

    ns: str
    id: str
    task_id: str
    idx: int
    width: int
    path: str
    run: str | None
    refs: bytes
    body: bytes

    def place(self, thread_id: str) -> bytes:
        place = "w", thread_id, self.ns, self.id, self.task_id, self.idx, self.width
        return seal.names((*place, self.path, self.run, self.refs))

    def _with(self, body: bytes) -> WriteRow:
        return WriteRow(*self[:-1], body)

    def sealed(self, thread_id: str) -> WriteRow:
        return self._with(seal.seal(self.place(thread_id), self.body))

    def bare(self, thread_id: str) -> WriteRow:
        return self._with(seal.open_sealed(self.place(thread_id), self.body))


def lost_row(ns: str, id: str, stored: bytes) -> CheckpointRow:
    """Stands for a record that cannot be taken apart: no seal fits it, nor can its refs be read."""
    return CheckpointRow(ns, id, None, None, b"", stored)


def lost_writes(ns: str, id: str) -> WriteRow:
    """The same for pending writes, or for some that are missing."""
    return WriteRow(ns, id, "?", 0, 0, "", None, b"", b"")


class Guard(NamedTuple):
    """Rules for a put that only the store can check, inside the transaction."""

    sole: bool = False
    """Refuse with `ConcurrentUpdate` unless the parent is still the head."""
    lenient: bool = False
    """Do not, if the parent is not stored: the caller asked for an id that nobody knows."""
    root: str | None = None
    """See `Draft.root`."""
    lead: bool = False
    """Become the head whatever the id: the caller asked to go on from the parent."""
    lost: bool = False
    """The parent was loaded, and is needed, and is not stored any more: `sole` refuses the put."""


UNGUARDED = Guard()


@dataclass(slots=True)
class Draft:
    """New items, and the rows that need them, before the items have numbers."""

    thread_id: str
    epoch: int | None
    """The epoch the shared items were seen in; None when the draft shares none."""
    items: Mapping[bytes, bytes]
    """New payloads, not sealed, by digest."""
    memory: Recollection
    root: str | None = field(default=None, kw_only=True)
    """The checkpoint of the root namespace that the writing run goes on from: if it was deleted
    with its thread, the write is refused as `ThreadDeleted`. None where no run writes."""
    claims: Mapping[bytes, Sequence[Claimed]] = field(default_factory=dict, kw_only=True)
    """What new items claim in artifact stores, by digest. Stored with the item, removed with it."""

    def number(self, epoch: int, following: int) -> tuple[list[int], list[tuple[int, bytes]]]:
        """The final numbers of the new items, and `(number, sealed)` of those to add.

        `following` is the number that comes next in the thread's log. What somebody else has
        stored since the draft was made is not stored again.
        """
        known = self.memory.known(epoch)
        seed = seal.log_seed(self.thread_id)
        finals: list[int] = []
        add: list[tuple[int, bytes]] = []
        for digest, payload in self.items.items():
            n = known.get(digest)
            if n is None:
                n, following = following, following + 1
                add.append((n, seal.seal_item(seed, n, payload)))
            finals.append(n)
        return finals, add

    def claimed(self, finals: Finals, add: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """`(number, claim)` for every claim of the items that were added."""
        if self.claims:
            for digest, n in zip(self.items, finals, strict=True):
                if n in add:
                    for claim in self.claims.get(digest, ()):
                        yield n, claim.packed()


class Claimed(Protocol):
    """A `claims.Claim`, as far as stores know it."""

    def packed(self) -> bytes: ...


class Recollection(Protocol):
    """How a store speaks to the memory a draft was made from, inside the transaction.

    A store calls `is_void` before it writes and `keep` when it has written, and `drop` if what it
    has written was undone after all. A draft is not void by what is undone after a `vouch`.
    """

    def vouch(self) -> None: ...
    def is_void(self) -> bool: ...
    def known(self, epoch: int) -> Mapping[bytes, int]: ...
    def knows_run(self, epoch: int, run: str) -> bool: ...
    def keep(self, stored: Stored) -> None: ...
    def drop(self) -> None: ...


@dataclass(slots=True)
class CheckpointDraft(Draft):
    ns: str = ""
    id: str = ""
    parent: str | None = None
    run: str | None = None
    refs: Refs = ()
    fresh: Collection[str] = ()
    """The channels whose refs may name new items."""
    body: bytes = b""
    guard: Guard = UNGUARDED
    announce_run: bool = False
    """The run has not been noted for this thread yet."""

    def row(self, finals: Finals) -> CheckpointRow:
        refs: Sequence[Ref] = self.refs
        if finals:
            refs = [settled(ref, finals) if ref[0] in self.fresh else ref for ref in refs]
        bare = CheckpointRow(self.ns, self.id, self.parent, self.run, pack_refs(refs), self.body)
        return bare.sealed(self.thread_id)


class Forms(NamedTuple):
    """The body of a row of writes."""

    forms: Sequence[Any]
    schema: int | None = None
    """The version of the program's state, where it has a schema."""
    by: int = 0
    """Whose hand it is by."""
    aside: bool = False
    """A rival was first: this counts for what its own hand goes on to, and for nobody else."""

    def packed(self) -> bytes:
        parts: dict[str, Any] = {"f": list(self.forms)}
        if self.schema is not None:
            parts["s"] = self.schema
        if self.by:
            parts["b"] = self.by
        if self.aside:
            parts["a"] = True
        return seal.pack(ormsgpack.packb(parts if len(parts) > 1 else parts["f"]))

    @classmethod
    def unpacked(cls, body: bytes) -> Forms:
        """The inverse; raises `Damaged` or `ValueError`."""
        stored = ormsgpack.unpackb(seal.unpack(body))
        if type(stored) is list:
            return cls(stored)
        if type(stored) is dict and {"f"} <= stored.keys() <= {"f", "s", "b", "a"}:
            return cls(stored["f"], stored.get("s"), stored.get("b", 0), stored.get("a", False))
        raise seal.Damaged("a record of writes is of a kind that this version does not know")


ASIDE = "~"
"""Between the id of a task and the hand, in the row of a write that was put aside."""


def task_aside(task_id: str, hand: int) -> str:
    return f"{task_id}{ASIDE}{hand:08x}"


class Rivalled(Exception):
    """Somebody unknown has written what a draft is about to: put that aside."""


class Write(NamedTuple):
    """One pending write: its index, its ref and its form."""

    idx: int
    ref: Ref
    form: object


@dataclass(slots=True)
class WritesDraft(Draft):
    ns: str = ""
    id: str = ""
    task_id: str = ""
    path: str = ""
    run: str | None = None
    ordinary: tuple[Write, ...] = ()
    """Kept only where no write with this index exists: the first one wins."""
    special: tuple[Write, ...] = ()
    """Replace what was there: the last one wins."""
    announce_run: bool = False
    schema: int | None = None
    """The version of the program's state, where it has a schema."""
    sole: Callable[[], bool] = bool
    """Asked inside the transaction: refuse with `ConcurrentUpdate` unless `id` is the head?"""
    by: Author = ANYBODY
    aside: bool = False
    """See `Forms.aside`."""

    def taken(self, held: Iterable[WriteRow]) -> set[int]:
        """The indices that stored rows of the same task have taken; `Rivalled` if in a race."""
        taken: set[int] = set()
        for row in held:
            if row.idx >= 0:
                own = range(row.idx, row.idx + row.width)
                if any(write.idx in own for write in self.ordinary) and self._is_rival(row):
                    raise Rivalled
                taken.update(own)
        return taken

    def _is_rival(self, row: WriteRow) -> bool:
        known = self.by.known
        if known is None or any(w[:2] == (row.task_id, row.idx) for w in known):
            return False
        try:
            return Forms.unpacked(row.bare(self.thread_id).body).by != self.by.hand
        except (seal.Damaged, ValueError) as error:
            where = f"thread {self.thread_id!r}, checkpoint {row.id}, writes of task {row.task_id}"
            raise seal.damaged(where, seal.Damaged(str(error))) from error

    def rows(self, finals: Finals, taken: Collection[int]) -> list[WriteRow]:
        """Rows for the special writes, and for ordinary ones whose index is not `taken`."""
        rows = [self._row([write], finals) for write in self.special]
        stretch: list[Write] = []
        for write in self.ordinary:
            if write.idx in taken:
                continue
            if stretch and stretch[-1].idx + 1 != write.idx:
                rows.append(self._row(stretch, finals))
                stretch = []
            stretch.append(write)
        if stretch:
            rows.append(self._row(stretch, finals))
        return rows

    def _row(self, writes: Sequence[Write], finals: Finals) -> WriteRow:
        refs = pack_refs(settled(w.ref, finals) for w in writes)
        body = Forms([w.form for w in writes], self.schema, self.by.hand, self.aside).packed()
        return WriteRow(
            self.ns,
            self.id,
            self.task_id,
            writes[0].idx,
            len(writes),
            self.path,
            self.run,
            refs,
            body,
        ).sealed(self.thread_id)


class Stored(NamedTuple):
    """What a store says of a draft it has written."""

    epoch: int
    finals: Finals
    bytes: int


class Loaded(NamedTuple):
    """One checkpoint as a store gives it: whole, from one moment."""

    thread_id: str
    epoch: int
    row: CheckpointRow
    writes: tuple[WriteRow, ...]
    items: Items
    """The items of the whole answer: rows of one page and thread share them."""
    orphan: bool = False
    """It names a parent that is not stored."""

    @property
    def bytes(self) -> int:
        """What was read: of a checkpoint that was asked for alone."""
        items = sum(map(len, self.items.values()))
        return len(self.row.body) + sum(len(write.body) for write in self.writes) + items


class Held(NamedTuple):
    """Items that the caller still has. A store may leave them out if the epoch is the same."""

    epoch: int | None = None
    numbers: Container[int] = ()


class Selection(NamedTuple):
    """What `list` asks for; None means any."""

    thread_id: str | None = None
    ns: str | None = None
    id: str | None = None
    before: str | None = None


class Cursor(NamedTuple):
    """The last row of a page: the next page starts below it."""

    id: str
    thread_id: str
    ns: str


class Page(NamedTuple):
    rows: tuple[Loaded, ...]
    cursor: Cursor | None
    """Where to go on; None at the end."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All rows of a thread, without items: what a rule that removes things looks at."""

    thread_id: str
    rows: tuple[CheckpointRow, ...]
    writes: tuple[WriteRow, ...]
    heads: Mapping[str, str]
    spines: Spines
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Bytes of each stored item, where they were asked for."""


class Removed(NamedTuple):
    """What a store has taken away."""

    checkpoints: int = 0
    writes: int = 0
    items: int = 0
    bytes: int = 0
    """Of records and items, without the overhead of the store."""
    artifacts: int = 0
    """Claims on artifacts that went with the items."""
    reclaimed: int = 0
    """Bytes that went back to the file system at once."""


class Measured(NamedTuple):
    """How much a store holds of a thread, and its first and last checkpoint by id."""

    checkpoints: int
    writes: int
    items: int
    bytes: int
    oldest: str | None
    newest: str | None


@dataclass(slots=True)
class Edit:
    """What to remove and replace in one thread. Everything not named stays."""

    drop: set[tuple[str, str]] = field(default_factory=set)
    """(ns, id) of checkpoints that go, with their writes."""
    drop_writes: list[WriteRow] = field(default_factory=list)
    replace: list[CheckpointRow] = field(default_factory=list)
    heads: dict[str, str | None] = field(default_factory=dict)
    """Heads that move; None where the namespace is empty now."""
    keep: set[int] = field(default_factory=set)
    """Numbers of the items that survive; the others go."""
    add: list[CheckpointRow] = field(default_factory=list)
    """Rows that come, maybe in the place of some that go, with their writes and new items."""
    add_writes: list[WriteRow] = field(default_factory=list)
    add_items: Items = field(default_factory=dict)
    """Sealed, by numbers above all that there are."""
    add_claims: list[tuple[int, bytes]] = field(default_factory=list)
    """What the added items claim in artifact stores, by number."""
    epochs: tuple[int, int] | None = None
    """Of the thread before and after, noted by a store that has applied this and can tell."""

    def stays(self, number: int) -> bool:
        """Whether an item survives."""
        return number in self.keep

    def stay(self, some: Iterable[int]) -> bool:
        return self.keep.issuperset(some)


@dataclass(frozen=True, slots=True)
class Watched:
    """All rows of a thread, and what its store needs to tell what has been written since."""

    listing: Listing
    since: Any
