"""Who descends from whom: plain functions of headers, for tests, tools and the tree shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph_durable.timeline.headers import Header


def parent_chain(headers: Mapping[str, Header], id: str) -> list[str]:
    """The ids from `id` up to its first ancestor that is known; a circle of parents ends it.

    >>> parent_chain({}, "a")
    []
    """
    chain: dict[str, None] = {}
    at: str | None = id
    while at is not None and at in headers and at not in chain:
        chain[at] = None
        at = headers[at].parent
    return list(chain)


def children(headers: Iterable[Header]) -> dict[str | None, list[str]]:
    """The ids of every step's successors, oldest first; under None those without a parent."""
    known = {header.id for header in headers}
    found: dict[str | None, list[str]] = {}
    for header in sorted(headers, key=lambda one: one.id):
        parent = header.parent if header.parent in known and header.parent != header.id else None
        found.setdefault(parent, []).append(header.id)
    return found


def common_ancestor(headers: Mapping[str, Header], one: str, other: str) -> str | None:
    """The newest step that both descend from."""
    above = set(parent_chain(headers, one))
    return next((id for id in parent_chain(headers, other) if id in above), None)


@dataclass(frozen=True, slots=True)
class Row:
    """A step in the tree as it is drawn, oldest first."""

    id: str
    lane: int
    """The column of its branch; 0 is the branch of the thread's latest state."""
    fork_of: str | None
    """The step it branches from, if it starts a branch."""


def rows(headers: Sequence[Header], head: str | None = None) -> list[Row]:
    """The tree in drawing order: a step, then its branches, each whole, then what goes on from it.

    The branch that leads to `head` (or else to the newest step) is the main line in lane 0; forks
    are one lane further in than the step they leave.
    """
    by_id = {header.id: header for header in headers}
    below = children(headers)
    newest = max(by_id, default=None)
    main = set(parent_chain(by_id, head if head in by_id else newest)) if newest else set()
    out: list[Row] = []
    drawn: set[str] = set()
    # Drawing is depth first with a stack of our own: 10,000 steps would be too deep to recurse.
    stack: list[tuple[str, int, str | None]] = [
        (id, 0 if id in main else 1, None) for id in sorted(below.get(None, ()), reverse=True)
    ]
    while stack:
        id, lane, fork_of = stack.pop()
        if id in drawn:
            continue
        drawn.add(id)
        out.append(Row(id, lane, fork_of))
        after = below.get(id, [])
        straight = next((one for one in after if one in main), after[0] if after else None)
        if straight is not None:
            stack.append((straight, lane, None))
        for fork in reversed([one for one in after if one != straight]):
            stack.append((fork, lane + 1, id))
    for id in sorted(set(by_id) - drawn):  # parents in a circle: shown all the same
        out.append(Row(id, 1, by_id[id].parent))
    return out


def branches(headers: Sequence[Header]) -> list[list[str]]:
    """Every branch from its fork (or the beginning) to its end, oldest first.

    A branch of a branch is a branch of its own, so each id occurs once.
    """
    found: list[list[str]] = []
    at: dict[int, list[str]] = {}
    for row in rows(headers):
        if row.fork_of is not None or row.lane not in at:
            at[row.lane] = []
            found.append(at[row.lane])
        at[row.lane].append(row.id)
    return found


def ran(header: Header, parent: Header | None) -> list[str]:
    """The nodes whose triggers were consumed between a step and its parent."""
    before: Mapping[str, Any] = parent.seen if parent else {}
    return sorted(
        node
        for node, seen in header.seen.items()
        if not node.startswith("__") and dict(seen) != dict(before.get(node) or {})
    )
