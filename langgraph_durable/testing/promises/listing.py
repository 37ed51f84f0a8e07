"""Promises about `list`: what it selects, its order, and what may happen while it is walked."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from langgraph_durable.testing.model import Coloured, at, numbered
from langgraph_durable.testing.promises.stage import (
    Another,
    Stage,
    load,
    number,
    numbers,
    promise,
    put,
    put_line,
    write,
)

MANY = 150
"""More rows than any sensible page holds."""

HOSTILE = [
    "a' OR 1=1 --",
    "a') OR ('1'='1",
    'a" OR 1=1 --',
    "a'; DROP TABLE checkpoints; --",
    "$.source",
    "source.x",
    "a.b",
    '"source"',
    "$[0]",
    "%",
    "a\x00b",
    "ünï 🙂",
    "",
]
"""Keys that a saver which builds its query from text would take for a part of the query
(CVE-2025-67644)."""


class Listing(Stage):
    """Selecting and ordering."""

    @promise
    async def test_the_newest_id_comes_first(self, saver: Coloured) -> None:
        for n in (2, 5, 1, 4, 3):
            await put(saver, "t", n)
        assert await numbers(saver, at("t")) == [5, 4, 3, 2, 1]

    @promise
    async def test_without_config_all_threads_are_listed_by_id(self, saver: Coloured) -> None:
        for n in range(1, 10):
            await put(saver, f"thread {n % 3}", n, ns="child" if n % 2 else "")
        assert await numbers(saver, None) == list(range(9, 0, -1))
        assert await numbers(saver, None, limit=4) == [9, 8, 7, 6]
        assert await numbers(saver, None, before=at("thread 0", numbered(3))) == [2, 1]

    @promise
    async def test_one_id_in_several_threads_and_namespaces_is_listed_for_each(
        self, saver: Coloured
    ) -> None:
        places = [(thread, ns) for thread in "abc" for ns in ("", "x", "y")]
        for thread, ns in places:
            await put_line(saver, thread, 2, ns=ns)
        for how in ({}, {"limit": 1000}):
            listed = await saver.list(None, **how)
            named = [found.config["configurable"] for found in listed]
            assert [number(found) for found in listed] == [2] * 9 + [1] * 9
            assert sorted((c["thread_id"], c["checkpoint_ns"]) for c in named[:9]) == places

    @promise
    async def test_no_namespace_means_all_and_the_empty_one_the_root(self, saver: Coloured) -> None:
        for n, ns in enumerate(["", "child", "child|deeper", ""], 1):
            await put(saver, "t", n, ns=ns)
        assert await numbers(saver, at("t", ns=None)) == [4, 3, 2, 1]
        assert await numbers(saver, at("t", ns="")) == [4, 1]
        assert await numbers(saver, at("t", ns="child")) == [2]
        assert await numbers(saver, at("t", ns="nowhere")) == []

    @promise
    async def test_a_checkpoint_id_selects_that_one(self, saver: Coloured) -> None:
        await put_line(saver, "t", 3)
        await put(saver, "t", 2, ns="child")
        assert await numbers(saver, at("t", numbered(2))) == [2]
        assert await numbers(saver, at("t", numbered(2), ns=None)) == [2, 2]
        assert await numbers(saver, at("t", numbered(9))) == []
        assert await numbers(saver, at("t", numbered(2)), before=at("t", numbered(2))) == []

    @pytest.mark.parametrize(
        ("limit", "listed"), [(None, 3), (0, 0), (1, 1), (2, 2), (3, 3), (100, 3)]
    )
    @promise
    async def test_limit_is_the_most_that_comes(
        self, saver: Coloured, limit: int | None, listed: int
    ) -> None:
        await put_line(saver, "t", 3)
        assert await numbers(saver, at("t"), limit=limit) == [3, 2, 1][:listed]
        assert await numbers(saver, None, limit=limit) == [3, 2, 1][:listed]

    @promise
    async def test_before_is_strict(self, saver: Coloured) -> None:
        for n in (10, 20, 30):
            await put(saver, "t", n)
        assert await numbers(saver, at("t"), before=at("t", numbered(30))) == [20, 10]
        assert await numbers(saver, at("t"), before=at("t", numbered(25))) == [20, 10]
        assert await numbers(saver, at("t"), before=at("t", numbered(10))) == []
        assert await numbers(saver, at("t"), before=at("t", numbered(99)), limit=1) == [30]

    @promise
    async def test_only_the_id_of_before_counts(self, saver: Coloured) -> None:
        await put_line(saver, "t", 3)
        bare: RunnableConfig = {"configurable": {"checkpoint_id": numbered(3)}}
        elsewhere = at("other", numbered(3), ns="x")
        assert await numbers(saver, at("t"), before=bare) == [2, 1]
        assert await numbers(saver, at("t"), before=elsewhere) == [2, 1]
        assert await numbers(saver, None, before=bare) == [2, 1]

    @promise
    async def test_before_without_an_id_is_no_bound(self, saver: Coloured) -> None:
        await put_line(saver, "t", 2)
        assert await numbers(saver, at("t"), before=None) == [2, 1]
        assert await numbers(saver, at("t"), before={}) == [2, 1]
        assert await numbers(saver, at("t"), before=at("t")) == [2, 1]

    @promise
    async def test_many_rows_come_whole_and_in_order(self, saver: Coloured) -> None:
        for n in range(1, MANY + 1):
            await put(saver, "t", n, parent=n - 1 or None, metadata={"odd": n % 2, "step": n})
        down = list(range(MANY, 0, -1))
        odd = [n for n in down if n % 2]
        assert await numbers(saver, at("t")) == down
        assert await numbers(saver, None) == down
        assert await numbers(saver, at("t"), limit=MANY - 1) == down[:-1]
        assert await numbers(saver, at("t"), filter={"odd": 1}) == odd
        assert await numbers(saver, at("t"), filter={"odd": 1}, limit=60) == odd[:60]
        assert await numbers(saver, None, filter={"step": 1}) == [1]
        half = at("t", numbered(MANY // 2))
        assert await numbers(saver, at("t"), before=half) == down[-MANY // 2 + 1 :]

    @promise
    async def test_what_is_listed_is_what_get_tuple_gives(self, saver: Coloured) -> None:
        await put_line(saver, "t", 3)
        await put(saver, "t", 4, {"items": []}, ns="child")
        await write(saver, "t", 2, [("a", 1), ("b", [2])], path="~2")
        await write(saver, "t", 2, [("a", 0)], "other", "~1")
        listed = await saver.list(at("t", ns=None))
        assert [number(found) for found in listed] == [4, 3, 2, 1]
        assert listed == [await saver.get_tuple(found.config) for found in listed]


async def numbers_where(saver: Coloured, **how: Any) -> list[int]:
    """What a filter finds in the one thread there is, and so without naming it, too."""
    of_thread = await numbers(saver, at("t"), **how)
    assert await numbers(saver, None, **how) == of_thread
    return of_thread


class Filters(Stage):
    """Metadata filters: top-level keys, exact values, and never a part of a query."""

    @promise
    async def test_all_keys_must_match(self, saver: Coloured) -> None:
        for n, source in enumerate(["input", "loop", "loop", "update"], 1):
            await put(saver, "t", n, metadata={"source": source, "step": n})
        assert await numbers_where(saver, filter={"source": "loop"}) == [3, 2]
        assert await numbers_where(saver, filter={"source": "loop", "step": 2}) == [2]
        assert await numbers_where(saver, filter={"source": "input", "step": 2}) == []
        assert await numbers_where(saver, filter={"source": "nothing"}) == []
        assert await numbers_where(saver, filter={}) == [4, 3, 2, 1]
        assert await numbers_where(saver, filter=None) == [4, 3, 2, 1]

    @promise
    async def test_limit_and_before_count_matches_only(self, saver: Coloured) -> None:
        for n in range(1, 9):
            await put(saver, "t", n, metadata={"odd": n % 2})
        before = at("t", numbered(7))
        assert await numbers_where(saver, filter={"odd": 1}, limit=2) == [7, 5]
        assert await numbers_where(saver, filter={"odd": 1}, before=before, limit=2) == [5, 3]
        assert await numbers_where(saver, filter={"odd": 1}, limit=0) == []

    @promise
    async def test_values_match_exactly(self, saver: Coloured) -> None:
        kinds: list[Any] = [1, "1", 1.5, "text", "Text", "te%", [1, 2], [2, 1], "", "null"]
        for n, value in enumerate(kinds, 1):
            await put(saver, "t", n, metadata={"value": value})
        for n, value in enumerate(kinds, 1):
            assert await numbers_where(saver, filter={"value": value}) == [n]
        assert await numbers_where(saver, filter={"value": 2}) == []

    @promise
    async def test_nested_dicts_match_whole(self, saver: Coloured) -> None:
        await put(saver, "t", 1, metadata={"a": {"b": 1}})
        await put(saver, "t", 2, metadata={"a": {"b": 1, "c": None}})
        await put(saver, "t", 3, metadata={"a": {}, "b": 1})
        assert await numbers_where(saver, filter={"a": {"b": 1}}) == [1]
        assert await numbers_where(saver, filter={"a": {"c": None, "b": 1}}) == [2]
        assert await numbers_where(saver, filter={"a": {}}) == [3]
        assert await numbers_where(saver, filter={"b": 1}) == [3]

    @promise
    async def test_none_matches_none_and_what_is_not_there(self, saver: Coloured) -> None:
        kinds: list[dict[str, Any]] = [{"a": None}, {"a": 0}, {}, {"a": "None"}]
        for n, metadata in enumerate(kinds, 1):
            await put(saver, "t", n, metadata=metadata)
        assert await numbers_where(saver, filter={"a": None}) == [3, 1]

    @pytest.mark.parametrize("text", HOSTILE)
    @promise
    async def test_keys_and_values_are_only_text(self, saver: Coloured, text: str) -> None:
        await put(saver, "t", 1, metadata={text: "key"})
        await put(saver, "t", 2, metadata={"source": "loop"})
        assert await numbers_where(saver, filter={text: "key"}) == [1]
        assert await numbers_where(saver, filter={text: "other"}) == []
        assert await numbers_where(saver, filter={"source": text}) == []
        assert await numbers(saver, at(text or "-"), filter={"source": "loop"}) == []
        assert await numbers(saver, at("t")) == [2, 1]


class Walking(Stage):
    """`list` holds nothing while the caller's code runs."""

    @promise
    async def test_the_body_of_the_loop_may_write(self, saver: Coloured) -> None:
        for n in range(1, MANY + 1):
            await put(saver, "t", n)
        seen = []
        async for found in saver.walk(at("t")):
            seen.append(number(found))
            if number(found) % 10 == 0:
                await put(saver, "t", MANY + number(found), {"a": 1})
                await write(saver, "t", number(found), [("a", 1)])
        assert seen == list(range(MANY, 0, -1))
        assert len(await numbers(saver, at("t"))) == MANY + MANY // 10
        assert (await load(saver, "t", 10)).pending_writes == [("task", "a", 1)]

    @promise
    async def test_the_body_of_the_loop_may_delete(self, saver: Coloured) -> None:
        for n in range(1, MANY + 1):
            await put(saver, f"t{n % 5}", n)
        seen = []
        async for found in saver.walk(None):
            seen.append(number(found))
            await saver.delete_thread(found.config["configurable"]["thread_id"])
        assert seen == sorted(set(seen), reverse=True)
        assert {n % 5 for n in seen} == {0, 1, 2, 3, 4}
        assert await numbers(saver, None) == []

    @promise
    async def test_a_thread_may_vanish_under_the_walk(
        self, saver: Coloured, another: Another
    ) -> None:
        for n in range(1, MANY + 1):
            await put(saver, "t", n)
        walk = saver.walk(at("t"))
        assert number(await anext(walk)) == MANY
        await another().delete_thread("t")
        rest = [number(found) async for found in walk]
        assert rest == list(range(MANY - 1, MANY - 1 - len(rest), -1))
        assert await numbers(saver, at("t")) == []

    @promise
    async def test_an_abandoned_walk_holds_nothing(self, saver: Coloured, another: Another) -> None:
        await put_line(saver, "t", 5)
        walks = [saver.walk(at("t")) for _ in range(20)]
        for walk in walks:
            assert number(await anext(walk)) == 5
        await put(another(), "t", 6, parent=5)
        await put(saver, "t", 7, parent=6)
        assert await numbers(saver, at("t")) == [7, 6, 5, 4, 3, 2, 1]
        await saver.delete_thread("t")
        assert await numbers(saver, at("t")) == []
        for walk in walks:
            await walk.aclose()  # type: ignore[attr-defined]

    @promise
    async def test_walks_may_be_interleaved(self, saver: Coloured) -> None:
        await put_line(saver, "a", 3)
        await put_line(saver, "b", 3)
        one, two = saver.walk(at("a")), saver.walk(at("b"))
        seen = [number(await anext(walk)) for walk in (one, two, two, one, one, two)]
        assert seen == [3, 3, 2, 2, 1, 1]
