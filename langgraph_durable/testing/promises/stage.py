"""What every promise stands on: a saver of either colour, and the words the tests are written in.

A test is an `async def` under `@promise`, takes the fixture `saver` and awaits its methods; it
runs once on an event loop and once without any. Checkpoints are told by number: `put(saver, "t",
2, parent=1)` stores one, `numbers(saver, at("t"))` lists what is there, newest first.

All themes end up in one class, so they hold nothing but tests: what helps is a plain function.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_durable.testing.model import Colour, Coloured, at, checkpoint, finish, numbered

Another = Callable[[], Coloured]


def promise(body: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine that takes `saver` into a test that runs in the saver's colour."""

    @functools.wraps(body)  # pytest reads the fixtures off the wrapped signature
    def test(self: Any, **given: Any) -> None:
        finish(given["saver"].colour, body(self, **given))

    return test


class Stage:
    """How a test gets its savers."""

    def make_saver(self, directory: Path) -> BaseCheckpointSaver[Any]:
        """Open the store that belongs to `directory`: the same one at every call."""
        raise NotImplementedError("say how to make a saver")

    def close_saver(self, saver: BaseCheckpointSaver[Any]) -> None:
        """Let go of a saver at the end of a test."""
        close = getattr(saver, "close", None)
        if close is not None:
            close()

    @pytest.fixture(params=["sync", "async"])
    def colour(self, request: pytest.FixtureRequest) -> Colour:
        colour: Colour = request.param
        return colour

    @pytest.fixture
    def another(self, colour: Colour, tmp_path: Path) -> Iterator[Another]:
        """Opens the test's store once more, as another process would."""
        with ExitStack() as opened:

            def open_once_more() -> Coloured:
                saver = self.make_saver(tmp_path)
                opened.callback(self.close_saver, saver)
                return Coloured(saver, colour)

            yield open_once_more

    @pytest.fixture
    def saver(self, another: Another) -> Coloured:
        """The saver under test, on an empty store."""
        return another()


def version(n: int) -> str:
    """The n-th version of a channel, in the form LangGraph's own savers make."""
    return f"{n:032}.{0:016}"


async def put(
    saver: Coloured,
    thread: Any,
    n: int,
    values: Mapping[str, Any] | None = None,
    *,
    parent: int | None = None,
    ns: str = "",
    inherits: Mapping[str, int] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> RunnableConfig:
    """Store checkpoint `n`: `values` at version `n`, other channels as they were at `inherits`."""
    new = dict.fromkeys(values or {}, version(n))
    versions = {**{channel: version(of) for channel, of in (inherits or {}).items()}, **new}
    stored: RunnableConfig = await saver.put(
        at(thread, None if parent is None else numbered(parent), ns=ns),
        checkpoint(numbered(n), values, versions),
        dict(metadata or {}),
        new,
    )
    return stored


async def put_line(saver: Coloured, thread: Any, count: int, *, ns: str = "") -> None:
    """Store checkpoints 1 to `count`, each the child of the one before, with a list that grows."""
    for n in range(1, count + 1):
        items = [f"item {k}" for k in range(n)]
        parent = n - 1 or None
        await put(saver, thread, n, {"items": items}, parent=parent, ns=ns, metadata={"step": n})


async def write(
    saver: Coloured,
    thread: Any,
    n: int,
    writes: Sequence[tuple[str, Any]],
    task: str = "task",
    path: str = "",
    *,
    ns: str = "",
    run: str | None = None,
) -> None:
    """Store pending writes of a task on checkpoint `n`, maybe in the name of a run."""
    config = at(thread, numbered(n), ns=ns)
    if run is not None:
        config["metadata"] = {"run_id": run}
    await saver.put_writes(config, writes, task, path)


async def load(
    saver: Coloured, thread: Any, n: int | None = None, *, ns: str = ""
) -> CheckpointTuple:
    """Checkpoint `n`, or the latest; it must be there."""
    found = await saver.get_tuple(at(thread, None if n is None else numbered(n), ns=ns))
    assert isinstance(found, CheckpointTuple)
    return found


async def values(saver: Coloured, thread: Any, n: int | None = None, *, ns: str = "") -> Any:
    """The channel values of checkpoint `n`, or of the latest."""
    return (await load(saver, thread, n, ns=ns)).checkpoint["channel_values"]


def number(found: CheckpointTuple) -> int:
    """The number of a checkpoint; the reverse of `numbered`."""
    return int(found.checkpoint["id"][:8], 16)


def parent_of(found: CheckpointTuple) -> str | None:
    if found.parent_config is None:
        return None
    parent: str = found.parent_config["configurable"]["checkpoint_id"]
    return parent


async def numbers(saver: Coloured, config: RunnableConfig | None, **how: Any) -> list[int]:
    """The numbers `list` gives, in its order."""
    return [number(found) for found in await saver.list(config, **how)]


async def everything(saver: Coloured, thread: Any) -> list[CheckpointTuple]:
    """All that can be read of a thread, in all namespaces, in an order of its own."""
    found = await saver.list(at(thread, ns=None))
    return sorted(found, key=lambda t: (t.config["configurable"]["checkpoint_ns"], number(t)))


async def together(saver: Coloured, acts: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    """Perform all `acts` at once: on eight threads, or as tasks of the event loop."""

    async def perform(act: Callable[[], Awaitable[Any]]) -> None:
        await act()

    if saver.colour == "async":
        await asyncio.gather(*map(perform, acts))
    else:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda act: finish("sync", perform(act)), acts))
