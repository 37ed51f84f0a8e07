"""Retention as threads are written: now and then a put is followed by a step of pruning.

A step looks at the whole thread, so the next one comes after as many puts as checkpoints were
left: each put pays for about one. A long thread is left to a daemon thread. Savers that LangGraph
copies share one `Steps`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

from langgraph_durable._core.pruning import Policed, Pruner, by_policy
from langgraph_durable._core.units import shown_bytes
from langgraph_durable.background import Queue
from langgraph_durable.errors import DurableError

T = TypeVar("T")
logger = logging.getLogger("langgraph_durable")

STEP = 32
"""Puts to a thread between two steps, at least."""
SHORT = 256
"""Checkpoints up to which a thread is pruned inside the put; longer ones in the background."""
MOST_COUNTED = 10_000


class Backend(Protocol):
    """Runs coroutines over a storage: to the end at once, or for an event loop."""

    def finish(self, work: Coroutine[Any, Any, T]) -> T: ...
    async def run(self, work: Coroutine[Any, Any, T], *, writes: bool) -> T: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class Finishing:
    """Carries out the steps of a flow where they are."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def __call__(self, step: Coroutine[Any, Any, T], /, *, writes: bool = True) -> T:
        return self._backend.finish(step)

    async def rest(self, seconds: float) -> None:
        time.sleep(seconds)


class Running:
    """Carries out the steps of a flow off the event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def __call__(self, step: Coroutine[Any, Any, T], /, *, writes: bool = True) -> T:
        return await self._backend.run(step, writes=writes)

    async def rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def finished(flow: Coroutine[Any, Any, T]) -> T:
    """The result of a flow that awaits nothing but steps that are finished where they are."""
    try:
        flow.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise RuntimeError("a sync flow suspended")


class Steps:
    """Counts puts, and prunes and warns when it is time."""

    def __init__(
        self, pruner: Pruner, backend: Backend, policy: Policed | None, warn_bytes: int | None
    ) -> None:
        self._pruner, self._backend = pruner, backend
        self._policy, self._warn_bytes = policy, warn_bytes
        self._puts: dict[str, int] = {}
        """How many puts are left until the next step, by thread."""
        self._queue = Queue(_stepping(weakref.ref(self)))

    async def after_put(self, thread_id: str) -> None:
        left = self._puts.get(thread_id)
        if left is None:
            # Processes that write little begin anywhere, so that steps come all the same.
            left = random.Random().randrange(STEP)
            if len(self._puts) >= MOST_COUNTED:
                self._puts.clear()
        if left > 0:
            self._puts[thread_id] = left - 1
            return
        self._puts[thread_id] = STEP
        try:
            if await self._pruner.is_longer(thread_id, SHORT):
                self._queue.add(thread_id)
            else:
                await self._step(thread_id)
                await self._warn(thread_id)
        except DurableError as error:  # the put is stored; the next step tries again
            logger.warning("retention of thread %r: %s", thread_id, error)

    async def _step(self, thread_id: str) -> None:
        if self._policy is not None:
            done = await self._pruner.once(thread_id, by_policy(self._policy), time.time())
            self._puts[thread_id] = max(STEP, done.left)

    async def _shorten(self, thread_id: str) -> None:
        """The same for a long thread, in steps; not to be run inside of anything else."""
        do = Finishing(self._backend)
        if self._policy is not None:
            choice = by_policy(self._policy)
            async for done in self._pruner.shorten(do, thread_id, choice, time.time()):
                self._puts[thread_id] = max(STEP, done.left)
                if self._queue.is_stopped:
                    return
        await do(self._warn(thread_id))

    async def _warn(self, thread_id: str) -> None:
        if self._warn_bytes is None:
            return
        found = await self._pruner.measure(thread_id)
        if found is None:
            return
        self._puts[thread_id] = max(STEP, found.checkpoints)
        if found.bytes > self._warn_bytes:
            logger.warning(
                "thread %r holds %s in %d checkpoints, above warn_bytes=%s",
                thread_id,
                shown_bytes(found.bytes),
                found.checkpoints,
                shown_bytes(self._warn_bytes),
            )

    def stop(self) -> None:
        self._queue.stop()


def _stepping(steps: weakref.ref[Steps]) -> Callable[[str], None]:
    """The work of the queue, which does not keep the savers it works for alive."""

    def work(thread_id: str) -> None:
        alive = steps()
        if alive is not None:
            finished(alive._shorten(thread_id))

    return work
