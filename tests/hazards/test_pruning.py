"""Pruning in harm's way: beside writers and readers of other processes, and killed half way."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import redis
import scan
import victim
from forks import ForkServer

from langgraph_durable import KeepLast

Everything = dict[tuple[str, str, str], Any]


def all_of(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def everything(saver: Any) -> Everything:
    """All that is stored, read to the last item; a parent that was removed may be missing.

    Thread by thread: a list of all threads leaves out what is damaged.
    """
    found = {}
    listed = [t for name in saver.stats().threads for t in saver.list(all_of(name))]
    for each in listed:
        place = each.config["configurable"]
        data = victim.plain(each)
        del data["parent"]
        if "log" in each.checkpoint["channel_versions"]:
            config: Any = each.config
            data["log"] = saver.get_delta_channel_history(config=config, channels=["log"])
        found[place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"]] = data
    return found


def faults(saver: Any, kind: str, path: str) -> list[str]:
    """What an exhaustive scan finds wrong."""
    if kind == "durable":
        return scan.faults(saver, Path(path))
    with redis.Redis.from_url(kind.removeprefix("server ")) as client:
        return scan.faults(saver, client)


def test_nobody_notices_that_others_prune(
    tmp_path: Path, kind: str, long: bool, victims: ForkServer
) -> None:
    path, turns = str(tmp_path / "agent.db"), 60 if long else 6
    job = {"kind": kind, "path": path, "turns": turns}
    told = victims.start("crowd", each="prune_among", processes=5, patience=280, **job).end()
    assert not [line for line in told if line["what"] == "failed"]
    assert told[-1] == {"what": "ended", "status": 0}
    assert any(line["what"] == "read" for line in told)
    saver: Any = victim.open_store(kind, path)
    graph = victim.builder().compile(checkpointer=saver)
    for n in (0, 1):
        assert graph.get_state(victim.thread(f"t{n}")).values == victim.state_after(turns)
    assert everything(saver)
    assert saver.prune(strategy=KeepLast(3))
    assert faults(saver, kind, path) == []
    victim.close_store(saver)


THREADS, STEPS, KEPT = 8, 12, 3


@pytest.mark.timeout(3600)
def test_a_prune_that_is_killed_leaves_whole_checkpoints_and_can_be_continued(
    tmp_path: Path, kind: str, long: bool, dice: random.Random, victims: ForkServer
) -> None:
    path, half_way = str(tmp_path / "agent.db"), 0
    for kill in range(300 if long else 16):
        saver: Any = victim.open_store(kind, path)
        names = [f"{kill}.{n}" for n in range(THREADS)]
        for name in names:
            victim.fill_with_deltas(saver, name, STEPS)
        before = everything(saver)
        # Some stand still half way, or the machine's mood says whether a kill comes in time.
        enough = dice.randrange(1, THREADS)
        stop_at = 0 if kill % 4 else enough
        job = {"kind": kind, "path": path, "keep": KEPT, "stop_at": stop_at}
        child = victims.start("prune_once", most=256 if kill % 2 else 2, **job)
        for _ in range(enough if stop_at else dice.randrange(THREADS)):
            child.until("pruned")
        child.kill_after(dice.uniform(0.0, 0.004))
        after = everything(saver)
        assert after.items() <= before.items()
        assert faults(saver, kind, path) == []
        half_way += KEPT * THREADS < len(after) < len(before)
        for name in names:
            assert saver.get_tuple(victim.thread(name)).metadata["step"] == STEPS - 1
        saver.prune(strategy=KeepLast(KEPT))
        kept = everything(saver)
        assert kept.items() <= before.items()
        assert len(kept) == KEPT * THREADS
        assert faults(saver, kind, path) == []
        for name in names:
            assert saver.delete_thread(name).checkpoints == KEPT
        victim.close_store(saver)
    assert half_way
    print(f"killed half way: {half_way}")


def test_control_the_scan_finds_an_item_that_is_gone(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "agent.db")
    saver: Any = victim.open_store(kind, path)
    victim.fill_with_deltas(saver, "t", 3)
    # On Redis the rows of a task that wrote so much do not lie with those of others.
    saver.put_writes(saver.get_tuple(victim.thread("t")).config, victim.writes(3, 40), "much")
    assert faults(saver, kind, path) == []
    if kind == "durable":
        with sqlite3.connect(path) as conn:
            assert conn.execute("DELETE FROM lgd_items WHERE key & 255 = 2").rowcount
    else:
        with redis.Redis.from_url(kind.removeprefix("server ")) as client:
            assert client.hdel(saver._engine.storage.context.keys.thread("t").hash, b"i2")
    assert faults(saver, kind, path) == ["t: items [2] are missing"]
    victim.close_store(saver)
