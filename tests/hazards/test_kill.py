"""Processes killed with SIGKILL: what was acknowledged stays, what was cut short goes on.

A child (see victim.py) works on a file and tells of each put, write and invoke that has returned.
It is killed at a random instant, or at a chosen entry to SQLite; the file is opened again here,
and must hold all that was acknowledged, and the run must end as if nobody had killed it.
"""

from __future__ import annotations

import collections
import random
from pathlib import Path
from typing import Any

import pytest
import victim
from forks import ForkServer

MODES = ("sync", "async", "exit")
Told = list[dict[str, Any]]


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    """The states of runs that were never killed, by their number of turns."""
    states: dict[int, Any] = {}

    def after(turns: int) -> Any:
        if turns not in states:
            states[turns] = victim.state_after(turns)
        return states[turns]

    return after


def lost(saver: victim.Saver, told: Told) -> list[dict[str, Any]]:
    """Which acknowledged puts and writes the store does not hold.

    Writes may be stored before their checkpoint: those whose checkpoint was not acknowledged
    cannot be read yet, and are not counted.
    """
    missing = []
    stored = {(line["ns"], line["id"]) for line in told if line["what"] == "put"}
    for line in told:
        if line["what"] not in ("put", "writes"):
            continue
        found = saver.get_tuple(victim.thread(line["thread"], line["id"], line["ns"]))
        if line["what"] == "put":
            if found is None:
                missing.append(line)
        elif found is not None:
            kept = {(task, channel) for task, channel, _ in found.pending_writes or ()}
            if not kept >= {(line["task"], channel) for channel in line["channels"]}:
                missing.append(line)
        elif (line["ns"], line["id"]) in stored:
            missing.append(line)
    return missing


def turns(told: Told, what: str) -> int:
    """The last turn that was started, or finished."""
    return max((line["turn"] for line in told if line["what"] == what), default=0)


def resume(graph: Any, config: victim.Config, last: int, mode: str) -> dict[str, Any]:
    """What a user does after a crash: go on, and say the last word again if it was not heard."""
    if graph.get_state(config).tasks:
        graph.invoke(None, config, durability=mode)
    if graph.get_state(config).values.get("turn", 0) < last:
        graph.invoke(victim.turn_input(last), config, durability=mode)
    snapshot = graph.get_state(config)
    assert not snapshot.tasks
    return dict(snapshot.values)


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_run_keeps_what_was_acknowledged_and_ends_as_if_never_killed(
    mode: str,
    colour: str,
    tmp_path: Path,
    kind: str,
    long: bool,
    dice: random.Random,
    victims: ForkServer,
    undisturbed: Any,
) -> None:
    path = str(tmp_path / "agent.db")
    started = cut_short = 0
    for kill in range(250 if long else 13):
        if kill % 6 == 0:
            thread_id, started = f"thread {kill}", 0
        job = {"kind": kind, "path": path, "thread_id": thread_id, "mode": mode}
        child = victims.start(f"{colour}_forever", turn=started + 1, **job)
        if kill % 2:  # a slow start must not mean that every kill comes before the first turn
            child.until("started")
        told = child.kill_after(dice.uniform(0.0, 0.15))
        started, finished = max(started, turns(told, "started")), turns(told, "finished")

        assert victim.intact(path)
        saver = victim.open_store(kind, path)
        graph = victim.builder().compile(checkpointer=saver)
        assert lost(saver, told) == []
        assert graph.get_state(victim.thread(thread_id)).values.get("turn", 0) >= finished
        if started:
            ended = resume(graph, victim.thread(thread_id), started, mode)
            assert ended == undisturbed(started)
        victim.close_store(saver)
        cut_short += started > finished
    assert cut_short


def test_under_sync_a_finished_node_never_runs_again(
    tmp_path: Path, kind: str, long: bool, dice: random.Random, victims: ForkServer
) -> None:
    cut_short = 0
    for kill in range(100 if long else 15):
        path, effects = str(tmp_path / f"{kill}.db"), tmp_path / f"{kill}.log"
        told, again = _kill_and_resume(victims, kind, path, effects, "sync", dice)
        finished = {label for line in told for label in line.get("labels", ())}
        assert finished.isdisjoint(again)
        # Each effect in flight may run again, but only those of one superstep: two workers.
        assert len(again) <= 2
        cut_short += turns(told, "started") > turns(told, "finished")
    assert cut_short


def test_control_the_effects_log_sees_nodes_that_run_again(
    tmp_path: Path, kind: str, dice: random.Random, victims: ForkServer
) -> None:
    for kill in range(60):
        path, effects = str(tmp_path / f"{kill}.db"), tmp_path / f"{kill}.log"
        longest = 0.02 * (4 + kill)  # as long as a turn may take on a slow machine
        if _kill_and_resume(victims, kind, path, effects, "exit", dice, longest)[1]:
            return
    pytest.fail("no node ran again under exit, so the log would not have shown it under sync")


def _kill_and_resume(
    victims: ForkServer,
    kind: str,
    path: str,
    effects: Path,
    mode: str,
    dice: random.Random,
    longest: float = 0.08,
) -> tuple[Told, list[str]]:
    """Kill a run, resume it here; what it told, and the effects that happened twice."""
    effects.touch()
    job = {"kind": kind, "path": path, "thread_id": "t", "mode": mode, "effects": str(effects)}
    child = victims.start("invoke_forever", turn=1, **job)
    child.until("started")
    told = child.kill_after(dice.uniform(0.0, longest))
    saver = victim.open_store(kind, path)
    victim.log_effects_to(effects)
    graph = victim.builder().compile(checkpointer=saver)
    resume(graph, victim.thread("t"), turns(told, "started"), mode)
    victim.log_effects_to(None)
    victim.close_store(saver)
    counts = collections.Counter(effects.read_text().split("\n"))
    return told, [label for label, times in counts.items() if times > 1]


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_statement_loses_nothing(
    mode: str,
    tmp_path: Path,
    kind: str,
    long: bool,
    dice: random.Random,
    victims: ForkServer,
    undisturbed: Any,
) -> None:
    counting = victims.start(
        "invoke_to_statement", kind=kind, path=str(tmp_path / "count.db"), mode=mode, at=0
    )
    total = counting.until("statements")["count"]
    counting.end()
    assert total > 10
    moments = range(1, total + 1)
    for at in moments if long else sorted(dice.sample(moments, min(25, total))):
        path = str(tmp_path / f"{at}.db")
        told = victims.start("invoke_to_statement", kind=kind, path=path, mode=mode, at=at).end()
        if Path(path).exists():
            assert victim.intact(path)
        saver = victim.open_store(kind, path)
        assert lost(saver, told) == [], at
        graph = victim.builder().compile(checkpointer=saver)
        assert resume(graph, victim.thread("t"), 1, mode) == undisturbed(1), at
        victim.close_store(saver)


@pytest.mark.parametrize("job", ["put_forever", "aput_forever"])
def test_an_acknowledged_put_survives_and_what_was_cut_short_is_whole_or_absent(
    job: str, tmp_path: Path, kind: str, long: bool, dice: random.Random, victims: ForkServer
) -> None:
    path = str(tmp_path / "agent.db")
    acknowledged, kills = 0, 500 if long else 25
    for kill in range(10 * kills):
        child = victims.start(job, kind=kind, path=path, thread_id=f"thread {kill}")
        if kill % 2:  # a slow start must not mean that every kill comes before the first put
            child.until("put")
        told = child.kill_after(dice.uniform(0.0, 0.1))
        assert victim.intact(path)
        saver = victim.open_store(kind, path)
        assert lost(saver, told) == []
        for name in {line["thread"] for line in told if "thread" in line}:
            assert all(victim.whole(found) for found in saver.list(victim.thread(name)))
        victim.close_store(saver)
        acknowledged += len(told)
        if kill + 1 >= kills and acknowledged > 100:
            return
    pytest.fail(f"{10 * kills} kills, and only {acknowledged} calls were acknowledged before them")


def test_control_a_saver_that_acknowledges_too_early_is_caught(
    tmp_path: Path, dice: random.Random, victims: ForkServer
) -> None:
    for kill in range(20):
        path = str(tmp_path / f"{kill}.db")
        child = victims.start("put_forever", kind="late", path=path, thread_id="t")
        child.until("put")
        told = child.kill_after(dice.uniform(0.0, 0.05))
        saver = victim.open_store("stock", path)
        missing = lost(saver, told)
        victim.close_store(saver)
        if missing:
            return
    pytest.fail("20 kills of a saver that writes late, and nothing was lost")
