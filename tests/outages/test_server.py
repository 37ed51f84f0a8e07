"""The server dies, hangs, forgets or is full: nothing acknowledged is lost, and errors say why."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Iterator

import proxy
import pytest
import redis.asyncio
import servers
from servers import HOST, Server, running
from work import is_whole, line, put, state, steps, write, write_much

from langgraph_durable import (
    ConfigurationError,
    CorruptionError,
    RedisSaver,
    SerializationError,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)
from langgraph_durable.testing.model import at, checkpoint, numbered


@pytest.fixture(params=servers.FLAVOURS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that keeps everything at once."""
    with running(request.param, appendonly="yes", appendfsync="always") as made:
        yield made


def test_what_was_acknowledged_is_there_after_kill_9(server: Server) -> None:
    with RedisSaver(server.url) as saver:
        acknowledged = 0
        for round in range(3):
            killer = threading.Thread(target=server.kill)
            with RedisSaver(server.url, retry=0) as hasty, pytest.raises(StorageUnreachable):
                for n in itertools.count():
                    put(hasty, "t", acknowledged + 1)
                    acknowledged += 1
                    if n == 5:
                        killer.start()
            killer.join()
            server.start()
            stored = steps(saver, "t")
            assert len(stored) in (acknowledged, acknowledged + 1), round
            assert stored == list(range(len(stored), 0, -1))
            assert is_whole(saver, "t", len(stored))
            acknowledged = len(stored)


def test_a_run_goes_on_when_the_server_comes_back(server: Server) -> None:
    with RedisSaver(server.url, retry=120) as saver:
        line(saver, "t", 3)
        server.kill()
        back = threading.Timer(1.0, server.start)
        back.start()
        put(saver, "t", 4)
        back.join()
        assert is_whole(saver, "t", 4)


def test_a_server_that_stays_away_is_a_typed_error_in_bounded_time(server: Server) -> None:
    with RedisSaver(server.url, retry=0.5) as saver:
        put(saver, "t", 1)
        server.kill()
        began = time.monotonic()
        with pytest.raises(StorageUnreachable, match=r"thread 't'.*may or may not have"):
            put(saver, "t", 2)
        assert time.monotonic() - began < 20, "that is nearer to the usual 30 seconds"
        server.start()
        put(saver, "t", 2)
        assert is_whole(saver, "t", 2)


def test_connections_that_were_cut_while_idle_are_made_anew(server: Server) -> None:
    with RedisSaver(server.url, retry=5) as saver, server.client() as admin:
        put(saver, "t", 1)
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        put(saver, "t", 2)
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert is_whole(saver, "t", 2)


def test_a_server_that_hangs_for_seconds_is_waited_for(server: Server) -> None:
    with RedisSaver(server.url, retry=120) as saver:
        put(saver, "t", 1)
        server.pause()
        wake = threading.Timer(1.5, server.resume)
        wake.start()
        put(saver, "t", 2)
        wake.join()
        assert is_whole(saver, "t", 2)


@pytest.mark.parametrize("client", ["ours", "the user's"])
async def test_a_cancelled_write_that_is_on_its_way_is_over_when_its_caller_goes_on(
    server: Server, client: str
) -> None:
    with proxy.counting(HOST, server.port) as way, RedisSaver(server.url) as reader:
        own = redis.asyncio.Redis(host=HOST, port=way.port)
        saver = RedisSaver(f"redis://{HOST}:{way.port}/0" if client == "ours" else own)

        async def aput(n: int) -> None:
            versions = dict.fromkeys(state(n), f"{n:032}.{0:016}")
            made = checkpoint(numbered(n), state(n), versions)
            parent = numbered(n - 1) if n > 1 else None
            await saver.aput(at("t", parent), made, {"step": n}, versions)

        await aput(1)
        server.pause()
        before = way.trips
        call = asyncio.ensure_future(aput(2))
        while way.trips == before:
            await asyncio.sleep(0.01)
        call.cancel()
        asyncio.get_running_loop().call_later(0.3, server.resume)
        with pytest.raises(asyncio.CancelledError):
            await call
        assert is_whole(reader, "t", 2)
        await saver.aclose()
        await own.aclose()


def test_an_answer_that_was_lost_is_not_a_second_write(server: Server) -> None:
    """The server is paused past the time-out, so every write is sent twice and done once."""
    url = f"{server.url}?socket_timeout=0.3"
    with RedisSaver(url, retry=120) as saver, server.client() as admin:
        line(saver, "t", 2)
        before = admin.hlen(saver._storage.context.keys.thread("t").hash)
        server.pause()
        wake = threading.Timer(1.2, server.resume)
        wake.start()
        put(saver, "t", 3)
        wake.join()
        assert is_whole(saver, "t", 3)
        after = admin.hlen(saver._storage.context.keys.thread("t").hash)
        assert after == before + 2  # a checkpoint and one new message


def test_scripts_that_the_server_has_forgotten_are_sent_again(server: Server) -> None:
    with RedisSaver(server.url) as saver, server.client() as admin:
        put(saver, "t", 1)
        admin.script_flush()
        put(saver, "t", 2)
        admin.script_flush()
        assert is_whole(saver, "t", 2)


def test_a_server_whose_scripts_were_taken_out_is_as_good() -> None:
    without = {"rename_command": 'EVALSHA ""', "rename-command": 'EVAL ""'}
    with running("redis", **without) as server, RedisSaver(server.url) as saver:
        line(saver, "'eval", 3)
        assert steps(saver, None) == [3, 2, 1]


def test_a_value_that_no_server_takes_is_refused_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cut the connection, again and again."""
    monkeypatch.setattr("langgraph_durable._redis.writing.LARGEST", 5_000)
    with RedisSaver(server.url) as saver:
        put(saver, "t", 1)
        with pytest.raises(SerializationError, match="Nothing was written; with artifacts="):
            saver.put_writes(at("t", numbered(1)), [("a", random.randbytes(5_001))], "task")
        put(saver, "t", 2)
        assert is_whole(saver, "t", 2)


def test_a_server_that_starts_from_an_old_file_does_not_break_what_comes_after() -> None:
    """The saver remembers items that the server has lost; it must not build on them."""
    with running("redis") as server, RedisSaver(server.url, retry=5) as saver:
        line(saver, "t", 3)
        with server.client() as admin:
            admin.save()
        line(saver, "t", 6)
        server.restart()
        put(saver, "t", 7)
        write(saver, "t", 7)
        with RedisSaver(server.url) as other:
            assert is_whole(other, "t", 7)
            assert steps(other, "t") == [7, 3, 2, 1]


def test_a_full_server_refuses_a_write_whole_and_still_reads(server: Server) -> None:
    with RedisSaver(server.url, cache_bytes=0) as saver, server.client() as admin:
        line(saver, "small", 3)
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 300_000)
        n = 0
        with pytest.raises(StorageFull, match="maxmemory"):
            while n < 10_000:
                put(saver, "t", n + 1)
                n += 1
        assert is_whole(saver, "t", n)
        assert steps(saver, "t") == list(range(n, 0, -1))
        saver.delete_thread("small")
        saver.prune(["t"])
        assert is_whole(saver, "t", n)
        admin.config_set("maxmemory", 0)
        put(saver, "t", n + 1)
        assert is_whole(saver, "t", n + 1)


def test_a_replica_is_a_read_only_store(server: Server) -> None:
    with running(server.flavour, replicaof=f"{servers.HOST} {server.port}") as replica:
        with RedisSaver(server.url) as saver:
            put(saver, "t", 1)
        with RedisSaver(replica.url, retry=0.2) as saver, replica.client() as client:
            servers.wait_until(lambda: client.dbsize() == 4, "a copy on the replica")
            assert is_whole(saver, "t", 1)
            with pytest.raises(StorageReadOnly, match="primary"):
                put(saver, "t", 2)


def test_a_replica_lists_threads_though_it_cannot_tidy_up(server: Server) -> None:
    """The index names a thread that has expired long ago; that is for the primary to mend."""
    with running(server.flavour, replicaof=f"{servers.HOST} {server.port}") as replica:
        with RedisSaver(server.url) as saver, server.client() as admin:
            put(saver, "t", 1)
            admin.zadd("lgd:threads", {"a ghost": 0})
        with RedisSaver(replica.url, retry=120) as saver, replica.client() as client:
            servers.wait_until(lambda: client.zcard("lgd:threads") == 2, "a copy on the replica")
            assert steps(saver, None) == [1]
            assert client.info("commandstats")["cmdstat_zrem"]["rejected_calls"] == 1


def test_a_server_that_is_still_loading_is_waited_for() -> None:
    slow = {"appendonly": "yes", "key_load_delay": 2000}  # microseconds for each key
    with running("redis", **slow) as server, RedisSaver(server.url, retry=120) as saver:
        line(saver, "t", 2)
        with server.client() as admin:
            for n in range(1000):
                admin.set(f"other:{n}", n)
        server.kill()
        starting = threading.Thread(target=server.start)
        starting.start()
        put(saver, "t", 3)
        starting.join()
        assert is_whole(saver, "t", 3)


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("redis://{place}/0", StorageError, "password"),
        ("redis://:wrong@{place}/0", StorageError, "password"),
        ("redis://nobody:wrong@{place}/0", StorageError, "password"),
        ("redis://{place}/99", ConfigurationError, "database"),
    ],
)
def test_a_wrong_login_or_database_says_so(url: str, error: type, words: str) -> None:
    open = "{place}/99" in url
    with running("redis", **({} if open else {"requirepass": "secret"})) as server:
        place = f"{servers.HOST}:{server.port}"
        saver = RedisSaver(url.format(place=place), retry=120)
        began = time.monotonic()
        with pytest.raises(error, match=words) as caught:
            put(saver, "t", 1)
        assert "wrong@" not in str(caught.value)
        assert time.monotonic() - began < 60, "it was tried again and again"


def test_half_a_thread_is_never_a_whole_one(server: Server) -> None:
    """As if the server had evicted one of its two keys."""
    with RedisSaver(server.url) as saver, server.client() as admin:
        for name in ("hash", "places"):
            line(saver, name, 2)
            admin.delete(getattr(saver._storage.context.keys.thread(name), name))
        with pytest.raises(CorruptionError, match=r"'hash'.*missing"):
            saver.get_tuple(at("hash"))
        with pytest.raises(CorruptionError, match=r"'hash'.*missing"):
            put(saver, "hash", 3)
        assert is_whole(saver, "places", 2)
        with pytest.raises(CorruptionError, match=r"'places'.*missing"):
            list(saver.list(at("places")))
        saver.delete_thread("hash")
        saver.delete_thread("places")
        line(saver, "hash", 1)
        assert steps(saver, "hash") == [1]


def test_items_or_writes_that_are_gone_are_an_error(server: Server) -> None:
    with RedisSaver(server.url, cache_bytes=0) as saver, server.client() as admin:
        for kind in (b"i", b"t", b"c"):
            thread = f"without {kind.decode()}"
            line(saver, thread, 2)
            write_much(saver, thread, 2)
            hash = saver._storage.context.keys.thread(thread).hash
            gone = [name for name in admin.hkeys(hash) if name[:1] == kind]
            admin.hdel(hash, *gone)
            with pytest.raises(CorruptionError, match=thread):
                saver.get_tuple(at(thread))


async def test_risky_settings_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with running("redis", maxmemory_policy="allkeys-lru") as server:
        with RedisSaver(server.url) as saver:
            put(saver, "t", 1)
            put(saver, "t", 2)
        text = [record.message for record in caplog.records]
        assert sum("allkeys-lru" in line for line in text) == 1
        assert sum("appendonly" in line for line in text) == 1
    caplog.clear()
    with running("redis") as server, server.client() as client:
        async with redis.asyncio.Redis.from_url(server.url) as other:
            saver = RedisSaver(client, async_client=other)
            put(saver, "t", 1)
            await saver.aget_tuple(at("t"))
        assert len(caplog.records) == 1, "both clients are of one server"
    caplog.clear()
    with running("redis", appendonly="yes") as server, RedisSaver(server.url) as saver:
        put(saver, "t", 1)
        assert not caplog.records
