"""One flow for sync and async callers.

A flow is a coroutine that leaves what differs to its `Colour`: running a step of one of our
engines, calling a method of any saver, reading a file. `NOW` does all of it where it is and never
suspends; `LATER` awaits, and hands what would block to a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.saver import DurableSaver

T = TypeVar("T")
Saver = BaseCheckpointSaver[Any]
Step = Coroutine[Any, Any, T]


class Colour(Protocol):
    async def do(self, saver: DurableSaver, step: Step[T], *, writes: bool = False) -> T:
        """A step of the engine of one of our savers."""

    async def aside(self, act: Callable[..., T], *args: Any) -> T:
        """Something that may block."""

    async def call(self, saver: Saver, method: str, *args: Any) -> Any:
        """A method of any saver, by its sync name."""

    def list(self, saver: Saver, config: Any) -> AsyncIterator[Any]:
        """What a saver lists."""


class _Now:
    async def do(self, saver: DurableSaver, step: Step[T], *, writes: bool = False) -> T:
        return saver._backend.finish(step)

    async def aside(self, act: Callable[..., T], *args: Any) -> T:
        return act(*args)

    async def call(self, saver: Saver, method: str, *args: Any) -> Any:
        try:
            return getattr(saver, method)(*args)
        except (NotImplementedError, asyncio.InvalidStateError) as error:
            raise _wrong_colour(saver, error) from error

    async def list(self, saver: Saver, config: Any) -> AsyncIterator[Any]:
        try:
            for found in saver.list(config):
                yield found
        except (NotImplementedError, asyncio.InvalidStateError) as error:
            raise _wrong_colour(saver, error) from error


class _Later:
    """Async, where the saver is; a saver that is not is used in a thread."""

    async def do(self, saver: DurableSaver, step: Step[T], *, writes: bool = False) -> T:
        return await saver._backend.run(step, writes=writes)

    async def aside(self, act: Callable[..., T], *args: Any) -> T:
        return await asyncio.to_thread(act, *args)

    async def call(self, saver: Saver, method: str, *args: Any) -> Any:
        try:
            return await getattr(saver, f"a{method}")(*args)
        except NotImplementedError:
            return await asyncio.to_thread(getattr(saver, method), *args)

    async def list(self, saver: Saver, config: Any) -> AsyncIterator[Any]:
        found = saver.alist(config)
        try:
            first = await anext(found, None)
        except NotImplementedError:
            some = saver.list(config)
            while (one := await asyncio.to_thread(next, some, None)) is not None:
                yield one
            return
        if first is not None:
            yield first
            async for one in found:
                yield one


NOW: Colour = _Now()
LATER: Colour = _Later()


def finish(flow: Step[T]) -> T:
    """Run a flow under `NOW` to its end."""
    try:
        flow.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise RuntimeError("a sync flow suspended")


def _wrong_colour(saver: Saver, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{type(saver).__name__} cannot be used without an event loop: await acopy_store(...) "
        f"instead ({error})"
    )
