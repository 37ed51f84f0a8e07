"""Pending writes, task by task, with their task paths and indices.

LangGraph's interface returns pending writes in order, without the path that orders them. Where a
saver is known, what it has stored is looked up (`queries`); where it is not, writes are given paths
that keep them in the order in which they came, if their task ids alone would not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph_durable.moving.sources import Writing

Write = tuple[str, str, Any]
"""Task id, channel and value, as LangGraph has it."""


@dataclass(frozen=True, slots=True)
class TaskWrites:
    """The writes of one task to one checkpoint."""

    task_id: str
    path: str
    run: str | None
    indices: tuple[int, ...] | None
    """None where only their order is known."""
    pairs: tuple[tuple[str, Any], ...]
    version: int | None = None
    """Their schema version, where it may be another than their checkpoint's."""

    def arranged(self) -> list[tuple[str, Any]]:
        """The pairs so that, as far as possible, the position of each is its index.

        Special writes have negative indices; where they came in one call with others, they have
        left gaps among the positions.
        """
        if self.indices is None:
            return list(self.pairs)
        placed = sorted(zip(self.indices, self.pairs, strict=True), key=lambda each: each[0])
        special = [pair for idx, pair in placed if idx < 0]
        out: list[tuple[str, Any]] = []
        for idx, pair in placed:
            if idx >= 0:
                while len(out) < idx and special:
                    out.append(special.pop(0))
                out.append(pair)
        return [*out, *special]


def by_task(writes: Iterable[Write], known: Sequence[Writing] | None) -> tuple[TaskWrites, ...]:
    """Pending writes, task by task; `known` tells more of each, in the same order."""
    listed = list(writes)
    if known and all(each.write is not None for each in known):
        listed = [each.write for each in known if each.write is not None]
    if known is None or [k.task_id for k in known] != [task_id for task_id, _, _ in listed]:
        return _in_order(listed)
    found: dict[tuple[Any, ...], list[tuple[int, tuple[str, Any]]]] = {}
    for more, (_, channel, value) in zip(known, listed, strict=True):
        own = found.setdefault((more.task_id, more.path, more.run, more.version), [])
        own.append((more.idx, (channel, value)))
    return tuple(
        TaskWrites(id, path, run, tuple(n for n, _ in own), tuple(pair for _, pair in own), version)
        for (id, path, run, version), own in found.items()
    )


def _in_order(writes: Sequence[Write]) -> tuple[TaskWrites, ...]:
    found: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in writes:
        found.setdefault(task_id, []).append((channel, value))
    is_sorted = list(found) == sorted(found)
    return tuple(
        TaskWrites(task_id, "" if is_sorted else f"{n:08}", None, None, tuple(pairs))
        for n, (task_id, pairs) in enumerate(found.items())
    )
