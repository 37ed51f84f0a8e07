"""What every hazard test shares: its seed, and a server of fresh processes.

`--stock` runs the same hazards on the stock saver, to see what they do to a store without our
guards; failures are then the expected outcome.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
import victim


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
