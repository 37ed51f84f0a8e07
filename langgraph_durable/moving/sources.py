"""What can be asked of the store behind a saver that is known; `queries` knows which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from langgraph_durable.moving.colours import Colour

Rows = list[tuple[Any, ...]]


class Place(NamedTuple):
    """The key of a checkpoint."""

    thread_id: str
    ns: str
    id: str


class Writing(NamedTuple):
    """A pending write as it is stored; these sort as pending writes do."""

    path: str
    task_id: str
    idx: int
    run: str | None = None
    write: tuple[str, str, Any] | None = None
    """Task id, channel and value, where they were looked up too."""
    version: int | None = None
    """The schema version of the program that made it."""


class Source(NamedTuple):
    """How the store of one class of savers is asked; each may answer None."""

    threads: Callable[[Colour, Any], Awaitable[Rows | None]]
    keys: Callable[[Colour, Any, str], Awaitable[Rows | None]]
    """Namespace, id and parent of each checkpoint of a thread."""
    writes: Callable[[Colour, Any, Place], Awaitable[list[Writing] | None]]
