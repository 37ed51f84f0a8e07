"""Steps, the tree and whole files as HTML, made of the values and differences that `html` shows.

A page holds all that can be opened in it, so it has a budget: the newest steps come first, and
those whose values it has no room for are listed only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from langgraph_durable.timeline import html, lineage, text
from langgraph_durable.timeline.binary import amount
from langgraph_durable.timeline.compare import Comparison
from langgraph_durable.timeline.timeline import seconds

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline

IN_FILE = 500
"""Steps that a saved file lists."""
VALUES, VALUES_IN_FILE = 3_000, 100_000
"""Values that are looked at for a page: so many messages and the like, of all steps together."""
LENGTH, LENGTH_IN_FILE = 3_000_000, 20_000_000
"""Characters of steps that can be opened in a page."""
LANES = 12
"""Forks of forks that are drawn further in."""


# ---- one step -----------------------------------------------------------------------------------


def step(step: Step) -> str:
    """What is inside a step: what was asked, what changed, the state, and facts."""
    if step._header.damage is not None:
        return _failed("Cannot be read", step._header.damage)
    parts: list[tuple[str, Callable[[Step], str]]] = [
        ("Asked", _asked),
        ("Failed", _error),
        ("Changed", lambda it: html.changes(it.diff())),
        ("State", lambda it: html.value(it.values)),
        ("Facts", _facts),
    ]
    return "".join(_section(name, make, step) for name, make in parts)


def _section(name: str, make: Callable[[Step], str], step: Step) -> str:
    """A part of a step; one that cannot be read says so, and leaves the others alone."""
    try:
        body = make(step)
    except Exception as error:
        return _failed(name, f"{type(error).__name__}: {error}")
    note = ""
    if name == "Changed" and step.parent is not None:
        note = f' <span class="note">since {escape(step.parent.label)}</span>'
    return f"<section><h4>{name}{note}</h4>{body}</section>" if body else ""


def _failed(name: str, reason: str) -> str:
    return f'<section><h4>{name}</h4><div class="failed">{escape(reason)}</div></section>'


def _asked(step: Step) -> str:
    return "".join(
        f'<div class="asked">{html.value(getattr(one, "value", one), 1)}</div>'
        for one in step.interrupts
    )


def _error(step: Step) -> str:
    failed = step.error
    return "" if failed is None else f'<div class="failed">{html.value(failed)}</div>'


def _facts(step: Step) -> str:
    facts = {
        "id": step.id,
        "created": step.created_at.isoformat(" ", "milliseconds") if step.created_at else "",
        "took": seconds(step.took),
        "next": ", ".join(step.next),
        "size": amount(step.bytes),
        "tags": ", ".join(step.tags),
        **_environment(step),
    }
    return " ".join(
        f'<span class="fact"><span class="note">{escape(name)}</span> {escape(fact)}</span>'
        for name, fact in facts.items()
        if fact
    )


def _environment(step: Step) -> dict[str, str]:
    return {str(name): str(value) for name, value in (step.environment or {}).items()}


def alone(one: Step) -> str:
    """A step by itself, with its name."""
    badges = _badges(one)
    top = f'<p class="top"><b>{escape(one.label)}</b> {badges}'
    return f'{top} <span class="note">{escape(one._timeline.thread_id)}</span></p>{step(one)}'


def _badges(step: Step) -> str:
    return " ".join(
        f'<span class="badge {_kind(mark)}">{escape(mark)}</span>' for mark in text.marks(step)
    )


# ---- the tree -----------------------------------------------------------------------------------


class _Bodies:
    """What can be opened in a page, for the newest steps first, while there is room."""

    def __init__(self, values: int, length: int) -> None:
        self._values, self._length, self._made = values, length, 0

    def of(self, one: Step) -> str:
        """The inside of a step; of the first two whatever they weigh."""
        if self._made >= 2 and (self._values <= 0 or self._length <= 0):
            return ""
        body = step(one)
        self._made += 1
        self._length -= len(body)
        self._values -= _weight(vars(one).get("values"))
        return body


def _weight(value: Any, depth: int = 3) -> int:
    """How many values there are in one."""
    if not depth or not isinstance(value, _HOLDERS):
        return 1
    inner = value.values() if isinstance(value, Mapping) else value
    # A long conversation holds nothing that is looked into, which its few types tell at once.
    if not any(issubclass(kind, _HOLDERS) for kind in set(map(type, inner))):
        return 1 + len(value)
    return 1 + sum(_weight(one, depth - 1) for one in inner)


_HOLDERS = (Mapping, list, tuple)


def timeline(timeline: Timeline, many: int | None = None, bodies: _Bodies | None = None) -> str:
    """The tree of the newest steps; a click opens one."""
    rows = text.shown(timeline, many)
    name = f"<b>{escape(timeline.thread_id)}</b>"
    if not rows:
        return f'<p class="top">{name} <span class="note">no steps</span></p>'
    tree = _Tree(timeline, len(rows), bodies or _Bodies(VALUES, LENGTH))
    room = html.room.set([html.ROOM])
    try:  # the newest first: if room is short, they have the values and pictures
        placed = list(zip(rows, lineage.rails([row for _, row in rows]), strict=True))
        drawn = [tree.row(one, row, rails) for (one, row), rails in reversed(placed)]
    finally:
        html.room.reset(room)
    note = text.counted(timeline, len(rows))
    if tree.closed:
        note += f"; the values of {tree.closed} older ones are not on this page"
    top = f'<p class="top">{name} <span class="note">{note}</span></p>'
    return top + "".join(reversed(drawn))


class _Tree:
    """Draws rows; counts those that cannot be opened."""

    def __init__(self, timeline: Timeline, many: int, bodies: _Bodies) -> None:
        self._head, self._day = text.head(timeline), text.day_of(timeline, many)
        self._bodies, self.closed = bodies, 0

    def row(self, step: Step, row: lineage.Row, rails: lineage.Rails) -> str:
        """A step, the lines beside it, and the sub-graphs that ran from it."""
        lane, classes = min(row.lane, LANES), []
        classes += ["latest"] if step.id == self._head else []
        classes += ["fork"] if row.fork_of is not None else []
        below = "".join(map(self._run, reversed(text.runs(step))))
        lines = [f'<i class="rail" style="--at:{at}"></i>' for at in rails.through if at <= LANES]
        lines += [f'<i class="rail above" style="--at:{lane}"></i>'] if rails.above else []
        lines += [f'<i class="rail below" style="--at:{lane}"></i>'] if rails.below else []
        if row.fork_of is not None and lane:
            lines.append(f'<i class="bend" style="--at:{lane - 1}"></i>')
        stem = text.stem_of(row, rails).replace(" ", "\xa0")
        drawn = self._step(step, " ".join(["step", *classes]), stem)
        return f'<div class="row" style="--lane:{lane}">{"".join(lines)}{drawn}{below}</div>'

    def _run(self, steps: list[Step]) -> str:
        """A run of a sub-graph, to be opened in place; open if something there wants attention."""
        last = len(steps) - 1
        rows = []
        for at, step in reversed(list(enumerate(steps))):
            rails = lineage.Rails((), at > 0, at < last)
            rows.append(self.row(step, lineage.Row(step.id, 0, None), rails))
        calls = any(step.is_waiting or "failed" in text.marks(step) for step in steps)
        count = "1 step" if len(steps) == 1 else f"{len(steps)} steps"
        return (
            f'<details class="run"{" open" * calls}><summary>{escape(steps[0].path[-1])} '
            f'<span class="note">sub-graph, {count}</span></summary>{"".join(reversed(rows))}'
            "</details>"
        )

    def _step(self, step: Step, classes: str, stem: str) -> str:
        quiet = " quiet" if step.node.startswith(("__", "(")) else ""
        when = text.clock(step, self._day)
        head = " ".join(  # the spaces are for viewers that drop the style
            [
                f'<span class="index">{"" if step.index is None else step.index}</span>',
                f'<span class="stem">{stem}{"●" if step.id == self._head else "○"}</span>',
                '<span class="dot"></span>',
                f'<span class="node{quiet}">{escape(step.node)}</span>',
                _badges(step),
                f'<span class="when">{when}</span>',
                f'<span class="took">{seconds(step.took)}</span>',
            ]
        )
        body = self._bodies.of(step)
        if not body:
            self.closed += 1
            return f'<div class="{classes} closed"><div class="head">{head}</div></div>'
        return (
            f'<details class="{classes}" data-step="{escape(step.id)}">'
            f'<summary class="head">{head}</summary><div class="body">{body}</div></details>'
        )


def _kind(mark: str) -> str:
    return mark if mark in ("waits", "asked", "failed", "update", "fork") else "tag"


# ---- whole pages --------------------------------------------------------------------------------


def document(timeline_: Timeline) -> str:
    """A whole file."""
    bodies = _Bodies(VALUES_IN_FILE, LENGTH_IN_FILE)
    tree = timeline(timeline_, IN_FILE, bodies)
    plot = timeline_.plot().svg() if timeline_ else ""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(timeline_.thread_id)}</title></head>"
        f'<body class="lgd-file">{html.page(tree + plot)}</body></html>'
    )


def comparison(found: Comparison) -> str:
    """Two runs in two columns, and what differs where they part."""
    parts_at = len(found.pairs) if found.parts_at is None else found.parts_at
    rows = []
    for at, pair in enumerate(found.pairs):
        kind = "alike" if at < parts_at else "parts" if at == parts_at else "apart"
        cells = "".join(f"<td>{escape(one.label) if one else ''}</td>" for one in pair)
        sign = "=" if at < parts_at and None not in pair else "they part" * (at == parts_at)
        rows.append(f'<tr class="{kind}">{cells}<td class="note">{sign}</td></tr>')
    heads = f"<tr><th>{escape(found.left_thread)}</th><th>{escape(found.right_thread)}</th></tr>"
    end = '<p class="note">alike</p>' if found.parts_at is None else html.diff(found.diff())
    return f'<table class="pairs">{heads}{"".join(rows)}</table>{end}'
