"""`open_saver`: a saver by URL, with its options as query parameters."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.saver import DurableSaver
from langgraph_durable.sqlite import SqliteSaver

if TYPE_CHECKING:
    from langgraph_durable.redis import RedisSaver

Options = dict[str, Callable[[str], Any]]

_ANY: Options = {
    "types": lambda text: text if text in ("safe", "any", "plain") else text.split(","),
    "metadata_keys": lambda text: [key for key in text.split(",") if key],
    "on_conflict": str,
    "cache_bytes": int,
    "warn_bytes": str,
    "artifacts": lambda text: None if text in ("", "none") else text,
    "offload_above": str,
    "on_missing_artifact": str,
    "on_environment_change": str,
}
_SQLITE: Options = {"durability": str, "busy_timeout": float, **_ANY}
_REDIS: Options = {
    "prefix": str,
    "ttl": str,
    "refresh_on_read": lambda text: {"true": True, "1": True, "false": False, "0": False}[text],
    "wait_replicas": int,
    "replica_timeout": float,
    "retry": float,
    **_ANY,
}


def open_saver(url: str, **options: Any) -> DurableSaver:
    """Open the saver that a URL names.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite:///:memory:`; options
            of the saver as query parameters: `sqlite:///agent.db?durability=normal`. Or one of
            the URLs that `RedisSaver` takes; parameters that are not ours go to redis-py.
        options: the same options as Python values; they win.

    Raises:
        ConfigurationError: the URL or an option is wrong.

    Example:
        >>> open_saver("sqlite:///:memory:?durability=normal")
        SqliteSaver(':memory:', durability='normal')
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"open_saver takes a URL, not {url!r}")
    scheme = url.partition(":")[0].strip().lower()
    if scheme.partition("+")[0] in ("redis", "rediss", "unix"):
        place, _, text = url.partition("?")
        ours, theirs = _split(text)
        found = _read_options(scheme, ours, _REDIS)
        return redis_saver()("?".join((place, *theirs)), **{**found, **options})
    if scheme != "sqlite":
        raise ConfigurationError(
            f"a URL begins with sqlite:/// or redis://, not with {url.partition(':')[0]!r}"
        )
    parts = urllib.parse.urlsplit(url)
    if not url.partition(":")[2].startswith("///") or parts.netloc or parts.fragment:
        raise ConfigurationError(
            f"{url!r}: write sqlite:///relative.db, sqlite:////absolute.db or sqlite:///:memory:"
        )
    path = urllib.parse.unquote(parts.path[1:])
    query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
    return SqliteSaver(path, **{**_read_options(url, query, _SQLITE), **options})


def redis_saver() -> type[RedisSaver]:
    """The class, if redis-py is installed."""
    try:
        from langgraph_durable.redis import RedisSaver
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise ImportError(
            "RedisSaver needs redis-py: pip install 'langgraph-durable[redis]'"
        ) from error
    return RedisSaver


def _split(query: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Parameters for the saver, and the rest of the text, if any, for redis-py."""
    ours: list[tuple[str, str]] = []
    theirs: list[str] = []
    for text in filter(None, query.split("&")):
        pairs = urllib.parse.parse_qsl(text, keep_blank_values=True)
        if pairs[0][0] in _REDIS:
            ours += pairs
        else:
            theirs.append(text)
    return ours, ["&".join(theirs)] if theirs else []


def _read_options(url: str, query: list[tuple[str, str]], known: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, text in query:
        if key not in known or key in found:
            what = "given twice" if key in found else f"not known; known: {', '.join(known)}"
            raise ConfigurationError(f"{url!r}: the option {key!r} is {what}")
        try:
            found[key] = known[key](text)
        except (KeyError, ValueError) as error:
            what = "true or false" if isinstance(error, KeyError) else "a number"
            raise ConfigurationError(f"{url!r}: {key}={text!r} is not {what}") from error
    return found
