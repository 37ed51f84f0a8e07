"""The tests every backend must pass, ours and yours.

`SaverContract` is a pytest class: subclass it, say how to make a saver, and its promises run in
both colours; `DurableContract` adds those that only this package makes. `saver_machine` is a
Hypothesis state machine that plays random operations on a store and on a dict, and compares every
read. This package alone needs pytest and hypothesis.

    class TestMySaver(SaverContract):
        def make_saver(self, directory):
            return MySaver(directory / "store.db")

    TestMyMachine = saver_machine(lambda: MySaver(path)).TestCase
"""

import pytest

# A failing promise should show its values, as the asserts of a test file do.
for _part in ("contract", "machine", "model", "promises"):
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from langgraph_durable.testing.contract import DurableContract, SaverContract  # noqa: E402
from langgraph_durable.testing.machine import saver_machine  # noqa: E402
from langgraph_durable.testing.model import Coloured, Model  # noqa: E402

__all__ = ["Coloured", "DurableContract", "Model", "SaverContract", "saver_machine"]
