"""The steps of a thread without their values, newest first, from any saver.

A `Header` is what can be shown of a checkpoint before anybody asks for its values. `Source` reads
headers by pages. On our own savers a page costs no values at all; of other savers a page of `list`
is read and its values are dropped at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_durable.errors import ConfigurationError

SENDS = "__pregel_tasks"
INTERRUPT, ERROR, RESUME = "__interrupt__", "__error__", "__resume__"
CONTROL = {INTERRUPT, ERROR, RESUME, "__error_source_node__"}
"""Writes that tell what happened to a task, not what it produced."""
NULL_TASK = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Header:
    """A checkpoint without its values."""

    thread_id: str
    ns: str
    id: str
    parent: str | None
    created_at: datetime | None
    metadata: Mapping[str, Any]
    versions: Mapping[str, Any]
    seen: Mapping[str, Mapping[str, Any]]
    updated: tuple[str, ...] | None
    """Channels that the step changed, where LangGraph noted them."""
    writes: tuple[tuple[str, str], ...] = field(default=())
    """(task, channel) of the pending writes."""
    damage: str | None = None
    """What is wrong with it, if the saver cannot read it."""

    @property
    def source(self) -> str:
        return str(self.metadata.get("source", ""))

    @property
    def config(self) -> dict[str, Any]:
        return config_of(self.thread_id, self.ns, self.id)

    def wrote(self, channel: str) -> bool:
        """Whether a task wrote to this channel after the step."""
        return any(name == channel for _, name in self.writes)

    def open_interrupts(self) -> bool:
        """Whether a task asked something and has not finished since."""
        done = {task for task, channel in self.writes if channel not in CONTROL}
        return any(ch == INTERRUPT and task not in done for task, ch in self.writes)


def config_of(thread_id: str, ns: str | None = None, id: str | None = None) -> dict[str, Any]:
    """The config that names a thread, a namespace, a checkpoint."""
    named = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id}
    return {"configurable": {key: value for key, value in named.items() if value is not None}}


def moment(text: Any) -> datetime | None:
    """A checkpoint's timestamp, aware; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def header_of(found: CheckpointTuple) -> Header:
    """The header of a checkpoint that was read whole."""
    at, checkpoint = found.config["configurable"], found.checkpoint
    parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    updated = checkpoint.get("updated_channels")
    return Header(
        str(at["thread_id"]),
        at.get("checkpoint_ns", ""),
        str(at["checkpoint_id"]),
        None if parent is None else str(parent),
        moment(checkpoint.get("ts")),
        dict(found.metadata or {}),
        checkpoint.get("channel_versions") or {},
        checkpoint.get("versions_seen") or {},
        None if updated is None else tuple(updated),
        tuple((task, channel) for task, channel, _ in found.pending_writes or ()),
    )


def header_of_outline(found: Any) -> Header:
    """The header of one of our own outlines."""
    updated = found.rest.get("updated_channels")
    return Header(
        found.thread_id,
        found.ns,
        found.id,
        found.parent,
        moment(found.ts),
        found.metadata,
        found.header.versions,
        found.header.seen,
        None if updated is None else tuple(updated),
        tuple((write.task_id, write.channel) for write in found.writes),
        found.damage,
    )


class Source:
    """Headers of one thread, from any saver."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread_id: str) -> None:
        self.saver, self.thread_id = saver, thread_id
        self._outlines: Any = getattr(saver, "_outlines", None)
        self.reads = 0
        """Headers read so far."""

    @property
    def tells_all(self) -> bool:
        """Whether `steps` gives the steps of sub-graphs too, which costs next to nothing on ours.

        Other savers list them in no order that could be relied on, and read their values.
        """
        return self._outlines is not None

    def steps(self, before: str | None, many: int) -> tuple[list[Header], list[Header]]:
        """The newest steps below `before`, and those of the sub-graphs that ran from them."""
        own: list[Header] = []
        inner: list[Header] = []
        if not self.tells_all:
            return list(self._read("", before, many)), inner
        for header in self._read(None, before, None):
            (inner if header.ns else own).append(header)
            if len(own) == many:  # a sub-graph's steps are newer than the one it ran from
                break
        return own, inner

    def below(self) -> list[Header]:
        """The steps of all sub-graphs."""
        return [header for header in self._read(None, None, None) if header.ns]

    def one(self, id: str, ns: str = "") -> Header | None:
        """A single step."""
        return next(self._read(ns, None, 1, id), None)

    def latest(self) -> Header | None:
        """What the thread would go on from."""
        found = self.whole(None)
        return None if found is None else header_of(found)

    def whole(self, id: str | None, ns: str = "") -> CheckpointTuple | None:
        """A checkpoint with its values."""
        with looking(self.saver):
            return self.saver.get_tuple(
                config_of(self.thread_id, ns, id)  # type: ignore[arg-type]
            )

    def paths(self, id: str, ns: str) -> dict[str, str]:
        """The paths of the tasks that wrote to a checkpoint, where the saver tells them."""
        if self._outlines is None:
            return {}
        found = self._outlines(config_of(self.thread_id, ns, id), before=None, limit=1)
        return {write.task_id: write.path for one in found for write in one.writes}

    def _read(
        self, ns: str | None, before: str | None, limit: int | None, id: str | None = None
    ) -> Iterator[Header]:
        config: Any = config_of(self.thread_id, ns, id)
        start: Any = None if before is None else config_of(self.thread_id, ns, before)
        found: Iterable[Header]
        if self._outlines is not None:
            found = map(header_of_outline, self._outlines(config, before=start, limit=limit))
        else:
            found = map(header_of, self.saver.list(config, before=start, limit=limit))
        with looking(self.saver):
            for header in found:
                self.reads += 1
                yield header


@contextmanager
def looking(saver: Any) -> Iterator[None]:
    """Say what to do where a saver of the async kind refuses to be read on its own loop."""
    try:
        yield
    except asyncio.InvalidStateError as error:
        raise ConfigurationError(
            f"looking is synchronous, and {type(saver).__name__} refuses sync calls on its own "
            "event loop: look from a thread, as in `await asyncio.to_thread(repr, tl)`"
        ) from error
