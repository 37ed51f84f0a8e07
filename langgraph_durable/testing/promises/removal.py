"""Promises about `delete_thread`, `delete_for_runs`, `prune` and `copy_thread`.

Whatever goes, what stays reads as before; and another saver with the old state in mind neither
brings the removed back nor stumbles over its absence.
"""

from __future__ import annotations

import copy

from langgraph_durable.testing.model import Coloured, at, numbered
from langgraph_durable.testing.promises.stage import (
    Another,
    Stage,
    everything,
    load,
    number,
    numbers,
    parent_of,
    promise,
    put,
    put_line,
    values,
    write,
)


class DeletingThreads(Stage):
    """`delete_thread`"""

    @promise
    async def test_a_deleted_thread_is_gone_in_all_namespaces(self, saver: Coloured) -> None:
        for ns in ("", "child"):
            await put_line(saver, "t", 3, ns=ns)
            await write(saver, "t", 3, [("a", 1)], ns=ns)
        await put_line(saver, "other", 2)
        await write(saver, "other", 2, [("a", 1)])
        before = await everything(saver, "other")
        await saver.delete_thread("t")
        assert await saver.get_tuple(at("t")) is None
        assert await saver.get_tuple(at("t", numbered(2), ns="child")) is None
        assert await everything(saver, "t") == []
        assert await everything(saver, "other") == before

    @promise
    async def test_deleting_nothing_is_fine(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        for thread in ("t", "t", "never there"):
            await saver.delete_thread(thread)
        assert await numbers(saver, None) == []

    @promise
    async def test_a_deleted_thread_begins_anew(self, saver: Coloured) -> None:
        """No value, write or head of the old thread shows in the new one."""
        await put_line(saver, "t", 3)
        await write(saver, "t", 1, [("a", "old")])
        await write(saver, "t", 9, [("a", "old and early")])
        await saver.delete_thread("t")
        await put(saver, "t", 1, {"b": "new"}, inherits={"items": 1})
        assert await values(saver, "t") == {"b": "new"}
        assert (await load(saver, "t")).pending_writes == []
        await put(saver, "t", 9, parent=1)
        assert (await load(saver, "t")).pending_writes == []

    @promise
    async def test_another_saver_sees_the_delete(self, saver: Coloured, another: Another) -> None:
        other = another()
        await put_line(saver, "t", 3)
        items = (await values(other, "t"))["items"]
        await saver.delete_thread("t")
        assert await other.get_tuple(at("t")) is None
        await put(other, "t", 4, {"items": [*items, "new"]})
        assert await values(saver, "t") == {"items": [*items, "new"]}
        assert await numbers(saver, at("t")) == [4]


class Pruning(Stage):
    """`prune`"""

    @promise
    async def test_keep_latest_keeps_the_newest_of_each_namespace(self, saver: Coloured) -> None:
        for ns in ("", "child"):
            await put_line(saver, "t", 4, ns=ns)
            await write(saver, "t", 4, [("a", ns)], "one", "~2", ns=ns)
            await write(saver, "t", 4, [("a", ns)], "two", "~1", ns=ns)
            await write(saver, "t", 3, [("a", ns)], ns=ns)
        await put_line(saver, "other", 2)
        before = await everything(saver, "other")
        await saver.prune(["t"])
        for ns in ("", "child"):
            assert await numbers(saver, at("t", ns=ns)) == [4]
            found = await load(saver, "t", ns=ns)
            assert found.checkpoint["channel_values"] == {"items": [f"item {k}" for k in range(4)]}
            assert found.metadata == {"step": 4}
            assert found.pending_writes == [("two", "a", ns), ("one", "a", ns)]
        assert await everything(saver, "other") == before

    @promise
    async def test_keep_latest_keeps_values_of_older_versions(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": ["one"], "b": {"k": 1}})
        await put(saver, "t", 2, {"b": {"k": 2}}, parent=1, inherits={"a": 1})
        await put(saver, "t", 3, {"c": None}, parent=2, inherits={"a": 1, "b": 2})
        for _ in range(2):
            await saver.prune(["t"], strategy="keep_latest")
            assert await values(saver, "t") == {"a": ["one"], "b": {"k": 2}, "c": None}

    @promise
    async def test_a_pruned_thread_goes_on(self, saver: Coloured, another: Another) -> None:
        """Both for the saver that pruned and for one that had the old state in mind."""
        other = another()
        await put_line(saver, "t", 5)
        items = [f"item {k}" for k in range(5)]
        assert await values(other, "t", 3) == {"items": items[:3]}
        assert await values(other, "t") == {"items": items}
        await saver.prune(["t"], strategy="keep_latest")
        await put(other, "t", 6, {"items": [*items[1:], "six"]}, parent=5)
        await put(saver, "t", 7, {"new": items}, parent=6, inherits={"items": 6})
        assert await values(other, "t") == {"items": [*items[1:], "six"], "new": items}
        assert await values(saver, "t", 5) == {"items": items}
        assert parent_of(await load(saver, "t")) == numbered(6)

    @promise
    async def test_delete_removes_the_threads(self, saver: Coloured) -> None:
        for thread in "abc":
            await put_line(saver, thread, 2)
            await put_line(saver, thread, 2, ns="child")
        await saver.prune(["a", "b"], strategy="delete")
        assert await everything(saver, "a") == await everything(saver, "b") == []
        assert len(await everything(saver, "c")) == 4

    @promise
    async def test_pruning_nothing_is_fine(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        for strategy in ("keep_latest", "delete"):
            await saver.prune([], strategy=strategy)
            await saver.prune(["never there"], strategy=strategy)
        assert await numbers(saver, None) == [2, 1]


class DeletingRuns(Stage):
    """`delete_for_runs`"""

    @promise
    async def test_a_runs_checkpoints_go_wherever_they_are(self, saver: Coloured) -> None:
        for thread in "ab":
            for ns in ("", "child"):
                for n, run in enumerate(["r1", "r2", "r3"], 1):
                    metadata = {"run_id": run}
                    await put(saver, thread, n, ns=ns, parent=n - 1 or None, metadata=metadata)
                    await write(saver, thread, n, [("a", n)], ns=ns)
        await put(saver, "a", 4, parent=3)
        await saver.delete_for_runs(["r2", "r3"])
        assert await numbers(saver, at("a")) == [4, 1]
        assert await numbers(saver, at("a", ns="child")) == [1]
        assert await numbers(saver, at("b", ns=None)) == [1, 1]
        assert await saver.get_tuple(at("b", numbered(2))) is None
        assert (await load(saver, "b")).pending_writes == [("task", "a", 1)]

    @promise
    async def test_it_may_be_called_twice_and_with_unknown_runs(self, saver: Coloured) -> None:
        await put(saver, "t", 1, metadata={"run_id": "keep"})
        await put(saver, "t", 2, parent=1, metadata={"run_id": "drop"})
        for runs in ([], ["unknown"], ["drop", "unknown", "drop"], ["drop"]):
            await saver.delete_for_runs(runs)
        assert await numbers(saver, None) == [1]

    @promise
    async def test_a_thread_of_one_run_is_gone_with_it(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": 1}, metadata={"run_id": "r"})
        await write(saver, "t", 1, [("a", "old")])
        await saver.delete_for_runs(["r"])
        assert await saver.get_tuple(at("t")) is None
        await put(saver, "t", 1, inherits={"a": 1})
        assert await values(saver, "t") == {}
        assert (await load(saver, "t")).pending_writes == []

    @promise
    async def test_survivors_keep_the_values_they_inherited(
        self, saver: Coloured, another: Another
    ) -> None:
        other = another()
        await put(saver, "t", 1, {"a": ["one"], "b": ["one"]}, metadata={"run_id": "drop"})
        await put(saver, "t", 2, {"b": ["one", "two"]}, parent=1, inherits={"a": 1})
        assert await values(other, "t", 1) == {"a": ["one"], "b": ["one"]}
        await saver.delete_for_runs(["drop"])
        assert await values(saver, "t") == {"a": ["one"], "b": ["one", "two"]}
        await put(other, "t", 3, {"c": ["one"]}, parent=2, inherits={"a": 1, "b": 2})
        assert await values(other, "t") == {"a": ["one"], "b": ["one", "two"], "c": ["one"]}


async def put_source(saver: Coloured) -> None:
    """A thread with a fork, a sub-graph and parallel tasks."""
    await put_line(saver, "source", 3)
    await put(saver, "source", 4, {"items": ["forked"]}, parent=1)
    await put(saver, "source", 2, {"a": None}, ns="child", metadata={"run_id": "r"})
    await write(saver, "source", 4, [("a", 1), ("b", 2)], "z", "~1")
    await write(saver, "source", 4, [("a", 3)], "y", "~2")


class Copying(Stage):
    """`copy_thread`"""

    @promise
    async def test_a_copy_reads_like_its_source(self, saver: Coloured, another: Another) -> None:
        await put_source(saver)
        source = await everything(saver, "source")
        await saver.copy_thread("source", "target")
        target = await everything(another(), "target")
        assert len(target) == 5
        for old, new in zip(source, target, strict=True):
            ns = old.config["configurable"]["checkpoint_ns"]
            assert new.config == at("target", numbered(number(old)), ns=ns)
            parent = parent_of(old)
            assert new.parent_config == (parent and at("target", parent, ns=ns))
            assert new.checkpoint == old.checkpoint
            assert new.metadata == old.metadata
            assert new.pending_writes == old.pending_writes
        assert await everything(saver, "source") == source

    @promise
    async def test_a_copy_keeps_task_paths(self, saver: Coloured) -> None:
        await put_source(saver)
        await saver.copy_thread("source", "target")
        await write(saver, "target", 4, [("a", 0)], "x", "~11")
        tasks = [task for task, *_ in (await load(saver, "target", 4)).pending_writes or ()]
        assert tasks == ["z", "z", "x", "y"]

    @promise
    async def test_source_and_copy_go_their_own_ways(self, saver: Coloured) -> None:
        await put_source(saver)
        await saver.copy_thread("source", "target")
        before = copy.deepcopy(await everything(saver, "target"))
        await put(saver, "source", 5, {"items": ["forked", "source"]}, parent=4)
        await saver.delete_thread("source")
        assert await everything(saver, "target") == before
        await put(saver, "target", 5, {"items": ["forked", "target"]}, parent=4)
        await saver.copy_thread("target", "source")
        await saver.prune(["target"], strategy="keep_latest")
        assert await values(saver, "source", 4) == {"items": ["forked"]}
        assert await values(saver, "target") == {"items": ["forked", "target"]}
