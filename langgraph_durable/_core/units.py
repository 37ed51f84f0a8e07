"""Durations and sizes as people write them, read in one place."""

from __future__ import annotations

import re
from datetime import timedelta

from langgraph_durable.errors import ConfigurationError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw]\s*)+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", re.IGNORECASE)
LONGEST = 1000 * 366 * 86_400


def in_seconds(what: str, value: object) -> float:
    """A timedelta, seconds, or text like "24h" or "1d12h" (s, m, h, d, w)."""
    found: float | None = None
    if isinstance(value, timedelta):
        found = value.total_seconds()
    elif isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhdw])", value)
        found = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found = value
    if found is None or not 0 <= found <= LONGEST:
        raise ConfigurationError(
            f'{what} takes a timedelta, seconds, or text like "24h" (s, m, h, d, w), not {value!r}'
        )
    return found


def in_bytes(what: str, value: object) -> int:
    """A number of bytes, or text like "2 MB" or "500 KiB"."""
    found: float | None = None
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        found = float(match[1]) * _BYTES[(match[2] or "").lower()]
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    if found is None or not 0 <= found < 2**63:
        raise ConfigurationError(
            f'{what} takes a number of bytes, or text like "2 MB" or "500 KiB", not {value!r}'
        )
    return int(found)


def shown_bytes(size: int) -> str:
    """A size for people."""
    for unit, factor in (("GB", 1000**3), ("MB", 1000**2), ("kB", 1000)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"
