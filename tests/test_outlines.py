"""Checkpoints without their values: `Engine.outline`, on every store and in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import ALL

from langgraph_durable._core.outlines import Outline
from langgraph_durable._core.records import Cursor, Selection
from langgraph_durable.testing.model import at, checkpoint, numbered

BIG = "x" * 100_000


@pytest.fixture(params=ALL)
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with ALL[request.param](tmp_path, cache_bytes=0) as saver:
        yield saver


def fill(saver: Any, thread: str, steps: int) -> None:
    for n in range(1, steps + 1):
        version = f"{n:032}.0000000000000000"
        made = checkpoint(numbered(n), {"items": [BIG] * n}, {"items": version})
        made["ts"], made["versions_seen"] = f"2026-01-{n:02}", {"node": {"items": version}}
        parent = numbered(n - 1) if n > 1 else None
        metadata = {"step": n, "run_id": "r1"}
        saver.put(at(thread, parent), made, metadata, {"items": version})
        saver.put_writes(at(thread, numbered(n)), [("items", BIG), ("b", 1)], "t2", "p2")
        saver.put_writes(at(thread, numbered(n)), [("a", n)], "t1", "p1")


def outlines(saver: Any, selection: Selection, size: int = 4) -> list[Outline]:
    found: list[Outline] = []
    cursor: Cursor | None = None
    while True:
        some, cursor = saver._backend.finish(saver._engine.outline(selection, cursor, size))
        found += some
        if cursor is None:
            return found


def test_an_outline_tells_everything_but_the_values(saver: Any) -> None:
    fill(saver, "t", 2)
    newest, first = outlines(saver, Selection("t"))
    assert (newest.thread_id, newest.ns, newest.id) == ("t", "", numbered(2))
    assert (newest.parent, first.parent) == (numbered(1), None)
    assert (newest.run, newest.ts) == ("r1", "2026-01-02")
    assert newest.metadata["step"] == 2
    version = f"{2:032}.0000000000000000"
    assert newest.header.versions == {"items": version}
    assert newest.header.seen == {"node": {"items": version}}
    writes = [(write.task_id, write.channel, write.path) for write in newest.writes]
    assert writes == [("t1", "a", "p1"), ("t2", "items", "p2"), ("t2", "b", "p2")]
    assert not newest.orphan
    assert 0 < newest.size < 2_000


def test_outlines_come_by_pages_in_the_order_of_a_list(saver: Any) -> None:
    fill(saver, "t", 9)
    assert [o.id for o in outlines(saver, Selection("t"))] == [numbered(n) for n in range(9, 0, -1)]
    below = outlines(saver, Selection("t", before=numbered(4)))
    assert [o.id for o in below] == [numbered(n) for n in (3, 2, 1)]


def test_outlines_of_all_threads(saver: Any) -> None:
    for thread in ("a", "b", "c"):
        fill(saver, thread, 3)
    found = [(o.id, o.thread_id) for o in outlines(saver, Selection())]
    assert found == sorted(found, reverse=True)
    assert len(found) == 9


def test_an_unknown_thread_has_no_outlines(saver: Any) -> None:
    assert outlines(saver, Selection("nobody")) == []


def test_no_item_is_fetched_for_an_outline(saver: Any) -> None:
    fill(saver, "t", 3)
    page = saver._engine.storage.page(Selection("t"), None, 9, lambda *_: True, items=False)
    rows = saver._backend.finish(page).rows
    assert len(rows) == 3
    assert all(row.items == {} and len(row.writes) == 2 for row in rows)


def test_outlines_off_the_event_loop(saver: Any) -> None:
    fill(saver, "t", 3)

    async def read() -> Any:
        return await saver._backend.run(
            saver._engine.outline(Selection("t"), None, 2), writes=False
        )

    some, cursor = asyncio.run(read())
    assert [o.id for o in some] == [numbered(3), numbered(2)]
    assert cursor.id == numbered(2)
