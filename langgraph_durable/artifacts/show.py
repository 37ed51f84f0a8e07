"""How an artifact looks: an image as an image, a table as a table, else name, type and size."""

from __future__ import annotations

import base64
import csv
import io
from html import escape
from typing import TYPE_CHECKING

from langgraph_durable._core.units import shown_bytes
from langgraph_durable.artifacts import media
from langgraph_durable.errors import DurableError

if TYPE_CHECKING:
    from langgraph_durable.artifacts.handle import Artifact

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
TABLES = ("text/csv", "text/tab-separated-values")
MOST_PICTURE = 2_000_000
MOST_TABLE = 2_000_000
ROWS = 20


def described(artifact: Artifact) -> str:
    """Name, type and size."""
    try:
        size = shown_bytes(artifact.size)
    except OSError:
        size = "not there"
    return ", ".join([*([artifact.name] if artifact.name else []), artifact.media_type, size])


def html(artifact: Artifact) -> str:
    """For notebooks and timelines; what cannot be read is described, never an error."""
    note = f'<span class="note">{escape(described(artifact))}</span>'
    try:
        kind = media.essence(artifact.media_type)
        if kind in PICTURES and artifact.size <= MOST_PICTURE:
            data = base64.b64encode(artifact.read()).decode()
            return (
                f'<img alt="{escape(artifact.name or "image")}" style="max-width: 100%" '
                f'src="data:{kind};base64,{data}"> {note}'
            )
        if kind in TABLES and artifact.size <= MOST_TABLE:
            return f"{_table(artifact.text(), kind)} {note}"
    except (DurableError, OSError, UnicodeDecodeError, csv.Error) as error:
        return f'{note} <span class="note">{escape(str(error))}</span>'
    return note


def _table(text: str, media_type: str) -> str:
    delimiter = "," if media_type == "text/csv" else "\t"
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    head, *rest = rows or [[]]
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rest[:ROWS]
    )
    left = len(rest) - ROWS
    more = (
        f'<caption style="caption-side:bottom">… {left:,} more rows</caption>' if left > 0 else ""
    )
    return f"<table>{more}<tr>{cells}</tr>{body}</table>"
