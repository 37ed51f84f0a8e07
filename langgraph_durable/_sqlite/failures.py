"""What SQLite's errors mean here: one table from its codes to ours."""

from __future__ import annotations

import os
import sqlite3
import urllib.parse

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
    sqlite3.SQLITE_IOERR_SHMSIZE: (
        StorageFull,
        "there is no room left for the 32 KiB beside it that SQLite needs at work; free some",
    ),
    sqlite3.SQLITE_READONLY: (StorageReadOnly, "it is read-only for this process"),
    sqlite3.SQLITE_READONLY_DIRECTORY: (
        StorageReadOnly,
        "SQLite may make no files beside it; to read it while nobody writes: file:...?immutable=1",
    ),
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


def _meaning(error: BaseException) -> tuple[type[DurableError], str]:
    extended = _MEANING.get(getattr(error, "sqlite_errorcode", None) or 0)
    return extended or _MEANING.get(_code(error), (StorageError, "the database refused the call"))


def path_of(database: str) -> str:
    """The path that a URI names, or that is given as it is."""
    if not database.startswith("file:"):
        return database
    return urllib.parse.unquote(urllib.parse.urlsplit(database).path)


def _may_read(path: str) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, os.R_OK, effective_ids=effective)


def _why_not_opened(path: str) -> str | None:
    folder = os.path.dirname(path)
    if not folder:  # it is the name of a connection
        return None
    if os.path.isdir(path):
        return "it is a folder, not a file"
    if not os.path.isdir(folder):
        there = os.path.exists(folder)
        return f"{folder} is not a folder" if there else f"the folder {folder} does not exist"
    if not os.path.lexists(path):
        return "there is no such file, and none can be made"
    return None if _may_read(path) else "this process may not read it"


def explained(error: BaseException, database: str, about: str = "") -> DurableError:
    """Our error for one of SQLite's, naming the database and what was being done."""
    kind, meaning = _meaning(error)
    if kind is StorageError and "closed" in str(error):
        meaning = "the connection is closed"
    if _code(error) == sqlite3.SQLITE_CANTOPEN:
        meaning = _why_not_opened(path_of(database)) or meaning
    subject = f"{database}, {about}" if about else database
    return kind(f"{subject}: {meaning} (SQLite: {error}). Nothing was written.")
