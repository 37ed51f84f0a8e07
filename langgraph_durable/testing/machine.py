"""Random operations on a store and on a dict: after every step all reads must be equal.

`saver_machine` makes a Hypothesis state machine. Its rules act through several savers opened on
one store, some sync and some async, and mirror each act in a `Model`; its invariant reads
everything back. Values are edited in place between puts, as graphs do.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, _DeltaSnapshot

from langgraph_durable.testing.model import (
    Coloured,
    Lane,
    Model,
    Node,
    at,
    checkpoint,
    exact,
    finish,
    numbered,
)

NAMESPACES = ("", "child")
RUNS = ("run-1", "run-2", "run-3")
DELTA = "log"
MOST_THREADS, MOST_CHECKPOINTS = 3, 10

picks = st.integers(0, 50)
texts = st.one_of(st.text(max_size=6), st.integers(0, 400).map("word ".__mul__))
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.binary(max_size=6)
)
leaves = st.one_of(
    scalars,
    texts,
    texts.map(lambda text: HumanMessage(text, id=text[:8])),
    texts.map(lambda text: AIMessage(text, additional_kwargs={"text": text})),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.tuples(inner, inner),
    ),
    max_leaves=5,
)


def _append(items: list[Any], item: Any, where: int) -> None:
    items.append(item)


def _replace(items: list[Any], item: Any, where: int) -> None:
    items[where : where + 1] = [item]


def _remove(items: list[Any], item: Any, where: int) -> None:
    del items[where : where + 1]


def _insert(items: list[Any], item: Any, where: int) -> None:
    items.insert(where, item)


def _repeat(items: list[Any], item: Any, where: int) -> None:
    items.extend(items[where:] or [item])


def _rotate(items: list[Any], item: Any, where: int) -> None:
    items[:] = items[where:] + items[:where]


def _window(items: list[Any], item: Any, where: int) -> None:
    items[:] = [*items[where:], item]


def _mutate(items: list[Any], item: Any, where: int) -> None:
    target = items[where] if items else None
    if isinstance(target, HumanMessage | AIMessage):
        target.additional_kwargs["edited"] = item
    elif isinstance(target, list):
        target.append(item)
    elif isinstance(target, dict):
        target["edited"] = item


EDITS = (_append, _append, _replace, _remove, _insert, _repeat, _rotate, _window, _mutate)


@dataclass(frozen=True, slots=True)
class Step:
    """What one superstep does to the channels."""

    edit: Callable[[list[Any], Any, int], None]
    where: int
    item: Any
    key: str
    channels: frozenset[str]

    def apply(self, state: dict[str, Any]) -> None:
        """Change the named channels, in place where the value can be changed in place."""
        if "messages" in self.channels:
            items = state.setdefault("messages", [])
            self.edit(items, copy.deepcopy(self.item), self.where % max(len(items), 1))
        if "facts" in self.channels:
            facts = state.setdefault("facts", {})
            if self.key in facts and self.where % 2:
                del facts[self.key]
            else:
                facts[self.key] = copy.deepcopy(self.item)
        if "note" in self.channels:
            state["note"] = copy.deepcopy(self.item)
        if DELTA in self.channels:
            state.pop(DELTA, None)
            if self.where % 4 == 0:
                state[DELTA] = _DeltaSnapshot([copy.deepcopy(self.item)])


steps = st.builds(
    Step,
    edit=st.sampled_from(EDITS),
    where=picks,
    item=values,
    key=st.sampled_from(["a", "b", "ü\x00"]),
    channels=st.frozensets(st.sampled_from(["messages", "messages", "facts", "note", DELTA])),
)

pending = st.lists(
    st.tuples(st.sampled_from([DELTA, DELTA, "messages", ERROR, INTERRUPT, RESUME]), values),
    min_size=1,
    max_size=3,
)


class SaverMachine(RuleBasedStateMachine):
    """Plays on the store that `open_saver` opens; made by `saver_machine`."""

    open_saver: Callable[[], BaseCheckpointSaver[Any]]
    examples: itertools.count[int]
    policies: Sequence[Any]

    def __init__(self) -> None:
        super().__init__()
        self.example = next(type(self).examples)
        self.runner = asyncio.Runner()
        self.model = Model()
        self.savers = [self._open("sync"), self._open("async")]
        self.turn = 0
        self.named = 0
        self.newer, self.older = itertools.count(100_000), itertools.count(99_999, -1)
        self.live: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}

    # Talking to the savers

    def _open(self, colour: Any) -> Coloured:
        return Coloured(type(self).open_saver(), colour)

    def _do(self, act: Callable[[Coloured], Awaitable[Any]]) -> Any:
        """Act through the savers in turn."""
        self.turn += 1
        saver = self.savers[self.turn % len(self.savers)]

        async def work() -> Any:
            return await act(saver)

        return finish(saver.colour, work(), self.runner.run)

    def _close(self, saver: Coloured) -> None:
        close = getattr(saver.saver, "close", None)
        if close is not None:
            close()

    def teardown(self) -> None:
        try:
            for thread in self.model.threads():
                self._do(methodcaller("delete_thread", thread))
        finally:
            for saver in self.savers:
                self._close(saver)
            self.runner.close()

    # Choosing

    def _new_thread(self) -> str:
        self.named += 1
        return f"{self.example}-{self.named}"

    def _thread(self, pick: int) -> str:
        threads = self.model.threads()
        return threads[pick % len(threads)]

    def _node(self, pick: int) -> tuple[str, str, str]:
        all_nodes = [
            (thread, ns, checkpoint_id)
            for (thread, ns), lane in sorted(self.model.lanes.items())
            for checkpoint_id in sorted(lane.nodes)
        ]
        return all_nodes[pick % len(all_nodes)]

    def _room(self) -> bool:
        return len(self.model.threads()) < MOST_THREADS

    # Putting

    def _start(self, thread: str, ns: str, parent: str | None) -> dict[str, Any]:
        """The channel objects a run has in hand when it continues `parent`."""
        live = self.live.get((thread, ns))
        if live and live[0] == parent:
            return live[1]
        lane = self.model.lanes.get((thread, ns), Lane())
        return copy.deepcopy(lane.nodes[parent].values) if parent in lane.nodes else {}

    def _put(
        self, thread: str, ns: str, checkpoint_id: str, parent: str | None, step: Step, run: str
    ) -> None:
        lane = self.model.lanes.get((thread, ns), Lane())
        old = lane.nodes[parent].versions if parent in lane.nodes else {}
        state = self._start(thread, ns, parent)
        step.apply(state)
        newest = max(old.values(), default=None)
        version = self.savers[0].saver.get_next_version(newest, None)
        new_versions = dict.fromkeys(sorted(step.channels), version)
        versions = {**old, **new_versions}
        metadata: dict[str, Any] = {"source": "loop", "step": step.where, "run_id": run}
        if DELTA in versions and DELTA not in state:
            # So LangGraph notes which channels wait for their next snapshot.
            metadata["counters_since_delta_snapshot"] = {DELTA: [1, step.where]}
        node = Node(parent, copy.deepcopy(state), versions, metadata)
        # Values that did not change need not be handed over again.
        handed = {k: v for k, v in state.items() if k in new_versions or step.where % 3}
        self._do(
            lambda s: s.put(
                at(thread, parent, ns=ns),
                checkpoint(checkpoint_id, handed, versions),
                dict(node.metadata),
                dict(new_versions),
            )
        )
        self.model.put(thread, ns, checkpoint_id, node)
        self.live[thread, ns] = (checkpoint_id, state)

    def _write(self, where: tuple[str, str, str], writes: Any, task: int, run: str | None) -> None:
        thread, ns, checkpoint_id = where
        config: Any = at(thread, checkpoint_id, ns=ns)
        if run is not None:
            config["metadata"] = {"run_id": run}
        path = f"~{-task % 3}"
        self._do(lambda s: s.put_writes(config, writes, f"task-{task}", path))

    def _write_now(
        self, where: tuple[str, str, str], writes: Any, task: int, run: str | None
    ) -> None:
        self._write(where, copy.deepcopy(writes), task, run)
        self.model.put_writes(*where, writes, f"task-{task}", f"~{-task % 3}", run)

    @precondition(_room)
    @rule(step=steps, ns=st.sampled_from(NAMESPACES), run=st.sampled_from(RUNS))
    def begin(self, step: Step, ns: str, run: str) -> None:
        """A new thread."""
        self._put(self._new_thread(), ns, numbered(next(self.newer)), None, step, run)

    @precondition(lambda self: self.model.lanes)
    @rule(pick=picks, step=steps, run=st.sampled_from(RUNS), behind=st.integers(0, 4))
    def advance(self, pick: int, step: Step, run: str, behind: int) -> None:
        """The next checkpoint of a thread; now and then by a host whose clock is behind."""
        lanes = sorted(self.model.lanes)
        thread, ns = lanes[pick % len(lanes)]
        lane = self.model.lanes[thread, ns]
        if len(lane.nodes) < MOST_CHECKPOINTS:
            ids = self.newer if behind else self.older
            self._put(thread, ns, numbered(next(ids)), lane.head, step, run)

    @precondition(lambda self: self.model.lanes)
    @rule(pick=picks, step=steps, ns=st.sampled_from(NAMESPACES), run=st.sampled_from(RUNS))
    def enter_namespace(self, pick: int, step: Step, ns: str, run: str) -> None:
        """A first checkpoint in another namespace of a thread."""
        thread = self._thread(pick)
        if (thread, ns) not in self.model.lanes:
            self._put(thread, ns, numbered(next(self.newer)), None, step, run)

    @precondition(lambda self: self.model.lanes)
    @rule(pick=picks, step=steps, run=st.sampled_from(RUNS), stub=st.integers(0, 3))
    def fork(self, pick: int, step: Step, run: str, stub: int) -> None:
        """A child of any checkpoint; or an older id that is nobody's child and moves no head."""
        thread, ns, parent = self._node(pick)
        if len(self.model.lanes[thread, ns].nodes) < MOST_CHECKPOINTS:
            if stub:
                self._put(thread, ns, numbered(next(self.newer)), parent, step, run)
            else:
                self._put(thread, ns, numbered(next(self.older)), None, step, run)

    @precondition(lambda self: self.model.lanes)
    @rule(pick=picks, step=steps, run=st.sampled_from(RUNS))
    def put_again(self, pick: int, step: Step, run: str) -> None:
        """The same id once more replaces what it held."""
        thread, ns, checkpoint_id = self._node(pick)
        node = self.model.lanes[thread, ns].nodes[checkpoint_id]
        parent_is_there = node.parent in self.model.lanes[thread, ns].nodes
        if not node.detached and (node.parent is None or parent_is_there):
            self._put(thread, ns, checkpoint_id, node.parent, step, run)

    # Writes

    @precondition(lambda self: self.model.lanes)
    @rule(
        pick=picks,
        writes=pending,
        task=st.integers(0, 3),
        run=st.none() | st.sampled_from(RUNS),
    )
    def write(self, pick: int, writes: Any, task: int, run: str | None) -> None:
        """Pending writes of a task, on any checkpoint; the same task may come again."""
        self._write_now(self._node(pick), writes, task, run)

    @precondition(lambda self: self.model.lanes)
    @rule(pick=picks, writes=pending, task=st.integers(0, 3), step=steps)
    def write_before_put(self, pick: int, writes: Any, task: int, step: Step) -> None:
        """Writes that overtake their own checkpoint."""
        thread, ns, parent = self._node(pick)
        if len(self.model.lanes[thread, ns].nodes) < MOST_CHECKPOINTS:
            where = (thread, ns, numbered(next(self.newer)))
            self._write(where, copy.deepcopy(writes), task, None)
            self._put(*where, parent, step, RUNS[0])
            self.model.put_writes(*where, writes, f"task-{task}", f"~{-task % 3}", None)

    @precondition(lambda self: self.model.lanes)
    @rule(
        pick=picks,
        value=values,
        step=steps,
        task=st.integers(0, 3),
        writer=st.sampled_from(RUNS),
        run=st.sampled_from(RUNS),
    )
    def superstep(
        self, pick: int, value: Any, step: Step, task: int, writer: str, run: str
    ) -> None:
        """A task writes to the DeltaChannel; a run, maybe a later one, takes it up."""
        lanes = sorted(self.model.lanes)
        thread, ns = lanes[pick % len(lanes)]
        head = self.model.lanes[thread, ns].head
        assert head is not None
        self._write_now((thread, ns, head), [(DELTA, value)], task, writer)
        if len(self.model.lanes[thread, ns].nodes) < MOST_CHECKPOINTS:
            step = replace(step, channels=step.channels | {DELTA})
            self._put(thread, ns, numbered(next(self.newer)), head, step, run)

    # Removing and copying

    @precondition(lambda self: self.model.lanes and self._room())
    @rule(pick=picks)
    def copy_thread(self, pick: int) -> None:
        source, target = self._thread(pick), self._new_thread()
        self._do(lambda s: s.copy_thread(source, target))
        self.model.copy_thread(source, target)

    @precondition(lambda self: self.model.lanes)
    @rule(pick=picks, how=st.sampled_from(["delete_thread", "delete", "delete_all"]))
    def delete(self, pick: int, how: str) -> None:
        thread = self._thread(pick)
        if how == "delete_thread":
            self._do(lambda s: s.delete_thread(thread))
        else:
            self._do(lambda s: s.prune([thread], strategy=how))
        self.model.delete_thread(thread)
        self._let_go()

    @precondition(lambda self: self.model.lanes)
    @rule(pick=picks)
    def keep_latest(self, pick: int) -> None:
        thread = self._thread(pick)
        self._do(lambda s: s.prune([thread], strategy="keep_latest"))
        self.model.keep_latest(thread)

    @precondition(lambda self: self.policies and self.model.lanes)
    @rule(pick=picks, which=picks)
    def prune(self, pick: int, which: int) -> None:
        """What a policy lets go goes; a plan says what that will be."""
        thread, policy = self._thread(pick), self.policies[which % len(self.policies)]
        plan = self._do(lambda s: s.plan_prune([thread], strategy=policy))
        report = self._do(lambda s: s.prune([thread], strategy=policy))
        assert report.checkpoints == plan.removed
        [each] = plan.threads
        gone = {ns: set(ids) for ns, ids in each.removed.items()}
        if not each.whole:
            self._check_kept(thread, gone)
        self.model.remove(thread, gone)
        self._let_go()

    def _check_kept(self, thread: str, gone: dict[str, set[str]]) -> None:
        """Heads stay, and so does what waits for an answer."""
        for ns, ids in gone.items():
            lane = self.model.lanes[thread, ns]
            assert lane.head not in ids
            continued = {node.parent for node in lane.nodes.values()}
            continued.update(i for i, node in lane.nodes.items() if node.continued)
            for checkpoint_id, node in lane.nodes.items():
                asks = any(write.channel == INTERRUPT for write in node.writes.values())
                assert checkpoint_id in continued or not asks or checkpoint_id not in ids

    @precondition(lambda self: self.policies and self.model.lanes)
    @rule(pick=picks, tag=st.sampled_from(["a", "b"]), away=st.booleans())
    def tag(self, pick: int, tag: str, away: bool) -> None:
        """A tag is given or taken; it shows in the metadata."""
        thread, ns, checkpoint_id = self._node(pick)
        config = at(thread, checkpoint_id, ns=ns)
        self._do(lambda s: s.untag(config, tag) if away else s.tag(config, tag))
        metadata = self.model.lanes[thread, ns].nodes[checkpoint_id].metadata
        tags = metadata.pop("checkpoint_tags", [])
        if away:
            tags = [each for each in tags if each != tag]
        elif tag not in tags:
            tags = [*tags, tag]
        if tags:
            metadata["checkpoint_tags"] = tags

    @rule(runs=st.sets(st.sampled_from(RUNS), max_size=2), pick=picks)
    def delete_for_runs(self, runs: set[str], pick: int) -> None:
        self._do(lambda s: s.delete_for_runs([*sorted(runs), "unknown"]))
        self.model.delete_for_runs(runs)
        self._let_go()

    def _let_go(self) -> None:
        """Forget the live objects of what is no more: nobody can continue from it."""
        self.live = {
            key: live
            for key, live in self.live.items()
            if key in self.model.lanes and live[0] in self.model.lanes[key].nodes
        }

    @rule(pick=picks)
    def reopen(self, pick: int) -> None:
        """A process ends, and another opens the store."""
        which = pick % len(self.savers)
        self._close(self.savers[which])
        self.savers[which] = self._open(self.savers[which].colour)

    # Reading

    @invariant()
    def reads_equal_the_model(self) -> None:
        self._do(self._compare)

    async def _compare(self, saver: Coloured) -> None:
        expected = {
            (thread, ns, checkpoint_id): node
            for (thread, ns), lane in self.model.lanes.items()
            for checkpoint_id, node in lane.nodes.items()
        }
        listed = await saver.list(None)
        found = [_place(t) for t in listed]
        assert sorted(found) == sorted(expected)
        ids = [place[2] for place in found]
        assert ids == sorted(ids, reverse=True)
        for tuple_ in listed:
            thread, ns, _ = place = _place(tuple_)
            _compare_tuple(tuple_, expected[place], self.model.lanes[thread, ns])
        for (thread, ns), lane in self.model.lanes.items():
            await _compare_lane(saver, thread, ns, lane)


async def _compare_lane(saver: Coloured, thread: str, ns: str, lane: Lane) -> None:
    latest = await saver.get_tuple(at(thread, ns=ns))
    assert _place(latest) == (thread, ns, lane.head)
    listed = await saver.list(at(thread, ns=ns))
    assert [_place(t)[2] for t in listed] == sorted(lane.nodes, reverse=True)
    for checkpoint_id, node in lane.nodes.items():
        config = at(thread, checkpoint_id, ns=ns)
        _compare_tuple(await saver.get_tuple(config), node, lane)
        if DELTA in node.versions and DELTA not in node.values:
            history = await saver.get_delta_channel_history(config=config, channels=[DELTA])
            want = lane.history(checkpoint_id, DELTA)
            assert exact(_sorted(history[DELTA])) == exact(_sorted(want))


def _compare_tuple(found: CheckpointTuple, node: Node, lane: Lane) -> None:
    values, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
    assert exact(_sorted(values)) == exact(_sorted(node.values))
    assert versions == node.versions
    assert found.metadata == node.metadata
    assert exact(found.pending_writes) == exact(node.pending())
    parent = found.parent_config and found.parent_config["configurable"]["checkpoint_id"]
    # After delete_for_runs a survivor may name the removed parent, or none.
    removed = node.parent is not None and node.parent not in lane.nodes
    assert parent == node.parent or (removed and parent is None)


def _sorted(mapping: Any) -> dict[str, Any]:
    return dict(sorted(mapping.items()))


def _place(found: CheckpointTuple) -> tuple[str, str, str]:
    named = found.config["configurable"]
    return named["thread_id"], named["checkpoint_ns"], named["checkpoint_id"]


def saver_machine(
    open_saver: Callable[[], BaseCheckpointSaver[Any]], policies: Sequence[Any] = ()
) -> type[SaverMachine]:
    """A state machine class; `open_saver()` must open one and the same store at every call.

    The store should be empty. Every example uses threads of its own and deletes them at its end.
    With `policies`, for a saver that has `plan_prune` and `tag`, threads are pruned by them too.
    """
    attributes = {
        "open_saver": staticmethod(open_saver),
        "examples": itertools.count(1),
        "policies": policies,
    }
    return type("StoreMachine", (SaverMachine,), attributes)
