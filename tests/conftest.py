"""The options of a run: `--long` for the big versions, `--stock` and `--seed` for the hazards."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("usual", derandomize=True, **slow)
settings.register_profile("long", **slow)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("langgraph_durable")
    group.addoption("--long", action="store_true", help="run the big versions of the tests")
    group.addoption("--stock", action="store_true", help="run the hazards on the stock saver")
    group.addoption("--seed", type=int, default=None, help="repeat a run of the hazard tests")


def pytest_configure(config: pytest.Config) -> None:
    """The same examples each time, so that a change is to blame for what fails; else new ones."""
    settings.load_profile("long" if config.getoption("--long") else "usual")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The big versions may take an hour each, on a busy machine."""
    if config.getoption("--long"):
        for item in items:
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """True when the big versions were asked for."""
    return bool(request.config.getoption("--long"))
