"""Time travel: a thread as a timeline that can be looked at, compared, forked and replayed.

`Timeline` is the face. `diff`, `apply`, `time_per_node` and the functions of `lineage` are plain:
they need no notebook and no graph.
"""

from langgraph_durable.timeline.diff import Change, Diff, apply, diff
from langgraph_durable.timeline.lineage import branches, common_ancestor, parent_chain
from langgraph_durable.timeline.plot import time_per_node
from langgraph_durable.timeline.step import Step
from langgraph_durable.timeline.timeline import Timeline

__all__ = [
    "Change",
    "Diff",
    "Step",
    "Timeline",
    "apply",
    "branches",
    "common_ancestor",
    "diff",
    "parent_chain",
    "time_per_node",
]
