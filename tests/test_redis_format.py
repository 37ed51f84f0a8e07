"""The format of a Redis store: marked, refused where it is newer, migrated thread by thread.

Redis has no transaction over all threads, so a migration that was killed is gone on with: until it
is whole the store counts as old, and every thread can be read all the time.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import servers
from golden import make
from test_format import CONFIG, check_golden

from langgraph_durable import NotAStore, RedisSaver, StorageTooNew
from langgraph_durable._core.records import CheckpointRow, WriteRow
from langgraph_durable._redis import formats, rows

NAMES = (
    *(make.TASK, make.TASK.upper(), make.TASK[:-1], make.TASK.replace("-", "")),
    *(make.TASK.replace("-", "_"), f"{{{make.TASK[1:-1]}}}", f"{make.TASK}~0000abcd"),
    *("", "x", "é", "\xff" * 3, "\ud800"),
)
PATHS = ("", "~__pregel_pull, ", "~__pregel_pull, a", "~__pregel_pull, \ud800é", "~__pregel_pull")


def test_what_takes_fewer_bytes_in_a_row_comes_back_as_it_was() -> None:
    for task, path, run in itertools.product(NAMES, PATHS, (None, *NAMES)):
        write = WriteRow("ns", "id", task, 0, 1, path, run, b"\x90", b"body")
        packed = rows.pack_task([(0, 1, rows.pack_write(write))])
        assert rows.unpack_tasks("t", "ns", "id", [packed]) == (write,)
        assert [name for name in NAMES if rows.is_of(packed, rows.task_name(name))] == [task]
        row = CheckpointRow("ns", "id", task, run, b"\x90", b"body")
        assert rows.unpack_checkpoint("ns", "id", rows.pack_checkpoint(row)) == row


def test_redis_refuses_a_newer_format(tmp_path: Path) -> None:
    server, prefix = servers.shared("valkey"), servers.prefix_for(tmp_path)
    with RedisSaver(server.url, prefix=prefix) as saver, server.client() as client:
        make.fill(saver)
        assert client.get(f"{prefix}:format") == b"1"
        client.set(f"{prefix}:format", 2)
        check_golden(saver)  # it has looked before
    for wrong, error in ((b"2", StorageTooNew), (b"x", NotAStore)):
        with RedisSaver(server.url, prefix=prefix) as saver, server.client() as client:
            client.set(f"{prefix}:format", wrong)
            with pytest.raises(error):
                saver.get_tuple(CONFIG)


def test_redis_migrates_again_what_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, prefix = servers.shared("valkey"), servers.prefix_for(tmp_path)
    with RedisSaver(server.url, prefix=prefix) as saver:
        make.fill(saver)
    done: list[int] = []

    async def migrate(context: Any) -> None:
        done.append(len(done))
        if len(done) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(formats, "FORMAT", 2)
    monkeypatch.setattr(formats, "MIGRATIONS", {2: migrate})
    with RedisSaver(server.url, prefix=prefix) as saver, server.client() as client:
        with pytest.raises(KeyboardInterrupt):
            saver.get_tuple(CONFIG)
        assert client.get(f"{prefix}:format") == b"1"
        check_golden(saver)
        assert client.get(f"{prefix}:format") == b"2"
    assert done == [0, 1]


def test_reading_sets_no_mark(tmp_path: Path) -> None:
    server, prefix = servers.shared("valkey"), servers.prefix_for(tmp_path)
    with RedisSaver(server.url, prefix=prefix) as saver, server.client() as client:
        assert saver.get_tuple(CONFIG) is None
        assert not client.exists(f"{prefix}:format")


# ---- a second format -----------------------------------------------------------------------------

THREADS = 24
SECOND = """
import asyncio, os, signal, sys
from langgraph_durable import RedisSaver
from langgraph_durable._redis import formats
from langgraph_durable._redis.requests import Request

url, prefix, colour, last, *threads = sys.argv[1:]
NOTE = '''
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'note') == 1 then
    return 0
end
redis.call('HSET', KEYS[1], 'note', redis.call('ZCARD', KEYS[2]))
return redis.call('HINCRBY', KEYS[1], 'times', 1)
'''

async def migrate(context):
    [found] = await Request("the threads", scan=context.keys.pattern)
    for count, key in enumerate(sorted(found)):
        if count == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
        keys = context.keys.thread(context.keys.thread_of(key))
        await Request("a thread", [("EVAL", NOTE, 2, *keys)], writes=True)

formats.FORMAT = 2
formats.MIGRATIONS = {2: migrate}
saver = RedisSaver(url, prefix=prefix)
configs = [{"configurable": {"thread_id": thread}} for thread in threads]

async def read():
    return [await saver.aget_tuple(config) for config in configs]

if colour == "sync":
    found = [saver.get_tuple(config) for config in configs]
else:
    found = asyncio.run(read())
assert {each.checkpoint["channel_values"]["number"] for each in found} == {3}
"""
NAMES = ["golden", *(f"thread {n}" for n in range(THREADS - 1))]


def second(prefix: str, url: str, colour: str = "sync", last: int = -1) -> subprocess.Popen[bytes]:
    """A program of the second format that reads every thread; it may die as it comes to one."""
    args = [sys.executable, "-c", SECOND, url, prefix, colour, str(last), *NAMES]
    return subprocess.Popen(args)


def fill(url: str, prefix: str) -> None:
    with RedisSaver(url, prefix=prefix) as saver:
        make.fill(saver)
        for name in NAMES[1:]:
            saver.copy_thread("golden", name)


def check_all(saver: Any) -> None:
    check_golden(saver)
    for name in NAMES:
        found = saver.get_tuple({"configurable": {"thread_id": name}})
        assert found.checkpoint["channel_values"] == make.values(3)


def contents(client: Any, prefix: str) -> dict[bytes, Any]:
    """All that is stored under a prefix."""
    start = f"{prefix}:".encode()
    read = {
        b"hash": client.hgetall,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"set": client.smembers,
        b"string": client.get,
    }
    keys = client.scan_iter(start + b"*", count=1000)
    return {key[len(start) :]: read[client.type(key)](key) for key in keys}


def notes(client: Any, prefix: str) -> int:
    """How many threads are in the second format; none was brought there twice."""
    hashes = [held for held in contents(client, prefix).values() if isinstance(held, dict)]
    noted = [held for held in hashes if b"note" in held]
    assert all((held[b"note"], held[b"times"]) == (b"4", b"1") for held in noted)
    return len(noted)


@pytest.mark.parametrize(("flavour", "colour"), [("valkey", "sync"), ("redis", "async")])
def test_a_migration_that_is_killed_half_way_is_gone_on_with(
    flavour: str, colour: str, tmp_path: Path
) -> None:
    server, prefix = servers.shared(flavour), servers.prefix_for(tmp_path)
    whole = f"{prefix}-whole"
    fill(server.url, prefix)
    with RedisSaver(server.url, prefix=prefix) as earlier, server.client() as client:
        check_all(earlier)
        for key in contents(client, prefix):  # the same store again, to be migrated at once
            client.copy(f"{prefix}:".encode() + key, f"{whole}:".encode() + key)
        for last in (8, 16):
            died = second(prefix, server.url, colour, last)
            assert died.wait() == -signal.SIGKILL
            assert (notes(client, prefix), client.get(f"{prefix}:format")) == (last, b"1")
            check_all(earlier)
            with RedisSaver(server.url, prefix=prefix) as another:
                check_all(another)
        assert second(prefix, server.url, colour).wait() == 0
        assert (notes(client, prefix), client.get(f"{prefix}:format")) == (THREADS, b"2")
        check_all(earlier)
        assert second(whole, server.url, colour).wait() == 0
        assert contents(client, prefix) == contents(client, whole)


def test_many_processes_migrate_each_thread_once(tmp_path: Path) -> None:
    server, prefix = servers.shared("valkey"), servers.prefix_for(tmp_path)
    fill(server.url, prefix)
    several = [second(prefix, server.url) for _ in range(3)]
    assert [each.wait() for each in several] == [0] * 3
    with server.client() as client:
        assert (notes(client, prefix), client.get(f"{prefix}:format")) == (THREADS, b"2")
