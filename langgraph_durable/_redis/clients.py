"""Where clients come from: a URL, or the user's own.

    redis://, rediss://, unix://                one server
    redis+sentinel://h1:26379,h2/mymaster/0     whichever server the sentinels call the primary
    redis+cluster://h1:7000,h2:7000             a cluster (rediss+... for TLS)

A client made from a URL is made at first use, and again in a forked child. A client of the user's
is used as it is, and never closed.
"""

from __future__ import annotations

import random
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from langgraph_durable.errors import ConfigurationError

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
SETTINGS: dict[str, Any] = {
    "socket_timeout": 10.0,
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
    "health_check_interval": 30,
    "max_connections": 1024,
}
"""Of our own clients. Trying again is the driver's task, which knows what may be done twice."""


@dataclass(frozen=True, slots=True)
class Source:
    """How to get a client, and what to call it in errors."""

    name: str
    make: Callable[[], Any]
    is_cluster: bool
    is_ours: bool


def source_from_url(url: str, *, answer_after: float = 0.0) -> Source:
    """A client of our own. The server may take `answer_after` seconds without being silent."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.strip().lower()
    if scheme not in SCHEMES:
        raise ConfigurationError(
            f"a URL begins with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}, "
            f"not with {url.partition(':')[0]!r}"
        )
    url = f"{scheme}://{rest}"
    parts = _parts(url)
    if "retry" in urllib.parse.parse_qs(parts.query):  # redis-py would take the text for a Retry
        raise ConfigurationError(
            f"{_shown(parts)!r}: retry is an argument of RedisSaver, beside the URL"
        )
    kind = parts.scheme.partition("+")[2]
    make = {"": _one_server, "sentinel": _sentinels, "cluster": _cluster}[kind]
    settings = {**SETTINGS, "socket_timeout": SETTINGS["socket_timeout"] + answer_after}
    try:
        return Source(_shown(parts), make(url, parts, settings), kind == "cluster", True)
    except ValueError as error:
        raise ConfigurationError(f"{_shown(parts)!r}: {error}") from error


def _parts(url: str) -> urllib.parse.SplitResult:
    """The parts of a URL; one that its password cuts in the wrong place is refused, unseen."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        is_cut = True
    else:
        told = parts.query.partition("=")[0] + (parts.path if parts.scheme != "unix" else "")
        is_cut = bool(parts.fragment) or "@" in told
    if is_cut:
        raise ConfigurationError(
            f"this {url.partition(':')[0]}:// URL cannot be read: in a user name or password, "
            "write % / ? # [ ] @ as %25 %2F %3F %23 %5B %5D %40"
        )
    return parts


def _shown(parts: urllib.parse.SplitResult) -> str:
    """The URL without what nobody should read in a log."""
    hosts = parts.netloc.rpartition("@")[2]
    user = "***@" if "@" in parts.netloc else ""
    return f"{parts.scheme}://{user}{hosts}{parts.path}"


def _retry() -> Retry:
    return Retry(NoBackoff(), 0)


def _check(make: Callable[[], redis.Redis]) -> None:
    """Say at once what is wrong with a URL; nothing is sent."""
    try:
        pool = make().connection_pool
        pool.make_connection()
    except TypeError as error:
        raise ValueError(str(error)) from error
    if pool.connection_kwargs.get("decode_responses"):
        raise ValueError("decode_responses would turn stored bytes into text: leave it out")


def _one_server(
    url: str, parts: urllib.parse.SplitResult, settings: dict[str, Any]
) -> Callable[[], Any]:
    if parts.scheme == "unix":  # there is no network that could fail silently
        settings = {key: value for key, value in settings.items() if key != "socket_keepalive"}
    elif not (parts.path.strip("/") or "0").isdigit():  # redis-py would take 0
        raise ValueError("what follows the host is the number of a database: redis://host:6379/0")

    def make() -> redis.Redis:
        return redis.Redis.from_url(url, **settings, retry=_retry())

    _check(make)
    return make


def _options(parts: urllib.parse.SplitResult) -> dict[str, Any]:
    """User, password, TLS and query parameters, as redis-py reads them from a simple URL."""
    login = parts.netloc.rpartition("@")[0]
    netloc = f"{login}@localhost" if login else "localhost"
    simple = parts._replace(scheme=parts.scheme.partition("+")[0], netloc=netloc, path="")
    options: dict[str, Any] = dict(redis.connection.parse_url(simple.geturl()))  # type: ignore[no-untyped-call]
    if options.pop("connection_class", None) is redis.SSLConnection:
        options["ssl"] = True
    options.pop("host", None)
    _check(lambda: redis.Redis(**options))
    return options


def _apart(parts: urllib.parse.SplitResult) -> tuple[urllib.parse.SplitResult, dict[str, Any]]:
    """The URL without its `sentinel_...` parameters, and those as options for the sentinels."""
    query = urllib.parse.parse_qsl(parts.query)
    own = {key[9:]: value for key, value in query if key.startswith("sentinel_")}
    scheme = "rediss" if own.pop("ssl", "").lower() in ("1", "true", "yes") else "redis"
    theirs = parts._replace(scheme=scheme, netloc="", query=urllib.parse.urlencode(own))
    left = [(key, value) for key, value in query if not key.startswith("sentinel_")]
    return parts._replace(query=urllib.parse.urlencode(left)), _options(theirs)


def _hosts(parts: urllib.parse.SplitResult, port: int) -> list[tuple[str, int]]:
    found = []
    for place in parts.netloc.rpartition("@")[2].split(","):
        one = urllib.parse.urlsplit(f"//{place}")
        if not one.hostname:
            raise ValueError("write the hosts as host:port,host:port")
        found.append((one.hostname, one.port or port))
    return found


def _sentinels(
    url: str, parts: urllib.parse.SplitResult, settings: dict[str, Any]
) -> Callable[[], Any]:
    service, _, number = parts.path.strip("/").partition("/")
    if not service or not (number or "0").isdigit():
        raise ValueError("write redis+sentinel://host:26379,host:26379/service/0")
    hosts = _hosts(parts, 26379)
    # Sentinels usually have no password of their own; `sentinel_...` parameters say otherwise.
    parts, own = _apart(parts)
    options = {**settings, "db": 0, **_options(parts)}
    if number:
        options["db"] = int(number)
    own = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, **own}

    def make() -> redis.Redis:
        sentinel = Sentinel(hosts, sentinel_kwargs=own)  # type: ignore[no-untyped-call]
        made: redis.Redis = sentinel.master_for(  # type: ignore[no-untyped-call]
            service, **options, retry=_retry()
        )
        return made

    return make


def _cluster(
    url: str, parts: urllib.parse.SplitResult, settings: dict[str, Any]
) -> Callable[[], Any]:
    hosts, options = _hosts(parts, 6379), {**settings, **_options(parts)}
    if parts.path.strip("/") or "db" in options:
        raise ValueError("a cluster has no database numbers")

    def make() -> redis.RedisCluster:
        node = redis.cluster.ClusterNode
        nodes = [node(*host) for host in hosts]  # type: ignore[no-untyped-call]
        state = random.getstate()  # redis-py shuffles the nodes, and users seed `random`
        try:
            return redis.RedisCluster(
                startup_nodes=nodes,
                **options,
                retry=Retry(NoBackoff(), 3),
                require_full_coverage=False,
            )
        finally:
            random.setstate(state)

    return make


def is_async(client: object) -> bool:
    return isinstance(client, redis.asyncio.Redis | redis.asyncio.RedisCluster)


def source_from_client(client: Any) -> Source:
    """A client that the user has made."""
    known = redis.Redis | redis.RedisCluster | redis.asyncio.Redis | redis.asyncio.RedisCluster
    if not isinstance(client, known) or hasattr(client, "command_stack"):  # as pipelines have
        raise ConfigurationError(
            "RedisSaver takes a URL, or a client of redis-py (Redis, RedisCluster, or one of "
            f"redis.asyncio), not {type(client).__name__}"
        )
    if _decodes(client):
        raise ConfigurationError(
            "this client has decode_responses=True, which would turn stored bytes into text: "
            "make one without it for the saver"
        )
    is_cluster = isinstance(client, redis.RedisCluster | redis.asyncio.RedisCluster)
    if is_cluster and _reads_from_replicas(client):
        raise ConfigurationError(
            "this client reads from replicas, which may not have what was just written, so that a "
            "thread would seem to be damaged: make one without read_from_replicas and "
            "load_balancing_strategy for the saver"
        )
    return Source(f"{type(client).__name__} client", lambda: client, is_cluster, False)


def _decodes(client: Any) -> bool:
    if isinstance(client, redis.asyncio.RedisCluster):
        options = client.connection_kwargs
    elif isinstance(client, redis.RedisCluster):
        options = client.nodes_manager.connection_kwargs
    else:
        options = client.connection_pool.connection_kwargs
    return bool(options.get("decode_responses"))


def _reads_from_replicas(client: Any) -> bool:
    balances = getattr(client, "load_balancing_strategy", None)  # older ones have none
    return bool(client.read_from_replicas or balances)
