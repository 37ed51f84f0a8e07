"""Runs the engine's coroutines on SQLite, for sync and async callers, threads, loops and forks.

A coroutine runs until it asks for a `Transaction`; the transaction is carried out and the result
sent back in. A sync caller does that in its own thread (`finish`). An async caller hands the whole
coroutine to a worker thread, one hop for everything (`run`): serialising, waiting for a lock and
waiting for the disk all happen off the loop. There are two workers, so that reads go on while a
write waits for its lock.

Writes that wait at the same moment share a commit. A write stands in the queue; whoever gets the
turn takes all that stand there into one transaction. If anything in it fails, it is rolled back
and each is done by itself, so that one caller's error is not another's.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar, cast

from langgraph_durable._sqlite.connections import PAUSE, Connections
from langgraph_durable._sqlite.failures import Foreign, explained, is_busy
from langgraph_durable._sqlite.notes import Notes
from langgraph_durable._sqlite.schema import begin, rollback
from langgraph_durable._sqlite.storage import Transaction
from langgraph_durable._workers import Job, deliver, waiting
from langgraph_durable.errors import StorageError

CROWD = 0.02
"""Seconds for which writes stand in the queue after two have met: they meet again, and share."""

T = TypeVar("T")
Work = Coroutine[Any, Any, T]


class Ticket:
    """A write in the queue."""

    __slots__ = ("deadline", "done", "error", "result", "transaction")

    def __init__(self, transaction: Transaction[Any], patience: float) -> None:
        self.transaction = transaction
        self.deadline = time.monotonic() + patience
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def end(self, result: Any, error: BaseException | None = None) -> None:
        self.result, self.error, self.done = result, error, True


class Database:
    """One store and everybody who uses it; see the top of the file."""

    def __init__(self, connections: Connections, busy_timeout: float) -> None:
        self.connections = connections
        self._patience = busy_timeout
        self._closed = False
        self._paused = False
        self._workers = _Workers()
        self._queue: deque[Ticket] = deque()
        self._turn = threading.Lock()
        self._crowded_until = 0.0
        self._notes = Notes()
        self._release = weakref.finalize(self, _let_go, connections, self._workers, self._turn)
        _databases.add(self)

    # ---- running coroutines ------------------------------------------------------------------

    def finish(self, work: Work[T]) -> T:
        """Run a coroutine to its end in this thread."""
        self._check_open(work)
        step: Callable[[Any], Any] = work.send
        sent: Any = None
        try:
            while True:
                wanted: Transaction[Any] = step(sent)
                try:
                    step, sent = work.send, self._perform(wanted)
                except BaseException as error:
                    step, sent = work.throw, error
        except StopIteration as end:
            return cast("T", end.value)

    async def run(self, work: Work[T], *, writes: bool) -> T:
        """Run a coroutine to its end in a worker.

        If the caller is cancelled, what has not begun never will; a write that has begun is ended
        first, so that the caller knows that nothing of it comes later.
        """
        self._check_open(work)
        job = _Job(self, work)
        self._workers.submit(job, writes)
        return await job.outcome(whole=writes)  # type: ignore[no-any-return]

    def _serve(self, jobs: Iterable[_Job]) -> None:
        """Run several coroutines, each as far as it gets, and their writes together."""
        active = [job for job in jobs if job.starts()]
        while active:
            tickets: list[Ticket] = []
            waiting: list[_Job] = []
            for job in active:
                wanted = job.advance(self)
                if wanted is not None:
                    tickets.append(Ticket(wanted, self._patience))
                    waiting.append(job)
            self._commit(tickets)
            for job, ticket in zip(waiting, tickets, strict=True):
                job.sent, job.error = ticket.result, ticket.error
            deliver(job for job in active if job.ended)
            active = waiting

    # ---- transactions ------------------------------------------------------------------------

    def _perform(self, wanted: Transaction[T]) -> T:
        if not wanted.writes:
            return self._read(wanted)
        now = time.monotonic()
        if self._queue or self._turn.locked():
            self._crowded_until = now + CROWD
        elif now > self._crowded_until:
            return self._write(wanted)
        ticket = Ticket(wanted, self._patience)
        self._commit([ticket])
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[no-any-return]

    def _write(self, wanted: Transaction[T]) -> T:
        """A write when nobody else is about: it needs no queue, which saves 8 us."""
        deadline = time.monotonic() + self._patience
        try:
            with self._turn:
                self._check_open()
                return self.connections.write(lambda conn: self._carry_out(conn, wanted, deadline))
        except Foreign as error:
            raise explained(error, self.connections.name, wanted.about) from error

    def _read(self, wanted: Transaction[T]) -> T:
        self._check_open()
        try:
            return self.connections.read(lambda conn: wanted.act(conn, self._notes))
        except Foreign as error:
            raise explained(error, self.connections.name, wanted.about) from error

    def _commit(self, tickets: Sequence[Ticket]) -> None:
        """Stand in the queue, and when it is this thread's turn, do what nobody has done yet."""
        if not tickets:
            return
        try:
            self._queue.extend(tickets)
            with self._turn:
                if not all(ticket.done for ticket in tickets):
                    self._check_open()
                    self.connections.write(self._commit_queue)
        except BaseException as error:
            self._withdraw(tickets, error)
            if not isinstance(error, Exception):
                raise
        for ticket in tickets:
            if not ticket.done:
                ticket.end(None, StorageError(f"{self.connections.name}: the write was not done"))
            if isinstance(ticket.error, Foreign):
                ours = explained(ticket.error, self.connections.name, ticket.transaction.about)
                ours.__cause__ = ticket.error
                ticket.error = ours

    def _withdraw(self, tickets: Sequence[Ticket], error: BaseException) -> None:
        """These give up, with all whose time is up too; the others in the queue still wait.

        What another thread is just doing is waited for, so that nothing of it comes later.
        """
        now = time.monotonic()
        expired = [t for t in list(self._queue) if is_busy(error) and t.deadline <= now]
        for ticket in (*tickets, *expired):
            if ticket.done:
                continue
            try:
                self._queue.remove(ticket)
            except ValueError:
                with self._turn:
                    pass
            if not ticket.done:
                ticket.end(None, error)

    def _commit_queue(self, conn: sqlite3.Connection) -> None:
        """All that stand in the queue in one transaction, or, if that fails, each in its own."""
        batch: list[Ticket] = []
        try:
            error = self._commit_together(conn, batch)
            if error is not None and not batch:
                raise error
            if error is not None and len(batch) == 1:
                batch[0].end(None, error)
            elif error is not None:
                for ticket in batch:
                    self._commit_alone(conn, ticket)
        finally:
            # An interrupt is this thread's own: the others' writes wait on.
            left = [ticket for ticket in batch if not ticket.done and ticket not in self._queue]
            self._queue.extendleft(reversed(left))

    def _commit_together(self, conn: sqlite3.Connection, batch: list[Ticket]) -> Exception | None:
        try:
            self._begin(conn, self._queue[0].deadline)
            batch += list(self._queue)
            for _ in batch:
                self._queue.popleft()
            for ticket in batch:
                if ticket.transaction.begun is not None:
                    ticket.transaction.begun()
            results = [ticket.transaction.act(conn, self._notes) for ticket in batch]
            conn.execute("COMMIT")
        except BaseException as error:
            self._undo(conn, [ticket.transaction for ticket in batch])
            if not isinstance(error, Exception):
                raise
            return error
        for ticket, result in zip(batch, results, strict=True):
            ticket.end(result)
        return None

    def _commit_alone(self, conn: sqlite3.Connection, ticket: Ticket) -> None:
        try:
            result = self._carry_out(conn, ticket.transaction, ticket.deadline)
        except Exception as error:
            ticket.end(None, error)
        else:
            ticket.end(result)

    def _carry_out(self, conn: sqlite3.Connection, wanted: Transaction[T], deadline: float) -> T:
        try:
            self._begin(conn, deadline)
            result = wanted.act(conn, self._notes)
            conn.execute("COMMIT")
        except BaseException:
            self._undo(conn, (wanted,))
            raise
        return result

    def _begin(self, conn: sqlite3.Connection, deadline: float) -> None:
        if not self.connections.exclusive:
            self._notes.clear()
        else:
            rollback(conn)  # what an interrupt may have left open
        begin(conn, deadline - time.monotonic())
        if self.connections.exclusive:
            self._notes.check(conn)

    def _undo(self, conn: sqlite3.Connection, batch: Sequence[Transaction[Any]]) -> None:
        # Void first: once the lock is gone, others may use the same numbers for something else.
        for transaction in batch:
            if transaction.undone is not None:
                transaction.undone()
        self._notes.clear()
        rollback(conn)

    # ---- opening and closing -----------------------------------------------------------------

    def open(self) -> None:
        """Open the file and make it a store, which the first use would do as well."""
        self._read(Transaction(lambda conn, notes: None, writes=False, about=""))

    def _check_open(self, work: Work[Any] | None = None) -> None:
        if self._closed:
            if work is not None:
                work.close()
            raise StorageError(f"{self.connections.name}: this saver is closed")

    def close(self) -> None:
        """Finish the write that is under way, then let go of everything. Twice is fine."""
        with self._turn:
            self._closed = True
        self._release()

    async def aclose(self) -> None:
        async def close() -> None:
            self.close()

        if not self._closed:
            await self.run(close(), writes=True)

    def before_fork(self) -> None:
        """Let the transactions under way end, and none begin."""
        self._paused = self._turn.acquire(timeout=PAUSE)
        self.connections.pause()

    def after_fork_in_parent(self) -> None:
        self.connections.resume()
        if self._paused:
            self._turn.release()

    def after_fork_in_child(self) -> None:
        """In a child process: nothing of the parent's may be used, waited for or closed."""
        self._release.detach()
        self.connections.abandon()
        self._workers = _Workers()
        self._queue = deque()
        self._turn = threading.Lock()
        self._notes = Notes()
        self._release = weakref.finalize(self, _let_go, self.connections, self._workers, self._turn)


class _Job(Job):
    """A coroutine of an async caller on its way through a worker."""

    __slots__ = ("database", "ended", "error", "sent", "work")

    def __init__(self, database: Database, work: Work[Any]) -> None:
        super().__init__()
        self.database: Database | None = database
        self.work = work
        self.sent: Any = None
        self.error: BaseException | None = None
        self.ended = False

    def starts(self) -> bool:
        """False if the caller has left before anything was done: then nothing is."""
        if self.claim():
            return True
        self.work.close()
        return False

    def advance(self, database: Database) -> Transaction[Any] | None:
        """Go on until the coroutine asks for a write (returned) or ends; reads are done here."""
        while True:
            try:
                if self.error is not None:
                    wanted = self.context.run(self.work.throw, self.error)
                else:
                    wanted = self.context.run(self.work.send, self.sent)
            except StopIteration as end:
                self.sent, self.error, self.ended = end.value, None, True
                return None
            except BaseException as error:
                self.sent, self.error, self.ended = None, error, True
                return None
            self.sent, self.error = None, None
            if wanted.writes:
                return wanted  # type: ignore[no-any-return]
            try:
                self.sent = database._read(wanted)
            except BaseException as error:
                self.error = error

    def _give(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.sent)


Inbox = queue.SimpleQueue[_Job | None]


class _Workers:
    """Two daemon threads, started when first needed: one for writes, one for reads.

    A waiting thread holds its inbox and nothing else, so a database that nobody uses any more
    can go; a daemon never keeps the interpreter from ending.
    """

    def __init__(self) -> None:
        self._inboxes: dict[bool, Inbox] = {}
        self._starting = threading.Lock()

    def submit(self, job: _Job, writes: bool) -> None:
        with self._starting:  # not behind the end that `stop` puts there
            inbox = self._inboxes.get(writes) or self._start(writes)
            inbox.put(job)

    def _start(self, writes: bool) -> Inbox:
        inbox: Inbox = queue.SimpleQueue()
        name = f"langgraph_durable {'writes' if writes else 'reads'}"
        threading.Thread(target=_serve, args=(inbox, writes), name=name, daemon=True).start()
        self._inboxes[writes] = inbox
        return inbox

    def stop(self) -> None:
        with self._starting:
            for inbox in self._inboxes.values():
                inbox.put(None)
            self._inboxes.clear()


def _serve(inbox: Inbox, together: bool) -> None:
    """The life of a worker: all waiting jobs together (writes), or one after another (reads)."""
    while True:
        jobs, stop = waiting(inbox, sys.maxsize if together else 1)
        if jobs:
            database = jobs[0].database
            assert database is not None
            database._serve(jobs)
            for each in jobs:
                each.database = None
            del database, each
        del jobs
        if stop:
            return


def _let_go(connections: Connections, workers: _Workers, turn: threading.Lock) -> None:
    """Stop and close; at the end of the interpreter too, but not under a write that still runs."""
    workers.stop()
    if turn.acquire(timeout=1):
        try:
            with contextlib.suppress(sqlite3.Error):
                connections.close()
        finally:
            turn.release()


_databases: weakref.WeakSet[Database] = weakref.WeakSet()


_paused: list[Database] = []
_forking = threading.Lock()


def _before_fork() -> None:
    _forking.acquire()  # one fork at a time
    _paused[:] = sorted(_databases, key=id)
    for database in _paused:
        database.before_fork()


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().after_fork_in_parent()
    _forking.release()


def _after_fork_in_child() -> None:
    while _paused:
        _paused.pop().after_fork_in_child()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
