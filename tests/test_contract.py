"""The whole contract, on every kind of store."""

from __future__ import annotations

from pathlib import Path

import backends

from langgraph_durable import SqliteSaver
from langgraph_durable.saver import DurableSaver
from langgraph_durable.testing import DurableContract


class TestSqliteFile(DurableContract):
    def make_saver(self, directory: Path) -> SqliteSaver:
        return SqliteSaver(directory / "agent.db")


class TestSqliteWithArtifacts(DurableContract):
    """Nearly every item is offloaded."""

    def make_saver(self, directory: Path) -> SqliteSaver:
        store = f"memory://{directory}"
        return SqliteSaver(directory / "agent.db", artifacts=store, offload_above=60)


class TestValkeyWithArtifacts(DurableContract):
    def make_saver(self, directory: Path) -> DurableSaver:
        store = f"memory://{directory}"
        return backends.ALL["valkey"](directory, artifacts=store, offload_above=60)


class TestSqliteMemory(DurableContract):
    """A store in memory belongs to one saver, so to open it again is to take the same saver."""

    savers: dict[Path, SqliteSaver] = {}

    def make_saver(self, directory: Path) -> SqliteSaver:
        return self.savers.setdefault(directory, SqliteSaver(":memory:"))

    def close_saver(self, saver: SqliteSaver) -> None:
        self.savers.clear()
        saver.close()


class TestValkey(DurableContract):
    def make_saver(self, directory: Path) -> DurableSaver:
        return backends.ALL["valkey"](directory)


class TestRedis(DurableContract):
    def make_saver(self, directory: Path) -> DurableSaver:
        return backends.ALL["redis"](directory)


class TestWithoutScripts(DurableContract):
    def make_saver(self, directory: Path) -> DurableSaver:
        return backends.ALL["scriptless"](directory)


class TestOwnClients(DurableContract):
    def make_saver(self, directory: Path) -> DurableSaver:
        return backends.ALL["clients"](directory)


class TestCluster(DurableContract):
    def make_saver(self, directory: Path) -> DurableSaver:
        return backends.ALL["cluster"](directory)
