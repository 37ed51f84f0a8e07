"""The tests every backend must pass, ours and yours.

`SaverContract` is a pytest class: subclass it, say how to make a saver, and its promises run in
both colours. `saver_machine` is a Hypothesis state machine that plays random operations on a
store and on a dict, and compares every read. This package alone needs pytest and hypothesis.

    class TestMySaver(SaverContract):
        def make_saver(self, directory):
            return MySaver(directory / "store.db")

    TestMyMachine = saver_machine(lambda: MySaver(path)).TestCase
"""

#from langgraph_durable.testing.contract import SaverContract
from langgraph_durable.testing.machine import saver_machine
from langgraph_durable.testing.model import Coloured, Model

__all__ = ["Coloured", "Model", "saver_machine"]
