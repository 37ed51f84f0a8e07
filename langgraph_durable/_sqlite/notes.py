"""What the writing connection need not ask again while nobody else writes to the file.

A put needs the thread's number and epoch, the head it may replace and the number that its first
item gets. All of that was decided by the write before it, as long as that was ours: SQLite's
`data_version` says whether another connection has committed since. Kept by `database` from one
transaction to the next, and dropped whole after a rollback.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

MOST_THREADS = 10_000


@dataclass(slots=True)
class ThreadNote:
    """One thread."""

    tid: int
    epoch: int
    watched: int = 0
    """Whether writes are to be noted, see `watching`."""
    following: int | None = None
    """The number of the next item."""
    heads: dict[str, str | None] = field(default_factory=dict)
    """The head of each namespace that was looked up; None if it has none."""


class Notes:
    """All threads written to lately."""

    def __init__(self) -> None:
        self.threads: dict[str, ThreadNote] = {}
        self._version: int | None = None

    def check(self, conn: sqlite3.Connection) -> None:
        """At the begin of a transaction: forget everything if somebody else has written."""
        version = conn.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or len(self.threads) > MOST_THREADS:
            self.threads.clear()
            self._version = version

    def clear(self) -> None:
        self.threads.clear()
        self._version = None
