"""What retention costs: a put under a policy, and pruning many threads against bare DELETEs.

Both are ratios of processor time in one process, ours against ours without a policy, or against
the same rows removed by plain SQL.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from entrants import FILE, Plan
from measure import Figure, Promise, Reading, Section
from workloads import TenChannels

from langgraph_durable import KeepLast, SqliteSaver

KEPT = 5


def retaining(plan: Plan) -> Iterator[Figure]:
    """A put with `retention=KeepLast(20)`, and `prune(strategy=KeepLast(5))` of all threads."""
    rounds = plan.pick(1, 3, 9)
    puts = Reading.of(put_ratio(plan, plan.pick(40, 320, 640)) for _ in range(rounds))
    limits = (Promise("ours sqlite", "≤ 1.3x", 1.3),)
    yield Figure("put with retention / without", "x", {"ours sqlite": puts}, limits, "normal")
    threads = plan.pick(2, 20, 1_000)
    name = f"KeepLast({KEPT}) on {threads:,} threads of 100 checkpoints / bare DELETEs"
    pruned = Reading.of([prune_ratio(plan, threads)])
    few = (Promise("ours sqlite", "≤ 5x", 5.0),)
    yield Figure(name, "x", {"ours sqlite": pruned}, few, "normal")


def put_ratio(plan: Plan, count: int) -> float:
    """Processor time of `count` puts to a thread under a policy, and without one."""
    spent = []
    for policy in (KeepLast(20), None):
        file = Path(tempfile.mkdtemp(dir=plan.directory)) / FILE
        with SqliteSaver(file, durability="normal", retention=policy) as saver:
            state = TenChannels(saver, "t", messages=50)
            spent.append(cpu(lambda s=state, p=saver: put_all(p, s, count)))  # type: ignore[misc]
    return spent[0] / spent[1]


def put_all(saver: SqliteSaver, state: TenChannels, count: int) -> None:
    for _ in range(count):
        saver.put(*state.change_one().arguments)


def prune_ratio(plan: Plan, threads: int) -> float:
    """Processor time of pruning, over that of removing the same rows by SQL."""
    folder = Path(tempfile.mkdtemp(dir=plan.directory))
    with SqliteSaver(folder / FILE, durability="normal") as saver:
        for number in range(threads):
            put_all(saver, TenChannels(saver, f"t{number}", messages=5), 100)
    shutil.copy(folder / FILE, folder / "bare.db")
    with SqliteSaver(folder / FILE, durability="normal") as saver:
        ours = cpu(lambda: saver.prune(strategy=KeepLast(KEPT)))
    conn = sqlite3.connect(folder / "bare.db", isolation_level=None)
    bare = cpu(lambda: delete_rows(conn))
    conn.close()
    return ours / bare


def delete_rows(conn: sqlite3.Connection) -> None:
    """One transaction a thread, by primary keys, as a cron job of one's own would do it."""
    for (tid,) in conn.execute("SELECT tid FROM lgd_threads").fetchall():
        conn.execute("BEGIN IMMEDIATE")
        rows = conn.execute("SELECT id FROM lgd_checkpoints WHERE tid = ? ORDER BY id", (tid,))
        gone = [(tid, id) for (id,) in rows.fetchall()[:-KEPT]]
        for table in ("checkpoints", "writes", "tallies"):
            sql = f"DELETE FROM lgd_{table} WHERE tid = ? AND ns = '' AND id = ?"
            conn.executemany(sql, gone)
        conn.execute("COMMIT")
    conn.execute("PRAGMA incremental_vacuum").fetchall()


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


SECTIONS = (Section("retention", "Retention", retaining, "Ratios of processor time on SQLite."),)
