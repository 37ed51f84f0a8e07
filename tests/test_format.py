"""The storage format: golden stores of every format, migrations, stores that are too new."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import servers
from golden import make

from langgraph_durable import NotAStore, RedisSaver, SqliteSaver, StorageTooNew
from langgraph_durable._redis import formats
from langgraph_durable._sqlite import schema

GOLDEN = Path(__file__).parent / "golden"
CONFIG: Any = {"configurable": {"thread_id": "golden"}}
NS = "worker:1"


def check_golden(saver: Any) -> None:
    """Everything that `make.fill` has stored, and that a thread of old goes on."""
    found = saver.get_tuple(CONFIG)
    assert found.checkpoint["channel_values"] == make.values(3)
    assert found.metadata["checkpoint_tags"] == ["golden"]
    assert found.pending_writes == [
        (make.TASK, *make.ASKED[0]),
        *(("task 3", *write) for write in make.WRITES),
    ]
    listed = {
        (t.config["configurable"]["checkpoint_ns"], t.checkpoint["id"]): t
        for t in saver.list(CONFIG)
    }
    assert set(listed) == {("", make.ID.format(n)) for n in (1, 2, 3)} | {(NS, make.ID.format(3))}
    for n in (1, 2, 3):
        assert listed["", make.ID.format(n)].checkpoint["channel_values"] == make.values(n)
    history = saver.get_delta_channel_history(config=CONFIG, channels=["delta"])["delta"]
    assert [value for _, _, value in history["writes"]] == [["more"], ["more"]]
    assert history["seed"].value == ["seed"]
    assert saver.environment(CONFIG)["langgraph"]


def check_met(saver: Any) -> None:
    """What `make.meet` has stored: a checkpoint that was made with one of two runs' writes."""
    config: Any = {"configurable": {"thread_id": "met"}}
    history = saver.get_delta_channel_history(config=config, channels=["delta"])["delta"]
    assert history["writes"] == [("task", "delta", ["own"])]
    assert history["seed"].value == ["seed"]
    first = saver.get_tuple(saver.get_tuple(config).parent_config)
    assert first.pending_writes == [("task", "delta", ["rival"])]


def go_on(saver: Any) -> None:
    found = saver.get_tuple(CONFIG)
    checkpoint = {**found.checkpoint, "id": make.ID.format(4)}
    saver.put(found.config, checkpoint, {"source": "loop", "step": 4}, {})
    assert saver.get_tuple(CONFIG).checkpoint["channel_values"] == make.values(3)
    saver.delete_for_runs([make.RUN])
    assert not list(saver.list({"configurable": {"thread_id": "golden", "checkpoint_ns": NS}}))
    assert saver.prune(["golden"]).checkpoints
    assert saver.get_tuple(CONFIG).checkpoint["channel_values"] == make.values(3)


@pytest.mark.parametrize("stored", sorted(GOLDEN.glob("format-*.db.gz")), ids=lambda p: p.stem)
def test_a_golden_file_is_read_and_continued(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "golden.db"
    path.write_bytes(gzip.decompress(stored.read_bytes()))
    with SqliteSaver(path) as saver:
        check_golden(saver)
        check_met(saver)
        go_on(saver)


@pytest.mark.parametrize("flavour", ["valkey", "redis"])
@pytest.mark.parametrize("stored", sorted(GOLDEN.glob("*.redis.json")), ids=lambda p: p.stem)
def test_a_golden_redis_store_is_read_and_continued(stored: Path, flavour: str) -> None:
    server = servers.shared(flavour)
    with redis.Redis(servers.HOST, server.port, db=14) as client:
        client.flushdb()
        make.restore(client, json.loads(stored.read_text()))
        with RedisSaver(f"redis://{servers.HOST}:{server.port}/14", prefix=make.PREFIX) as saver:
            check_golden(saver)
            check_met(saver)
            go_on(saver)


def test_every_format_has_its_golden_stores() -> None:
    numbers = range(1, schema.FORMAT + 1)
    assert {f"format-{n}.db.gz" for n in numbers} == {p.name for p in GOLDEN.glob("format-*.gz")}
    numbers = range(1, formats.FORMAT + 1)
    assert {f"format-{n}.redis.json" for n in numbers} == {p.name for p in GOLDEN.glob("*.json")}


# ---- a second format -----------------------------------------------------------------------------

SECOND = """
import os, signal
from langgraph_durable._sqlite import schema

def migrate(conn):
    conn.execute("ALTER TABLE lgd_threads ADD COLUMN note TEXT")
    if os.environ.get("DIE"):
        os.kill(os.getpid(), signal.SIGKILL)
    conn.execute("CREATE TABLE lgd_extra (n INTEGER PRIMARY KEY) STRICT")

schema.FORMAT = 2
schema.MIGRATIONS = {2: migrate}
schema.TABLES = schema.TABLES.replace(
    "epoch     INTEGER NOT NULL\\n", "epoch     INTEGER NOT NULL, note TEXT\\n"
) + "\\nCREATE TABLE lgd_extra (n INTEGER PRIMARY KEY) STRICT;\\n"
"""
OPEN = "from langgraph_durable import SqliteSaver; import sys; SqliteSaver(sys.argv[1]).setup()"


def in_second_format(path: Path, *, die: bool = False) -> int:
    """Open a store with a program of the second format; how the process ended."""
    code = f"{SECOND}\n{OPEN}"
    return subprocess.run(
        [sys.executable, "-c", code, str(path)], env={**os.environ, **({"DIE": "1"} if die else {})}
    ).returncode


def tables(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with sqlite3.connect(path) as conn:
        names = [n for (n,) in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: conn.execute(f"PRAGMA table_info({name})").fetchall() for name in names}


def golden_file(path: Path) -> Path:
    path.write_bytes(gzip.decompress((GOLDEN / "format-1.db.gz").read_bytes()))
    return path


def test_migrated_equals_fresh(tmp_path: Path) -> None:
    old, new = golden_file(tmp_path / "old.db"), tmp_path / "new.db"
    before = tables(old)
    assert in_second_format(old) == in_second_format(new) == 0
    assert tables(old) == tables(new)
    assert tables(old) != before


def test_a_migration_that_is_killed_half_way_was_not_applied(tmp_path: Path) -> None:
    path = golden_file(tmp_path / "old.db")
    before = tables(path)
    assert in_second_format(path, die=True) == -signal.SIGKILL
    assert tables(path) == before
    with SqliteSaver(path) as saver:
        check_golden(saver)
    assert in_second_format(path) == 0
    assert "lgd_extra" in tables(path)


def test_many_processes_migrate_once(tmp_path: Path) -> None:
    path = golden_file(tmp_path / "old.db")
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.map(in_second_format, [path] * 8) == [0] * 8
    assert "lgd_extra" in tables(path)


def test_a_newer_format_is_refused_and_untouched(tmp_path: Path) -> None:
    path = golden_file(tmp_path / "new.db")
    assert in_second_format(path) == 0
    before = path.read_bytes()
    with (
        SqliteSaver(path) as saver,
        pytest.raises(StorageTooNew, match=r"new\.db.*format 2.*upgrade"),
    ):
        saver.get_tuple(CONFIG)
    assert path.read_bytes() == before
    assert issubclass(StorageTooNew, NotAStore)


def test_an_older_format_is_read_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden_file(tmp_path / "old.db")
    monkeypatch.setattr(schema, "FORMAT", 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {2: lambda conn: conn.execute("DROP TABLE no")})
    before = path.read_bytes()
    with SqliteSaver(f"file:{path}?mode=ro") as saver:
        check_golden(saver)
    assert path.read_bytes() == before
