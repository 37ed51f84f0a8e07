"""A checkpoint without its values: what listings, timelines and retention rules look at.

An outline is read from the row and its pending writes alone; no item is fetched or decoded, so it
costs the same whatever the values weigh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from langgraph_durable._core import lineage
from langgraph_durable._core.header import Header
from langgraph_durable._core.records import Loaded
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable.errors import CorruptionError


class OutlinedWrite(NamedTuple):
    """Who wrote to which channel."""

    task_id: str
    channel: str
    path: str
    schema: int | None = None
    """The version of the program that wrote it, if that is known."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A stored checkpoint without its values."""

    thread_id: str
    ns: str
    id: str
    parent: str | None
    run: str | None
    header: Header
    """Versions, what each node has seen, and which items each channel needs."""
    rest: Mapping[str, Any]
    """The checkpoint's other keys, such as `ts`."""
    metadata: Mapping[str, Any]
    writes: tuple[OutlinedWrite, ...]
    """Pending writes, in the order LangGraph applies them."""
    size: int
    """Stored bytes of the row itself, without items and writes."""
    orphan: bool
    """It names a parent that is not stored."""
    damage: str | None = None
    """What is wrong with the row, if it cannot be read; what it says of itself is then missing."""

    @property
    def ts(self) -> str | None:
        """When it was made, as LangGraph spells it."""
        return self.rest.get("ts")


def outline(loaded: Loaded, plain: ExactSerializer) -> Outline:
    """The outline of a row, verified against its place; raises `CorruptionError`."""
    row, thread_id = loaded.row, loaded.thread_id
    header = lineage.read_row(thread_id, row)
    return Outline(
        thread_id=thread_id,
        ns=row.ns,
        id=row.id,
        parent=row.parent,
        run=row.run,
        header=header,
        rest=plain.loads_typed(("x1", header.rest)),
        metadata=plain.loads_typed(("x1", header.metadata)),
        writes=tuple(
            OutlinedWrite(write.task_id, write.ref.channel, write.path, write.schema)
            for write in lineage.pending(thread_id, loaded.writes)
        ),
        size=len(row.refs) + len(row.body),
        orphan=loaded.orphan,
    )


def damaged(loaded: Loaded, error: CorruptionError) -> Outline:
    """What is left of a row that cannot be read: where it stands, and why."""
    row = loaded.row
    return Outline(
        thread_id=loaded.thread_id,
        ns=row.ns,
        id=row.id,
        parent=row.parent,
        run=None,
        header=Header({}, {}, {}, b"", b""),
        rest={},
        metadata={},
        writes=(),
        size=len(row.refs) + len(row.body),
        orphan=loaded.orphan,
        damage=str(error),
    )
