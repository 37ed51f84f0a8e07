"""Daemon threads that prune: all threads now and then, or those that were written a lot.

They call nothing but plain functions they are given, log what fails, and never keep a process from
ending. A fork leaves them behind; the child starts its own when it needs one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from langgraph_durable.errors import DurableError

logger = logging.getLogger("langgraph_durable")


class Stopped(Exception):
    """Raised inside the work to end it."""


class Rounds:
    """Does `work` every `interval` seconds; what it is given to call in between may end it."""

    def __init__(self, work: Callable[[Callable[[], None]], object], interval: float) -> None:
        self._work, self._interval = work, interval
        self._ended = threading.Event()
        self._thread = _daemon(self._run)

    def _check(self) -> None:
        if self._ended.is_set():
            raise Stopped

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._work(self._check)
            except Stopped:
                return
            except DurableError as error:
                logger.warning("background pruning: %s", error)
            except Exception:
                logger.exception("background pruning")
            self._ended.wait(self._interval)

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join()


class Queue:
    """Does `work` for each thread that is added, in a daemon thread that ends when none is left."""

    def __init__(self, work: Callable[[str], object]) -> None:
        self._work = work
        self._stopped = False
        self._begin()

    def _begin(self) -> None:
        self._waiting: dict[str, None] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def _after_fork(self) -> None:
        """What the parent waits for is its own to do; who held its lock is not here."""
        if self._process != os.getpid():
            self._begin()

    def add(self, thread_id: str) -> None:
        self._after_fork()
        with self._lock:
            if self._stopped:
                return
            self._waiting[thread_id] = None
            if self._thread is None:
                self._thread = _daemon(self._run)

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._stopped or not self._waiting:
                    self._thread = None
                    return
                thread_id = next(iter(self._waiting))
                del self._waiting[thread_id]
            try:
                self._work(thread_id)
            except DurableError as error:  # the next time it is added, it is tried again
                logger.warning("retention of thread %r: %s", thread_id, error)
            except Exception:
                logger.exception("retention of thread %r", thread_id)

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """End after the thread it is at; what else waits is left to later puts."""
        self._after_fork()
        with self._lock:
            self._stopped = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


def _daemon(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name="langgraph_durable pruning", daemon=True)
    thread.start()
    return thread
