"""How a timeline looks in a notebook and in a saved file: plain HTML, no script, no network.

Every value passes `escape` on its way into the page; folding is `<details>`, so that it works in
JupyterLab, VS Code, GitHub's viewers and a file, also under a policy that forbids scripts.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from html import escape
from typing import TYPE_CHECKING, Any

from langgraph_durable.timeline import binary, text
from langgraph_durable.timeline.binary import amount
from langgraph_durable.timeline.compare import Comparison, is_message
from langgraph_durable.timeline.diff import Change, Diff, lines, short
from langgraph_durable.timeline.editing import fields_of
from langgraph_durable.timeline.style import STYLE
from langgraph_durable.timeline.timeline import seconds

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline

FOLD = 300
"""Characters of a text that are shown before it is folded."""
FEW = 6
"""Rows of a table inside another that are shown before it is folded."""
MOST_TEXT = 20_000
MOST_ITEMS = 200
OPENED = 50
"""Steps whose values are part of the page; older ones are listed only."""
ROOM = 8_000_000
"""Characters of pictures and artifacts in a timeline; a state repeats them at every step."""
_room: ContextVar[list[int] | None] = ContextVar("_room", default=None)
"""What is left of it, while a timeline is made."""


def page(body: str) -> str:
    """A piece of a page with its style."""
    return f'<div class="lgd"><style>{STYLE}</style>{body}</div>'


def document(timeline_: Timeline) -> str:
    """A whole file."""
    plot = timeline_.plot().svg() if timeline_ else ""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(timeline_.thread_id)}</title></head>"
        f'<body class="lgd-file">{page(timeline(timeline_) + plot)}</body></html>'
    )


# ---- values -------------------------------------------------------------------------------------


def value(value: Any, depth: int = 0) -> str:
    """Any value; long ones folded."""
    if isinstance(value, str):
        return _text(value)
    if is_message(value):
        return message(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _binary(bytes(value))
    itself = _itself(value)
    if itself is not None:
        return itself
    if depth < 6 and isinstance(value, Mapping):
        return _table([(str(key), one) for key, one in value.items()], f"{len(value)} keys", depth)
    if depth < 6 and isinstance(value, (list, tuple)):
        if value and all(map(is_message, value)):
            return _conversation(value)
        rows = [(str(at), one) for at, one in enumerate(value)]
        return _table(rows, f"{type(value).__name__} of {len(value)}", depth)
    fields = fields_of(value) if depth < 6 else None
    if fields:
        return _table(list(fields.items()), type(value).__name__, depth)
    try:
        shown = repr(value)
    except Exception as error:
        shown = f"({type(value).__name__}: its repr raises {type(error).__name__})"
    return f"<code>{_text(shown)}</code>"


def _text(value: str) -> str:
    cut = value[:MOST_TEXT]
    rest = f"\n… {len(value) - MOST_TEXT:,} more characters" if len(value) > MOST_TEXT else ""
    if len(value) <= FOLD:
        return f'<span class="text">{escape(cut)}</span>'
    return (
        f'<details><summary>{escape(value[:80])}… <span class="note">{len(value):,} characters'
        f'</span></summary><div class="text">{escape(cut + rest)}</div></details>'
    )


MOST_PICTURE = 1_000_000


def _binary(value: bytes) -> str:
    """Pictures as pictures, other bytes as their size and beginning."""
    kind = binary.picture_type(value)
    note = f'<span class="note">{binary.described(value)}</span>'
    if kind and len(value) <= MOST_PICTURE:
        data = base64.b64encode(value).decode()
        return _if_room(f'<img alt="{kind}" src="data:{kind};base64,{data}"> {note}', note)
    start, more = value[: binary.SHORT].hex(" "), "…" if len(value) > binary.SHORT else ""
    return f"<code>{start}{more}</code> {note}"


def _itself(value: Any) -> str | None:
    """What knows how to show itself: an artifact, or what draws a picture for notebooks."""
    kind = type(value)
    try:
        if hasattr(kind, "_lgd_html_"):
            note = f'<span class="note">{escape(short(value))}</span>'
            return _if_room(str(value._lgd_html_()), note)
        drawn = value._repr_png_() if hasattr(kind, "_repr_png_") else None
    except Exception as error:
        reason = f"({kind.__name__} cannot be shown: {type(error).__name__}: {error})"
        return f'<span class="note">{escape(reason)}</span>'
    return _binary(drawn) if isinstance(drawn, bytes) and drawn else None


def _if_room(shown: str, note: str) -> str:
    """What is shown, or only a note of it where the page has grown too large."""
    left = _room.get()
    if left is None:
        return shown
    if len(shown) > left[0]:
        return note
    left[0] -= len(shown)
    return shown


def _table(rows: list[tuple[str, Any]], label: str, depth: int) -> str:
    if not rows:
        return f'<span class="note">{escape(label)}</span>'
    more = len(rows) - MOST_ITEMS
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{value(one, depth + 1)}</td></tr>"
        for name, one in rows[:MOST_ITEMS]
    )
    if more > 0:
        body += f'<tr><th></th><td class="note">… {more:,} more</td></tr>'
    table = f"<table>{body}</table>"
    if depth == 0 or len(rows) <= FEW:
        return table
    return f'<details><summary class="note">{escape(label)}</summary>{table}</details>'


def message(message: Any) -> str:
    """A message as part of a conversation."""
    content = message.content
    calls = "".join(
        f'<div class="call">{escape(called(call))}</div>'
        for call in getattr(message, "tool_calls", None) or ()
    )
    blocks = content if isinstance(content, list) else [content]
    shown = "".join(f"<div>{_block(block)}</div>" for block in blocks)
    kind = escape(str(message.type))
    return f'<div class="said"><b class="who">{kind}</b><div>{shown}{calls}</div></div>'


def _block(block: Any) -> str:
    """A part of a message's content: text as text, a picture in it as a picture."""
    if not isinstance(block, Mapping):
        return value(block, 1)
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return _text(block["text"])
    linked = block.get("image_url")
    url = linked.get("url") if isinstance(linked, Mapping) else linked
    data = block.get("base64") or str(url or "").partition(";base64,")[2]
    try:
        held = base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError):
        held = b""
    return _binary(held) if binary.picture_type(held) else value(block, 1)


def called(call: Mapping[str, Any]) -> str:
    """A call of a tool."""
    return f"{call.get('name')}({short(call.get('args'), 300)})"


SHOWN_MESSAGES = 6


def _conversation(messages: Iterable[Any]) -> str:
    """The last messages; those before them folded."""
    said = list(messages)
    early, late = said[:-SHOWN_MESSAGES], said[-SHOWN_MESSAGES:]
    folded = ""
    if early:
        inner = "".join(map(message, early[-MOST_ITEMS:]))
        folded = (
            f'<details><summary class="note">{len(early):,} earlier messages</summary>'
            f"{inner}</details>"
        )
    return folded + "".join(map(message, late))


# ---- differences --------------------------------------------------------------------------------


def _change(change: Change) -> str:
    old, new, sides = change.old, change.new, []
    if change.kind == "changed" and isinstance(old, str) and isinstance(new, str):
        kinds = {"+": "new", "-": "old", "@": "note"}
        rows = lines(old, new)[:MOST_ITEMS]
        shown = "".join(
            f'<div class="{kinds.get(one[:1], "same")}">{escape(one)}</div>' for one in rows
        )
        return _row(change, f'<div class="lines">{shown}</div>')
    if change.kind != "added":
        sides.append(f'<div class="old">{value(old, 1)}</div>')
    if change.kind != "removed":
        sides.append(f'<div class="new">{value(new, 1)}</div>')
    return _row(change, "".join(sides))


def _row(change: Change, body: str) -> str:
    return f'<tr class="{change.kind}"><th>{escape(change.where)}</th><td>{body}</td></tr>'


def diff(diff: Diff) -> str:
    """All changes between two steps."""
    title = f"<p class='note'>{escape(diff.old)} → {escape(diff.new)}</p>" if diff.new else ""
    if not diff:
        return f'{title}<p class="note">no difference</p>'
    more = len(diff) - MOST_ITEMS
    rest = f'<p class="note">… {more:,} more</p>' if more > 0 else ""
    body = "".join(map(_change, diff.changes[:MOST_ITEMS]))
    return f'{title}<table class="diff">{body}</table>{rest}'


# ---- steps --------------------------------------------------------------------------------------


def step(step: Step, open: bool = False) -> str:
    """What is inside a step: what changed, the state, what was asked, and facts."""
    asked = "".join(
        f'<div class="asked">{value(getattr(one, "value", one), 1)}</div>'
        for one in step.interrupts
    )
    failed = step.error
    parts = [
        ("Asked", asked),
        ("Failed", f'<div class="failed">{value(failed)}</div>' if failed is not None else ""),
        ("Changed", diff(step.diff())),
        ("State", value(step.values)),
        ("Facts", _facts(step)),
    ]
    return "".join(f"<section><h4>{name}</h4>{body}</section>" for name, body in parts if body)


def _facts(step: Step) -> str:
    facts = {
        "id": step.id,
        "created": step.created_at.isoformat(" ", "milliseconds") if step.created_at else "",
        "next": ", ".join(step.next),
        "size": amount(step.bytes),
        "tags": ", ".join(step.tags),
        "environment": dict(step.environment or {}),
    }
    return value({name: fact for name, fact in facts.items() if fact})


def _line(step: Step, lane: int, body: str, is_latest: bool, is_fork: bool = False) -> str:
    badges = "".join(
        f'<span class="badge {_kind(mark)}">{escape(mark)}</span>' for mark in text.marks(step)
    )
    when = step.created_at.strftime("%Y-%m-%d %H:%M:%S") if step.created_at else ""
    index = "" if step.index is None else str(step.index)
    name = step.node if not step.ns else f"{step.ns.partition(':')[0]} › {step.node}"
    classes = "step" + (" latest" if is_latest else "") + (" fork" if is_fork else "")
    head = (
        f'<span class="index">{index}</span><span class="dot"></span>'
        f'<span class="node">{escape(name)}</span>{badges}'
        f'<span class="when">{when}</span><span class="took">{seconds(step.took)}</span>'
    )
    style = f'style="--lane:{min(lane, 12)}"'
    if not body:
        return f'<div class="{classes} closed" {style}><div class="head">{head}</div></div>'
    return (
        f'<details class="{classes}" {style} data-step="{escape(step.id)}">'
        f'<summary class="head">{head}</summary><div class="body">{body}</div></details>'
    )


def _kind(mark: str) -> str:
    return mark if mark in ("waits", "asked", "failed", "update", "fork") else "tag"


def timeline(timeline: Timeline) -> str:
    """The tree of the newest steps; a click opens one."""
    rows = text.shown(timeline)
    name = f"<b>{escape(timeline.thread_id)}</b>"
    if not rows:
        return f'<p>{name} <span class="note">no steps</span></p>'
    latest = timeline.latest
    head = latest.id if latest else ""
    complete = timeline.is_complete
    count = f"{len(rows)} steps" if complete else f"the newest {len(rows)} steps"
    opened = {one.id for one, _ in rows[-OPENED:]} if complete else _affordable(rows)
    out = [f'<p>{name} <span class="note">{count}</span></p>']
    room = _room.set([ROOM])
    try:  # the newest first: if room is short, they have the pictures
        bodies = {one.id: step(one) for one, _ in reversed(rows) if one.id in opened}
    finally:
        _room.reset(room)
    for one, row in rows:
        body = bodies.get(one.id, "")
        inner = (
            "".join(_line(child, 1, step(child), False) for child in one.children)
            if complete
            else ""
        )
        if inner:
            body += f"<section><h4>Sub-graph</h4>{inner}</section>"
        out.append(_line(one, row.lane, body, one.id == head, row.fork_of is not None))
    return "".join(out)


def _affordable(rows: list[Any]) -> set[str]:
    """Of a long thread, the last steps only: a page holds all that can be opened in it."""
    return {one.id for one, _ in rows[-2:]}


def comparison(found: Comparison) -> str:
    """Two runs in two columns, and what differs where they part."""
    alike = len(found.pairs) if found.parts_at is None else found.parts_at
    rows = "".join(
        f'<tr class="{"alike" if at < alike else "apart"}">'
        + "".join(f"<td>{escape(one.label) if one else ''}</td>" for one in pair)
        + "</tr>"
        for at, pair in enumerate(found.pairs)
    )
    heads = f"<tr><th>{escape(found.left_thread)}</th><th>{escape(found.right_thread)}</th></tr>"
    end = '<p class="note">alike</p>' if found.parts_at is None else diff(found.diff())
    return f'<table class="pairs">{heads}{rows}</table>{end}'
