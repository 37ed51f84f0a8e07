"""What happened in a thread, in figures: for tests and tools that need no notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from langgraph_durable.timeline import lineage
from langgraph_durable.timeline.headers import ERROR, INTERRUPT

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step


@dataclass(frozen=True, slots=True)
class Summary:
    """Some steps of a thread in figures."""

    steps: int
    branches: int
    first: datetime | None
    last: datetime | None
    nodes: Mapping[str, int]
    """How often each node ran, most first."""
    seconds: Mapping[str, float]
    """How long the steps of each node took together, most first."""
    asked: int
    """Steps at which something was asked."""
    waiting: int
    """Those of them that have no answer yet; of forks too."""
    failed: int
    """Steps from which a run failed."""
    tags: Mapping[str, int]


def summary(steps: Iterable[Step]) -> Summary:
    """Steps in figures: of a whole timeline, or of `tl[-20:]`; reads no values but open `Send`s.

    >>> summary([]).steps
    0
    """
    steps = list(steps)
    headers = [step.header for step in steps]
    times = sorted(step.created_at for step in steps if step.created_at is not None)
    ran = Counter(node for step in steps for node in step.nodes if not node.startswith("__"))
    return Summary(
        steps=len(steps),
        branches=len(lineage.branches(headers)),
        first=times[0] if times else None,
        last=times[-1] if times else None,
        nodes=dict(ran.most_common()),
        seconds=time_per_node(steps),
        asked=sum(header.wrote(INTERRUPT) for header in headers),
        waiting=sum(step.is_waiting for step in steps),
        failed=sum(header.wrote(ERROR) for header in headers),
        tags=dict(Counter(tag for step in steps for tag in step.tags).most_common()),
    )


def time_per_node(steps: Iterable[Step]) -> dict[str, float]:
    """Seconds by node, most first."""
    found: dict[str, float] = {}
    for step in steps:
        if step.took is not None:
            found[step.node] = found.get(step.node, 0.0) + step.took.total_seconds()
    return dict(sorted(found.items(), key=lambda one: -one[1]))
