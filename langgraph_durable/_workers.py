"""What the worker threads of both backends do alike: take what waits, and bring back what came out.

An async caller puts a job into an inbox and awaits its future. A worker takes `waiting` jobs,
serves them its own way, and lets `deliver` wake the callers' loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import Iterable
from typing import Protocol, TypeVar


class Job(Protocol):
    """What a caller waits for."""

    loop: asyncio.AbstractEventLoop

    def settle(self) -> None:
        """On the caller's loop: give it what came out."""


J = TypeVar("J", bound=Job)


def waiting(inbox: queue.SimpleQueue[J | None], most: int) -> tuple[list[J], bool]:
    """Up to `most` jobs, at least one, and whether the worker is to stop after them.

    None in an inbox is its end; then there may be no job.
    """
    job = inbox.get()
    jobs: list[J] = []
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
