"""Putting values that leave the row, and looking at what is in a store."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from langgraph_durable.artifacts import sweeping
from langgraph_durable.artifacts.stores import ArtifactStore, Found
from langgraph_durable.saver import DurableSaver

BIG = "a long tool result " * 30_000
NOISE = os.urandom(400_000)


def config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def made(values: dict[str, Any], version: int = 1) -> tuple[Any, Any, Any]:
    versions = dict.fromkeys(values, f"{version:032}.0")
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    return checkpoint, {"step": version}, versions


def put(saver: DurableSaver, thread: str, values: dict[str, Any], *, after: Any = None) -> Any:
    return saver.put(after or config(thread), *made(values))


def values(saver: DurableSaver, thread: str) -> dict[str, Any]:
    found = saver.get_tuple(config(thread))
    assert found is not None
    return found.checkpoint["channel_values"]


def objects(store: ArtifactStore, saver: DurableSaver) -> list[Found]:
    """What the store holds for a saver, without marks."""
    ids = saver._shelf.names
    return [one for id in ids for one, _ in sweeping.objects(store, id)]


@contextlib.contextmanager
def full_disk(most: int = 300_000) -> Iterator[None]:
    """No file of this process grows beyond what a database needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
