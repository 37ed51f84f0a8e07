"""Where a checkpoint is, and what the caller gets of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from langgraph_durable._core.authors import Author, KnownWrite
from langgraph_durable._core.evolution import Edited


class Place(NamedTuple):
    """Where a checkpoint is, or is to be."""

    thread_id: str
    ns: str
    id: str | None


class Restored(NamedTuple):
    """A checkpoint as the caller gets it; everything in it is fresh."""

    place: Place
    parent: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[tuple[str, str, Any]]
    origin: bytes | None = None
    """The note of the program that stored it."""
    known: tuple[KnownWrite, ...] = ()
    """Its pending writes, as they are stored and as they are given out."""
    author: Author | None = None
    """Who made it, if that matters."""
    edited: Edited | None = None
    """How it was brought to this version, if it was of another one."""
