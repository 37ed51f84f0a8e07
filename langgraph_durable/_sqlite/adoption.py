"""Threads of the stock saver become ours when they are first touched.

`AdoptingStorage` is the storage of a `SqliteSaver`. On first use it looks whether the file has
tables of `langgraph-checkpoint-sqlite` (see `stock`); where there are none it is never in the way
again. Where there are some, a verb about a thread first moves that thread, and a verb about all
threads moves all of them.

A thread is moved in slices, oldest checkpoint first. One slice is one transaction: it stores some
checkpoints with their writes through the engine, so that they share what they have in common, and
removes the very rows they came from. Whenever the process dies, each checkpoint is in one place or
in the other, and the next touch goes on. What cannot be read, because it is damaged or names a
type that is not allowed, is found before anything of its thread is moved.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable._core.dumps import Dump
from langgraph_durable._core.engine import Engine, Task
from langgraph_durable._core.engine import Place as EnginePlace
from langgraph_durable._core.lineage import Chain
from langgraph_durable._core.records import (
    CheckpointDraft,
    Cursor,
    Edit,
    Guard,
    Held,
    Listing,
    Loaded,
    Measured,
    Page,
    Removed,
    Selection,
    Stored,
    Watched,
    WritesDraft,
)
from langgraph_durable._core.steps import parted
from langgraph_durable._sqlite import removing, stock
from langgraph_durable._sqlite.notes import Notes
from langgraph_durable._sqlite.rows import Accept, Connection
from langgraph_durable._sqlite.storage import SqliteStorage, Transaction
from langgraph_durable._sqlite.writing import restore
from langgraph_durable.errors import (
    CorruptionError,
    DurableError,
    SerializationError,
    StorageReadOnly,
)

logger = logging.getLogger("langgraph_durable")
T = TypeVar("T")
Work = Coroutine[Any, Any, T]

MANY = 64
"""Checkpoints in a slice at most."""
SLICE = 0.25
"""Seconds after which a slice ends, so that others get at the file."""
QUIET = 5.0
"""Seconds between two reports of how far a long adoption is."""


class Moved(NamedTuple):
    """How many checkpoints and rows of writes were moved, and whether there is more."""

    checkpoints: int = 0
    writes: int = 0
    more: bool = False


class Slice:
    """One transaction of an adoption; see the top of the file."""

    def __init__(self, engine: Engine, serde: SerializerProtocol, thread_id: str) -> None:
        self._engine, self._serde, self._thread_id = engine, serde, thread_id
        self._undone: list[Callable[[], None]] = []
        self._checked: stock.Place | None = None

    def check(self, conn: Connection, notes: Notes) -> int:
        """Read the next checkpoints of a thread that takes more than one slice; how many.

        Raises if something of them cannot be read. Nobody adds to them meanwhile.
        """
        found = stock.tables(conn)
        page = stock.places(conn, self._thread_id, self._checked, MANY) if found else []
        if found is None or (self._checked is None and len(page) < MANY):
            return 0
        for place in page:
            self._read(conn, found, place)
            self._checked = place
        return len(page)

    def move(self, conn: Connection, notes: Notes) -> Moved:
        found, end = stock.tables(conn), time.monotonic() + SLICE
        if found is None:
            return Moved()
        page = stock.places(conn, self._thread_id, None, MANY)
        more = len(page) == MANY
        checkpoints = writes = 0
        for place in page if more else [*page, *stock.orphans(conn, found, self._thread_id)]:
            if more and time.monotonic() > end:
                break
            read = self._read(conn, found, place)
            for work in self._storing(place, read):
                self._carry_out(conn, notes, work)
            stock.forget(conn, found, place)
            checkpoints += read.checkpoint is not None
            writes += sum(len(each) for each in read.writes.values())
        return Moved(checkpoints, writes, more)

    def undo(self) -> None:
        """The transaction was rolled back: what the memory has learned in it is void."""
        for undone in self._undone:
            undone()
        self._undone.clear()

    def _carry_out(self, conn: Connection, notes: Notes, work: Coroutine[Any, Any, None]) -> None:
        """Run an operation of the engine inside this very transaction."""
        step: Callable[[Any], Any] = work.send
        sent: Any = None
        while True:
            try:
                wanted: Transaction[Any] = step(sent)
            except StopIteration:
                return
            if wanted.undone is not None:
                self._undone.append(wanted.undone)
            try:
                step, sent = work.send, wanted.act(conn, notes)
            except Exception as error:
                step, sent = work.throw, error

    def _storing(self, place: stock.Place, read: Read) -> Iterable[Coroutine[Any, Any, None]]:
        if read.checkpoint is not None:
            new = [*read.checkpoint["channel_versions"], *read.checkpoint["channel_values"]]
            above = EnginePlace(place.thread_id, place.ns, read.parent)
            metadata, version = parted(read.metadata)
            engine = self._engine.as_stored(version)
            yield engine.put(self._serde, above, read.checkpoint, metadata, new, Guard())
        for (task_id, path), writes in read.writes.items():
            task = Task(task_id, path, None)
            pairs = [(channel, value) for _, channel, value in writes]
            indices = [idx for idx, _, _ in writes]
            yield self._engine.put_writes(
                self._serde, EnginePlace(*place), pairs, task, bool, indices=indices
            )

    def _read(self, conn: Connection, found: stock.Tables, place: stock.Place) -> Read:
        """A checkpoint of the stock saver as values; what is wrong with it names the place."""
        try:
            row = stock.checkpoint(conn, place)
            checkpoint, metadata = self._decoded(place, row) if row else (None, {})
            writes: dict[tuple[str, str], list[tuple[int, str, Any]]] = {}
            for each in stock.writes(conn, found, place):
                value = self._value(each.type, each.value)
                own = writes.setdefault((each.task_id, each.task_path or ""), [])
                own.append((each.idx, each.channel, value))
            return Read((row.parent or None) if row else None, checkpoint, metadata, writes)
        except DurableError as error:
            error.args = (f"{_where(place)}: {error}. {STAYS}", *error.args[1:])
            raise
        except Exception as error:
            raise SerializationError(f"{_where(place)}: {error}. {STAYS}") from error

    def _decoded(
        self, place: stock.Place, row: stock.StockCheckpoint
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        value = self._value(row.type, row.checkpoint)
        metadata = {} if row.metadata is None else json.loads(row.metadata)
        if not isinstance(value, dict) or not isinstance(metadata, dict):
            raise CorruptionError("this is not a checkpoint")
        parts = {part: value.get(part) or {} for part in ("channel_values", "channel_versions")}
        return {**value, **parts, "id": place.id}, metadata

    def _value(self, type: str | None, data: bytes | None) -> Any:
        return self._serde.loads_typed((type or "null", b"" if data is None else data))


class Read(NamedTuple):
    """A checkpoint of the stock saver, and its writes by task and path: index, channel, value."""

    parent: str | None
    checkpoint: dict[str, Any] | None
    metadata: dict[str, Any]
    writes: dict[tuple[str, str], list[tuple[int, str, Any]]]


STAYS = (
    "It was written by langgraph-checkpoint-sqlite and stays as it is; other threads are not "
    "affected"
)


COPY_IT = (
    "If langgraph-checkpoint-sqlite wrote it: its threads are moved into our tables before they "
    "are read, so open a copy of the file that can be written."
)


def _where(place: stock.Place) -> str:
    return f"thread {place.thread_id!r}, checkpoint {place.id}"


class _Patience:
    """Says how far a long adoption is, now and then."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, text: str, *told: object) -> None:
        if time.monotonic() > self._said + QUIET:
            self._said = time.monotonic()
            logger.warning(text, *told)


class AdoptingStorage(SqliteStorage):
    """`SqliteStorage`, and the threads that the stock saver has left in the file."""

    def __init__(self) -> None:
        self._ended = False
        """There is nothing to adopt, or nothing any more."""
        self._left: set[str] | None = None
        """Threads still to be adopted; None before the first look."""

    def equip(self, engine: Engine, serde: SerializerProtocol) -> None:
        """What values are read and stored with: an engine over the plain storage."""
        self._engine, self._serde = engine, serde

    # ---- adopting ----------------------------------------------------------------------------

    async def left(self, about: str = "all threads") -> Collection[str]:
        """The threads that are still to be adopted; `about` is who asks, for errors."""
        if self._left is None:
            self._left = set(await self._take_over(about))
        self._ended = not self._left
        return self._left

    async def _take_over(self, about: str) -> Collection[str]:
        """What is to be adopted, once no stock saver can add to it."""
        found = None
        try:
            found = await Transaction(_look, writes=False, about=about)
            if found.untold:
                found = await Transaction(_take_over, writes=True, about=about)
        except StorageReadOnly as error:
            if found is None or found.threads:
                raise StorageReadOnly(f"{error} {COPY_IT}") from error
        if found.threads:
            many = len(found.threads)
            logger.info("%d threads of langgraph-checkpoint-sqlite will be adopted", many)
        return found.threads

    async def adopt(self, thread_id: str) -> Moved:
        """Move a thread; raises if a part of it cannot be read, and then moves nothing."""
        if thread_id not in await self.left():
            return Moved()
        about = f"thread {thread_id!r}"
        say = _Patience()
        mover, checked = Slice(self._engine, self._serde, thread_id), 0
        while read := await Transaction(mover.check, writes=False, about=about):
            checked += read
            say("adopting %s: %d checkpoints read so far", about, checked)
        total, more = Moved(), True
        while more:
            mover = Slice(self._engine, self._serde, thread_id)
            done = await Transaction(mover.move, writes=True, about=about, undone=mover.undo)
            more = done.more
            total = Moved(total.checkpoints + done.checkpoints, total.writes + done.writes)
            say("adopting %s: %d checkpoints moved so far", about, total.checkpoints)
        assert self._left is not None
        self._left.discard(thread_id)
        self._ended = not self._left
        return total

    async def _adopt_all(self) -> None:
        """Move all threads; one that cannot be read is reported, and left out."""
        left, say = sorted(await self.left()), _Patience()
        for done, thread_id in enumerate(left, 1):
            try:
                await self.adopt(thread_id)
            except (DurableError, RecursionError) as error:
                logger.error("left out: %s", error)
            say("adopted %d of %d threads so far", done, len(left))

    def _first(self, threads: Sequence[str | None], verb: Work[T]) -> Work[T]:
        """The verb, once these threads (None: all) are ours; nothing is added where all are."""
        return verb if self._ended else self._then(threads, verb)

    async def _then(self, threads: Sequence[str | None], verb: Work[T]) -> T:
        try:
            await self._ready(threads)
        except BaseException:
            verb.close()
            raise
        return await verb

    async def _ready(self, threads: Sequence[str | None]) -> None:
        one = threads[0] if threads else None
        left = await self.left("all threads" if one is None else f"thread {one!r}")
        for thread_id in threads:
            if thread_id is None:
                await self._adopt_all()
            elif thread_id in left:
                await self.adopt(thread_id)

    # ---- the verbs ---------------------------------------------------------------------------

    def load(self, thread_id: str, ns: str, id: str | None, held: Held) -> Work[Loaded | None]:
        return self._first((thread_id,), super().load(thread_id, ns, id, held))

    def page(
        self,
        selection: Selection,
        after: Cursor | None,
        size: int,
        accept: Accept,
        *,
        items: bool = True,
    ) -> Work[Page]:
        verb = super().page(selection, after, size, accept, items=items)
        return self._first(() if after else (selection.thread_id,), verb)

    def chain(
        self, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> Work[Chain | None]:
        return self._first((thread_id,), super().chain(thread_id, ns, id, channels))

    def put(self, draft: CheckpointDraft) -> Work[Stored]:
        return self._first((draft.thread_id,), super().put(draft))

    def put_writes(self, draft: WritesDraft) -> Work[Stored]:
        return self._first((draft.thread_id,), super().put_writes(draft))

    def edit(
        self, thread_id: str, decide: Callable[[Listing], Edit | None], *, weigh: bool = False
    ) -> Work[Removed | None]:
        return self._first((thread_id,), super().edit(thread_id, decide, weigh=weigh))

    def watch(self, thread_id: str, *, weigh: bool = False) -> Work[Watched | None]:
        return self._first((thread_id,), super().watch(thread_id, weigh=weigh))

    async def drop(self, thread_id: str) -> Removed | None:
        """A thread goes from both places at once, also one that cannot be read."""
        if self._ended or thread_id not in await self.left():
            return await super().drop(thread_id)
        return await self._drop_then(thread_id, lambda conn, notes: None)

    async def _drop_then(
        self, thread_id: str, then: Callable[[Connection, Notes], object]
    ) -> Removed | None:
        def act(conn: Connection, notes: Notes) -> Removed | None:
            removed = _drop(conn, notes, thread_id)
            then(conn, notes)
            return removed

        removed = await Transaction(act, writes=True, about=f"thread {thread_id!r}")
        assert self._left is not None
        self._left.discard(thread_id)
        return removed

    def survey(self, thread_id: str, *, weigh: bool = False) -> Work[Listing | None]:
        return self._first((thread_id,), super().survey(thread_id, weigh=weigh))

    def threads(self, after: str | None, size: int) -> Work[list[str]]:
        return self._first(() if after else (None,), super().threads(after, size))

    def count(self, thread_id: str, most: int) -> Work[int]:
        return self._first((thread_id,), super().count(thread_id, most))

    def measure(self, thread_id: str) -> Work[Measured | None]:
        return self._first((thread_id,), super().measure(thread_id))

    def copy(self, source: str, target: str) -> Work[bool]:
        return self._first((source, target), super().copy(source, target))

    def dump(self, thread_id: str) -> Work[Dump | None]:
        return self._first((thread_id,), super().dump(thread_id))

    def restore(self, dump: Dump) -> Work[bool]:
        return self._first((dump.thread_id,), super().restore(dump))

    async def replace(self, dump: Dump) -> None:
        if self._ended or dump.thread_id not in await self.left():
            await super().replace(dump)
        else:
            await self._drop_then(dump.thread_id, lambda conn, notes: restore(conn, notes, dump))

    def threads_of(self, runs: Sequence[str]) -> Work[list[str]]:
        return self._first((None,), super().threads_of(runs))


class Found(NamedTuple):
    """What the stock saver has left."""

    threads: Sequence[str] = ()
    untold: bool = False
    """A stock saver could still add to it."""


def _look(conn: Connection, notes: Notes) -> Found:
    found = stock.tables(conn)
    if found is None:
        return Found()
    return Found(stock.threads(conn, found), not stock.is_taken_over(conn, found))


def _take_over(conn: Connection, notes: Notes) -> Found:
    found = stock.tables(conn)
    if found is not None:
        stock.take_over(conn, found)
    return _look(conn, notes)


def _drop(conn: Connection, notes: Notes, thread_id: str) -> Removed | None:
    found = stock.tables(conn)
    gone = stock.drop(conn, found, thread_id) if found else Removed()
    removed = removing.drop(conn, notes, thread_id) or Removed()
    total = Removed(*map(sum, zip(gone, removed, strict=True)))
    return None if total == Removed() else total
