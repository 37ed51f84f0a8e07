"""Every story, on our saver, is told exactly as LangGraph's own in-memory saver tells it.

That holds in both colours and all durability modes, through ever new saver objects, on copies of
the thread, after pruning by any policy before every call or after every put, and with a clock that
steps back before every call.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import deltas
import failures
import flows
import functional
import pauses
import pytest
import schemas
import travels
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Durability
from play import STORIES, WAYS, Open, Play, Story, difference

from langgraph_durable import DropIdle, Finished, KeepLast, MaxBytes, Milestones, Thin, automatic

_ = deltas, failures, flows, functional, pauses, schemas, travels  # each enters its stories


@cache
def reference(story: Story, mode: Durability) -> dict[str, Any]:
    memory = InMemorySaver()
    return Play(lambda: memory, WAYS["sync"], mode).tell(story)


USUAL = {"sync": ("sync", "reopened"), "async": ("async", "cloned"), "exit": ("reopened",)}
"""The ways in which each mode is tried; `--long` tries them all."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the table of tellings, or of disturbed tellings."""
    long, table = metafunc.config.getoption("--long"), []
    for entry in STORIES:
        for mode in entry.modes:
            if "way" in metafunc.fixturenames:
                column, cases = "way", list(WAYS if long else USUAL[mode])
            else:
                column, cases = "disturbance", list(DISTURBANCES)
                if entry.looks_back or not (long or mode == entry.modes[-2]):
                    continue
            for case in cases:
                name = f"{entry.story.__name__}-{mode}-{case}"
                table.append(pytest.param(entry.story, mode, case, id=name))
    metafunc.parametrize(("story", "mode", column), table)


def test_a_story_is_told_as_the_memory_saver_tells_it(
    story: Story, mode: Durability, way: str, open_saver: Open
) -> None:
    told = Play(open_saver, WAYS[way], mode).tell(story)
    assert difference(told, reference(story, mode)) == ""


# -- what happens between the calls ---------------------------------------------------------------


def prune(play: Play) -> None:
    """Leave only the newest checkpoint of each namespace."""
    play.saver.prune(sorted(play.threads))


POLICIES = itertools.cycle(
    [KeepLast(1), Milestones(), Thin(every="1h"), MaxBytes("1 B"), Finished(), DropIdle("90d")]
)


def prune_by_policy(play: Play) -> None:
    """Leave what one policy or another keeps."""
    saver: Any = play.saver
    saver.prune(sorted(play.threads), strategy=next(POLICIES))


DISTURBANCES: dict[str, Callable[[Play], None]] = {
    "pruned": prune,
    "policies": prune_by_policy,
    "automatic": lambda play: None,
    "clock": lambda play: None,
}


def undisturbed(transcript: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how much history there is, or how its ids are ordered."""
    seen = [each for each in transcript["seen"] if each[0] in ("run", "state")]
    return {"seen": seen, "ran": transcript["ran"]}


def test_a_story_goes_on_when_before_each_call_the_thread_is_pruned_or_the_clock_steps_back(
    story: Story,
    mode: Durability,
    disturbance: str,
    open_saver: Open,
    step_back: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = undisturbed(reference(story, mode))
    between, open = DISTURBANCES[disturbance], open_saver
    if disturbance == "clock":
        between = lambda play: step_back()  # noqa: E731
    if disturbance == "automatic":
        monkeypatch.setattr(automatic, "STEP", 1)
        open = functools.partial(open_saver, retention=KeepLast(1) & MaxBytes("1 B"))
    told = Play(open, WAYS["reopened"], mode, between).tell(story)
    assert difference(undisturbed(told), expected) == ""
