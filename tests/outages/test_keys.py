"""One prefix is one tenant, one thread is two keys in one slot, and rights can be few."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import servers
from redis.crc import key_slot
from servers import Server, running
from work import is_whole, line, put, steps, write

from langgraph_durable import ConfigurationError, RedisSaver
from langgraph_durable._redis import listing
from langgraph_durable._redis.keys import Keys, place, unplace
from langgraph_durable._redis.requests import Call, Request
from langgraph_durable.testing.model import at

NAMES = [
    "t",
    "{t}",
    "}{",
    "a}b",
    "%7D",
    "}",
    "%",
    ":",
    "a:h",
    "run:{a}",
    "threads",
    "é",
    "\ud800",
    "\0",
    "a b\n",
    "*",
    "x" * 1024,
]


@pytest.fixture(params=servers.FLAVOURS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param) as made:
        yield made


def everything(saver: RedisSaver, thread: str) -> None:
    """Every call that there is, once."""
    line(saver, thread, 3, run="run")
    saver.put_writes(at(thread, "later"), [("a", 1)], "early")
    list(saver.list(at(thread)))
    list(saver.list(None))
    saver.get_delta_channel_history(config=at(thread), channels=["messages"])
    saver.copy_thread(thread, f"{thread[:1000]}-copy")
    saver.prune([thread])
    saver.expire(thread, "1h")
    saver.persist(thread)
    saver.reindex()
    saver.delete_for_runs(["run", "other"])
    line(saver, thread, 1)
    saver.delete_thread(thread)


def test_no_key_escapes_the_prefix(server: Server) -> None:
    with RedisSaver(server.url, prefix="tenant:one", ttl="1h") as saver, server.client() as admin:
        for name in NAMES:
            line(saver, name, 2, run=name)
        assert all(key.startswith(b"tenant:one:") for key in admin.scan_iter())
        assert admin.dbsize() == 2 + 3 * len(NAMES)  # index, format; thread's two, run's one


def test_a_thread_is_two_keys_however_long_it_is(server: Server) -> None:
    with RedisSaver(server.url) as saver, server.client() as admin:
        line(saver, "t", 40)
        put(saver, "t", 1, ns="child")
        assert admin.dbsize() == 4


def test_deleting_everything_leaves_nothing_but_tombstones_that_expire(server: Server) -> None:
    with RedisSaver(server.url) as saver, server.client() as admin:
        for name in NAMES:
            line(saver, name, 2, run=f"run of {name}")
            saver.copy_thread(name, f"copy of {name[:1000]}")
        for name in NAMES:
            saver.delete_thread(name)
            saver.delete_thread(f"copy of {name[:1000]}")
        left = set(admin.scan_iter()) - {b"lgd:format"}
        assert len(left) == 2 * len(NAMES)
        assert all(admin.hkeys(key) == [b"d"] and admin.pttl(key) > 0 for key in left)


def test_prefixes_on_one_server_never_meet(server: Server) -> None:
    prefixes = ["a", "a:b", "a:run", "a:threads", "a:{".replace("{", "-")]
    savers = [RedisSaver(server.url, prefix=prefix) for prefix in prefixes]
    for count, saver in enumerate(savers, 1):
        for name in NAMES:
            line(saver, name, count, run=name)
    for count, saver in enumerate(savers, 1):
        assert len(list(saver.list(None))) == count * len(NAMES)
        assert saver.reindex() == len(NAMES)
        assert all(is_whole(saver, name, count) for name in NAMES)
    savers[0].delete_for_runs(NAMES)
    for name in NAMES:
        savers[0].delete_thread(name)
    for count, saver in list(enumerate(savers, 1))[1:]:
        assert len(list(saver.list(None))) == count * len(NAMES)
        saver.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_threads_keys_share_a_slot_and_name_it(name: str) -> None:
    keys = Keys("lgd")
    assert len({key_slot(key) for key in keys.thread(name)}) == 1
    assert keys.thread_of(keys.thread(name).hash) == name
    assert keys.thread_of(keys.run(name)) is None
    assert unplace(place(name, name)) == (name, name)


@pytest.mark.parametrize("prefix", ["", "a{b", "a}", "a b", "x" * 200, None, 3, "a*"])
def test_a_prefix_that_could_escape_is_refused(prefix: object) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        RedisSaver("redis://localhost", prefix=prefix)  # type: ignore[arg-type]


ACL = re.findall(r"ACL SETUSER agent (.*)", RedisSaver.__doc__ or "")


@pytest.mark.parametrize("rights", ACL, ids=["scripts", "transactions"])
def test_the_documented_rights_are_enough(server: Server, rights: str) -> None:
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "agent", *rights.split())
        url = f"redis://agent:secret@{servers.HOST}:{server.port}/0"
        with RedisSaver(url) as saver:
            everything(saver, "t")
            assert saver._settings.scripts == ("+eval" in rights)
        assert {entry["object"] for entry in admin.acl_log()} <= {"info", "evalsha"}


def test_who_may_not_use_transactions_can_write_beside_a_scan(server: Server) -> None:
    """Async calls that wait at the same moment travel together."""
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "agent", *ACL[0].split())
    with RedisSaver(f"redis://agent:secret@{servers.HOST}:{server.port}/0") as saver:
        put(saver, "t", 1)
        context = saver._storage.context
        drop = Call("drop", context.keys.thread("t"), ("", 1000, ""))
        scan = Request("all threads", scan=context.keys.pattern)
        found, dropped = saver._backend._carrier.carry_out([scan, Request("t", call=drop)])
        assert found == [[context.keys.thread("t").hash]]
        assert dropped[0][0] == b"OK"


def test_no_dangerous_command_is_ever_used(server: Server) -> None:
    """By a user who may not: what was tried all the same is in the server's log."""
    with server.client() as admin:
        rights = "on", ">secret", "~*", "+@all", "-@dangerous"
        admin.execute_command("ACL", "SETUSER", "careful", *rights)
        url = f"redis://careful:secret@{servers.HOST}:{server.port}/0"
        with RedisSaver(url, ttl="1h", refresh_on_read=True) as saver:
            everything(saver, "t")
        # redis-py introduces itself with CLIENT SETINFO; Redis 6.2 calls all of CLIENT dangerous.
        tried = {entry["object"] for entry in admin.acl_log()}
        assert tried <= {"info", "client"}
        admin.execute_command("ACL", "LOG", "RESET")
        with (
            server.client(username="careful", password="secret") as careful,
            pytest.raises(redis.exceptions.NoPermissionError),
        ):
            careful.execute_command("KEYS", "*")
        assert "keys" in {entry["object"] for entry in admin.acl_log()}


def test_the_index_can_lag_and_can_be_rebuilt(server: Server) -> None:
    with RedisSaver(server.url) as saver, server.client() as admin:
        for name in NAMES:
            line(saver, name, 1, run="run")
        admin.delete("lgd:threads", "lgd:run:{run}")
        admin.zadd("lgd:threads", {"a ghost": 0})
        assert list(saver.list(None)) == []
        assert all(is_whole(saver, name, 1) for name in NAMES)
        assert saver.reindex() == len(NAMES)
        assert steps(saver, None) == [1] * len(NAMES)
        assert admin.zscore("lgd:threads", "a ghost") is None
        saver.delete_for_runs(["run"])
        assert list(saver.list(None)) == [], "writes of the same run stay alone"


def test_a_thread_that_is_about_to_come_stays_in_the_index(server: Server) -> None:
    """Writers enter a thread before it is there."""
    with RedisSaver(server.url) as saver, server.client() as admin:
        put(saver, "t", 1)
        admin.zadd("lgd:threads", {"soon": int(time.time()), "a ghost": 0})
        assert saver.reindex() == 1
        assert steps(saver, None) == [1]
        assert admin.zrange("lgd:threads", 0, -1) == [b"soon", b"t"]


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("begin", [put, write])
def test_a_thread_that_expired_and_is_begun_again_is_in_the_index_again(
    server: Server, begin: Callable[[RedisSaver, str, int], None], scripts: bool
) -> None:
    """The saver has seen it before, and enters into the index only what it has not."""
    with RedisSaver(server.url, cache_bytes=0) as saver, server.client() as admin:
        saver._settings.scripts = scripts
        put(saver, "t", 1)
        admin.delete(*saver._storage.context.keys.thread("t"), "lgd:threads")
        begin(saver, "t", 1)
        assert admin.zrange("lgd:threads", 0, -1) == [b"t"]
        put(saver, "t", 1)
        assert steps(saver, None) == [1]


def test_a_listing_misses_no_thread_while_the_index_changes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that go, or are renewed, must not move others past the eyes of who reads on."""
    names = [f"thread {n}" for n in range(25_000)]
    with RedisSaver(server.url) as saver, server.client() as admin:
        admin.zadd("lgd:threads", dict.fromkeys(names, 1))
        gone, ask = set(names[:5000]), listing.ask

        async def ask_and_remove(*args: Any) -> Any:
            answer = await ask(*args)
            admin.zrem("lgd:threads", *gone)
            return answer

        monkeypatch.setattr(listing, "ask", ask_and_remove)
        found = set(saver._backend.finish(listing.threads(saver._storage.context)))
        assert found >= set(names) - gone


def test_a_thread_that_comes_while_the_index_is_tidied_up_stays_in_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RedisSaver(server.url) as saver, server.client() as admin:
        put(saver, "t", 1)
        admin.zadd("lgd:threads", {"u": 0})
        ask = listing.ask

        async def ask_and_put(about: Any, commands: Any) -> Any:
            answer = await ask(about, commands)
            if commands[0][0] == "ZSCORE":
                put(saver, "u", 1)
            return answer

        monkeypatch.setattr(listing, "ask", ask_and_put)
        assert steps(saver, None) == [1]
        assert set(admin.zrange("lgd:threads", 0, -1)) == {b"t", b"u"}


def test_ghosts_leave_the_index_by_themselves(server: Server) -> None:
    with RedisSaver(server.url) as saver, server.client() as admin:
        put(saver, "t", 1)
        admin.zadd("lgd:threads", {"a ghost": 0})
        assert steps(saver, None) == [1]
        assert admin.zrange("lgd:threads", 0, -1) == [b"t"]
        write(saver, "only writes", 1)
        assert steps(saver, None) == [1]
