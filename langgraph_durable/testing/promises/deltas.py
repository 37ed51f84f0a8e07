"""Promises about DeltaChannels: their history, and that nothing cuts it.

A DeltaChannel stores its value now and then (`_DeltaSnapshot`); in between a checkpoint has only
a version for it, and its value is the nearest stored one plus the writes on the way from there.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_durable.testing.model import Coloured, at, checkpoint, exact, numbered
from langgraph_durable.testing.promises.stage import (
    Another,
    Stage,
    load,
    numbers,
    promise,
    put,
    put_line,
    version,
    write,
)

LOG = "log"


async def step(
    saver: Coloured,
    n: int,
    *,
    parent: int | None = None,
    thread: str = "t",
    snapshot: Any = None,
    run: str | None = None,
) -> None:
    """Checkpoint `n` of a graph with a DeltaChannel, and the write that leads on from it."""
    values = {"other": n} if snapshot is None else {"other": n, LOG: _DeltaSnapshot(snapshot)}
    versions = dict.fromkeys(["other", LOG], version(n))
    # LangGraph notes in the metadata which channels wait for their next snapshot.
    metadata = {"counters_since_delta_snapshot": {LOG: [n, n]}} if snapshot is None else {}
    config = at(thread, None if parent is None else numbered(parent))
    run_id = {} if run is None else {"run_id": run}
    await saver.put(
        config, checkpoint(numbered(n), values, versions), {**metadata, **run_id}, versions
    )
    message = HumanMessage(f"said at {n}", id=str(n))
    await write(saver, thread, n, [(LOG, message), ("other", n)], f"task {n}", run=run)


async def history(saver: Coloured, n: int | None = None, *, thread: str = "t") -> Any:
    """The history of the one channel: the seed (or None), then what was said at which step."""
    config = at(thread, None if n is None else numbered(n))
    found = (await saver.get_delta_channel_history(config=config, channels=[LOG]))[LOG]
    assert all(channel == LOG for _, channel, _ in found["writes"])
    said = [int(message.id) for _, _, message in found["writes"]]
    return (found["seed"].value if "seed" in found else None), said


async def put_fork(saver: Coloured) -> None:
    """1 - 2 - 3* - 4 - 5, with a fork 2 - 6 - 7; 3 has a snapshot."""
    for n in (1, 2, 3, 4, 5):
        await step(saver, n, parent=n - 1 or None, snapshot=["a", "b"] if n == 3 else None)
    await step(saver, 6, parent=2)
    await step(saver, 7, parent=6)


class Deltas(Stage):
    """`get_delta_channel_history`"""

    @promise
    async def test_history_follows_parents_to_the_nearest_value(self, saver: Coloured) -> None:
        """Without the writes of the target itself, with those of the checkpoint that has it."""
        await put_fork(saver)
        assert await history(saver, 1) == (None, [])
        assert await history(saver, 2) == (None, [1])
        assert await history(saver, 3) == (None, [1, 2])
        assert await history(saver, 4) == (["a", "b"], [3])
        assert await history(saver, 5) == (["a", "b"], [3, 4])
        assert await history(saver, 7) == (None, [1, 2, 6])
        assert await history(saver) == (None, [1, 2, 6])

    @promise
    async def test_history_equals_langgraphs_own_walk(self, saver: Coloured) -> None:
        await put_fork(saver)
        await put(saver, "t", 8, {"plain": None, "late": [1]}, parent=7)
        for k, path in enumerate(["~3", "~1", "~2"]):
            given = [("plain", k), (LOG, [k]), ("plain", [k]), ("late", k)]
            await write(saver, "t", 8, given, f"task {k}", path)
        await put(saver, "t", 9, parent=8)
        await put(saver, "t", 10, parent=9, inherits={"late": 8})
        await put(saver, "t", 11, parent=10)
        channels = [LOG, "other", "plain", "late", "never there"]
        for config in [at("t"), at("nobody"), *(at("t", numbered(n)) for n in range(1, 13))]:
            found = await saver.get_delta_channel_history(config=config, channels=channels)
            default = await saver.default_history(config, channels)
            assert list(found) == channels
            for channel in channels:
                assert exact(sorted(found[channel].items())) == exact(
                    sorted(default[channel].items())
                )

    @promise
    async def test_none_is_a_seed(self, saver: Coloured) -> None:
        await put(saver, "t", 1, {"a": None})
        await put(saver, "t", 2, {"b": 1}, parent=1)
        config = at("t")
        found = await saver.get_delta_channel_history(config=config, channels=["a", "c"])
        assert found == {"a": {"seed": None, "writes": []}, "c": {"writes": []}}

    @promise
    async def test_no_channels_have_no_history(self, saver: Coloured) -> None:
        await put_fork(saver)
        assert await saver.get_delta_channel_history(config=at("t"), channels=[]) == {}

    @promise
    async def test_history_is_fresh(self, saver: Coloured) -> None:
        await put_fork(saver)
        for _ in range(2):
            config = at("t", numbered(5))
            found = await saver.get_delta_channel_history(config=config, channels=[LOG])
            assert found[LOG]["seed"].value == ["a", "b"]
            assert [message.content for _, _, message in found[LOG]["writes"]] == [
                "said at 3",
                "said at 4",
            ]
            found[LOG]["seed"].value.clear()
            for _, _, message in found[LOG]["writes"]:
                message.content = "changed"

    @promise
    async def test_a_long_chain_is_walked_to_its_end(self, saver: Coloured) -> None:
        for n in range(1, 121):
            await step(saver, n, parent=n - 1 or None)
        assert await history(saver) == (None, list(range(1, 120)))

    @promise
    async def test_a_copy_has_the_history(self, saver: Coloured) -> None:
        await put_fork(saver)
        await saver.copy_thread("t", "copy")
        await saver.delete_thread("t")
        assert await history(saver, 5, thread="copy") == (["a", "b"], [3, 4])
        assert await history(saver, 7, thread="copy") == (None, [1, 2, 6])

    @promise
    async def test_prune_does_not_cut_a_chain(self, saver: Coloured, another: Another) -> None:
        for n in range(1, 7):
            await step(saver, n, parent=n - 1 or None, snapshot=["a"] if n == 3 else None)
        assert await history(saver) == (["a"], [3, 4, 5])
        for _ in range(2):
            await saver.prune(["t"], strategy="keep_latest")
            assert await history(saver) == (["a"], [3, 4, 5])
        await step(another(), 7, parent=6)
        await step(saver, 8, parent=7)
        assert await history(saver) == (["a"], [3, 4, 5, 6, 7])
        await saver.prune(["t"], strategy="keep_latest")
        assert await history(another()) == (["a"], [3, 4, 5, 6, 7])

    @promise
    async def test_prune_keeps_a_history_that_never_had_a_snapshot(self, saver: Coloured) -> None:
        for n in range(1, 5):
            await step(saver, n, parent=n - 1 or None)
        await saver.prune(["t"], strategy="keep_latest")
        assert await history(saver) == (None, [1, 2, 3])

    @promise
    async def test_prune_takes_what_no_history_needs(self, saver: Coloured) -> None:
        """A snapshot in the kept checkpoint ends its history."""
        for n in range(1, 4):
            await step(saver, n, parent=n - 1 or None, snapshot=["a"] if n == 3 else None)
        await saver.prune(["t"], strategy="keep_latest")
        await step(saver, 4, parent=3)
        assert await history(saver) == (["a"], [3])
        assert await numbers(saver, at("t")) == [4, 3]


class SturdyDeltas(Stage):
    """Only ours: LangGraph warns that `delete_for_runs` breaks such threads."""

    @promise
    async def test_deleting_a_run_leaves_the_history_of_later_ones(self, saver: Coloured) -> None:
        for n in range(1, 7):
            run = "drop" if n in (2, 3, 4) else "keep"
            await step(saver, n, parent=n - 1 or None, run=run)
        before = await history(saver, 5), await history(saver, 6)
        for _ in range(2):
            await saver.delete_for_runs(["drop"])
            assert await numbers(saver, at("t")) == [6, 5, 1]
            assert (await history(saver, 5), await history(saver, 6)) == before
        await saver.prune(["t"], strategy="keep_latest")
        assert await history(saver) == before[1] == (None, [1, 2, 3, 4, 5])

    @promise
    async def test_deleting_a_run_with_the_snapshot_leaves_the_value(self, saver: Coloured) -> None:
        for n in range(1, 5):
            snapshot = ["a"] if n == 2 else None
            run = "drop" if n == 2 else "keep"
            await step(saver, n, parent=n - 1 or None, snapshot=snapshot, run=run)
        await saver.delete_for_runs(["drop"])
        assert await history(saver, 3) == (["a"], [2])
        assert await history(saver, 4) == (["a"], [2, 3])

    @promise
    async def test_taking_back_writes_leaves_what_others_made_of_them(
        self, saver: Coloured
    ) -> None:
        """A run answers and fails; the next one finishes with what the first had written."""
        await step(saver, 1, run="asks")
        message = HumanMessage("answered", id="100")
        await write(saver, "t", 1, [(LOG, message)], "answer", run="fails")
        await step(saver, 2, parent=1, run="finishes")
        await step(saver, 3, parent=2, run="finishes")
        before = await history(saver, 2), await history(saver, 3)
        assert before == ((None, [100, 1]), (None, [100, 1, 2]))
        await saver.delete_for_runs(["fails"])
        assert (await history(saver, 2), await history(saver, 3)) == before
        assert ("answer", LOG, message) not in ((await load(saver, "t", 1)).pending_writes or [])

    @promise
    async def test_taking_back_other_writes_leaves_the_history_open(self, saver: Coloured) -> None:
        """What is still to be written to the parent counts as it would have."""
        await step(saver, 1)
        await write(saver, "t", 1, [("other", 5)], "fails", run="fails")
        await step(saver, 2, parent=1)
        await saver.delete_for_runs(["fails"])
        await write(saver, "t", 1, [(LOG, HumanMessage("late", id="9"))], "task 9")
        assert await history(saver, 2) == (None, [1, 9])

    @promise
    async def test_a_copy_of_a_pruned_thread_has_the_history(self, saver: Coloured) -> None:
        for n in range(1, 5):
            await step(saver, n, parent=n - 1 or None, snapshot=["a"] if n == 2 else None)
        await saver.prune(["t"], strategy="keep_latest")
        await saver.copy_thread("t", "copy")
        await saver.delete_thread("t")
        await put_line(saver, "t", 1)
        assert await history(saver, thread="copy") == (["a"], [2, 3])
