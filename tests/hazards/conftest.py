"""What every hazard test shares: the size of the run, its seed, and a server of fresh processes.

`--long` runs the big versions. `--stock` runs the same hazards on the stock saver, to see what
they do to a store without our guards; failures are then the expected outcome.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
import victim


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hazards")
    group.addoption("--long", action="store_true", help="run the big versions of the hazard tests")
    group.addoption("--stock", action="store_true", help="run the hazards on the stock saver")
    group.addoption("--seed", type=int, default=None, help="repeat a run of the hazard tests")


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """True when the big versions were asked for."""
    return bool(request.config.getoption("--long", default=False))


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    """Which saver the hazards are for; see `victim.open_store`."""
    return "stock" if request.config.getoption("--stock", default=False) else "durable"


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Randomness whose seed is printed, so that a failure can be repeated with `--seed`."""
    seed = request.config.getoption("--seed", default=None)
    seed = time.time_ns() % 1_000_000 if seed is None else seed
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def victims() -> Iterator[victim.ForkServer]:
    """Fresh processes at the price of a fork."""
    server = victim.ForkServer()
    yield server
    server.close()
