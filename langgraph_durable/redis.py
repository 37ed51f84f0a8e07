"""`RedisSaver`: the saver on any Redis or Valkey, alone, in a cluster, or behind sentinels."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable import addresses
from langgraph_durable._core.units import in_bytes
from langgraph_durable._redis import clients
from langgraph_durable._redis.carriers import Carrier, Settings
from langgraph_durable._redis.clients import Source
from langgraph_durable._redis.driver import Driver
from langgraph_durable._redis.keys import Keys
from langgraph_durable._redis.loops import LoopCarrier
from langgraph_durable._redis.marks import Marks
from langgraph_durable._redis.storage import RedisStorage
from langgraph_durable._redis.writing import Context
from langgraph_durable.artifacts import OFFLOAD_ABOVE, Artifacts, shelf_for
from langgraph_durable.errors import ConfigurationError
from langgraph_durable.policies import Policy
from langgraph_durable.saver import DurableSaver
from langgraph_durable.schema import StateSchema

if TYPE_CHECKING:
    import redis
    import redis.asyncio

CACHE_BYTES = 64 * 1024 * 1024
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class RedisSaver(DurableSaver):
    """Keeps LangGraph checkpoints in Redis or Valkey; serves `invoke` and `ainvoke` alike.

    Core commands only, from Redis 6.2 and Valkey 7.2 on. Make it anywhere, at import time too; it
    connects on first use. Threads, event loops and processes may share a server, and savers with
    different prefixes never meet.

    What a server promises depends on how it is set up. For an acknowledged call to survive the
    death of the server: `appendonly yes`; of its machine: `appendfsync always`; of a primary that
    a replica replaces: `wait_replicas=1`. Set `maxmemory-policy noeviction`.

    A user with few rights needs (the second line where scripts are not allowed; the third for a
    cluster, the fourth for `wait_replicas`; `+info` lets the saver warn of risky settings):

        ACL SETUSER agent on >secret ~lgd:* -@all +@read +@write +@connection +eval +evalsha
        ACL SETUSER agent on >secret ~lgd:* -@all +@read +@write +@connection +@transaction
        ... +cluster|slots
        ... +wait
        ... +info

    Args:
        client: a URL (`redis://`, `rediss://`, `unix://`, `redis+sentinel://h1:26379,h2/name/0`,
            `redis+cluster://h1:7000,h2:7000`), or a client of redis-py in either colour. A client
            of your own is used as it is; it must not have `decode_responses=True`.
        async_client: a client of `redis.asyncio` for the async methods, beside a sync one.
        prefix: what all keys begin with.
        ttl: how long a thread lives after its last write: a timedelta, seconds, or "30d" (s, m,
            h, d, w). All of it expires at once. None is for ever.
        refresh_on_read: reading a thread renews its life as well.
        wait_replicas: how many replicas must have confirmed a write before it is acknowledged.
        replica_timeout: seconds to wait for them; less than the `socket_timeout` of a client of
            your own.
        retry: seconds to try again while the server cannot be reached, is loading, or is being
            replaced by another. Writes are safe to repeat.
        artifacts: where large values and `Artifact`s go, as in `SqliteSaver`. By default large
            values stay in Redis, whose limit is 512 MB for each; an `Artifact` needs a store.
        serde, types, metadata_keys, on_conflict, cache_bytes, retention, warn_bytes,
            offload_above, on_missing_artifact, schema, environment, on_environment_change: as in
            `SqliteSaver`.

    Raises:
        ConfigurationError: an argument is wrong.

    Example:
        >>> saver = RedisSaver("redis://localhost:6379/0", ttl="30d")   # doctest: +SKIP
        >>> graph = builder.compile(checkpointer=saver)   # doctest: +SKIP
    """

    def __init__(
        self,
        client: str
        | redis.Redis
        | redis.RedisCluster
        | redis.asyncio.Redis
        | redis.asyncio.RedisCluster
        | None = None,
        *,
        async_client: redis.asyncio.Redis | redis.asyncio.RedisCluster | None = None,
        prefix: str = "lgd",
        ttl: timedelta | float | str | None = None,
        refresh_on_read: bool = False,
        wait_replicas: int = 0,
        replica_timeout: float = 1.0,
        retry: float = 30.0,
        serde: SerializerProtocol | None = None,
        types: Literal["safe", "any", "plain"] | Collection[str | type] = "safe",
        metadata_keys: Collection[str] | None = None,
        on_conflict: Literal["raise", "allow"] = "raise",
        cache_bytes: int = CACHE_BYTES,
        retention: Policy | None = None,
        warn_bytes: int | str | None = None,
        artifacts: Artifacts = None,
        offload_above: int | str = OFFLOAD_ABOVE,
        on_missing_artifact: Literal["raise", "placeholder"] = "raise",
        schema: StateSchema | None = None,
        environment: Mapping[str, Any] | None = None,
        on_environment_change: Literal["warn", "ignore", "error"] = "warn",
    ) -> None:
        settings = Settings(
            _number("retry", retry),
            int(_number("wait_replicas", wait_replicas, whole=True)),
            _number("replica_timeout", replica_timeout),
        )
        sync_source, async_source = _sources(client, async_client, settings.replica_timeout)
        if settings.replicas and async_source is not None and async_source.is_cluster:
            raise ConfigurationError(
                "an asyncio client of a cluster cannot wait for replicas: leave wait_replicas out, "
                "or pass a URL or a sync client alone, which serve async calls as well"
            )
        life = None if ttl is None else milliseconds(ttl)
        marks = Marks()
        storage = RedisStorage(Context(Keys(prefix), marks, life, refresh_on_read))
        named = sync_source or async_source
        assert named is not None
        driver = Driver(
            marks,
            named.name,
            Carrier(sync_source, settings) if sync_source else None,
            LoopCarrier(async_source, settings) if async_source else None,
        )
        super().__init__(
            driver,
            storage,
            serde=serde,
            types=types,
            metadata_keys=metadata_keys,
            on_conflict=on_conflict,
            cache_bytes=cache_bytes,
            retention=retention,
            warn_bytes=warn_bytes,
            shelf=shelf_for(
                artifacts,
                None,
                offload_above=in_bytes("offload_above", offload_above),
                on_missing_artifact=on_missing_artifact,
            ),
            schema=schema,
            environment=environment,
            on_environment_change=on_environment_change,
        )
        self._storage, self._settings = storage, settings
        self._shown = f"{named.name!r}, prefix={prefix!r}"

    def __repr__(self) -> str:
        return f"RedisSaver({self._shown})"

    # ---- what only Redis has -----------------------------------------------------------------

    def expire(self, thread_id: str, ttl: timedelta | float | str) -> bool:
        """Give one thread a life of its own, counted from now and from each write on.

        Returns False if there is no such thread.
        """
        return self._backend.finish(self._expire(thread_id, milliseconds(ttl)))

    async def aexpire(self, thread_id: str, ttl: timedelta | float | str) -> bool:
        """`expire`, off the event loop."""
        work = self._expire(thread_id, milliseconds(ttl))
        return await self._backend.run(work, writes=True)

    def persist(self, thread_id: str) -> bool:
        """Keep one thread for ever, whatever the `ttl` of the saver. False if there is none."""
        return self._backend.finish(self._expire(thread_id, 0))

    async def apersist(self, thread_id: str) -> bool:
        """`persist`, off the event loop."""
        return await self._backend.run(self._expire(thread_id, 0), writes=True)

    async def _expire(self, thread_id: str, life: int) -> bool:
        return await self._storage.expire(addresses.thread(thread_id), life)

    def reindex(self) -> int:
        """Rebuild the index of threads and runs from what is stored; how many threads there are."""
        return self._backend.finish(self._storage.reindex())

    async def areindex(self) -> int:
        """`reindex`, off the event loop."""
        return await self._backend.run(self._storage.reindex(), writes=True)


def _sources(
    client: Any, async_client: Any, answer_after: float
) -> tuple[Source | None, Source | None]:
    """Where the clients of both colours come from."""
    if isinstance(client, str):
        if async_client is not None:
            raise ConfigurationError("a URL serves both colours: leave async_client out")
        return clients.source_from_url(client, answer_after=answer_after), None
    if client is None and async_client is None:
        raise ConfigurationError("RedisSaver needs a URL or a client")
    first = None if client is None else clients.source_from_client(client)
    second = None if async_client is None else clients.source_from_client(async_client)
    if second is not None and not clients.is_async(async_client):
        raise ConfigurationError("async_client is a client of redis.asyncio")
    if first is not None and clients.is_async(client):
        if second is not None:
            raise ConfigurationError("client and async_client are both asyncio clients")
        return None, first
    return first, second


def _number(what: str, value: object, *, whole: bool = False) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int if whole else (int, float))
        or not 0 <= value <= 86_400
    ):
        kind = "a number" if whole else "seconds"
        raise ConfigurationError(f"{what} is {kind} from 0 up, not {value!r}")
    return value


def milliseconds(ttl: timedelta | float | str) -> int:
    """A time to live in the form that Redis takes."""
    seconds: float | None = None
    if isinstance(ttl, timedelta):
        seconds = ttl.total_seconds()
    elif isinstance(ttl, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", ttl.strip())
        seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else None
    elif isinstance(ttl, (int, float)) and not isinstance(ttl, bool):
        seconds = ttl
    if seconds is None or not 0.001 <= seconds <= 100 * 366 * 86_400:
        raise ConfigurationError(
            f'ttl is a timedelta, seconds, or text like "30d" (s, m, h, d, w), not {ttl!r}'
        )
    return int(seconds * 1000)
