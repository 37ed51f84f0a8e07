"""The storage port on SQLite: each verb asks for one transaction.

A `Transaction` is a plain function waiting for a connection. Awaiting it hands it to whoever runs
the coroutine (`database.Database`), which begins, calls, commits and sends the result back in; no
`await` can fall inside it, and nothing here knows whether the caller is sync or async.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Concatenate, Generic, ParamSpec, TypeVar

from langgraph_durable._core.dumps import Dump
from langgraph_durable._core.lineage import Chain
from langgraph_durable._core.records import (
    CheckpointDraft,
    Cursor,
    Edit,
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
from langgraph_durable._core.shortening import Step
from langgraph_durable._sqlite import claims, measuring, reading, removing, watching, writing
from langgraph_durable._sqlite.notes import Notes
from langgraph_durable._sqlite.rows import Accept, Connection

T = TypeVar("T")


class Transaction(Generic[T]):
    """A function of a connection and its notes, whether it writes, and what it is about.

    `begun` is called before anything of a commit that it shares is written, `undone` if it had
    written and the commit failed.
    """

    __slots__ = ("about", "act", "begun", "undone", "writes")

    def __init__(
        self,
        act: Callable[[Connection, Notes], T],
        *,
        writes: bool,
        about: str,
        begun: Callable[[], None] | None = None,
        undone: Callable[[], None] | None = None,
    ) -> None:
        self.act, self.writes, self.about = act, writes, about
        self.begun, self.undone = begun, undone

    def __await__(self) -> Generator[Transaction[T], T, T]:
        return (yield self)


P = ParamSpec("P")


async def _read(
    verb: Callable[Concatenate[Connection, P], T],
    thread_id: str | None,
    *args: P.args,
    **more: P.kwargs,
) -> T:
    def act(conn: Connection, notes: Notes) -> T:
        return verb(conn, *args, **more)

    result: T = await Transaction(act, writes=False, about=_about(thread_id))
    return result


async def _write(
    verb: Callable[Concatenate[Connection, Notes, P], T],
    thread_id: str | None,
    *args: P.args,
    **more: P.kwargs,
) -> T:
    def act(conn: Connection, notes: Notes) -> T:
        return verb(conn, notes, *args, **more)

    result: T = await Transaction(act, writes=True, about=_about(thread_id))
    return result


def _about(thread_id: str | None) -> str:
    return "all threads" if thread_id is None else f"thread {thread_id!r}"


D = TypeVar("D", CheckpointDraft, WritesDraft)


async def _store(verb: Callable[[Connection, Notes, D], Stored], draft: D) -> Stored:
    stored: Stored = await Transaction(
        lambda conn, notes: verb(conn, notes, draft),
        writes=True,
        about=_about(draft.thread_id),
        begun=draft.memory.vouch,
        undone=draft.memory.drop,
    )
    return stored


class SqliteStorage:
    """`_core.storage.Storage` as transactions."""

    async def load(self, thread_id: str, ns: str, id: str | None, held: Held) -> Loaded | None:
        return await _read(reading.load, thread_id, thread_id, ns, id, held)

    async def page(
        self,
        selection: Selection,
        after: Cursor | None,
        size: int,
        accept: Accept,
        *,
        items: bool = True,
    ) -> Page:
        return await _read(
            reading.page, selection.thread_id, selection, after, size, accept, items=items
        )

    async def chain(
        self, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> Chain | None:
        return await _read(reading.chain, thread_id, thread_id, ns, id, channels)

    async def put(self, draft: CheckpointDraft) -> Stored:
        return await _store(writing.put, draft)

    async def put_writes(self, draft: WritesDraft) -> Stored:
        return await _store(writing.put_writes, draft)

    async def edit(
        self, thread_id: str, decide: Callable[[Listing], Edit | None], *, weigh: bool = False
    ) -> Removed | None:
        return await _write(removing.edit, thread_id, thread_id, decide, weigh)

    async def watch(self, thread_id: str, *, weigh: bool = False) -> Watched | None:
        while await _write(watching.watch, thread_id, thread_id):
            if found := await _read(watching.read, thread_id, thread_id, weigh):
                return found
        return None

    async def trim(
        self, watched: Watched, step: Step, *, last: bool
    ) -> tuple[Removed, Watched] | None:
        return await _write(removing.trim, watched.listing.thread_id, watched, step, last)

    async def drop(self, thread_id: str) -> Removed | None:
        return await _write(removing.drop, thread_id, thread_id)

    async def survey(self, thread_id: str, *, weigh: bool = False) -> Listing | None:
        return await _read(measuring.survey, thread_id, thread_id, weigh)

    async def threads(self, after: str | None, size: int) -> list[str]:
        return await _read(measuring.threads, None, after, size)

    async def count(self, thread_id: str, most: int) -> int:
        return await _read(measuring.count, thread_id, thread_id, most)

    async def measure(self, thread_id: str) -> Measured | None:
        return await _read(measuring.measure, thread_id, thread_id)

    async def reclaim(self) -> int:
        return await _write(removing.reclaim, None)

    async def stores(self) -> dict[str, tuple[str, ...]]:
        return await _read(claims.stores, None)

    async def enter_store(self, id: str, urls: Sequence[str]) -> None:
        await _write(claims.enter_store, None, id, urls)

    async def claims(self, after: str | None) -> tuple[list[bytes], str | None]:
        return await _read(claims.everywhere, None), None

    async def claims_of(self, thread_id: str) -> list[tuple[int, bytes]]:
        return await _read(claims.of_thread, thread_id, thread_id)

    async def copy(self, source: str, target: str) -> bool:
        return await _write(writing.copy, source, source, target)

    async def dump(self, thread_id: str) -> Dump | None:
        return await _read(measuring.dump, thread_id, thread_id)

    async def restore(self, dump: Dump) -> bool:
        return await _write(writing.restore, dump.thread_id, dump)

    async def replace(self, dump: Dump) -> None:
        await _write(removing.replace, dump.thread_id, dump)

    async def threads_of(self, runs: Sequence[str]) -> list[str]:
        return await _read(reading.threads_of, None, runs)

    async def forget_runs(self, runs: Sequence[str]) -> None:
        """Nothing is left to do: `edit` and `drop` take the notes of a thread with its rows."""
