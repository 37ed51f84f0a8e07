"""Pruning in harm's way: beside writers and readers of other processes, and killed half way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

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
        found[place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"]] = data
    return found


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
    if kind == "durable":
        assert victim.intact(path)
    victim.close_store(saver)


def test_a_prune_that_is_killed_leaves_whole_checkpoints_and_can_be_continued(
    tmp_path: Path, kind: str, long: bool, dice: random.Random, victims: ForkServer
) -> None:
    path, half_way = str(tmp_path / "agent.db"), 0
    for kill in range(150 if long else 12):
        saver: Any = victim.open_store(kind, path)
        for n in range(8):
            victim.fill(saver, f"{kill}.{n}", 12)
        before = everything(saver)
        child = victims.start("prune_once", kind=kind, path=path, keep=3)
        child.kill_after(dice.uniform(0.0, 0.06))
        after = everything(saver)
        assert after.items() <= before.items()
        half_way += 3 * 8 < len(after) < len(before)
        for n in range(8):
            latest = saver.get_tuple(victim.thread(f"{kill}.{n}"))
            assert latest.metadata["step"] == 11
        saver.prune(strategy=KeepLast(3))
        kept = everything(saver)
        assert kept.items() <= before.items()
        assert len(kept) == 3 * 8
        for n in range(8):
            assert saver.delete_thread(f"{kill}.{n}").checkpoints == 3
        if kind == "durable":
            assert victim.intact(path)
        victim.close_store(saver)
    print(f"killed half way: {half_way}")  # -s shows it; none need be, on a busy machine
