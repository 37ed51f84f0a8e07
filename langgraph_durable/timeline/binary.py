"""Bytes as people read them: what kind they are, and how much of them there is."""

from __future__ import annotations

_PICTURES = {b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
SHORT = 24
"""Bytes that are written out."""


def picture_type(value: bytes) -> str | None:
    """The media type of a picture that any browser shows; judged by the content alone."""
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _PICTURES.items() if value.startswith(start)), None)


def amount(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def described(value: bytes) -> str:
    """Kind and size."""
    return f"{picture_type(value) or 'bytes'}, {amount(len(value))}"
