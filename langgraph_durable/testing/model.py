"""What a saver must answer, as a dict; and the few words the tests are written in.

`Model` is the specification the state machine compares with: no serialisation, no sharing, no
transaction, so that reading it is enough to believe it. `Coloured` lets one test speak to a
saver's sync or async methods; `at` and `checkpoint` build the two arguments all calls need.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
)

Colour = Literal["sync", "async"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Coloured:
    """One saver, spoken to through its sync or its async methods.

    Every method of the saver is here under its sync name, to be awaited in both colours.
    """

    saver: BaseCheckpointSaver[Any]
    colour: Colour

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        return partial(self._call, method)

    async def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.colour == "async":
            return await getattr(self.saver, f"a{method}")(*args, **kwargs)
        return getattr(self.saver, method)(*args, **kwargs)

    async def walk(self, *args: Any, **kwargs: Any) -> AsyncIterator[CheckpointTuple]:
        """Iterate over `list` or `alist`, running the caller's body between the items."""
        if self.colour == "async":
            async for found in self.saver.alist(*args, **kwargs):
                yield found
        else:
            for found in self.saver.list(*args, **kwargs):
                yield found

    async def list(self, *args: Any, **kwargs: Any) -> builtins.list[CheckpointTuple]:
        """Everything `list` or `alist` yields."""
        return [found async for found in self.walk(*args, **kwargs)]

    async def default_history(
        self, config: RunnableConfig, channels: builtins.list[str]
    ) -> Mapping[str, Any]:
        """LangGraph's own walk over this saver, whatever the saver made of it."""
        if self.colour == "async":
            return await BaseCheckpointSaver.aget_delta_channel_history(
                self.saver, config=config, channels=channels
            )
        return BaseCheckpointSaver.get_delta_channel_history(
            self.saver, config=config, channels=channels
        )


def finish(
    colour: Colour,
    work: Coroutine[Any, Any, T],
    run: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run,
) -> T:
    """Run `work` on an event loop (`run`), or, when sync, where there is none at all."""
    if colour == "async":
        return run(work)
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise RuntimeError("a sync call suspended")


def at(
    thread_id: Any,
    checkpoint_id: str | None = None,
    *,
    ns: str | None = "",
    **more: Any,
) -> RunnableConfig:
    """A config naming a thread, and maybe a checkpoint; `ns=None` leaves the namespace out."""
    configurable: dict[str, Any] = {"thread_id": thread_id, **more}
    if ns is not None:
        configurable["checkpoint_ns"] = ns
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def checkpoint(
    checkpoint_id: str,
    values: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """A checkpoint as LangGraph hands it to `put`."""
    return Checkpoint(
        v=4,
        id=checkpoint_id,
        ts="2026-01-01T00:00:00+00:00",
        channel_values=dict(values or {}),
        channel_versions=dict(versions or {}),
        versions_seen={},
        updated_channels=None,
    )


def exact(value: Any) -> Any:
    """A form of `value` that is equal only for the same types, the same order and the same bits."""
    kind = type(value)
    if isinstance(value, dict):
        return kind, [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return kind, [exact(item) for item in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(map(repr, value))
    if isinstance(value, float):
        return kind, repr(value)
    if hasattr(value, "model_dump"):
        return kind, exact(dict(value))
    return kind, value


def numbered(n: int) -> str:
    """The n-th checkpoint id: shaped like LangGraph's, and sorted by `n`."""
    return f"{n:08x}-0000-6000-8000-000000000000"


@dataclass(slots=True)
class Write:
    """One pending write, and the run that made it."""

    task_path: str
    task_id: str
    idx: int
    channel: str
    value: Any
    run_id: str | None


@dataclass(slots=True)
class Node:
    """One checkpoint of the model.

    `detached` means that a removal took its parent; the channels it has no value for keep, in
    `history`, what their parents had contributed.
    """

    parent: str | None
    values: dict[str, Any]
    versions: dict[str, Any]
    metadata: dict[str, Any]
    writes: dict[tuple[str, int], Write] = field(default_factory=dict)
    detached: bool = False
    history: dict[str, dict[str, Any]] = field(default_factory=dict)
    continued: bool = False
    """A child of it was pruned: what is written here later is no question that waits."""

    def pending(self) -> list[tuple[str, str, Any]]:
        ordered = sorted(self.writes.values(), key=lambda w: (w.task_path, w.task_id, w.idx))
        return [(w.task_id, w.channel, w.value) for w in ordered]


@dataclass(slots=True)
class Lane:
    """One namespace of one thread."""

    nodes: dict[str, Node] = field(default_factory=dict)
    head: str | None = None

    def history(self, checkpoint_id: str, channel: str) -> dict[str, Any]:
        """What the ancestors contributed to `channel`: maybe a seed, then writes, oldest first."""
        node = self.nodes[checkpoint_id]
        if node.detached:
            return node.history.get(channel, {"writes": []})
        parent = self.nodes.get(node.parent or "")
        if parent is None:
            return {"writes": []}
        own = [write for write in parent.pending() if write[1] == channel]
        if channel in parent.values:
            return {"writes": own, "seed": parent.values[channel]}
        older = self.history(cast(str, node.parent), channel)
        return {**older, "writes": older["writes"] + own}


@dataclass(slots=True)
class Model:
    """Threads of namespaces of checkpoints: the store as a dict."""

    lanes: dict[tuple[str, str], Lane] = field(default_factory=dict)

    def threads(self) -> list[str]:
        return sorted({thread for thread, _ in self.lanes})

    def put(self, thread: str, ns: str, checkpoint_id: str, node: Node) -> None:
        """Store a checkpoint: a child of the head is the new head, else the greatest id wins.

        Storing an id again replaces it, keeps its writes and moves nothing.
        """
        lane = self.lanes.setdefault((thread, ns), Lane())
        if before := lane.nodes.get(checkpoint_id):
            node.writes = before.writes
        elif lane.head is None or node.parent == lane.head or checkpoint_id > lane.head:
            lane.head = checkpoint_id
        lane.nodes[checkpoint_id] = node

    def put_writes(
        self,
        thread: str,
        ns: str,
        checkpoint_id: str,
        writes: Iterable[tuple[str, Any]],
        task_id: str,
        task_path: str,
        run_id: str | None,
    ) -> None:
        """Store writes: the last one wins in the special channels, the first in all others."""
        stored = self.lanes[thread, ns].nodes[checkpoint_id].writes
        for position, (channel, value) in enumerate(writes):
            idx = WRITES_IDX_MAP.get(channel, position)
            if idx < 0 or (task_id, idx) not in stored:
                stored[task_id, idx] = Write(task_path, task_id, idx, channel, value, run_id)

    def delete_thread(self, thread: str) -> None:
        self.lanes = {key: lane for key, lane in self.lanes.items() if key[0] != thread}

    def copy_thread(self, source: str, target: str) -> None:
        for (thread, ns), lane in list(self.lanes.items()):
            if thread == source:
                self.lanes[target, ns] = copy.deepcopy(lane)

    def keep_latest(self, thread: str) -> None:
        """Leave the head of each namespace, without a parent."""
        for (owner, _), lane in self.lanes.items():
            if owner == thread:
                head = cast(str, lane.head)
                _remove(lane, set(lane.nodes) - {head})
                lane.nodes[head].parent = None
                lane.nodes[head].detached = True

    def remove(self, thread: str, gone: Mapping[str, set[str]]) -> None:
        """Remove checkpoints, by namespace; what the others inherited from them stays."""
        for ns, ids in gone.items():
            lane = self.lanes[thread, ns]
            parents = {lane.nodes[i].parent for i in ids}
            _remove(lane, ids)
            for i, node in lane.nodes.items():
                node.continued = node.continued or i in parents
            if not lane.nodes:
                del self.lanes[thread, ns]

    def delete_for_runs(self, runs: set[str]) -> None:
        """Remove what the runs stored, and take back what they wrote on others' checkpoints.

        A namespace that lost its head has the newest checkpoint that nobody continues: where it
        was before a fork, or before a run of a host whose clock is behind.
        """
        for key, lane in list(self.lanes.items()):
            made = {i for i, node in lane.nodes.items() if node.metadata.get("run_id") in runs}
            _remove(lane, made, runs=runs)
            if not lane.nodes:
                del self.lanes[key]
            elif lane.head in made:
                continued = {node.parent for node in lane.nodes.values()}
                lane.head = max(set(lane.nodes) - continued or lane.nodes)


def _remove(lane: Lane, gone: set[str], runs: Collection[str] = ()) -> None:
    """Remove checkpoints and the runs' writes; what the survivors inherited stays as it was."""
    inherited = {i: _inherited(lane, i) for i in lane.nodes if i not in gone}
    lane.nodes = {i: node for i, node in lane.nodes.items() if i not in gone}
    for node in lane.nodes.values():
        node.writes = {key: w for key, w in node.writes.items() if w.run_id not in runs}
    for checkpoint_id, history in inherited.items():
        if _inherited(lane, checkpoint_id) != history:
            lane.nodes[checkpoint_id].detached = True
            lane.nodes[checkpoint_id].history = history


def _inherited(lane: Lane, checkpoint_id: str) -> dict[str, dict[str, Any]]:
    node = lane.nodes[checkpoint_id]
    return {
        channel: lane.history(checkpoint_id, channel)
        for channel in node.versions
        if channel not in node.values
    }
