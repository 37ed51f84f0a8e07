"""The storage port on SQLite: each verb asks for one transaction.

A `Transaction` is a plain function waiting for a connection. Awaiting it hands it to whoever runs
the coroutine (`database.Database`), which begins, calls, commits and sends the result back in; no
`await` can fall inside it, and nothing here knows whether the caller is sync or async.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Concatenate, Generic, ParamSpec, TypeVar

from langgraph_durable._core.lineage import Chain
from langgraph_durable._core.records import (
    CheckpointDraft,
    Cursor,
    Edit,
    Listing,
    Loaded,
    Page,
    Selection,
    Stored,
    WritesDraft,
)
from langgraph_durable._sqlite import reading, removing, writing
from langgraph_durable._sqlite.rows import Accept, Connection

T = TypeVar("T")


class Transaction(Generic[T]):
    """A function of a connection, whether it writes, and what it is about (for errors).

    `undone` is called if it had written and the commit failed.
    """

    __slots__ = ("about", "act", "undone", "writes")

    def __init__(
        self,
        act: Callable[[Connection], T],
        *,
        writes: bool,
        about: str,
        undone: Callable[[], None] | None = None,
    ) -> None:
        self.act, self.writes, self.about, self.undone = act, writes, about, undone

    def __await__(self) -> Generator[Transaction[T], T, T]:
        return (yield self)


P = ParamSpec("P")
Verb = Callable[Concatenate[Connection, P], T]


async def _ask(
    verb: Verb[P, T], writes: bool, thread_id: str | None, *args: P.args, **more: P.kwargs
) -> T:
    about = "all threads" if thread_id is None else f"thread {thread_id!r}"

    def act(conn: Connection) -> T:
        return verb(conn, *args, **more)

    result: T = await Transaction(act, writes=writes, about=about)
    return result


D = TypeVar("D", CheckpointDraft, WritesDraft)


async def _store(verb: Callable[[Connection, D], Stored], draft: D) -> Stored:
    stored: Stored = await Transaction(
        lambda conn: verb(conn, draft),
        writes=True,
        about=f"thread {draft.thread_id!r}",
        undone=draft.memory.drop,
    )
    return stored


class SqliteStorage:
    """`_core.storage.Storage` as transactions."""

    async def load(self, thread_id: str, ns: str, id: str | None) -> Loaded | None:
        return await _ask(reading.load, False, thread_id, thread_id, ns, id)

    async def page(
        self, selection: Selection, after: Cursor | None, size: int, accept: Accept
    ) -> Page:
        return await _ask(reading.page, False, selection.thread_id, selection, after, size, accept)

    async def chain(
        self, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> Chain | None:
        return await _ask(reading.chain, False, thread_id, thread_id, ns, id, channels)

    async def put(self, draft: CheckpointDraft) -> Stored:
        return await _store(writing.put, draft)

    async def put_writes(self, draft: WritesDraft) -> Stored:
        return await _store(writing.put_writes, draft)

    async def edit(self, thread_id: str, decide: Callable[[Listing], Edit]) -> bool:
        return await _ask(removing.edit, True, thread_id, thread_id, decide)

    async def drop(self, thread_id: str) -> bool:
        return await _ask(removing.drop, True, thread_id, thread_id)

    async def copy(self, source: str, target: str) -> bool:
        return await _ask(writing.copy, True, source, source, target)

    async def threads_of(self, runs: Sequence[str]) -> list[str]:
        return await _ask(reading.threads_of, False, None, runs)

    async def forget_runs(self, runs: Sequence[str]) -> None:
        await _ask(removing.forget_runs, True, None, runs)
