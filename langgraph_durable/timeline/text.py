"""How a timeline looks in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from langgraph_durable.errors import CorruptionError, SerializationError, UnsafeTypeError
from langgraph_durable.timeline import lineage
from langgraph_durable.timeline.compare import Comparison, are_messages, is_message
from langgraph_durable.timeline.diff import Change, Diff, lines, short
from langgraph_durable.timeline.headers import ERROR, INTERRUPT
from langgraph_durable.timeline.timeline import PAGE, seconds

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline

MOST = 400
"""Characters of one thing that are written out."""
WIDE = 56
"""Columns that the name of a step may take in the tree."""


def marks(step: Step) -> list[str]:
    """What is worth knowing at a glance."""
    is_told = step.node == f"({step.source})"
    found = [step.source] if step.source in ("update", "fork") and not is_told else []
    if step.tasks > max(len(step.nodes), 1):
        found.append(f"{step.tasks} tasks")
    if step._header.wrote(INTERRUPT):
        found.append("waits" if step.is_waiting else "asked")
    if step._header.wrote(ERROR):
        found.append("failed")
    return [*found, *(f"#{tag}" for tag in step.tags)]


_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """A text without what a terminal would obey, or could not print."""
    return _OBEYED.sub(lambda found: repr(found.group())[1:-1], text)


def folded(text: str, most: int = MOST) -> str:
    """The beginning of a text in one line."""
    return plain(text if len(text) <= most else f"{text[: most - 1]}…")


def shown(timeline: Timeline, many: int | None = None) -> list[tuple[Step, lineage.Row]]:
    """The newest steps as rows of the tree."""
    steps = {step.id: step for step in timeline.recent(PAGE if many is None else many)}
    placed = lineage.rows([step._header for step in steps.values()], head(timeline))
    return [(steps[row.id], row) for row in placed]


def head(timeline: Timeline) -> str | None:
    """The id of the thread's latest state; None if it cannot be told."""
    try:
        latest = timeline.latest
    except (CorruptionError, SerializationError, UnsafeTypeError):
        return None
    return None if latest is None else latest.id


def counted(timeline: Timeline, many: int) -> str:
    """How many steps there are, as far as is known, and when they were made, if on one day."""
    if not timeline.is_complete:
        said = f"the newest {many} steps"
    elif len(timeline) > many:
        said = f"{len(timeline):,} steps, the newest {many} shown"
    else:
        said = f"{many} steps" if many != 1 else "1 step"
    day = day_of(timeline, many)
    return f"{said}, {day} UTC" if day else said


def day_of(timeline: Timeline, many: int) -> str | None:
    """The day on which the newest steps were made, if it was one."""
    days = {step.created_at.date() for step in timeline.recent(many) if step.created_at}
    return str(days.pop()) if len(days) == 1 else None


def runs(step: Step) -> list[list[Step]]:
    """The steps of the sub-graphs that ran from a step, each run for itself."""
    timeline = step._timeline
    if not (timeline._source.tells_all or timeline.is_complete):
        return []  # too dear where all values would have to be read
    found: dict[str, list[Step]] = {}
    for child in step.children:
        found.setdefault(child.ns, []).append(child)
    return list(found.values())


def tree(timeline: Timeline) -> str:
    """The newest steps, oldest first, forks indented."""
    rows = shown(timeline)
    title = f"Timeline of {timeline.thread_id!r}"
    if not rows:
        return f"{title}: no steps"
    day, latest = day_of(timeline, len(rows)), head(timeline)
    lines = []
    for (step, row), rails in zip(rows, lineage.rails([row for _, row in rows]), strict=True):
        stem = stem_of(row, rails)
        lines.append(_parts(step, stem, step.id == latest, day))
        beside = stem.replace("├─", "│ ").replace("╰─", "  ") + ("│ " if rails.below else "  ")
        lines += _inner(step, beside, day)
    return "\n".join([f"{title}: {counted(timeline, len(rows))}", *_aligned(lines)])


def stem_of(row: lineage.Row, rails: lineage.Rails) -> str:
    """The lines that lead to a step, drawn with letters."""
    stem = "".join("│ " if lane in rails.through else "  " for lane in range(row.lane))
    if row.fork_of is None or not row.lane:
        return stem
    return stem[:-2] + ("├─" if row.lane - 1 in rails.through else "╰─")


def _inner(step: Step, beside: str, day: str | None) -> Iterator[tuple[str, ...]]:
    for run in runs(step):
        for child in run:
            yield _parts(child, f"{beside}┊ ", False, day)
            yield from _inner(child, f"{beside}┊ ", day)


def _parts(step: Step, stem: str, is_latest: bool, day: str | None) -> tuple[str, ...]:
    """A step in the columns of the tree."""
    index = "" if step.index is None else f"[{step.index}]"
    called = plain(" › ".join((*step.path, step.node)))
    name = f"{index:>6} {stem}{'●' if is_latest else '○'} {called}"
    name = name if len(name) <= WIDE else f"{name[: WIDE - 1]}…"
    return name, clock(step, day), f"{seconds(step.took):>7}", plain(" ".join(marks(step)))


def clock(step: Step, day: str | None) -> str:
    """When a step was made; without the day where that is said already."""
    made = step.created_at
    return "" if made is None else f"{made:%H:%M:%S}" if day else f"{made:%Y-%m-%d %H:%M:%S}"


def _aligned(lines: list[tuple[str, ...]]) -> Iterator[str]:
    wide = max(len(name) for name, *_ in lines)
    for name, *others in lines:
        yield "  ".join((f"{name:<{wide}}", *others)).rstrip()


def line(step: Step) -> str:
    """One step in one line, as it is printed while a thread is followed."""
    name, *others = _parts(step, "", True, "today")
    return "  ".join((f"{name:<28}", *others)).rstrip()


def step(step: Step) -> str:
    """One step with its state."""
    top = f"{plain(step.label)} of {step._timeline.thread_id!r}, {step.id}"
    if step._header.damage is not None:
        return f"{top}\n  cannot be read: {plain(step._header.damage)}"
    facts = {
        "created": step.created_at.isoformat(" ", "seconds") if step.created_at else None,
        "took": seconds(step.took) or None,
        "next": ", ".join(step.next) or None,
        "tags": ", ".join(step.tags) or None,
        "asked": "; ".join(short(getattr(one, "value", one)) for one in step.interrupts) or None,
        "error": step.error,
        "environment": ", ".join(f"{k} {v}" for k, v in (step.environment or {}).items()) or None,
    }
    told = [f"  {name}: {folded(str(fact))}" for name, fact in facts.items() if fact is not None]
    values = step.values if isinstance(step.values, dict) else {"value": step.values}
    held = (f"  {folded(str(name))} = {_value(value)}" for name, value in values.items())
    return "\n".join([top, *told, *held])


def _value(value: Any) -> str:
    """A value in one line; a conversation by its length and its last word."""
    if isinstance(value, list) and are_messages(value):
        return f"{len(value)} messages, last {said(value[-1], 60)}"
    return short(value)


def said(message: Any, most: int = MOST) -> str:
    """A message as a line of a conversation."""
    content = message.content
    told = folded(content, most) if isinstance(content, str) else short(content, most)
    calls = getattr(message, "tool_calls", None) or ()
    asked = (f"[calls {plain(call['name'])}({short(call['args'])})]" for call in calls)
    return " ".join([f"{message.type}:", *([told] if told else []), *asked])


def change(change: Change) -> Iterator[str]:
    """A change: messages as they were said, text by lines, anything else as old and new."""
    old, new = change.old, change.new
    texts = change.kind == "changed" and isinstance(old, str) and isinstance(new, str)
    if texts and ("\n" in old or "\n" in new):
        yield f"~ {plain(change.where)}:"
        yield from (f"    {folded(one)}" for one in lines(old, new))
        return
    if is_message(old) or is_message(new):
        where = plain(change.where)
        yield from (f"- {where}  {said(old)}" for _ in [0] if is_message(old))
        yield from (f"+ {where}  {said(new)}" for _ in [0] if is_message(new))
        return
    yield plain(str(change))


def diff(diff: Diff) -> str:
    """All changes between two steps."""
    title = plain(f"{diff.old} -> {diff.new}") if diff.old or diff.new else "changes"
    body = [one for found in diff for one in change(found)] or ["no difference"]
    return "\n".join([title, *(f"  {one}" for one in body)])


def comparison(found: Comparison) -> str:
    """Two runs in two columns."""
    out = [f"{found.left_thread!r} and {found.right_thread!r}"]
    for at, pair in enumerate(found.pairs):
        left, right = ("" if one is None else folded(one.label, 34) for one in pair)
        is_before = found.parts_at is None or at < found.parts_at
        sign = "|" if not is_before else " " if None in pair else "="
        out.append(f"  {left:<34} {sign} {right}".rstrip())
    out.append("alike" if found.parts_at is None else repr(found.diff()))
    return "\n".join(out)
