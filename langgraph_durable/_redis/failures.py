"""What a server's errors mean here: which pass by themselves, and what to say of the others."""

from __future__ import annotations

import re

from redis import exceptions as theirs

from langgraph_durable.errors import (
    ConfigurationError,
    DurableError,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)

FAILED = (theirs.RedisError, theirs.RedisClusterException, OSError)
"""What redis-py raises when a call has failed; a cluster's own kind is no `RedisError`."""

UNSURE = "It may or may not have been stored; storing it again does no harm."
NOTHING = "Nothing was written."

_MEANING: dict[str, tuple[type[DurableError], str]] = {
    "OOM": (
        StorageFull,
        "the server has reached its maxmemory; free some, or raise it, then run it again",
    ),
    "READONLY": (
        StorageReadOnly,
        "the server is a read-only replica; give the address of the primary",
    ),
    "NOPERM": (
        StorageError,
        "the user lacks a permission; the ACL line it needs is in the docstring of RedisSaver",
    ),
    "NOAUTH": (StorageError, "the server wants a password; put it into the URL"),
    "WRONGPASS": (StorageError, "user name or password are wrong"),
    "LOADING": (StorageBusy, "the server is still loading its data; try again"),
    "BUSY": (StorageBusy, "the server is busy with somebody's script; try again"),
    "TRYAGAIN": (StorageBusy, "the cluster is moving the thread to another node; try again"),
    "CLUSTERDOWN": (StorageUnreachable, "the cluster is down; try again when it is up"),
    "MASTERDOWN": (StorageUnreachable, "the replica has lost its primary; try again"),
    "NOREPLICAS": (StorageError, "too few replicas are there for the server to accept writes"),
    "MISCONF": (StorageError, "the server cannot write to its disk and so accepts nothing"),
    "WRONGTYPE": (StorageError, "a key under our prefix is not ours; use another prefix"),
    "ERR": (StorageError, "the server refused the call"),
}
"""By the first word of what the server says."""

_PASSING = frozenset(
    ("READONLY", "LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS")
)
_CODES: dict[type[Exception], str] = {
    theirs.OutOfMemoryError: "OOM",
    theirs.ReadOnlyError: "READONLY",
    theirs.NoPermissionError: "NOPERM",
    theirs.BusyLoadingError: "LOADING",
    theirs.TryAgainError: "TRYAGAIN",
    theirs.ClusterDownError: "CLUSTERDOWN",
    theirs.MasterDownError: "MASTERDOWN",
}
"""redis-py takes the first word off these."""


class NotReplicated(Exception):
    """Fewer replicas than asked for have confirmed a write in time."""


def _met(error: BaseException) -> BaseException:
    """What a cluster client met, which tells of it by a kind of its own."""
    while isinstance(error, theirs.RedisClusterException):
        inner = error.__cause__ or error.__context__
        if not isinstance(inner, FAILED) or isinstance(inner, theirs.AskError):
            return theirs.ClusterDownError(str(error))
        error = inner
    return error


def _code(error: BaseException) -> str:
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    text = str(error)
    if text.startswith("TTL exhausted"):  # redis-py was sent around until it had enough
        return "TRYAGAIN"
    if text.startswith("Error running script"):  # Redis 6.2 puts the error of a command last
        text = text.rpartition(": -")[2]
    first = text.partition(" ")[0]
    return first if first in _MEANING else "ERR"


def is_passing(error: BaseException) -> bool:
    """Whether trying again soon makes sense."""
    error = _met(error)
    if isinstance(error, theirs.AuthenticationError | theirs.MaxConnectionsError):
        return False
    if isinstance(error, theirs.ConnectionError | theirs.TimeoutError | OSError):
        return "invalid DB index" not in str(error)
    return isinstance(error, theirs.RedisError) and _code(error) in _PASSING


_NO_SCRIPTS = re.compile(r"(run the|unknown command) ['`]eval", re.IGNORECASE)


def is_denied_script(error: object) -> bool:
    """Whether the user may not run scripts, or nobody can; in contrast to what is inside one."""
    return isinstance(error, theirs.ResponseError) and bool(_NO_SCRIPTS.search(str(error)))


def explained(error: BaseException, server: str, about: str, *, writes: bool) -> BaseException:
    """Our error for one of theirs, naming the server and what was being done."""
    if isinstance(error, DurableError):
        return error
    error, subject = _met(error), f"{server}, {about}" if about else server
    after = UNSURE if writes else ""
    if isinstance(error, NotReplicated):
        return StorageError(f"{subject}: {error}. {UNSURE}")
    if isinstance(error, theirs.AuthenticationError):
        kind, meaning = _MEANING["WRONGPASS"]
        return kind(f"{subject}: {meaning} ({error}). {NOTHING}")
    if "invalid DB index" in str(error) or "DB index is out of range" in str(error):
        return ConfigurationError(f"{subject}: there is no such database number ({error})")
    if "cluster support disabled" in str(error):
        return ConfigurationError(f"{subject}: this server is not part of a cluster ({error})")
    if isinstance(error, theirs.MaxConnectionsError):
        return StorageBusy(
            f"{subject}: all connections of the pool are in use ({error}). {NOTHING}"
        )
    if isinstance(error, theirs.ConnectionError | theirs.TimeoutError | OSError):
        silent = f"{subject}: the server cannot be reached, or does not answer ({error}). {after}"
        return StorageUnreachable(silent.rstrip())
    if not isinstance(error, theirs.RedisError):
        return error
    kind, meaning = _MEANING[_code(error)]
    return kind(f"{subject}: {meaning} ({error}). {NOTHING if writes else ''}".rstrip())
