"""What the worker threads of both backends do alike: take what waits, and bring back what came out.

An async caller puts a job into an inbox and awaits its future. A worker takes `waiting` jobs,
serves them its own way, and lets `deliver` wake the callers' loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
from collections.abc import Iterable
from typing import Any, TypeVar


class Job:
    """What one caller waits for, on its own loop."""

    __slots__ = ("_end", "_unclaimed", "context", "future", "loop", "settled")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.context = contextvars.copy_context()
        self.settled = False
        self._unclaimed = [True]
        self._end: asyncio.Future[None] | None = None

    def claim(self) -> bool:
        """True for the first who asks: the worker, to begin; or the caller, to leave before."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    async def outcome(self, *, whole: bool) -> Any:
        """What came out. A caller that is cancelled leaves; what has not begun never will.

        `whole` waits for the end of what has begun, so that nothing of it comes later.
        """
        try:
            return await self.future
        except asyncio.CancelledError:
            if not self.claim() and whole and not self.settled:
                self._end = self.loop.create_future()
                await self._end
            raise

    def settle(self) -> None:
        """On the caller's loop: give it what came out."""
        self.settled = True
        if self._end is not None and not self._end.done():
            self._end.set_result(None)
        if not self.future.done():
            self._give()

    def _give(self) -> None:
        """Set the future."""
        raise NotImplementedError


FEW = 16
"""Jobs that one worker takes at once even if others could share them."""

J = TypeVar("J", bound=Job)


def waiting(
    inbox: queue.SimpleQueue[J | None], most: int, workers: int = 1
) -> tuple[list[J], bool]:
    """Up to `most` jobs, at least one, and whether the worker is to stop after them.

    Several `workers` share what waits, but for a few jobs, which are not worth it.
    None in an inbox is its end; then there may be no job.
    """
    job = inbox.get()
    jobs: list[J] = []
    if workers > 1:
        most = min(most, max(FEW, inbox.qsize() // workers + 1))
    while job is not None:
        jobs.append(job)
        if len(jobs) == most:
            break
        try:
            job = inbox.get_nowait()
        except queue.Empty:
            break
    return jobs, job is None


def deliver(ended: Iterable[Job]) -> None:
    """Wake each loop once for all its jobs. A loop that is closed wants nothing any more."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in ended:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.settle()
