"""The whole contract, on a file and in memory."""

from __future__ import annotations

from pathlib import Path

from langgraph_durable import SqliteSaver
from langgraph_durable.testing import DurableContract


class TestSqliteFile(DurableContract):
    def make_saver(self, directory: Path) -> SqliteSaver:
        return SqliteSaver(directory / "agent.db")


class TestSqliteMemory(DurableContract):
    """A store in memory belongs to one saver, so to open it again is to take the same saver."""

    savers: dict[Path, SqliteSaver] = {}

    def make_saver(self, directory: Path) -> SqliteSaver:
        return self.savers.setdefault(directory, SqliteSaver(":memory:"))

    def close_saver(self, saver: SqliteSaver) -> None:
        self.savers.clear()
        saver.close()
