"""Runs the engine's coroutines on Redis, for sync and async callers, threads, loops and forks.

A coroutine runs until it asks for a `Request`; the request is carried out and the replies sent
back in. A sync caller does that in its own thread (`finish`). An async caller hands the coroutine
to a worker thread, one hop for everything (`run`): serialising and waiting both happen off the
loop, whichever loop it is, and what waits at the same moment shares a round trip. Only where the
user has given an asyncio client, the waiting is done by that client, on its loop.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from langgraph_durable._redis.carriers import Carrier, Outcome
from langgraph_durable._redis.loops import LoopCarrier
from langgraph_durable._redis.marks import Marks
from langgraph_durable._redis.requests import Request
from langgraph_durable._workers import Job, deliver, waiting
from langgraph_durable.errors import ConfigurationError, StorageError

T = TypeVar("T")
Work = Coroutine[Any, Any, T]

WORKERS = 4
"""Threads for async callers of one server: while one waits for a reply, the next fills a batch.

So none takes all that waits: where a server is 2 ms away, everybody would wait for it together.
"""
WORKERS_OF_A_CLUSTER = 16
"""In a cluster each call waits for its own node."""
BATCH = 64


class Driver:
    """One store and everybody who uses it; see the top of the file."""

    def __init__(
        self, marks: Marks, name: str, carrier: Carrier | None, on_loop: LoopCarrier | None
    ) -> None:
        self.name, self._marks = name, marks
        self._carrier, self._on_loop = carrier, on_loop
        self._closed = False
        self._workers = self._new_workers()
        self._release = weakref.finalize(self, _Workers.stop, self._workers)
        _drivers.add(self)

    def _new_workers(self) -> _Workers:
        is_cluster = self._carrier is not None and self._carrier.source.is_cluster
        return _Workers(WORKERS_OF_A_CLUSTER if is_cluster else WORKERS, 1 if is_cluster else BATCH)

    def finish(self, work: Work[T]) -> T:
        """Run a coroutine to its end in this thread."""
        self._check_open(work)
        carrier = self._carrier
        if carrier is None:
            work.close()
            raise ConfigurationError(
                "this saver has an asyncio client only, so it serves async calls only: use the "
                "a-methods, or pass client= as well"
            )
        step: Callable[[Any], Any] = work.send
        sent: Any = None
        try:
            while True:
                [sent] = carrier.carry_out([step(sent)])
                step = work.throw if isinstance(sent, BaseException) else work.send
        except StopIteration as end:
            return cast("T", end.value)

    async def run(self, work: Work[T], *, writes: bool) -> T:
        """Run a coroutine to its end.

        If the caller is cancelled, what has not begun never will; a write that is on its way to
        the server is ended first, so that the caller knows that nothing of it comes later.
        """
        self._check_open(work)
        on_loop = self._on_loop
        if on_loop is None:
            job = _Job(self._carrier, work)
            self._workers.submit(job)
            return await job.outcome(whole=writes)  # type: ignore[no-any-return]
        sent: Any = None
        while True:
            job = _Job(None, work, sent)
            self._workers.submit(job)
            wanted = await job.outcome(whole=False)
            if job.ended:
                return wanted  # type: ignore[no-any-return]
            going = asyncio.ensure_future(on_loop.carry_out(wanted))
            try:
                sent = await asyncio.shield(going)
            except asyncio.CancelledError:
                if writes:
                    await asyncio.wait([going])
                raise

    def open(self) -> None:
        """Connect, which the first use would do as well."""

        async def ping() -> None:
            await Request("", [("PING",)])

        if self._carrier is not None:
            self.finish(ping())

    def _check_open(self, work: Work[Any]) -> None:
        if self._closed:
            work.close()
            raise StorageError(f"{self.name}: this saver is closed")

    def close(self) -> None:
        """Let go of everything. Twice is fine."""
        self._closed = True
        self._release()
        if self._carrier is not None:
            self._carrier.close()

    async def aclose(self) -> None:
        self.close()

    def after_fork_in_child(self) -> None:
        """In a child process: nothing of the parent's may be used, waited for or closed."""
        self._release.detach()
        self._marks.after_fork()
        self._workers = self._new_workers()
        self._release = weakref.finalize(self, _Workers.stop, self._workers)
        if self._carrier is not None:
            self._carrier.abandon()


class _Job(Job):
    """A coroutine of an async caller on its way through the workers, or a step of it."""

    __slots__ = ("carrier", "ended", "result", "sent", "work")

    def __init__(self, carrier: Carrier | None, work: Work[Any], sent: Any = None) -> None:
        super().__init__()
        self.carrier = carrier
        self.work = work
        self.sent = sent
        self.result: Any = None
        self.ended = False

    def starts(self) -> bool:
        """False if the caller has left before anything was done: then nothing is."""
        if self.claim():
            return True
        self.work.close()
        return False

    def advance(self) -> Request | None:
        """Go on until the coroutine asks for something (returned) or ends."""
        sent, self.sent = self.sent, None
        step = self.work.throw if isinstance(sent, BaseException) else self.work.send
        try:
            wanted: Request = self.context.run(step, sent)
            return wanted
        except StopIteration as end:
            self.result = end.value
        except BaseException as error:
            self.result = error
        self.ended = True
        return None

    def _give(self) -> None:
        if self.ended and isinstance(self.result, BaseException):
            self.future.set_exception(self.result)
        else:
            self.future.set_result(self.result)


def _serve(jobs: Sequence[_Job]) -> None:
    """Run several coroutines, each as far as it gets, and what they ask for together."""
    active = [job for job in jobs if job.starts()]
    while active:
        wanted = [(job, request) for job in active if (request := job.advance()) is not None]
        ready = [job for job in active if job.ended]
        by_carrier: dict[Carrier, list[tuple[_Job, Request]]] = {}
        for job, request in wanted:
            if job.carrier is None:  # an asyncio client will see to it
                job.result = request
                ready.append(job)
            else:
                by_carrier.setdefault(job.carrier, []).append((job, request))
        deliver(ready)
        active = []
        for carrier, some in by_carrier.items():
            outcomes: Sequence[Outcome] = carrier.carry_out([request for _, request in some])
            for (job, _), outcome in zip(some, outcomes, strict=True):
                job.sent = outcome
                active.append(job)


Inbox = queue.SimpleQueue[_Job | None]


class _Workers:
    """Daemon threads, started as they are needed. One that waits holds its inbox and no more."""

    def __init__(self, most: int, batch: int) -> None:
        self._most, self._batch = most, batch
        self._inbox: Inbox = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._starting = threading.Lock()

    def submit(self, job: _Job) -> None:
        if self._started < self._most and not self._idle.acquire(blocking=False):
            with self._starting:
                if self._started < self._most:
                    self._started += 1
                    threading.Thread(
                        target=_work,
                        args=(self._inbox, self._idle, self._batch, self._most),
                        name="langgraph_durable redis",
                        daemon=True,
                    ).start()
        self._inbox.put(job)

    def stop(self) -> None:
        with self._starting:
            for _ in range(self._started):
                self._inbox.put(None)
            self._started = 0


def _work(inbox: Inbox, idle: threading.Semaphore, batch: int, workers: int) -> None:
    """The life of a worker: its share of what waits, together; then again."""
    while True:
        jobs, stop = waiting(inbox, batch, workers)
        _serve(jobs)
        del jobs
        if stop:
            return
        idle.release()


_drivers: weakref.WeakSet[Driver] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
