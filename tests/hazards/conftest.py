"""What every hazard test shares: its seed, and a server of fresh processes.

`--stock` runs the same hazards on the stock saver, to see what they do to a store without our
guards; failures are then the expected outcome.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
import servers
import victim
from forks import ForkServer

ABOUT_FILES = {
    "test_corruption",
    "test_storage_errors",
    "test_a_kill_at_any_statement_loses_nothing",
    "test_while_a_call_waits_for_a_lock_the_loop_ticks_and_reads_succeed",
    "test_a_first_open_that_waits_for_a_lock_lets_the_loop_tick",
    "test_control_a_sync_call_that_waits_for_a_lock_stops_the_ticker",
}
"""Modules and tests that only make sense for a file; `tests/outages` has their like for servers."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each hazard on a file and on a server."""
    if "kind" not in metafunc.fixturenames:
        return
    stock = metafunc.config.getoption("--stock")
    about_files = {metafunc.module.__name__, metafunc.function.__name__} & ABOUT_FILES
    kinds = ["stock"] if stock else ["durable"] if about_files else ["durable", "server"]
    metafunc.parametrize("kind", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    """Which saver the hazards are for; see `victim.open_store`."""
    kind: str = request.param
    return f"server {servers.shared().url}" if kind == "server" else kind


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Randomness whose seed is printed, so that a failure can be repeated with `--seed`."""
    seed = request.config.getoption("--seed", default=None)
    seed = time.time_ns() % 1_000_000 if seed is None else seed
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def victims() -> Iterator[ForkServer]:
    """Fresh processes at the price of a fork."""
    server = ForkServer(victim.__file__)
    yield server
    server.close()
