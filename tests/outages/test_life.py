"""A thread lives and dies as one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
import servers
from langgraph.graph import START, StateGraph
from work import is_whole, line, put, write

from langgraph_durable import ConcurrentUpdate, ConfigurationError, RedisSaver
from langgraph_durable.redis import milliseconds
from langgraph_durable.testing.model import at


@pytest.fixture(params=servers.FLAVOURS)
def url(request: pytest.FixtureRequest) -> str:
    return servers.shared(request.param).url


@pytest.fixture
def prefix(tmp_path: Any) -> str:
    return servers.prefix_for(tmp_path)


@pytest.fixture
def admin(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        yield client


def lives(admin: redis.Redis, saver: RedisSaver, thread: str) -> list[int]:
    """Milliseconds that the keys of a thread have left."""
    with admin.pipeline(transaction=True) as pipe:  # at one moment
        for key in saver._storage.context.keys.thread(thread):
            pipe.pttl(key)
        return pipe.execute()


@pytest.mark.parametrize(
    ("ttl", "life"),
    [
        (30, 30_000),
        (0.5, 500),
        ("30d", 30 * 86_400_000),
        ("90", 90_000),
        (timedelta(hours=1), 3_600_000),
        ("1.5h", 5_400_000),
        ("2w", 1_209_600_000),
        ("10m", 600_000),
    ],
)
def test_a_life_can_be_written_in_many_ways(ttl: Any, life: int) -> None:
    assert milliseconds(ttl) == life


@pytest.mark.parametrize("ttl", ["", "30 days", "d", -1, 0, True, [], "1e9", timedelta(0)])
def test_a_life_that_makes_no_sense_is_refused(ttl: Any) -> None:
    with pytest.raises(ConfigurationError, match="ttl"):
        RedisSaver("redis://localhost", ttl=ttl)


def test_all_of_a_thread_expires_at_once(url: str, prefix: str, admin: redis.Redis) -> None:
    with RedisSaver(url, prefix=prefix, ttl="1h") as saver:
        line(saver, "t", 3, run="run")
        first, second = lives(admin, saver, "t")
        assert 0 < first <= 3_600_000
        assert abs(first - second) <= 1
        assert saver.expire("t", 0.6)
        while time.sleep(0.01) or (found := saver.get_tuple(at("t"))) is not None:
            assert len(found.checkpoint["channel_values"]["messages"]) == 3
        assert list(saver.list(at("t"))) == []
        assert list(saver.list(None)) == []
        line(saver, "t", 1)
        assert is_whole(saver, "t", 1)


def test_a_run_whose_thread_expires_is_told_so(url: str, prefix: str, admin: redis.Redis) -> None:
    with RedisSaver(url, prefix=prefix) as saver:

        def sleep_too_long(state: dict[str, int]) -> dict[str, int]:
            admin.delete(*saver._storage.context.keys.thread("t"))
            return {"n": 2}

        builder = StateGraph(dict).add_node(sleep_too_long).add_edge(START, "sleep_too_long")
        graph = builder.compile(checkpointer=saver)
        with pytest.raises(ConcurrentUpdate, match="has expired, or was removed"):
            graph.invoke({"n": 1}, at("t"), durability="sync")
        assert saver.get_tuple(at("t")) is None


def test_a_write_renews_all_of_it_and_reading_only_if_asked(
    url: str, prefix: str, admin: redis.Redis
) -> None:
    with RedisSaver(url, prefix=prefix, ttl="1h") as saver:
        line(saver, "t", 2)
        for key in saver._storage.context.keys.thread("t"):
            admin.pexpire(key, 500_000)
        saver.get_tuple(at("t"))
        assert max(lives(admin, saver, "t")) <= 500_000
        with RedisSaver(url, prefix=prefix, ttl="1h", refresh_on_read=True) as reader:
            reader.get_tuple(at("t"))
        assert min(lives(admin, saver, "t")) > 3_000_000
        for key in saver._storage.context.keys.thread("t"):
            admin.pexpire(key, 500_000)
        write(saver, "t", 2, "another task")
        assert min(lives(admin, saver, "t")) > 3_000_000


def test_one_thread_can_be_kept_for_ever_or_given_its_own_life(
    url: str, prefix: str, admin: redis.Redis
) -> None:
    with RedisSaver(url, prefix=prefix, ttl="1h") as saver:
        line(saver, "t", 2)
        assert saver.persist("t")
        assert lives(admin, saver, "t") == [-1, -1]
        put(saver, "t", 3)
        assert lives(admin, saver, "t") == [-1, -1]
        assert saver.expire("t", "2h")
        put(saver, "t", 4)
        assert min(lives(admin, saver, "t")) > 7_000_000
        saver.prune(["t"])
        assert min(lives(admin, saver, "t")) > 7_000_000
        assert not saver.persist("nobody")
        assert not saver.expire("nobody", 1)


def test_what_a_run_stored_is_found_when_its_entry_in_the_index_has_expired(
    url: str, prefix: str, admin: redis.Redis
) -> None:
    """The entry lives as long as a thread that nobody renews; this one is renewed."""
    with RedisSaver(url, prefix=prefix, ttl="1h") as saver:
        put(saver, "t", 1, run="first")
        put(saver, "other", 1)
        assert admin.delete(saver._storage.context.keys.run("first")), "as if time had passed"
        put(saver, "t", 2, run="second")
        saver.delete_for_runs(["first", "nobody"])
        assert [found.metadata["step"] for found in saver.list(at("t"))] == [2]
        assert is_whole(saver, "other", 1)


async def test_the_same_async(url: str, prefix: str, admin: redis.Redis) -> None:
    async with RedisSaver(url, prefix=prefix) as saver:
        line(saver, "t", 1)
        assert await saver.aexpire("t", "1h")
        assert min(lives(admin, saver, "t")) > 3_000_000
        assert await saver.apersist("t")
        assert lives(admin, saver, "t") == [-1, -1]
        assert await saver.areindex() == 1
