"""One contract, every backend: subclass it, say how to make a saver, run pytest.

`SaverContract` is what LangGraph asks of any checkpoint saver, the unwritten part included;
`DurableContract` adds what only this package promises. The promises themselves are in
`langgraph_durable.testing.promises`, a file for each theme. Every one runs in both colours: on an
event loop through the `a`-methods, and without any loop through the sync ones.
"""

from __future__ import annotations

from langgraph_durable.testing.promises.arguments import Arguments
from langgraph_durable.testing.promises.checkpoints import Checkpoints, Metadata
from langgraph_durable.testing.promises.deltas import Deltas, SturdyDeltas
from langgraph_durable.testing.promises.durable import (
    Cycles,
    Heads,
    Prunes,
    Rollback,
    Secrets,
    Values,
    Versions,
)
from langgraph_durable.testing.promises.listing import Filters, Listing, Walking
from langgraph_durable.testing.promises.removal import (
    Copying,
    DeletingRuns,
    DeletingThreads,
    Pruning,
)
from langgraph_durable.testing.promises.savers import Savers
from langgraph_durable.testing.promises.writes import Writes


class SaverContract(
    Checkpoints,
    Metadata,
    Listing,
    Filters,
    Walking,
    Writes,
    DeletingThreads,
    Pruning,
    DeletingRuns,
    Copying,
    Deltas,
    Savers,
):
    """What every checkpoint saver owes LangGraph and its users.

        class TestMySaver(SaverContract):
            def make_saver(self, directory):
                return MySaver(directory / "store.db")

    `make_saver` must open the same store whenever it is given the same directory. A saver with a
    `close` method is closed after each test; override `close_saver` for anything else.
    """


class DurableContract(
    SaverContract,
    Heads,
    Cycles,
    Rollback,
    Values,
    Versions,
    Prunes,
    Secrets,
    SturdyDeltas,
    Arguments,
):
    """What the savers of this package promise beyond that."""
