"""How a timeline looks in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from langgraph_durable.timeline import lineage
from langgraph_durable.timeline.compare import Comparison, is_message
from langgraph_durable.timeline.diff import Change, Diff, lines, short
from langgraph_durable.timeline.headers import ERROR, INTERRUPT
from langgraph_durable.timeline.timeline import seconds

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline


def marks(step: Step) -> list[str]:
    """What is worth knowing at a glance."""
    is_told = step.node == f"({step.source})"
    found = [step.source] if step.source in ("update", "fork") and not is_told else []
    if step._header.wrote(INTERRUPT):
        found.append("waits" if step.is_waiting else "asked")
    if step._header.wrote(ERROR):
        found.append("failed")
    return [*found, *(f"#{tag}" for tag in step.tags)]


def shown(timeline: Timeline) -> list[tuple[Step, lineage.Row]]:
    """The newest steps as rows of the tree."""
    steps = {step.id: step for step in timeline.recent()}
    latest = timeline.latest
    placed = lineage.rows(
        [step._header for step in steps.values()], None if latest is None else latest.id
    )
    return [(steps[row.id], row) for row in placed]


def tree(timeline: Timeline) -> str:
    """The newest steps, oldest first, forks indented."""
    rows = shown(timeline)
    if not rows:
        return f"Timeline of {timeline.thread_id!r}: no steps"
    complete = timeline.is_complete
    how_many = f"{len(rows)} steps" if complete else f"the newest {len(rows)} steps"
    out = [f"Timeline of {timeline.thread_id!r}: {how_many}"]
    latest = timeline.latest
    for step, row in rows:
        out.append(
            line(step, row.lane, row.fork_of is not None, step.id == getattr(latest, "id", 0))
        )
        if complete:
            for child in step.children:
                out.append(line(child, row.lane + 2, False, False))
    return "\n".join(out)


def line(step: Step, lane: int, is_fork: bool, is_latest: bool) -> str:
    """One step in one line."""
    index = "" if step.index is None else f"[{step.index}]"
    stem = "│ " * (lane - 1) + ("├─" if is_fork else "│ ") if lane else ""
    name = step.node if not step.ns else f"{step.ns.partition(':')[0]} › {step.node}"
    when = step.created_at.strftime("%Y-%m-%d %H:%M:%S") if step.created_at else ""
    notes = " ".join(marks(step))
    first = f"{index:>6} {stem}{'●' if is_latest else '○'} {name}"
    parts = f"{first:<36}", when, f"{seconds(step.took):>7}", notes
    return "  ".join(parts).rstrip()


def step(step: Step) -> str:
    """One step with its state."""
    head = f"{step.label} of {step._timeline.thread_id!r}, {step.id}"
    facts = {
        "created": step.created_at.isoformat(" ", "seconds") if step.created_at else None,
        "took": seconds(step.took) or None,
        "next": ", ".join(step.next) or None,
        "tags": ", ".join(step.tags) or None,
        "asked": "; ".join(short(getattr(one, "value", one)) for one in step.interrupts) or None,
        "error": step.error,
        "environment": ", ".join(f"{k} {v}" for k, v in (step.environment or {}).items()) or None,
    }
    out = [head, *(f"  {name}: {fact}" for name, fact in facts.items() if fact is not None)]
    values = step.values if isinstance(step.values, dict) else {"value": step.values}
    return "\n".join([*out, *(f"  {name} = {short(value)}" for name, value in values.items())])


def said(message: Any) -> str:
    """A message as a line of a conversation."""
    content = message.content if isinstance(message.content, str) else short(message.content, 400)
    calls = getattr(message, "tool_calls", None) or ()
    asked = "".join(f" [calls {call['name']}({short(call['args'])})]" for call in calls)
    return f"{message.type}: {content}{asked}"


def change(change: Change) -> Iterator[str]:
    """A change: messages as they were said, text by lines, anything else as old and new."""
    old, new = change.old, change.new
    texts = change.kind == "changed" and isinstance(old, str) and isinstance(new, str)
    if texts and ("\n" in old or "\n" in new):
        yield f"~ {change.where}:"
        yield from (f"    {one}" for one in lines(old, new))
        return
    if is_message(old) or is_message(new):
        yield from (f"- {change.where}  {said(old)}" for _ in [0] if is_message(old))
        yield from (f"+ {change.where}  {said(new)}" for _ in [0] if is_message(new))
        return
    yield str(change)


def diff(diff: Diff) -> str:
    """All changes between two steps."""
    title = f"{diff.old} -> {diff.new}" if diff.old or diff.new else "changes"
    body = [one for found in diff for one in change(found)] or ["no difference"]
    return "\n".join([title, *(f"  {one}" for one in body)])


def comparison(found: Comparison) -> str:
    """Two runs in two columns."""
    out = [f"{found.left_thread!r} and {found.right_thread!r}"]
    for at, pair in enumerate(found.pairs):
        left, right = ("" if one is None else one.label for one in pair)
        sign = "=" if found.parts_at is None or at < found.parts_at else "|"
        out.append(f"  {left:<34} {sign} {right}")
    out.append("alike" if found.parts_at is None else repr(found.diff()))
    return "\n".join(out)
