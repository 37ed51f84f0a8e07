"""`open_saver`: a saver by URL, with its options as query parameters."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.saver import DurableSaver
from langgraph_durable.sqlite import SqliteSaver

_OPTIONS: dict[str, Callable[[str], Any]] = {
    "durability": str,
    "busy_timeout": float,
    "types": lambda text: text if text in ("safe", "any") else text.split(","),
    "metadata_keys": lambda text: [key for key in text.split(",") if key],
    "on_conflict": str,
    "cache_bytes": int,
}


def open_saver(url: str, **options: Any) -> DurableSaver:
    """Open the saver that a URL names.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite:///:memory:`; options
            of the saver as query parameters: `sqlite:///agent.db?durability=normal`.
        options: the same options as Python values; they win.

    Raises:
        ConfigurationError: the URL or an option is wrong.

    Example:
        >>> open_saver("sqlite:///:memory:?durability=normal")
        SqliteSaver(':memory:', durability='normal')
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"open_saver takes a URL, not {url!r}")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "sqlite":
        raise ConfigurationError(
            f"{url!r}: the scheme {parts.scheme!r} is not known; use sqlite:///"
        )
    if parts.netloc or not parts.path.startswith("/") or parts.fragment:
        raise ConfigurationError(
            f"{url!r}: write sqlite:///relative.db, sqlite:////absolute.db or sqlite:///:memory:"
        )
    path = urllib.parse.unquote(parts.path[1:])
    return SqliteSaver(path, **{**_read_options(url, parts.query), **options})


def _read_options(url: str, query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, text in urllib.parse.parse_qsl(query, keep_blank_values=True):
        if key not in _OPTIONS or key in found:
            what = "given twice" if key in found else f"not known; known: {', '.join(_OPTIONS)}"
            raise ConfigurationError(f"{url!r}: the option {key!r} is {what}")
        try:
            found[key] = _OPTIONS[key](text)
        except ValueError as error:
            raise ConfigurationError(f"{url!r}: {key}={text!r} is not a number") from error
    return found
