"""`copy_store` from and to the official Redis saver, which needs a server with search and JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import backends
import histories
import pytest
import servers
from histories import contents, graph, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_durable import acopy_store, copy_store
from langgraph_durable.moving.colours import LATER, NOW, finish
from langgraph_durable.moving.queries import keys_in, threads_in, writes_in
from langgraph_durable.moving.sources import Place


@pytest.fixture(scope="module")
def search() -> Iterator[servers.Server]:
    server = servers.with_search()
    yield server
    server.close()


@pytest.fixture
def official(search: servers.Server) -> Iterator[Any]:
    """The official saver on an empty server."""
    from langgraph.checkpoint.redis import RedisSaver as OfficialSaver

    with search.client() as client:
        client.flushall()
    with OfficialSaver.from_conn_string(search.url) as saver:
        saver.setup()
        yield saver


@pytest.fixture(params=["sqlite", "valkey"])
def ours(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with backends.ALL[request.param](tmp_path) as saver:
        yield saver


def fill(saver: Any) -> None:
    histories.run(saver, "t")
    histories.run_deltas(saver, "a*[b]", turns=4)


def stored_writes(official: Any, colour: Any = NOW) -> dict[Any, Any]:
    """All pending writes, as their documents have them."""

    async def look() -> dict[Any, Any]:
        found = {}
        for thread_id in await threads_in(colour, official) or ():
            for ns, id, _ in await keys_in(colour, official, thread_id) or ():
                place = Place(thread_id, ns, id)
                writes = await writes_in(colour, official, place) or []
                found[place] = [each.write for each in writes]
        return found

    return finish(look())


def test_threads_come_from_the_official_saver_whole(official: Any, ours: Any) -> None:
    fill(official)
    listed = contents(official)
    report = copy_store(official, ours)
    assert (report.threads, report.checkpoints) == (2, len(listed))
    found = contents(ours)
    assert set(found) == set(listed)
    for place, writes in stored_writes(official).items():
        assert found[place]["writes"] == writes
        given = listed[place]
        assert sorted(w[:2] for w in writes) == sorted(w[:2] for w in given["writes"])
        for part in ("parent", "metadata"):
            assert found[place][part] == given[part]
    assert any(path for path in paths(official))
    assert copy_store(official, ours).skipped == len(listed)


def paths(official: Any) -> list[str]:
    async def look() -> list[str]:
        keys = await keys_in(NOW, official, "t") or []
        found = [await writes_in(NOW, official, Place("t", ns, id)) or [] for ns, id, _ in keys]
        return [each.path for writes in found for each in writes]

    return finish(look())


def test_copied_threads_are_answered_and_go_on(official: Any, ours: Any) -> None:
    # Filled by a copy: a run on the official saver may read less than it has stored.
    memory = InMemorySaver()
    fill(memory)
    copy_store(memory, official)
    copy_store(official, ours)
    assert graph(ours).invoke(Command(resume="yes"), thread("t"))["log"][-1] == "told yes"
    state, expected = (
        histories.delta_graph(saver).get_state(thread("a*[b]")).values for saver in (ours, memory)
    )
    assert state == expected


def test_threads_go_to_the_official_saver(official: Any, ours: Any) -> None:
    fill(ours)
    before = contents(ours)
    assert copy_store(ours, official).checkpoints == len(before)
    assert copy_store(ours, official).skipped == len(before)
    writes = {place: [w[:2] for w in found] for place, found in stored_writes(official).items()}
    assert writes == {place: [w[:2] for w in each["writes"]] for place, each in before.items()}
    assert graph(official).invoke(Command(resume="yes"), thread("t"))["log"][-1] == "told yes"


def test_the_async_official_saver_is_copied_on_its_loop(
    official: Any, ours: Any, search: servers.Server
) -> None:
    from langgraph.checkpoint.redis.aio import AsyncRedisSaver as OfficialAsyncSaver

    fill(official)

    async def body() -> None:
        async with OfficialAsyncSaver.from_conn_string(search.url) as saver:
            report = await acopy_store(saver, ours)
            assert report.checkpoints == len(contents(official))
            assert await threads_in(LATER, saver) == ["a*[b]", "t"]
            assert await threads_in(NOW, saver) is None

    asyncio.run(body())
    assert {place: each["writes"] for place, each in contents(ours).items()} == stored_writes(
        official
    )
