"""`SqliteSaver`: the saver on one SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable._sqlite.connections import Settings, connections_to
from langgraph_durable._sqlite.database import Database
from langgraph_durable._sqlite.storage import SqliteStorage
from langgraph_durable.errors import ConfigurationError
from langgraph_durable.policies import Policy
from langgraph_durable.saver import DurableSaver
from langgraph_durable.schema import StateSchema

if TYPE_CHECKING:
    import aiosqlite

CACHE_BYTES = 64 * 1024 * 1024


class SqliteSaver(DurableSaver):
    """Keeps LangGraph checkpoints in a SQLite file; serves `invoke` and `ainvoke` alike.

    Make it anywhere, at import time too; the file is created on first use. Threads, event loops
    and processes may share the file. Closing is good manners, not a duty.

    Args:
        conn: the path of the file, ":memory:", a `sqlite3.Connection` made with
            `check_same_thread=False`, or an `aiosqlite.Connection`.
        serde: a serialiser of your own; applied to each item. The default keeps every value
            exactly, or refuses it.
        durability: "full" survives a power cut; "normal" survives the death of the process, and
            may lose the last moments before a power cut.
        busy_timeout: seconds to wait while another process writes.
        types: classes that stored data may rebuild. "safe": data classes of modules that are
            imported, and LangGraph's own. A list of module names, class names and classes adds
            those. "any" allows every data class. "plain" builds none: to look at threads without
            the program that made them, their objects are read as dicts.
        metadata_keys: the only keys of `configurable` and of the run's metadata that are copied
            to checkpoint metadata. By default all scalars are, except what names a credential.
        on_conflict: "raise" `ConcurrentUpdate` when two runs go on from one checkpoint of a
            thread, or "allow" it.
        cache_bytes: memory for digests of what is stored, by which new values are told from old
            ones without reading; 0 reads instead.
        retention: a policy, applied in small steps as threads are written: every 32 puts.
        warn_bytes: log a warning when a thread under `retention` holds more: "50 MB".
        schema: the version of the program's state, and the steps that bring older states to it.
        environment: what else to note about this program, beside the versions of Python,
            LangGraph and this package: `{"model": "...", "git": "..."}`.
        on_environment_change: when a run continues a thread that a program with other versions
            stored: "warn" once, "ignore" it, or raise an "error".

    Raises:
        ConfigurationError: an argument is wrong.

    Example:
        >>> graph = builder.compile(checkpointer=SqliteSaver("agent.db"))   # doctest: +SKIP
    """

    def __init__(
        self,
        conn: str | os.PathLike[str] | sqlite3.Connection | aiosqlite.Connection,
        *,
        serde: SerializerProtocol | None = None,
        durability: Literal["full", "normal"] = "full",
        busy_timeout: float = 30.0,
        types: Literal["safe", "any", "plain"] | Collection[str | type] = "safe",
        metadata_keys: Collection[str] | None = None,
        on_conflict: Literal["raise", "allow"] = "raise",
        cache_bytes: int = CACHE_BYTES,
        retention: Policy | None = None,
        warn_bytes: int | str | None = None,
        schema: StateSchema | None = None,
        environment: Mapping[str, Any] | None = None,
        on_environment_change: Literal["warn", "ignore", "error"] = "warn",
    ) -> None:
        if durability not in ("full", "normal"):
            raise ConfigurationError(f'durability is "full" or "normal", not {durability!r}')
        if (
            isinstance(busy_timeout, bool)
            or not isinstance(busy_timeout, (int, float))
            or not 0 <= busy_timeout <= 86_400
        ):
            raise ConfigurationError(f"busy_timeout is seconds from 0 up, not {busy_timeout!r}")
        connections = connections_to(conn, Settings(durability.upper(), busy_timeout))
        super().__init__(
            Database(connections, busy_timeout),
            SqliteStorage(),
            serde=serde,
            types=types,
            metadata_keys=metadata_keys,
            on_conflict=on_conflict,
            cache_bytes=cache_bytes,
            retention=retention,
            warn_bytes=warn_bytes,
            schema=schema,
            environment=environment,
            on_environment_change=on_environment_change,
        )
        self._shown = f"{connections.name!r}, durability={durability!r}"

    def __repr__(self) -> str:
        return f"SqliteSaver({self._shown})"
