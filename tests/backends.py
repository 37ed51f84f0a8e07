"""Every store that the tests run on. One written once runs on all of them.

A backend opens a saver for a folder: always the same store for the same folder, and empty at
first. `EVERYWHERE` are the quick ones; a cluster takes seconds to start and has tests of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
import servers

from langgraph_durable import RedisSaver, SqliteSaver
from langgraph_durable.saver import DurableSaver

Open = Callable[..., DurableSaver]


def sqlite(place: Path, **options: Any) -> SqliteSaver:
    return SqliteSaver(place / "agent.db", **options)


def hasty_sqlite(place: Path, **options: Any) -> SqliteSaver:
    """Where no power is cut, no time need be spent on waiting for the disk."""
    return sqlite(place, durability="normal", **options)


def on_server(flavour: str, place: Path, **options: Any) -> RedisSaver:
    return RedisSaver(servers.shared(flavour).url, prefix=servers.prefix_for(place), **options)


def scriptless(place: Path, **options: Any) -> RedisSaver:
    """As a user who may not run scripts."""
    server = servers.shared("redis")
    with server.client() as admin:
        rights = "~t* -@all +@read +@write +@connection +@transaction"
        admin.execute_command("ACL", "SETUSER", "plain", "on", ">secret", *rights.split())
    url = f"redis://plain:secret@{servers.HOST}:{server.port}/0"
    return RedisSaver(url, prefix=servers.prefix_for(place), **options)


def own_clients(place: Path, **options: Any) -> RedisSaver:
    """With clients that the user has made, one of each colour."""
    port = servers.shared("valkey").port
    return RedisSaver(
        redis.Redis(servers.HOST, port),
        async_client=redis.asyncio.Redis(host=servers.HOST, port=port),
        prefix=servers.prefix_for(place),
        **options,
    )


def in_cluster(place: Path, **options: Any) -> RedisSaver:
    return RedisSaver(servers.shared_cluster().url, prefix=servers.prefix_for(place), **options)


EVERYWHERE: dict[str, Open] = {
    "sqlite": hasty_sqlite,
    "valkey": functools.partial(on_server, "valkey"),
    "redis": functools.partial(on_server, "redis"),
}
ALL: dict[str, Open] = {
    **EVERYWHERE,
    "redis 6.2": functools.partial(on_server, "redis 6.2"),
    "scriptless": scriptless,
    "clients": own_clients,
    "cluster": in_cluster,
}
