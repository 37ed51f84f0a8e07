"""One saver object for everybody: both colours, many threads, loops, processes and forks."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import servers
from work import is_whole, line, put, state, steps, write

from langgraph_durable import ConfigurationError, RedisSaver, StorageError, open_saver
from langgraph_durable.testing.model import at, checkpoint, numbered


@pytest.fixture
def url() -> str:
    return servers.shared("valkey").url


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return servers.prefix_for(tmp_path)


async def aput(saver: RedisSaver, thread: str, n: int) -> None:
    values = state(n)
    versions = dict.fromkeys(values, f"{n:032}.{0:016}")
    parent = numbered(n - 1) if n > 1 else None
    await saver.aput(
        at(thread, parent), checkpoint(numbered(n), values, versions), {"step": n}, versions
    )


def test_a_saver_can_be_made_before_there_is_a_server_or_a_loop() -> None:
    for made in (
        "redis://nowhere:1/0",
        "rediss://user:secret@nowhere:1/3",
        "unix:///nowhere/redis.sock",
        "redis+sentinel://nowhere:1,elsewhere/mymaster/0",
        "rediss+sentinel://:secret@nowhere:1/mymaster",
        "redis+cluster://nowhere:1,elsewhere:2",
    ):
        shown = repr(RedisSaver(made))
        assert "nowhere" in shown
        assert "secret" not in shown


@pytest.mark.parametrize(
    "made",
    [
        "http://localhost",
        "localhost:6379",
        "redis://localhost:port/0",
        "redis://localhost/name",
        "redis://localhost/0?retry=5",
        "redis://localhost/0?no_such_option=1",
        "redis://localhost/0?decode_responses=True",
        "redis+sentinel://localhost:26379",
        "redis+sentinel:///mymaster/0",
        "redis+sentinel://localhost/mymaster/0?no_such_option=1",
        "redis+sentinel://localhost/mymaster/0?sentinel_no_such_option=1",
        "redis+sentinel://localhost/mymaster/0?sentinel_socket_timeout=soon",
        "redis+cluster://localhost:7000/1",
        "redis+cluster://localhost:7000?db=1",
        "redis+cluster://localhost:7000?no_such_option=1",
        redis.Redis().pipeline(),
        redis.asyncio.Redis().pipeline(),
        None,
        3,
        redis.Redis(decode_responses=True),
        redis.asyncio.Redis(decode_responses=True),
    ],
)
def test_what_is_no_server_is_refused_at_once(made: Any) -> None:
    with pytest.raises(ConfigurationError):
        RedisSaver(made)


@pytest.mark.parametrize(
    "url",
    [
        "me:secret@host",
        "postgres://me:secret@host/db",
        "redis://:secret/1@host:6379/0",
        "redis://:secret#1@host:6379/0",
        "redis://:secret?1@host:6379/0",
        "redis://:secret[1@host:6379/0",
        "redis+sentinel://:secret/1@host/mymaster/0",
        "rediss+cluster://:secret#1@host:7000",
    ],
)
@pytest.mark.parametrize("open", [RedisSaver, open_saver])
def test_a_url_that_cannot_be_read_is_not_shown(open: Any, url: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        open(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis:///0",
        "REDIS://localhost\n",
        "unix:///nowhere/redis.sock",
        "unix://:secret@/nowhere/redis.sock?db=1",
        "redis+sentinel://:secret@nowhere/mymaster/0?socket_timeout=3",
        "redis+cluster://[::1]:7000,nowhere:7001?username=me%40home",
    ],
)
def test_open_saver_takes_the_urls_that_the_saver_takes(url: str) -> None:
    assert repr(open_saver(url)) == repr(RedisSaver(url))
    options = "ttl=30d&prefix=mine"
    assert "prefix='mine'" in repr(open_saver(url + ("&" if "?" in url else "?") + options))


def test_parameters_for_the_sentinels_are_not_for_the_server() -> None:
    url = "redis+sentinel://:secret@localhost/mymaster/3?socket_timeout=7"
    saver = RedisSaver(f"{url}&sentinel_password=other&sentinel_socket_timeout=2&sentinel_ssl=true")
    pool = saver._backend._carrier.source.make().connection_pool
    assert {"password": "secret", "socket_timeout": 7, "db": 3}.items() <= (
        pool.connection_kwargs.items()
    )
    [sentinel] = pool.sentinel_manager.sentinels
    its_pool = sentinel.connection_pool
    assert its_pool.connection_class is redis.SSLConnection
    assert {"password": "other", "socket_timeout": 2}.items() <= its_pool.connection_kwargs.items()


def test_our_own_client_waits_longer_than_the_server_waits_for_replicas() -> None:
    for url in ("redis://localhost", "redis+sentinel://localhost/mymaster"):
        saver = RedisSaver(url, wait_replicas=1, replica_timeout=60)
        pool = saver._backend._carrier.source.make().connection_pool
        assert pool.connection_kwargs["socket_timeout"] > 60


@pytest.mark.parametrize(
    "options",
    [
        {"retry": -1},
        {"retry": "5"},
        {"wait_replicas": 1.5},
        {"wait_replicas": -1},
        {"replica_timeout": None},
        {"async_client": redis.asyncio.Redis()},
        {"on_conflict": "ignore"},
    ],
    ids=lambda options: " ".join(options),
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RedisSaver("redis://localhost", **options)


def test_open_saver_takes_our_options_and_leaves_redis_py_its_own(url: str) -> None:
    with open_saver(f"{url}?prefix=mine&ttl=30d&retry=2&socket_timeout=3") as saver:
        assert "prefix='mine'" in repr(saver)
        assert isinstance(saver, RedisSaver)
        put(saver, "t", 1)
        assert is_whole(saver, "t", 1)
        saver.delete_thread("t")
    with pytest.raises(ConfigurationError, match="retry"):
        open_saver(f"{url}?retry=soon")


def test_a_unix_socket_is_a_server_too(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with servers.running("redis", unixsocket=path), RedisSaver(f"unix://{path}?db=1") as saver:
        line(saver, "t", 2)
        assert steps(saver, "t") == [2, 1]


def test_from_conn_string_is_the_same(url: str, prefix: str) -> None:
    with RedisSaver.from_conn_string(url, prefix=prefix) as saver:
        saver.setup()
        put(saver, "t", 1)
        assert is_whole(saver, "t", 1)
    with pytest.raises(StorageError, match="closed"):
        put(saver, "t", 2)


async def test_one_saver_in_many_loops_at_once(url: str, prefix: str) -> None:
    saver = RedisSaver(url, prefix=prefix)

    def in_a_loop(k: int) -> None:
        async def work() -> None:
            for n in range(1, 6):
                await aput(saver, f"t{k}", n)

        asyncio.run(work())

    with ThreadPoolExecutor(6) as pool:
        await asyncio.gather(
            *(asyncio.get_running_loop().run_in_executor(pool, in_a_loop, k) for k in range(6))
        )
    for k in range(6):
        assert await asyncio.to_thread(steps, saver, f"t{k}") == [5, 4, 3, 2, 1]
    saver.close()


async def test_an_asyncio_client_alone_serves_async_calls_only(url: str, prefix: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as mine:
        saver = RedisSaver(mine, prefix=prefix)
        await aput(saver, "t", 1)
        found = await saver.aget_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == state(1)
        with pytest.raises(ConfigurationError, match="asyncio client"):
            saver.get_tuple(at("t"))
        await saver.aclose()
        assert await mine.ping(), "a client of the user's stays open"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_clients_of_any_kind_do_as_well(url: str, prefix: str, protocol: int) -> None:
    port, few = servers.shared("valkey").port, {"max_connections": 1, "timeout": 10}
    pool = redis.BlockingConnectionPool(host=servers.HOST, port=port, protocol=protocol, **few)
    at_port = {"host": servers.HOST, "port": port, "protocol": protocol}
    async with redis.asyncio.Redis(**at_port) as other:
        for k, client in enumerate(
            (
                redis.Redis(connection_pool=pool),
                redis.Redis(**at_port, single_connection_client=True, encoding="latin-1"),
                f"{url}?protocol={protocol}",
            )
        ):
            both = {} if isinstance(client, str) else {"async_client": other}
            saver = RedisSaver(client, prefix=f"{prefix}{k}", **both)
            await asyncio.to_thread(line, saver, "t", 3)
            await aput(saver, "t", 4)
            assert await asyncio.to_thread(steps, saver, None) == [4, 3, 2, 1]
            assert [found.metadata["step"] async for found in saver.alist(None)] == [4, 3, 2, 1]
            assert await saver.areindex() == 1
            assert await saver.apersist("t")
            assert (await saver.adelete_thread("t")).checkpoints == 4
            saver.close()


@pytest.mark.parametrize("scripts", [True, False])
def test_one_connection_is_enough_for_one_caller(url: str, prefix: str, scripts: bool) -> None:
    with RedisSaver(f"{url}?max_connections=1", prefix=prefix) as saver:
        for n in range(1, 3):
            put(saver, "t", n)
            saver._settings.scripts = scripts
        assert steps(saver, None) == [2, 1]
        assert saver.reindex() == 1


async def test_a_hundred_writes_at_once_need_few_connections(url: str, prefix: str) -> None:
    async with RedisSaver(f"{url}?max_connections=6", prefix=prefix) as saver:
        await aput(saver, "t", 1)
        config = at("t", numbered(1))
        await asyncio.gather(
            *(saver.aput_writes(config, [("a", f"{k}" * 50)], f"task {k}") for k in range(100))
        )
        found = await saver.aget_tuple(at("t"))
        assert found is not None
        assert len(found.pending_writes or ()) == 100


def test_a_hundred_threads_of_one_process_lose_nothing(url: str, prefix: str) -> None:
    with RedisSaver(url, prefix=prefix) as saver:
        put(saver, "t", 1)
        with ThreadPoolExecutor(100) as pool:
            list(pool.map(lambda k: write(saver, "t", 1, f"task {k}"), range(300)))
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert len({w[0] for w in found.pending_writes or ()}) == 300


def append(url: str, prefix: str, name: str, count: int) -> None:
    """Add writes and forks to one thread, as a process of its own."""
    with RedisSaver(url, prefix=prefix) as saver:
        for n in range(count):
            saver.put_writes(at("t", numbered(1)), [("m", f"{name} {n} " * 20)], f"{name} {n}")
            values = {"messages": [f"{name} {k} " * 20 for k in range(n + 1)]}
            versions = {"messages": f"{name} {n}"}
            made = checkpoint(f"{numbered(2 + n)}{name}", values, versions)
            saver.put(at("t", numbered(1)), made, {"name": name, "n": n}, versions)


@pytest.mark.parametrize("backend", ["valkey", "redis"])
def test_processes_that_write_to_one_thread_overwrite_nothing(backend: str, prefix: str) -> None:
    url, names = servers.shared(backend).url, ["a", "b", "c", "d"]
    with RedisSaver(url, prefix=prefix) as saver:
        put(saver, "t", 1)
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=append, args=(url, prefix, n, 40)) for n in names]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        first = saver.get_tuple(at("t", numbered(1)))
        assert first is not None
        told = {(w[0], w[2]) for w in first.pending_writes or ()}
        assert told == {(f"{a} {n}", f"{a} {n} " * 20) for a in names for n in range(40)}
        for found in saver.list(at("t"), filter={"name": "b"}):
            n = found.metadata["n"]
            expected = [f"b {k} " * 20 for k in range(n + 1)]
            assert found.checkpoint["channel_values"] == {"messages": expected}
        assert len(list(saver.list(at("t")))) == 1 + 4 * 40


@pytest.mark.parametrize("backend", ["valkey", "redis"])
def test_items_that_two_writes_bring_at_once_stay_what_they_are(backend: str, prefix: str) -> None:
    """LangGraph saves a task's writes and the next checkpoint together, with the same new items.

    Here two savers do so on one thread, so that numbers are taken again and again.
    """
    savers = [RedisSaver(servers.shared(backend).url, prefix=prefix) for _ in range(2)]
    put(savers[0], "t", 1)

    def save(k: int) -> None:
        saver, values = savers[k % 2], [f"{name} of round {k // 6} " * 9 for name in "abc"]
        if k % 3:
            saver.put_writes(at("t", numbered(1)), [("m", values), ("n", values[1])], f"task {k}")
        else:
            made = checkpoint(f"{numbered(2)}{k:06}", {"m": values}, {"m": f"{k}"})
            saver.put(at("t", numbered(1)), made, {"k": k}, {"m": f"{k}"})

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(save, range(600)))
    with RedisSaver(servers.shared(backend).url, prefix=prefix, cache_bytes=0) as reader:
        first = reader.get_tuple(at("t", numbered(1)))
        assert first is not None
        for task, channel, value in first.pending_writes or ():
            values = [f"{name} of round {int(task[5:]) // 6} " * 9 for name in "abc"]
            assert value == (values if channel == "m" else values[1])
        found = [each for each in reader.list(at("t")) if "k" in each.metadata]
        assert len(found) == 200
        for each in found:
            values = [f"{name} of round {each.metadata['k'] // 6} " * 9 for name in "abc"]
            assert each.checkpoint["channel_values"] == {"m": values}
    for saver in savers:
        saver.close()


def in_child(saver: RedisSaver) -> None:
    assert is_whole(saver, "t", 2)
    put(saver, "t", 3)
    asyncio.run(aput(saver, "of the child", 1))


def test_a_forked_child_has_connections_of_its_own(url: str, prefix: str) -> None:
    saver = RedisSaver(url, prefix=prefix)
    line(saver, "t", 2)
    asyncio.run(aput(saver, "async", 1))
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(saver,))
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert steps(saver, "t") == [3, 2, 1]
    put(saver, "t", 4)
    assert is_whole(saver, "of the child", 1)
    saver.close()


async def test_a_call_that_is_cancelled_is_whole_or_absent(url: str, prefix: str) -> None:
    async with RedisSaver(url, prefix=prefix) as saver:
        done = 0
        for n in range(1, 40):
            task = asyncio.create_task(aput(saver, "t", n))
            await asyncio.sleep(n % 5 * 0.0005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await aput(saver, "t", n)
            done = n
        assert await asyncio.to_thread(steps, saver, "t") == list(range(done, 0, -1))


def test_an_unclosed_saver_leaves_no_thread_that_keeps_the_process(url: str, prefix: str) -> None:
    program = f"""
        import asyncio
        from langgraph_durable import RedisSaver
        from langgraph_durable.testing.model import at
        saver = RedisSaver({url!r}, prefix={prefix!r})
        asyncio.run(saver.aget_tuple(at("t")))
        saver.get_tuple(at("t"))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], timeout=120, capture_output=True
    )
    assert ended.returncode == 0
    assert b"Error" not in ended.stderr


async def test_a_saver_that_nobody_uses_any_more_lets_its_workers_go(url: str, prefix: str) -> None:
    before = set(threading.enumerate())
    saver = RedisSaver(url, prefix=prefix)
    await aput(saver, "t", 1)
    workers = set(threading.enumerate()) - before
    assert workers
    del saver
    gc.collect()
    for worker in workers:
        await asyncio.to_thread(worker.join, 120)
        assert not worker.is_alive()


def test_the_package_works_without_redis_py() -> None:
    program = """
        import sys
        sys.modules["redis"] = None
        import langgraph_durable
        langgraph_durable.SqliteSaver
        try:
            langgraph_durable.RedisSaver
        except ImportError as error:
            assert "langgraph-durable[redis]" in str(error), error
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
