"""What SQLite's errors mean here: one table from its codes to ours."""

from __future__ import annotations

import os
import sqlite3

from langgraph_durable._core.seal import Damaged
from langgraph_durable.errors import (
    CorruptionError,
    DurableError,
    NotAStore,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
)

BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_MEANING: dict[int, tuple[type[DurableError], str]] = {
    sqlite3.SQLITE_BUSY: (
        StorageBusy,
        "it stayed locked by another process for longer than busy_timeout; try again, or raise it",
    ),
    sqlite3.SQLITE_LOCKED: (
        StorageBusy,
        "it stayed locked by another connection for longer than busy_timeout; try again",
    ),
    sqlite3.SQLITE_FULL: (StorageFull, "there is no room left; free some, then run it again"),
    sqlite3.SQLITE_READONLY: (StorageReadOnly, "it is read-only for this process"),
    sqlite3.SQLITE_PERM: (StorageReadOnly, "this process has no permission for it"),
    sqlite3.SQLITE_NOTADB: (NotAStore, "the file is not a SQLite database; give another path"),
    sqlite3.SQLITE_CORRUPT: (
        CorruptionError,
        "the database file is damaged; restore a backup, or use the sqlite3 shell's .recover",
    ),
    sqlite3.SQLITE_CANTOPEN: (StorageError, "the file cannot be opened"),
    sqlite3.SQLITE_IOERR: (StorageError, "the disk reported an error"),
}


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds a lock, so that trying again makes sense."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) in BUSY


Foreign = (sqlite3.Error, UnicodeDecodeError, Damaged)
"""What a transaction may raise that is not ours yet.

SQLite's module raises UnicodeDecodeError where damage makes its own message unreadable.
"""


def _code(error: BaseException) -> int:
    if isinstance(error, (UnicodeDecodeError, Damaged)):
        return sqlite3.SQLITE_CORRUPT
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def explained(error: BaseException, database: str, about: str = "") -> DurableError:
    """Our error for one of SQLite's, naming the database and what was being done."""
    kind, meaning = _MEANING.get(_code(error), (StorageError, "the database refused the call"))
    if kind is StorageError and "closed" in str(error):
        meaning = "the connection is closed"
    folder = os.path.dirname(database)
    if _code(error) == sqlite3.SQLITE_CANTOPEN and folder and not os.path.isdir(folder):
        meaning = f"the folder {folder} does not exist"
    subject = f"{database}, {about}" if about else database
    return kind(f"{subject}: {meaning} (SQLite: {error}). Nothing was written.")
