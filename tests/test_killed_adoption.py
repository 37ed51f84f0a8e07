"""An adoption that is killed before any of its statements, at its commits too, loses nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import adopter
import histories
import pytest
from forks import ForkServer
from histories import contents
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver

from langgraph_durable import SqliteSaver


@pytest.fixture(scope="module")
def adopters() -> Iterator[ForkServer]:
    server = ForkServer(adopter.__file__)
    yield server
    server.close()


def places(path: Path) -> list[tuple[str, str, str]]:
    """Every checkpoint of the file, in the old tables or in the new ones."""
    found = "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints"
    moved = "SELECT thread_id, ns, id FROM lgd_checkpoints JOIN lgd_threads USING (tid)"
    with sqlite3.connect(path) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        sql = "SELECT 1 FROM sqlite_master WHERE name = 'lgd_checkpoints'"
        both = f"{found} UNION ALL {moved}" if conn.execute(sql).fetchone() else found
        return sorted(conn.execute(both).fetchall())


@pytest.mark.timeout(1800)  # of the long version
def test_an_adoption_killed_at_any_statement_goes_on_where_it_was(
    adopters: ForkServer, tmp_path: Path, long: bool
) -> None:
    old, path = tmp_path / "old.db", tmp_path / "agent.db"
    with StockSaver.from_conn_string(str(old)) as stock:
        histories.run(stock, "t", turns=0)
        histories.run_deltas(stock, "deltas", turns=2)
        before = contents(stock)
    shutil.copy(old, path)
    *_, told, _ = adopters.start("adopt", path=str(path), end_at=0).end()
    assert told["checkpoints"] == len(before)
    ends = range(1, told["statements"] + 1)
    halves = 0
    for end_at in ends if long else ends[:: len(ends) // 20]:
        for leftover in tmp_path.glob("agent.db*"):
            leftover.unlink()
        shutil.copy(old, path)
        dead = adopters.start("adopt", path=str(path), end_at=end_at).end()
        assert dead[-1]["status"] == -9
        assert places(path) == sorted(before)
        with sqlite3.connect(path) as conn:
            left = conn.execute("SELECT count(*) FROM checkpoints").fetchone()[0]
        halves += 0 < left < len(before)
        with SqliteSaver(path, durability="normal") as ours:
            assert contents(ours) == before, f"killed at statement {end_at}"
    assert halves
