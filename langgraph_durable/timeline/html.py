"""How values and differences look in a notebook and in a saved file: HTML, no script, no network.

Every value passes `escape` on its way into the page; folding is `<details>`, so that it works in
JupyterLab, VS Code, GitHub's viewers and a file, also under a policy that forbids scripts. `pages`
makes steps and the tree of these pieces.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from html import escape
from typing import Any

from langgraph_durable.timeline import binary
from langgraph_durable.timeline.compare import are_messages, is_message
from langgraph_durable.timeline.diff import Change, Diff, lines, short, written
from langgraph_durable.timeline.editing import fields_of
from langgraph_durable.timeline.style import STYLE

FOLD = 300
"""Characters of a text that are shown before it is folded."""
FEW = 6
"""Rows of a table inside another that are shown before it is folded."""
MOST_TEXT = 20_000
MOST_ITEMS = 200
ROOM = 8_000_000
"""Characters of pictures and artifacts in a timeline; a state repeats them at every step."""
room: ContextVar[list[int] | None] = ContextVar("room", default=None)
"""What is left of it, while a timeline is made."""


def page(body: str) -> str:
    """A piece of a page with its style."""
    whole = f'<div class="lgd tex2jax_ignore mathjax_ignore"><style>{STYLE}</style>{body}</div>'
    return whole.encode("utf-8", "xmlcharrefreplace").decode()  # halves of surrogate pairs


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
        label = f"{len(value)} keys" if value else "{}"
        return _table([(str(key), one) for key, one in value.items()], label, depth)
    if depth < 6 and isinstance(value, (list, tuple)):
        if are_messages(value):
            return _conversation(value)
        rows = [(str(at), one) for at, one in enumerate(value)]
        return _table(
            rows, f"{type(value).__name__} of {len(value)}" if value else repr(value)[:9], depth
        )
    fields = fields_of(value) if depth < 6 else None
    if fields:
        return _table(list(fields.items()), type(value).__name__, depth)
    return f"<code>{_text(written(value))}</code>"


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
    left = room.get()
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
    blocks = content if isinstance(content, list) else [content] if content else []
    shown = "".join(f"<div>{_block(block)}</div>" for block in blocks)
    kind, name = str(message.type), getattr(message, "name", None)
    who = escape(f"{kind} {name}" if name else kind)
    known = kind if kind in ("human", "ai", "tool", "system") else "other"
    return (
        f'<div class="said {known}"><b class="who">{who}</b>'
        f'<div class="what">{shown}{calls}</div></div>'
    )


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
    texts = change.kind == "changed" and isinstance(old, str) and isinstance(new, str)
    if texts and ("\n" in old or "\n" in new):
        kinds = {"+": "new", "-": "old", "@": "note"}
        rows = lines(old, new)[:MOST_ITEMS]
        shown = "".join(
            f'<div class="{kinds.get(one[:1], "same")}">{escape(one)}</div>' for one in rows
        )
        return _row(change, f'<div class="lines">{shown}</div>')
    if change.kind != "added":
        sides.append(f'<del class="old">{value(old, 1)}</del>')
    if change.kind != "removed":
        sides.append(f'<ins class="new">{value(new, 1)}</ins>')
    return _row(change, "".join(sides))


def _row(change: Change, body: str) -> str:
    return f'<tr class="{change.kind}"><th>{escape(change.where)}</th><td>{body}</td></tr>'


def diff(diff: Diff) -> str:
    """All changes between two steps, and which steps they are."""
    title = f'<p class="note">{escape(diff.old)} → {escape(diff.new)}</p>' if diff.new else ""
    return title + changes(diff)


def changes(diff: Diff) -> str:
    """All changes between two steps."""
    if not diff:
        return '<p class="note">no difference</p>'
    more = len(diff) - MOST_ITEMS
    rest = f'<p class="note">… {more:,} more</p>' if more > 0 else ""
    body = "".join(map(_change, diff.changes[:MOST_ITEMS]))
    return f'<table class="diff">{body}</table>{rest}'
