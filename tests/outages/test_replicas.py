"""`wait_replicas`: what is acknowledged is on the replicas, with scripts and without them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from servers import HOST, Server, running, wait_until

from langgraph_durable import RedisSaver, StorageError
from langgraph_durable.testing.model import at, checkpoint, numbered

RIGHTS = {
    "scripts": "~lgd:* -@all +@read +@write +@connection +eval +evalsha +wait",
    "no scripts": "~lgd:* -@all +@read +@write +@connection +@transaction +wait",
}
Pair = tuple[Server, Server]


@pytest.fixture(params=RIGHTS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A primary and its replica, with a user of few rights on both."""
    with running("redis", repl_diskless_sync_delay=0) as primary:
        at = f"{HOST} {primary.port}"
        with running("redis", replicaof=at, repl_diskless_sync_delay=0) as replica:
            for server in (primary, replica):
                with server.client() as admin:
                    words = RIGHTS[request.param].split()
                    admin.execute_command("ACL", "SETUSER", "agent", "on", ">secret", *words)
            with primary.client() as admin:
                wait_until(
                    lambda: admin.info("replication").get("slave0", {}).get("state") == "online",
                    "a replica in step",
                )
            yield primary, replica


def open_saver(server: Server) -> RedisSaver:
    url = f"redis://agent:secret@{HOST}:{server.port}/0"
    return RedisSaver(url, wait_replicas=1, replica_timeout=60)


def pause(replica: Server, saver: RedisSaver) -> None:
    """It confirms nothing any more, and the saver does not wait long for it."""
    replica.pause()
    saver._settings.replica_timeout = 0.5


def resume(replica: Server, saver: RedisSaver) -> None:
    replica.resume()
    saver._settings.replica_timeout = 60


def made(n: int) -> Any:
    return checkpoint(numbered(n), {"n": n}, {"n": f"{n}"}), {"step": n}, {"n": f"{n}"}


def test_what_was_acknowledged_is_on_the_replica_when_the_primary_dies(pair: Pair) -> None:
    primary, replica = pair
    with open_saver(primary) as saver:
        for n in range(1, 21):
            saver.put(at("t", numbered(n - 1) if n > 1 else None), *made(n))
            saver.put_writes(at("t", numbered(n)), [("w", n)], f"task{n}")
        primary.kill()
    with RedisSaver(f"redis://agent:secret@{HOST}:{replica.port}/0") as saver:
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"n": 20}
        assert found.pending_writes == [("task20", "w", 20)]


def test_a_write_that_no_replica_confirms_is_an_error(pair: Pair) -> None:
    primary, replica = pair
    with open_saver(primary) as saver:
        saver.put(at("t"), *made(1))
        pause(replica, saver)
        with pytest.raises(StorageError, match="0 of 1 replicas have confirmed"):
            saver.put(at("t", numbered(1)), *made(2))
        resume(replica, saver)
        saver.put(at("t", numbered(1)), *made(2))


def test_no_time_at_all_for_replicas_is_not_for_ever(pair: Pair) -> None:
    """To a server, a time-out of 0 is none."""
    primary, replica = pair
    with open_saver(primary) as saver:
        saver.put(at("t"), *made(1))
        replica.pause()
        saver._settings.replica_timeout = 0
        with pytest.raises(StorageError, match="0 of 1 replicas have confirmed"):
            saver.put(at("t", numbered(1)), *made(2))
        resume(replica, saver)


async def test_writes_that_travel_together_wait_together(pair: Pair) -> None:
    """If each waited by itself, fifty that nobody confirms would take fifty times as long."""
    primary, replica = pair
    async with open_saver(primary) as saver:
        await saver.aput(at("t"), *made(1))
        pause(replica, saver)
        config = at("t", numbered(1))
        done = await asyncio.gather(
            *(saver.aput_writes(config, [("w", n)], f"task{n}") for n in range(50)),
            return_exceptions=True,
        )
        assert {type(each) for each in done} == {StorageError}
        resume(replica, saver)
        with primary.client() as admin:
            stats = admin.info("commandstats")
        assert stats["cmdstat_wait"]["calls"] < 20
        found = await saver.aget_tuple(at("t"))
        assert found is not None
        assert len(found.pending_writes or ()) == 50


def test_a_user_who_may_not_wait_is_told_so(pair: Pair) -> None:
    with pair[0].client() as admin:
        admin.execute_command("ACL", "SETUSER", "agent", "-wait")
    with (
        open_saver(pair[0]) as saver,
        pytest.raises(StorageError, match=r"allow \+wait. It may or may not"),
    ):
        saver.put(at("t"), *made(1))


async def test_the_same_on_an_asyncio_client(pair: Pair) -> None:
    primary, replica = pair
    client = redis.asyncio.Redis(host=HOST, port=primary.port, username="agent", password="secret")
    async with client, RedisSaver(client, wait_replicas=1, replica_timeout=60) as saver:
        await saver.aput(at("t"), *made(1))
        pause(replica, saver)
        with pytest.raises(StorageError, match="0 of 1 replicas have confirmed"):
            await saver.aput(at("t", numbered(1)), *made(2))
        resume(replica, saver)


def test_a_repeated_write_waits_for_the_first_one(pair: Pair, monkeypatch: Any) -> None:
    """A new connection has written nothing yet, so a bare WAIT on it would not wait at all."""
    primary, replica = pair
    with open_saver(primary) as saver:
        saver.put(at("t"), *made(1))
        monkeypatch.setattr("langgraph_durable._redis.writing.new_token", lambda: b"always")
        saver.put(at("t", numbered(1)), *made(2))
        pause(replica, saver)
        saver._backend._carrier.client.connection_pool.disconnect()
        with pytest.raises(StorageError, match="0 of 1 replicas have confirmed"):
            saver.put(at("t", numbered(1)), *made(2))
        resume(replica, saver)
