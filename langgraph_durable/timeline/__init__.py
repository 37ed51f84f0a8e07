"""Time travel: a thread as a timeline that can be looked at, compared, forked and replayed.

`Timeline` is the face. Below it are plain functions that need no notebook and no graph: `diff` and
`apply` of any two values; `parent_chain`, `common_ancestor` and `branches` of the headers of steps
(`step.header`); `summary` and `time_per_node` of steps.
"""

from langgraph_durable.timeline.diff import Change, Diff, apply, diff
from langgraph_durable.timeline.headers import Header
from langgraph_durable.timeline.lineage import branches, common_ancestor, parent_chain
from langgraph_durable.timeline.step import Step
from langgraph_durable.timeline.summary import Summary, summary, time_per_node
from langgraph_durable.timeline.timeline import Timeline

__all__ = [
    "Change",
    "Diff",
    "Header",
    "Step",
    "Summary",
    "Timeline",
    "apply",
    "branches",
    "common_ancestor",
    "diff",
    "parent_chain",
    "summary",
    "time_per_node",
]
