"""`SqliteSaver`: the saver on one SQLite file."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable import addresses
from langgraph_durable._core.units import in_bytes
from langgraph_durable._sqlite.adoption import AdoptingStorage
from langgraph_durable._sqlite.connections import (
    Connections,
    FileConnections,
    Settings,
    connections_to,
)
from langgraph_durable._sqlite.database import Database
from langgraph_durable._sqlite.failures import path_of
from langgraph_durable._sqlite.storage import SqliteStorage
from langgraph_durable.artifacts import (
    BESIDE,
    OFFLOAD_ABOVE,
    Artifacts,
    ArtifactStore,
    FileArtifacts,
    MemoryArtifacts,
    shelf_for,
)
from langgraph_durable.errors import ConfigurationError, DurableError
from langgraph_durable.policies import Policy
from langgraph_durable.saver import DurableSaver
from langgraph_durable.schema import StateSchema

if TYPE_CHECKING:
    import aiosqlite

CACHE_BYTES = 64 * 1024 * 1024


Adopted = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class AdoptReport:
    """What `SqliteSaver.adopt` has moved, and which threads could not be read."""

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    failed: dict[str, DurableError] = field(default_factory=dict)

    def with_thread(self, checkpoints: int, writes: int) -> AdoptReport:
        return AdoptReport(
            self.threads + 1, self.checkpoints + checkpoints, self.writes + writes, self.failed
        )


def _named(thread_ids: Sequence[str] | None) -> Sequence[str] | None:
    return None if thread_ids is None else addresses.several("thread_ids", thread_ids)


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
        warn_bytes: log a warning when a thread holds more: "50 MB".
        artifacts: where large values and `Artifact`s go: a store, a URL (s3://, gs://, az://,
            file://, memory://), a folder, or a list of which the first is written and all are
            read; None never offloads. The default is a folder beside the file,
            `agent.db-artifacts`; for ":memory:" it is memory, for a connection of yours None.
        offload_above: the size above which an item of a value is offloaded: "64 KiB".
        on_missing_artifact: "raise" `ArtifactMissing`, or put a "placeholder" in its place.
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
        artifacts: Artifacts = "default",
        offload_above: int | str = OFFLOAD_ABOVE,
        on_missing_artifact: Literal["raise", "placeholder"] = "raise",
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
        storage = AdoptingStorage()
        super().__init__(
            Database(connections, busy_timeout),
            storage,
            serde=serde,
            types=types,
            metadata_keys=metadata_keys,
            on_conflict=on_conflict,
            cache_bytes=cache_bytes,
            retention=retention,
            warn_bytes=warn_bytes,
            shelf=shelf_for(
                artifacts,
                _beside(conn, connections),
                offload_above=in_bytes("offload_above", offload_above),
                on_missing_artifact=on_missing_artifact,
            ),
            schema=schema,
            environment=environment,
            on_environment_change=on_environment_change,
        )
        plain = self._engine.over(SqliteStorage())
        storage.equip(plain, self.serde)
        self._storage = storage
        self._shown = f"{connections.name!r}, durability={durability!r}"

    # ---- adopting ----------------------------------------------------------------------------

    def adopt(
        self, thread_ids: Sequence[str] | None = None, *, progress: Adopted | None = None
    ) -> AdoptReport:
        """Move threads that the stock saver has left in this file into our tables, now.

        Without it each thread is moved when it is first used. May be interrupted at any time.

        Args:
            thread_ids: which ones; None for all.
            progress: called after each thread with the numbers of threads done, and of all.

        Example:
            >>> SqliteSaver("old.db").adopt().failed   # doctest: +SKIP
            {}
        """
        named = _named(thread_ids)
        return self._now(lambda do: self._adopt(do, named, progress))

    async def aadopt(
        self, thread_ids: Sequence[str] | None = None, *, progress: Adopted | None = None
    ) -> AdoptReport:
        """`adopt`, off the event loop."""
        named = _named(thread_ids)
        return await self._later(lambda do: self._adopt(do, named, progress))

    async def _adopt(
        self,
        do: Callable[..., Any],
        named: Sequence[str] | None,
        progress: Adopted | None,
    ) -> AdoptReport:
        left = sorted(await do(self._storage.left()))
        todo = left if named is None else [each for each in named if each in left]
        report = AdoptReport()
        for done, thread_id in enumerate(todo, 1):
            try:
                moved = await do(self._storage.adopt(thread_id))
                report = report.with_thread(moved.checkpoints, moved.writes)
            except DurableError as error:
                report.failed[thread_id] = error
            if progress is not None:
                progress(done, len(todo))
        return report

    def __repr__(self) -> str:
        return f"SqliteSaver({self._shown})"


def _beside(target: object, connections: Connections) -> ArtifactStore | None:
    """The store of a database by default: its folder is found again wherever both are moved to."""
    if isinstance(connections, FileConnections):
        path = os.path.realpath(path_of(connections.name))  # as SQLite does with its own files
        return FileArtifacts(f"{path}-artifacts", url=BESIDE, like=path)
    if target == ":memory:":
        return MemoryArtifacts(f"memory:private-{secrets.token_hex(8)}", private=True)
    return None
