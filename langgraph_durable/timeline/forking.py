"""What a fork takes along into a new thread, so that a run from there sees what it would have seen.

*The step itself*, so that the same nodes are due. *Sub-graphs that keep a state of their own* have
one namespace for all their calls: of each, what it had come to at the step, as in a replay; what it
has come to since stays behind. *What waits*: if the thread stands at the step, with questions open
or tasks half done, all of that comes along, and can be answered in the new thread. Ids of tasks and
questions are made of the step's id, which it keeps then; otherwise it gets a new one.

Everything is read before anything is written, by the public methods of any saver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.timeline.headers import NULL_TASK, RESUME, Header, config_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from langgraph_durable.timeline.step import Step

COUNTERS = "counters_since_delta_snapshot"
"""The metadata in which LangGraph names the `DeltaChannel`s of a graph."""
MADE_LATER = "update", "fork"
"""Sources of steps that were made long after the one before them; replays look from that one."""
Write = tuple[str, str, Any]


@dataclass(frozen=True, slots=True)
class Copy:
    """A checkpoint on its way into the new thread, which holds no ancestors of it."""

    ns: str
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    writes: tuple[Write, ...]
    paths: dict[str, str]

    def put(self, thread_id: str) -> tuple[RunnableConfig, Checkpoint, CheckpointMetadata, Any]:
        """The arguments of `put`."""
        at = cast("RunnableConfig", config_of(thread_id, self.ns))
        return at, self.checkpoint, self.metadata, dict(self.checkpoint["channel_versions"])

    def writes_by_task(self) -> Iterator[tuple[list[tuple[str, Any]], str, str]]:
        """Writes, task and path, as `put_writes` takes them."""
        for task in dict.fromkeys(task for task, _, _ in self.writes):
            own = [(channel, value) for id, channel, value in self.writes if id == task]
            yield own, task, self.paths.get(task, "")


def taken(step: Step, *, changed: bool) -> list[Copy]:
    """What is to be put into the new thread, the step itself last."""
    headers = step._timeline._source.below()
    bound = step.id
    if step.source in MADE_LATER and step._header.parent is not None:
        bound = step._header.parent
    before = [one for one in headers if ":" not in one.ns and one.id < bound]
    since = [one for one in headers if (one.metadata.get("parents") or {}).get("") == step.id]
    stored = step._timeline._whole(step._header)
    latest = step._timeline._source.latest()
    stands = not changed and latest is not None and latest.id == step.id
    waits = stands and bool(since or any(task != NULL_TASK for task, *_ in _writes(stored)))
    chosen = [*_newest(before), *_called_today(step, _newest(since if waits else ()))]
    return [*(_inner(step, header) for header in chosen), _root(step, stored, waits=waits)]


def _newest(headers: Iterable[Header]) -> Collection[Header]:
    """The newest of each namespace."""
    return {one.ns: one for one in sorted(headers, key=lambda one: one.id)}.values()


def _called_today(step: Step, headers: Collection[Header]) -> Iterator[Header]:
    """The same under the names of today: another version may have called the nodes otherwise."""
    from langgraph.types import StateSnapshot

    tasks: list[Any] = []
    if headers:
        tasks += step._timeline.graph.get_state(step.config, subgraphs=True).tasks
    names = {}
    for task in tasks:  # which grows, level by level
        if isinstance(task.state, StateSnapshot):
            at = task.state.config["configurable"]
            names[at.get("checkpoint_id")] = at.get("checkpoint_ns")
            tasks += task.state.tasks
    for header in headers:
        yield replace(header, ns=names.get(header.id) or header.ns)


def _writes(stored: CheckpointTuple) -> list[Write]:
    return [(str(task), channel, value) for task, channel, value in stored.pending_writes or ()]


def _root(step: Step, stored: CheckpointTuple, *, waits: bool) -> Copy:
    graph = step._timeline.graph
    names = {
        str(name) for name in delta_channels(graph) if name in stored.checkpoint["channel_versions"]
    }
    deltas = {name: step.values[name] for name in names if name in step.values}
    metadata: dict[str, Any] = {"source": "fork", "step": step.number, "parents": {}}
    if waits:
        return _copy(step, stored, metadata, deltas)
    fresh = {"id": str(uuid6()), "ts": datetime.now(UTC).isoformat()}
    stored.checkpoint.update(cast("Checkpoint", fresh))
    # Tasks that have ended would not run again; what was written for none of them is the state's.
    own = [w for w in _writes(stored) if w[0] == NULL_TASK and w[1] != RESUME]
    return _copy(step, stored._replace(pending_writes=own), metadata, deltas)


def _inner(step: Step, header: Header) -> Copy:
    """A sub-graph's checkpoint, which stays as it is but for the values of its ancestors."""
    stored = step._timeline._whole(header)
    kept, versions = stored.checkpoint["channel_values"], stored.checkpoint["channel_versions"]
    counted: Any = stored.metadata.get(COUNTERS) or ()
    missing = [name for name in counted if name in versions and name not in kept]
    deltas = _inner_values(step, header, missing) if missing else {}
    return _copy(step, stored, dict(stored.metadata), deltas)


def _inner_values(step: Step, header: Header, names: list[str]) -> dict[str, Any]:
    """The values of `DeltaChannel`s, which only the sub-graph can make."""
    graph = step._timeline.graph
    path = "|".join(part.partition(":")[0] for part in header.ns.split("|") if not part.isdigit())
    if not any(graph.get_subgraphs(namespace=path, recurse=True)):
        raise ConfigurationError(
            f"cannot fork step {step.id} into a new thread: the sub-graph {path!r} has the "
            f"DeltaChannel {names[0]!r}, whose value cannot be made: the graph does not know it"
        )
    values = step._timeline._snapshot(header).values
    return {name: values[name] for name in names if name in values}


def _copy(
    step: Step, stored: CheckpointTuple, metadata: dict[str, Any], deltas: dict[str, Any]
) -> Copy:
    """A checkpoint with the values of `DeltaChannel`s in it; they count what no task wrote."""
    values = dict(stored.checkpoint["channel_values"])
    values |= {name: _DeltaSnapshot(value) for name, value in deltas.items()}
    whole = cast("Checkpoint", {**stored.checkpoint, "channel_values": values})
    writes = [w for w in _writes(stored) if w[0] != NULL_TASK or w[1] not in deltas]
    at = stored.config["configurable"]
    ns = at.get("checkpoint_ns", "")
    by_tasks = any(task != NULL_TASK for task, _, _ in writes)
    paths = _paths(step, at["checkpoint_id"], ns) if by_tasks else {}
    return Copy(ns, whole, cast("CheckpointMetadata", metadata), tuple(writes), paths)


def _paths(step: Step, id: str, ns: str) -> dict[str, str]:
    """The paths of the tasks after a checkpoint, by which their writes are in order.

    Only our savers tell those of tasks that were called by tasks.
    """
    timeline = step._timeline
    tasks = timeline.graph.get_state(config_of(timeline.thread_id, ns, id)).tasks
    return {task.id: _path(task.path) for task in tasks} | timeline._source.paths(id, ns)


def _path(part: Any) -> str:
    """A task's path as LangGraph writes it for savers (`task_path_str`)."""
    if isinstance(part, (tuple, list)):
        return f"~{', '.join(map(_path, part))}"
    return f"{part:010d}" if isinstance(part, int) else str(part)


def delta_channels(graph: Any) -> set[str]:
    """The channels whose values lie in the writes of many steps."""
    channels = getattr(graph, "channels", {})
    return {name for name, channel in channels.items() if type(channel).__name__ == "DeltaChannel"}
