"""Random operations on a store through several savers, against the model; more with --long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import backends
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from langgraph_durable import (
    DropIdle,
    Finished,
    KeepInterrupted,
    KeepLast,
    KeepTagged,
    MaxAge,
    MaxBytes,
    Milestones,
    Thin,
)
from langgraph_durable.testing import saver_machine

POLICIES = (
    KeepLast(1),
    KeepLast(3) | KeepTagged("a"),
    MaxAge("0s"),
    Thin(every="1m"),
    MaxBytes("1 KB"),
    Milestones("b"),
    KeepInterrupted() | KeepLast(2),
    ~KeepLast(2),
    Finished(keep="nothing"),
    DropIdle("0s"),
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", backends.ALL)
def test_every_read_equals_the_model(backend: str, tmp_path: Path, long: bool) -> None:
    play(lambda: backends.ALL[backend](tmp_path), 2000 if long else 100, long)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", [*backends.EVERYWHERE, "scriptless"])
def test_every_read_equals_the_model_with_artifacts(
    backend: str, tmp_path: Path, long: bool
) -> None:
    """Nearly every item is offloaded, to a store that all savers of the example share."""
    options = {"artifacts": f"memory://{tmp_path}", "offload_above": 60}
    play(lambda: backends.ALL[backend](tmp_path, **options), 1000 if long else 50, long)


def play(open_saver: Callable[[], Any], examples: int, long: bool) -> None:
    run_state_machine_as_test(
        saver_machine(open_saver, POLICIES),
        settings=settings(
            max_examples=examples,
            stateful_step_count=50 if long else 30,
            derandomize=not long,
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
