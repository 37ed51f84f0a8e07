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
    follows: bool = False
    """It goes on from the step above it in its lane."""


@dataclass(frozen=True, slots=True)
class Rails:
    """The lines that are drawn beside a row of the tree."""

    through: tuple[int, ...]
    """Lanes further out whose lines pass by."""
    above: bool
    """A line comes to it from above, in its own lane."""
    below: bool
    """A line goes on from it."""


def rails(rows: Sequence[Row]) -> list[Rails]:
    """What to draw beside each row so that every step is joined to its parent."""
    found: list[Rails] = []
    open: set[int] = set()  # lanes in which a row further down looks for its parent
    for row in reversed(rows):
        through = tuple(sorted(lane for lane in open if lane < row.lane))
        found.append(Rails(through, row.follows, row.lane in open))
        open = {*through, *([row.lane] if row.follows else [])}
        open |= {row.lane - 1} if row.fork_of is not None else set()
    return found[::-1]


def rows(headers: Sequence[Header], head: str | None = None) -> list[Row]:
    """The tree in drawing order: a step, then its branches, each whole, then what goes on from it.

    The branch that leads to `head` (or else to the newest step) is the main line in lane 0; forks
    are one lane further in than the step they leave. So are steps without a parent, unless they
    are over before the main line begins: of a pruned thread those are what was kept of its past.
    """
    by_id = {header.id: header for header in headers}
    below = children(headers)
    newest = max(by_id, default=None)
    line = parent_chain(by_id, head if head in by_id else newest) if newest else []
    main, first = set(line), line[-1] if line else ""
    out: list[Row] = []
    drawn: set[str] = set()
    # Drawing is depth first with a stack of our own: 10,000 steps would be too deep to recurse.
    stack: list[tuple[str, int, str | None, bool]] = [
        (id, 0 if id in main or _last(below, id) < first else 1, None, False)
        for id in sorted(below.get(None, ()), reverse=True)
    ]
    while stack:
        id, lane, fork_of, follows = stack.pop()
        if id in drawn:
            continue
        drawn.add(id)
        out.append(Row(id, lane, fork_of, follows))
        after = below.get(id, [])
        straight = next((one for one in after if one in main), after[0] if after else None)
        if straight is not None:
            stack.append((straight, lane, None, True))
        for fork in reversed([one for one in after if one != straight]):
            stack.append((fork, lane + 1, id, False))
    for id in sorted(set(by_id) - drawn):  # parents in a circle: shown all the same
        out.append(Row(id, 1, by_id[id].parent))
    return out


def _last(below: Mapping[str | None, Sequence[str]], root: str) -> str:
    """The greatest id among a step and all that descend from it."""
    found, some = root, [root]
    while some:
        some = [child for id in some for child in below.get(id, ())]
        found = max(found, *some) if some else found
    return found


def branches(headers: Sequence[Header]) -> list[list[str]]:
    """Every branch from its fork (or the beginning) to its end, oldest first.

    A branch of a branch is a branch of its own, so each id occurs once.

    >>> branches([])
    []
    """
    found: list[list[str]] = []
    at: dict[int, list[str]] = {}
    roots = set(children(headers).get(None, ()))
    for row in rows(headers):
        if row.fork_of is not None or row.id in roots or row.lane not in at:
            at[row.lane] = []
            found.append(at[row.lane])
        at[row.lane].append(row.id)
    return found


def ran(header: Header, parent: Header | None) -> list[str]:
    """The nodes whose triggers were consumed between a step and its parent.

    Where the parent was removed, those that consumed the newest: versions grow with every step.
    """
    own = {node: seen for node, seen in header.seen.items() if not node.startswith("__")}
    if parent is None:
        ages = {node: max(map(_age, seen.values()), default=0) for node, seen in own.items()}
        return sorted(node for node, age in ages.items() if age == max(ages.values()))
    return sorted(
        node for node, seen in own.items() if dict(seen) != dict(parent.seen.get(node) or {})
    )


def _age(version: Any) -> float:
    """A channel's version as a number; savers count in numbers, or in text before a point."""
    try:
        return float(str(version).partition(".")[0])
    except ValueError:
        return 0
