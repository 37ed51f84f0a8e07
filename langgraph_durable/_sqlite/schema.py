"""The tables, and how a connection is set up.

Tables carry a prefix because the file may be somebody's application database. A thread's number
and an item's number make one integer key, so that a list is a stretch of one b-tree, with 4 KB of
a row in the leaf. Names are `ANY` because a name is TEXT, or BLOB if it holds lone surrogates. A
tally counts the rows of writes that a checkpoint has, so that one that goes missing is noticed. A
claim has the key of the item that makes it. While a thread is watched, because parts of it are
being removed, whoever writes to it notes the place as touched.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Callable

from langgraph_durable._sqlite.failures import is_busy
from langgraph_durable.errors import NotAStore, StorageTooNew

FORMAT = 1
"""The storage format this version writes; a store with a higher one is refused."""
OLDEST = 1
"""The oldest format that can be read as it is, where the file cannot be written."""

BITS = 32
"""An item's key is `tid << BITS | number`."""
MOST_ITEMS = (1 << BITS) - 1

LARGEST_LOG = 16 << 20
"""Bytes of the write-ahead log that are kept on disk once their content is in the file: a large
removal passes through it."""

TABLES = """
CREATE TABLE lgd_format (version INTEGER NOT NULL) STRICT;

CREATE TABLE lgd_threads (
    tid       INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id ANY NOT NULL UNIQUE,
    watched   INTEGER NOT NULL DEFAULT 0,
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
    ns     ANY NOT NULL,
    id     ANY NOT NULL,
    parent ANY,
    run    ANY,
    refs   BLOB NOT NULL,
    body   BLOB NOT NULL,
    PRIMARY KEY (tid, ns, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_writes (
    tid     INTEGER NOT NULL,
    ns      ANY NOT NULL,
    id      ANY NOT NULL,
    task_id ANY NOT NULL,
    idx     INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    path    ANY NOT NULL,
    run     ANY,
    refs    BLOB NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (tid, ns, id, task_id, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_tallies (
    tid   INTEGER NOT NULL,
    ns    ANY NOT NULL,
    id    ANY NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (tid, ns, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_items (
    key  INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE lgd_claims (
    key   INTEGER NOT NULL,
    claim BLOB NOT NULL,
    PRIMARY KEY (key, claim)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_stores (
    id   TEXT PRIMARY KEY NOT NULL,
    urls TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_tombs (
    thread_id ANY PRIMARY KEY NOT NULL,
    id        ANY NOT NULL,
    time      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_touched (
    tid    INTEGER NOT NULL,
    number INTEGER NOT NULL,
    ns     ANY NOT NULL,
    id     ANY NOT NULL,
    PRIMARY KEY (tid, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE lgd_runs (
    run ANY NOT NULL,
    tid INTEGER NOT NULL,
    PRIMARY KEY (run, tid)
) STRICT, WITHOUT ROWID;
"""


def configure(conn: sqlite3.Connection, synchronous: str, busy_timeout: float) -> None:
    """Settings that belong to a connection, not to the file."""
    conn.execute(f"PRAGMA busy_timeout = {int(busy_timeout * 1000)}")
    conn.execute(f"PRAGMA synchronous = {synchronous}")
    conn.execute("PRAGMA cell_size_check = ON")
    conn.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG}")


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], object]] = {}
"""What makes a store of the format before one of this format. Each runs inside the transaction that
also raises the number, so it must not commit; and `TABLES` must say the same at once, which
`tests/test_format.py` checks."""


SWITCHING = 1.0
"""Seconds to wait at most until a store can be switched to WAL mode."""


def create(conn: sqlite3.Connection, patience: float) -> None:
    """Make the database a store of today's format. Many processes may do this at once."""
    version = _version(conn)
    if version is None:
        conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _use_wal(conn, patience)
        _in_turn(conn, patience, _make)
    elif version < FORMAT:
        try:
            _in_turn(conn, patience, _migrate)
        except sqlite3.OperationalError as error:
            read_only = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY
            if not read_only or version < OLDEST:
                raise
            return
    if version != FORMAT and (version := _version(conn)) != FORMAT:
        path = conn.execute("PRAGMA database_list").fetchone()[2]
        raise StorageTooNew(
            f"{path or 'the database'}: the store has format {version}, and this version of "
            f"langgraph_durable reads format {FORMAT}: upgrade the package (nothing was changed)"
        )
    # What `VACUUM INTO` or `.dump` has made of a store is no longer in WAL mode. Where it cannot be
    # switched now (read-only, or in use), it works all the same.
    with contextlib.suppress(sqlite3.OperationalError):
        _use_wal(conn, min(patience, SWITCHING))


def _in_turn(
    conn: sqlite3.Connection, patience: float, act: Callable[[sqlite3.Connection], object]
) -> None:
    """One transaction, after those of all other processes that are about the same."""
    begin(conn, patience)
    try:
        act(conn)
        conn.execute("COMMIT")
    except BaseException:
        rollback(conn)
        raise


def _make(conn: sqlite3.Connection) -> None:
    if _version(conn) is None:
        for statement in TABLES.split(";\n"):
            conn.execute(statement)
        conn.execute("INSERT INTO lgd_format VALUES (?)", (FORMAT,))


def _migrate(conn: sqlite3.Connection) -> None:
    """From whatever the format is by now; somebody else may have done it meanwhile."""
    conn.execute("UPDATE lgd_format SET version = version")  # fails at once if it is read-only
    for number in range((_version(conn) or 0) + 1, FORMAT + 1):
        MIGRATIONS[number](conn)
        conn.execute("UPDATE lgd_format SET version = ?", (number,))


def check_length(conn: sqlite3.Connection, path: str) -> None:
    """Refuse a file that ends inside a page; SQLite itself notices only when it reads there."""
    page = conn.execute("PRAGMA page_size").fetchone()[0]
    if os.path.getsize(path) % page:
        raise NotAStore(
            f"{path}: the file ends in the middle of a page, so something has cut it off: restore "
            "it from a backup"
        )


def _version(conn: sqlite3.Connection) -> int | None:
    try:
        row = conn.execute("SELECT max(version) FROM lgd_format").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # the code for a table that is not there
            raise
        return None
    return int(row[0]) if row[0] is not None else 0


def _use_wal(conn: sqlite3.Connection, patience: float) -> None:
    """WAL mode; a database in memory has none and needs none."""

    def switch() -> None:
        # Setting the mode does not wait for a lock, so look first (locked: 2 of 320 first opens).
        if conn.execute("PRAGMA journal_mode").fetchone()[0] not in ("wal", "memory"):
            conn.execute("PRAGMA journal_mode = WAL")

    _patiently(switch, patience)


def begin(conn: sqlite3.Connection, patience: float) -> None:
    """Take the write lock, waiting `patience` seconds for it."""
    try:
        conn.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        _patiently(lambda: conn.execute("BEGIN IMMEDIATE"), patience)


def rollback(conn: sqlite3.Connection) -> None:
    """End a transaction, unless SQLite has done so itself."""
    if conn.in_transaction:
        conn.execute("ROLLBACK")


def _patiently(act: Callable[[], object], patience: float) -> None:
    """Try until nobody holds a lock. SQLite's own waiting grows to steps of 100 ms; ours to 10."""
    end, step = time.monotonic() + patience, 0.0002
    while True:
        try:
            act()
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if time.monotonic() >= end:
                raise
        time.sleep(_jitter.uniform(step / 2, step))
        step = min(step * 1.5, 0.01)


_jitter = random.Random()
