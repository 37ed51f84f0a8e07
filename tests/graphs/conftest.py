"""The saver under test, on each of `backends.EVERYWHERE`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import backends
import pytest
from langgraph.checkpoint.base import id as ids
from play import Open, Saver

pytest.register_assert_rewrite(
    "deltas", "failures", "flows", "functional", "pauses", "schemas", "travels"
)


@pytest.fixture(params=backends.EVERYWHERE)
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens saver after saver on one store; all are closed in the end."""
    opened: list[Any] = []

    def open(**options: Any) -> Saver:
        opened.append(backends.EVERYWHERE[request.param](tmp_path, **options))
        return opened[-1]

    yield open
    for saver in opened:
        saver.close()


@pytest.fixture
def saver(open_saver: Open) -> Saver:
    """A saver of the backend under test, on a store of its own."""
    return open_saver()


@pytest.fixture
def step_back(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the clock behind checkpoint ids a minute slower, each time it is called."""
    minutes = itertools.count(1)

    def step() -> None:
        behind = 60_000_000_000 * next(minutes)
        clock = SimpleNamespace(time_ns=lambda: time.time_ns() - behind)
        monkeypatch.setattr(ids, "time", clock)
        monkeypatch.setattr(ids, "_last_v6_timestamp", None)

    return step
