"""How each saver under test is opened, closed and weighed.

Savers go by name: `ours`, `stock` (langgraph-checkpoint-sqlite), `memory` (InMemorySaver) and
`reference` (keeps Python objects, serialises nothing: what is left is LangGraph's own time). Those
with a file run in WAL mode at the `synchronous` level the scenario asks for, set on both sides.
"""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as StockAsyncSaver

Synchronous = Literal["FULL", "NORMAL"]
Saver = BaseCheckpointSaver[Any]
FILE = "agent.db"


class ReferenceSaver(BaseCheckpointSaver[int]):
    """Keeps references to what it is given: the floor under every saver, not a usable one."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: dict[tuple[str, str], dict[str, CheckpointTuple]] = {}
        self.writes: dict[tuple[str, str, str], dict[tuple[str, int], tuple[str, str, Any]]] = {}

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the stored objects themselves, under a fresh top level."""
        thread, ns = place(config)
        stored = self.checkpoints.get((thread, ns))
        if not stored:
            return None
        found = stored.get(get_checkpoint_id(config) or max(stored))
        if found is None:
            return None
        pending = self.writes.get((thread, ns, found.checkpoint["id"]), {})
        return found._replace(
            checkpoint=shallow(found.checkpoint), pending_writes=list(pending.values())
        )

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Remember the checkpoint's own objects."""
        thread, ns = place(config)
        where = {"thread_id": thread, "checkpoint_ns": ns}
        saved: RunnableConfig = {"configurable": {**where, "checkpoint_id": checkpoint["id"]}}
        parent = get_checkpoint_id(config)
        self.checkpoints.setdefault((thread, ns), {})[checkpoint["id"]] = CheckpointTuple(
            saved,
            shallow(checkpoint),
            metadata,
            {"configurable": {**where, "checkpoint_id": parent}} if parent else None,
        )
        return saved

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Remember the written objects."""
        stored = self.writes.setdefault((*place(config), get_checkpoint_id(config) or ""), {})
        for number, (channel, value) in enumerate(writes):
            stored[task_id, WRITES_IDX_MAP.get(channel, number)] = (task_id, channel, value)


def place(config: RunnableConfig) -> tuple[str, str]:
    """The thread and the namespace a config names."""
    configurable = config["configurable"]
    return configurable["thread_id"], configurable.get("checkpoint_ns", "")


def shallow(checkpoint: Checkpoint) -> Checkpoint:
    """A copy whose dictionary of channels may be changed without touching the stored one."""
    copied = checkpoint.copy()
    copied["channel_values"] = checkpoint["channel_values"].copy()
    return copied


def find_ours() -> tuple[type[Any] | None, str]:
    """Our class from this checkout, or None and the reason it cannot be imported."""
    checkout = str(Path(__file__).resolve().parent.parent)
    if checkout not in sys.path:
        sys.path.append(checkout)
    try:
        return importlib.import_module("langgraph_durable").SqliteSaver, ""
    except (ImportError, AttributeError) as error:
        return None, f"langgraph_durable cannot be imported: {error}"


def open_ours(path: Path, synchronous: Synchronous) -> Any:
    """Our saver on `path`; the caller closes it in the colour it used it in."""
    saver_class, reason = find_ours()
    if saver_class is None:
        raise RuntimeError(reason)
    return saver_class(str(path), durability=synchronous.lower())


@contextmanager
def open_saver(name: str, folder: Path, synchronous: Synchronous) -> Iterator[Saver]:
    """Open a saver for synchronous calls, on the database in `folder` if it needs one."""
    if name == "memory":
        yield InMemorySaver()
    elif name == "reference":
        yield ReferenceSaver()
    elif name == "ours":
        with closing(open_ours(folder / FILE, synchronous)) as ours:
            ours.setup()
            yield ours
    else:
        connection = sqlite3.connect(folder / FILE, check_same_thread=False, timeout=60)
        with closing(connection):
            stock = StockSaver(connection)
            stock.setup()
            connection.execute(f"PRAGMA synchronous={synchronous}")
            yield stock


@contextmanager
def open_async_saver(
    name: str, folder: Path, synchronous: Synchronous, runner: asyncio.Runner
) -> Iterator[Saver]:
    """Open a saver for asynchronous calls on the runner's loop; its thread ends with the block."""
    if name == "ours":
        ours = open_ours(folder / FILE, synchronous)
        try:
            yield ours
        finally:
            runner.run(ours.aclose())
        return
    stock = runner.run(connect_stock(folder / FILE, synchronous))
    try:
        yield stock
    finally:
        runner.run(stock.conn.close())


async def connect_stock(path: Path, synchronous: Synchronous) -> StockAsyncSaver:
    """The stock asynchronous saver, set up, at the given `synchronous`."""
    saver = StockAsyncSaver(await aiosqlite.connect(path, timeout=60))
    await saver.setup()
    await saver.conn.execute(f"PRAGMA synchronous={synchronous}")
    return saver


@contextmanager
def open_bare(folder: Path, synchronous: Synchronous) -> Iterator[sqlite3.Connection]:
    """A connection with one table of blobs: the least a durable put could possibly do."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, bytes BLOB)")
        yield connection


def stored_bytes(folder: Path) -> int:
    """What a saver occupies on disk, its log folded into the file first.

    Every file of the folder counts, except SQLite's shared-memory index, which holds no data.
    """
    with closing(sqlite3.connect(folder / FILE, timeout=60)) as connection:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise RuntimeError(f"{folder}: the log could not be folded in; a reader is still open")
    return sum(
        file.stat().st_size
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith("-shm")
    )
