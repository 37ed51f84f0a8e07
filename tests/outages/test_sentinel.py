"""Sentinels: a replica takes over in the middle of a run, and what that may and may not lose."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis.asyncio.sentinel
import redis.sentinel
import servers
from servers import guarded
from work import is_whole, line, put, steps, write

from langgraph_durable import RedisSaver, StorageError
from langgraph_durable.testing.model import at


@pytest.mark.parametrize("flavour", servers.FLAVOURS)
def test_a_run_survives_a_failover(flavour: str) -> None:
    with (
        guarded(flavour) as group,
        RedisSaver(group.url, wait_replicas=1, replica_timeout=20, retry=120) as saver,
    ):
        line(saver, "t", 5)
        group.be_hasty()
        n, killer = 5, threading.Thread(target=group.primary.kill)
        # With one replica there is none left to confirm a write after the failover.
        with pytest.raises(StorageError):
            while True:
                put(saver, "t", n + 1)
                write(saver, "t", n + 1)
                n += 1
                if n == 20:
                    saver._settings.patience = saver._settings.replica_timeout = 1
                    killer.start()
        killer.join()
        with RedisSaver(group.url, retry=120) as after:
            stored = steps(after, "t")
            assert stored[0] in (n, n + 1)
            assert stored == list(range(stored[0], 0, -1))
            put(after, "t", stored[0] + 1)
            assert is_whole(after, "t", stored[0] + 1)


def test_calls_wait_for_the_new_primary() -> None:
    with guarded() as group, RedisSaver(group.url, retry=120) as saver:
        line(saver, "t", 3)
        group.in_step()
        group.be_hasty()
        group.primary.kill()
        put(saver, "t", 4)
        put(saver, "t", 5)
        assert is_whole(saver, "t", 5)


async def test_clients_of_the_users_own_survive_a_failover_too() -> None:
    with guarded() as group:
        places = [(servers.HOST, sentinel.port) for sentinel in group.sentinels]
        async with redis.asyncio.sentinel.Sentinel(places).master_for("mymaster") as other:
            saver = RedisSaver(
                redis.sentinel.Sentinel(places).master_for("mymaster"),
                async_client=other,
                retry=120,
            )
            await asyncio.to_thread(line, saver, "t", 3)
            assert await saver.aget_tuple(at("t"))
            group.in_step()
            group.be_hasty()
            group.primary.kill()
            found = await saver.aget_tuple(at("t"))
            assert found is not None
            assert found.metadata["step"] == 3
            await asyncio.to_thread(put, saver, "t", 4)
            assert [each.metadata["step"] async for each in saver.alist(at("t"))] == [4, 3, 2, 1]


def test_without_wait_replicas_a_failover_can_lose_what_was_acknowledged() -> None:
    """Replication is asynchronous: this is what README warns of. The thread stays whole."""
    with guarded() as group, RedisSaver(group.url, retry=120) as saver:
        line(saver, "t", 3)
        group.in_step()
        group.replica.pause()
        line(saver, "t", 6)
        group.be_hasty()
        group.primary.kill()
        group.replica.resume()
        put(saver, "t", 7)
        kept = steps(saver, "t")
        assert kept[0] == 7
        assert kept[1:] == list(range(len(kept) - 1, 0, -1))
        with RedisSaver(group.url) as other:
            assert is_whole(other, "t", 7)


def test_with_wait_replicas_it_is_not_acknowledged() -> None:
    with (
        guarded() as group,
        RedisSaver(group.url, wait_replicas=1, replica_timeout=60) as saver,
    ):
        line(saver, "t", 3)
        group.replica.pause()
        saver._settings.replica_timeout = 0.2
        with pytest.raises(StorageError, match=r"0 of 1 replicas.*may or may not"):
            put(saver, "t", 4)
        group.be_hasty()
        group.primary.kill()
        group.replica.resume()
        with RedisSaver(group.url, retry=120) as after:
            assert steps(after, "t")[-3:] == [3, 2, 1]
            assert after.get_tuple(at("t")) is not None
