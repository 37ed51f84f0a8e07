"""Promises about `put_writes`: which one wins, in which order they come, that none is lost."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from langgraph_durable.testing.model import Coloured, at, exact, numbered
from langgraph_durable.testing.promises.stage import (
    Another,
    Stage,
    load,
    numbers,
    promise,
    put,
    put_line,
    together,
    write,
)


async def pending(saver: Coloured, n: int = 1, *, thread: str = "t", ns: str = "") -> Any:
    return (await load(saver, thread, n, ns=ns)).pending_writes


class Writes(Stage):
    """Pending writes."""

    @promise
    async def test_writes_come_back_as_they_were(self, saver: Coloured) -> None:
        given: list[tuple[str, Any]] = [
            ("a", None),
            ("a", [1, "1", b""]),
            ("messages", AIMessage("x", id="1")),
            ("", {}),
        ]
        await put(saver, "t", 1, {"a": 0})
        await write(saver, "t", 1, given)
        assert exact(await pending(saver)) == exact([("task", *one) for one in given])

    @promise
    async def test_order_is_task_path_then_task_then_position(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        calls = [(path, task) for path in ("", "~1", "~10", "~2") for task in ("A", "a", "b")]
        for path, task in reversed(calls):
            await write(saver, "t", 1, [(f"c{k}", k) for k in range(12)], task + path, path)
        assert await pending(saver) == [
            (task + path, f"c{k}", k) for path, task in calls for k in range(12)
        ]

    @promise
    async def test_in_ordinary_channels_the_first_write_wins(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        for attempt in ("first", "second"):
            await write(saver, "t", 1, [("a", attempt), ("b", attempt)])
        assert await pending(saver) == [("task", "a", "first"), ("task", "b", "first")]

    @pytest.mark.parametrize("then", ["less", "more"])
    @promise
    async def test_a_task_that_writes_again_hides_no_other(
        self, saver: Coloured, then: str
    ) -> None:
        """However a store puts the writes of many tasks together."""
        await put(saver, "t", 1)
        tasks, path = [f"task {n:02}" for n in range(30)], "~" * 100
        for task in tasks:
            await write(saver, "t", 1, [(RESUME, 1)], task, path)
        more = [(f"c{k}", k) for k in range(60 if then == "more" else 0)]
        for task in tasks[:10]:
            await write(saver, "t", 1, [*more, (RESUME, 2)], task, "")
        for again in (1, 2):
            await write(saver, "t", 1, [("a", again)], tasks[-1], path)
        first = [(task, *one) for task in tasks[:10] for one in ((RESUME, 2), *more)]
        others = [(task, RESUME, 1) for task in tasks[10:]]
        assert await pending(saver) == [*first, *others, (tasks[-1], "a", 1)]

    @pytest.mark.parametrize("channel", sorted(WRITES_IDX_MAP))
    @promise
    async def test_in_special_channels_the_last_write_wins(
        self, saver: Coloured, channel: str
    ) -> None:
        await put(saver, "t", 1)
        await write(saver, "t", 1, [(channel, "first")])
        await write(saver, "t", 1, [("a", 1), (channel, "second")])
        await write(saver, "t", 1, [(channel, "third"), (channel, "last")])
        assert await pending(saver) == [("task", channel, "last"), ("task", "a", 1)]

    @promise
    async def test_special_writes_do_not_push_each_other_out(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        for channel in WRITES_IDX_MAP:
            await write(saver, "t", 1, [(channel, channel)])
        expected = sorted(WRITES_IDX_MAP, key=lambda channel: WRITES_IDX_MAP[channel])
        assert [channel for _, channel, _ in await pending(saver)] == expected

    @promise
    async def test_the_index_of_a_write_is_its_position_in_the_call(self, saver: Coloured) -> None:
        """A special write takes up a position too, and leaves it free for a later call."""
        await put(saver, "t", 1)
        await write(saver, "t", 1, [("a", 1), (ERROR, "e"), ("b", 1)])
        await write(saver, "t", 1, [("x", 2), ("y", 2), ("z", 2), ("c", 2)])
        assert await pending(saver) == [
            ("task", ERROR, "e"),
            ("task", "a", 1),
            ("task", "y", 2),
            ("task", "b", 1),
            ("task", "c", 2),
        ]

    @promise
    async def test_no_writes_are_no_writes(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        await write(saver, "t", 1, [])
        assert await pending(saver) == []

    @promise
    async def test_writes_belong_to_one_checkpoint(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        await put(saver, "t", 1, ns="child")
        await put(saver, "u", 1)
        await write(saver, "t", 1, [("a", "here")])
        assert await pending(saver) == [("task", "a", "here")]
        assert await pending(saver, 2) == []
        assert await pending(saver, ns="child") == []
        assert await pending(saver, thread="u") == []
        await write(saver, "t", 1, [("a", "child")], ns="child")
        await write(saver, "u", 1, [("a", "other thread")])
        assert await pending(saver) == [("task", "a", "here")]
        assert await pending(saver, ns="child") == [("task", "a", "child")]
        assert await pending(saver, thread="u") == [("task", "a", "other thread")]

    @promise
    async def test_writes_may_come_before_their_checkpoint(
        self, saver: Coloured, another: Another
    ) -> None:
        await write(saver, "t", 1, [("a", "early")], ns="child")
        await put_line(saver, "t", 1)
        await write(saver, "t", 2, [("a", "early"), (INTERRUPT, "i")])
        assert await saver.get_tuple(at("t", numbered(2))) is None
        assert await numbers(saver, at("t", ns=None)) == [1]
        await put(another(), "t", 2, parent=1)
        await write(saver, "t", 2, [("a", "late")])
        assert await pending(saver, 2) == [("task", INTERRUPT, "i"), ("task", "a", "early")]
        await put(saver, "t", 1, ns="child")
        assert await pending(saver, ns="child") == [("task", "a", "early")]

    @promise
    async def test_a_new_checkpoint_has_no_writes(self, saver: Coloured) -> None:
        await put(saver, "t", 1)
        await write(saver, "t", 1, [("a", 1)])
        await put(saver, "t", 2, {"a": 1}, parent=1)
        assert await pending(saver, 2) == []
        assert await pending(saver, 1) == [("task", "a", 1)]

    @promise
    async def test_what_was_written_may_be_changed_afterwards(self, saver: Coloured) -> None:
        value = {"a": [1]}
        await put(saver, "t", 1)
        await write(saver, "t", 1, [("a", value)])
        value["a"].append(2)
        await write(saver, "t", 1, [("a", value)], "other")
        assert await pending(saver) == [("other", "a", {"a": [1, 2]}), ("task", "a", {"a": [1]})]

    @promise
    async def test_parallel_tasks_lose_nothing(self, saver: Coloured, another: Another) -> None:
        await put(saver, "t", 1)
        savers = [saver, another()]

        def act(k: int) -> Any:
            given = [("a", k), ("b", [k] * k)]
            return lambda: write(savers[k % 2], "t", 1, given, f"task {k:02}", f"~{k:02}")

        await together(saver, [act(k) for k in range(40)])
        expected = [[(f"task {k:02}", "a", k), (f"task {k:02}", "b", [k] * k)] for k in range(40)]
        assert await pending(saver) == list(itertools.chain(*expected))

    @promise
    async def test_one_task_many_times_at_once_is_stored_once(self, saver: Coloured) -> None:
        await put(saver, "t", 1)

        def act(k: int) -> Any:
            return lambda: write(saver, "t", 1, [("a", k), (RESUME, k), ("b", k)])

        await together(saver, [act(k) for k in range(24)])
        resume, first, second = await pending(saver)
        assert [resume[1], first[1], second[1]] == [RESUME, "a", "b"]
        assert first[2] == second[2] in range(24)
        assert resume[2] in range(24)

    def test_the_path_parameter_is_named_task_path(self, saver: Coloured) -> None:
        """LangGraph looks for the name, and passes no path to savers without it."""
        method = {"sync": saver.saver.put_writes, "async": saver.saver.aput_writes}[saver.colour]
        assert "task_path" in inspect.signature(method).parameters
