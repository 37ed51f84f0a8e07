"""Random operations on a store through several savers, against the model; more with --long."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import backends
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from langgraph_durable import (
    Artifact,
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
from langgraph_durable.testing.machine import SaverMachine

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
    machine = saver_machine(lambda: backends.ALL[backend](tmp_path), POLICIES)
    play(machine, 2000 if long else 100, long)


def with_artifacts(open_saver: Callable[[], Any]) -> type[SaverMachine]:
    """Handles among the values, and a collector that comes at any time."""

    class Collecting(saver_machine(open_saver, POLICIES)):  # type: ignore[misc]
        collected = read = 0

        def _put(self, *place: Any) -> None:
            *where, step, run = place
            if step.where % 3 == 0:
                step = replace(step, item=[handle(step.item), step.item])
            super()._put(*where, step, run)

        def _write_now(self, where: Any, writes: Any, task: int, run: Any) -> None:
            if task % 2:
                writes = [(channel, handle(value)) for channel, value in writes]
            super()._write_now(where, writes, task, run)

        @rule()
        def collect(self) -> None:
            type(self).collected += self._do(lambda s: s.collect_artifacts(grace=0)).removed
            for thread in self.model.threads():
                assert self._do(methodcaller("check_artifacts", thread)) == []
            for found in self._do(methodcaller("list", None)):
                for each in handles_in([found.checkpoint, found.pending_writes]):
                    assert hashlib.sha256(each.read()).hexdigest() == each.sha256
                    type(self).read += 1

    return Collecting


def handles_in(value: Any) -> Iterator[Artifact]:
    if isinstance(value, Artifact):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from handles_in(part)


def handle(value: Any) -> Artifact:
    return Artifact.from_text(repr(value) * 20, name="value")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", [*backends.EVERYWHERE, "scriptless"])
def test_every_read_equals_the_model_with_artifacts(
    backend: str, tmp_path: Path, long: bool
) -> None:
    """Nearly every item is offloaded, to a store that all savers of the example share."""
    options = {"artifacts": f"memory://{tmp_path}", "offload_above": 60}
    machine = with_artifacts(lambda: backends.ALL[backend](tmp_path, **options))
    play(machine, 1000 if long else 50, long)
    assert machine.collected > 0
    assert machine.read > 0


def play(machine: type[SaverMachine], examples: int, long: bool) -> None:
    run_state_machine_as_test(
        machine,
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
