"""The tables, and how a connection is set up.

Tables carry a prefix because the file may be somebody's application database. A log's number and
an item's number make one integer key, so that a list is one stretch of one b-tree, with 4 KB of a
row in the leaf. Names are `ANY` because a name is TEXT, or BLOB if it holds lone surrogates.
"""

from __future__ import annotations

import random
import sqlite3
import time

from langgraph_durable.errors import NotAStore

FORMAT = 1
"""The storage format this version writes; a store with a higher one is refused."""

BITS = 32
"""An item's key is `log << BITS | number`."""
ITEMS_PER_LOG = (1 << BITS) - 1

TABLES = """
CREATE TABLE lgd_format (version INTEGER NOT NULL) STRICT;

CREATE TABLE lgd_threads (
    tid       INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id ANY NOT NULL UNIQUE,
    epoch     INTEGER NOT NULL
) STRICT;

CREATE TABLE lgd_heads (
    thread_id ANY NOT NULL,
    ns        ANY NOT NULL,
    tid       INTEGER NOT NULL,
    id        ANY NOT NULL,
    PRIMARY KEY (thread_id, ns)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_checkpoints (
    tid    INTEGER NOT NULL,
    id     ANY NOT NULL,
    ns     ANY NOT NULL,
    parent ANY,
    run    ANY,
    refs   BLOB NOT NULL,
    body   BLOB NOT NULL,
    PRIMARY KEY (tid, id, ns)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_writes (
    tid     INTEGER NOT NULL,
    id      ANY NOT NULL,
    ns      ANY NOT NULL,
    task_id ANY NOT NULL,
    idx     INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    path    ANY NOT NULL,
    run     ANY,
    refs    BLOB NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (tid, id, ns, task_id, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_logs (
    tid INTEGER NOT NULL,
    log ANY NOT NULL,
    lid INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (tid, log)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_items (
    key  INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE lgd_runs (
    run ANY NOT NULL,
    tid INTEGER NOT NULL,
    PRIMARY KEY (run, tid)
) STRICT, WITHOUT ROWID;
"""

WAL_TRIES = 200


def configure(conn: sqlite3.Connection, synchronous: str, busy_timeout: float) -> None:
    """Settings that belong to a connection, not to the file."""
    conn.isolation_level = None
    conn.execute(f"PRAGMA busy_timeout = {int(busy_timeout * 1000)}")
    conn.execute(f"PRAGMA synchronous = {synchronous}")
    conn.execute("PRAGMA cell_size_check = ON")


def create(conn: sqlite3.Connection, in_memory: bool = False) -> None:
    """Make the file a store if it is none. Many processes may do this at once."""
    if _version(conn) is None:
        if not in_memory:
            conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
            _use_wal(conn)
        conn.execute("BEGIN IMMEDIATE")
        try:
            if _version(conn) is None:
                for statement in TABLES.split(";\n"):
                    if statement.strip():
                        conn.execute(statement)
                conn.execute("INSERT INTO lgd_format VALUES (?)", (FORMAT,))
            conn.execute("COMMIT")
        except BaseException:
            conn.execute("ROLLBACK")
            raise
    version = _version(conn)
    if version != FORMAT:
        raise NotAStore(
            f"the store has format {version}, this version of langgraph_durable reads format "
            f"{FORMAT}: upgrade the package (nothing was changed)"
        )


def _version(conn: sqlite3.Connection) -> int | None:
    found = conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'lgd_format'").fetchone()
    if not found:
        return None
    row = conn.execute("SELECT max(version) FROM lgd_format").fetchone()
    return int(row[0]) if row[0] is not None else 0


def _use_wal(conn: sqlite3.Connection) -> None:
    """WAL mode. Setting it does not wait for a lock, so look first and try again (2 of 320)."""
    for attempt in range(WAL_TRIES):
        try:
            if conn.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                return
            conn.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if attempt == WAL_TRIES - 1:
                raise
            time.sleep(_jitter.uniform(0.001, 0.05))


_jitter = random.Random()
