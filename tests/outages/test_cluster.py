"""A cluster: threads move between nodes and primaries die, and savers go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
import redis.asyncio
import servers
from redis.crc import key_slot
from servers import HOST, Cluster, Server
from work import is_whole, line, put, steps, write

from langgraph_durable import ConfigurationError, RedisSaver, StorageUnreachable
from langgraph_durable.testing.model import at


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(getattr(request, "param", "valkey"))
    yield made
    made.close()


def node_of(cluster: Cluster, saver: RedisSaver, thread: str) -> Server:
    """The primary that holds a thread."""
    with cluster.client() as client:
        found = client.get_node_from_key(saver._storage.context.keys.thread(thread).hash)
    return next(node for node in cluster.nodes if node.port == found.port)


@pytest.mark.parametrize("cluster", servers.FLAVOURS, indirect=True)
def test_threads_spread_over_the_nodes_and_all_calls_work(cluster: Cluster) -> None:
    with RedisSaver(cluster.url) as saver:
        for k in range(20):
            line(saver, f"t{k}", 3, run=f"run{k % 2}")
        assert len({node_of(cluster, saver, f"t{k}").port for k in range(20)}) == 3
        assert steps(saver, None) == [3] * 20 + [2] * 20 + [1] * 20
        saver.copy_thread("t0", "copy")
        saver.prune(["t1"])
        assert is_whole(saver, "copy", 3)
        assert is_whole(saver, "t1", 3)
        assert saver.reindex() == 21
        saver.delete_for_runs(["run0"])
        assert len(list(saver.list(None))) == 10 * 3 - 2


@pytest.mark.parametrize("rights", ["+eval +evalsha", "+@transaction"])
@pytest.mark.parametrize("replicas", [0, 1])
def test_the_documented_rights_are_enough_in_a_cluster(
    rights: str, replicas: int, tmp_path: Path
) -> None:
    cluster, prefix = servers.shared_cluster(), servers.prefix_for(tmp_path)
    few = f"reset on >secret ~{prefix}:* -@all +@read +@write +@connection +cluster|slots {rights}"
    for node in cluster.nodes:
        with node.client() as admin:
            admin.execute_command("ACL", "SETUSER", "few", *few.split(), *["+wait"][:replicas])
    url = cluster.url.replace("://", "://few:secret@")
    with RedisSaver(url, prefix=prefix, wait_replicas=replicas, replica_timeout=20) as saver:
        line(saver, "t", 3, run="run")
        line(saver, "u", 1)
        assert steps(saver, None) == [3, 2, 1, 1]
        saver.prune(["t"])
        saver.delete_for_runs(["run"])
        assert saver.reindex() == 1
        saver.delete_thread("u")
        assert steps(saver, None) == []


def test_a_cluster_that_is_not_there_is_a_typed_error() -> None:
    for made in (
        f"redis+cluster://{HOST}:1,{HOST}:2",
        redis.asyncio.RedisCluster(host=HOST, port=1),
    ):
        saver = RedisSaver(made, retry=0.2)
        with pytest.raises(StorageUnreachable, match="cannot be reached"):
            asyncio.run(saver.aget_tuple(at("t")))


def test_a_single_server_is_no_cluster() -> None:
    port = servers.shared("valkey").port
    with pytest.raises(ConfigurationError, match="not part of a cluster"):
        put(RedisSaver(f"redis+cluster://{HOST}:{port}"), "t", 1)


def test_clients_that_cannot_do_what_is_asked_are_refused() -> None:
    port = servers.shared_cluster().nodes[0].port
    balancing = redis.cluster.LoadBalancingStrategy.ROUND_ROBIN
    with (
        redis.RedisCluster(HOST, port, load_balancing_strategy=balancing) as reads_from_replicas,
        pytest.raises(ConfigurationError, match="reads from replicas"),
    ):
        RedisSaver(reads_from_replicas)
    with pytest.raises(ConfigurationError, match="cannot wait for replicas"):
        RedisSaver(redis.asyncio.RedisCluster(host=HOST, port=port), wait_replicas=1)


@pytest.mark.parametrize("rights", ["all", "no scripts, waiting for a replica"])
def test_a_saver_goes_on_while_its_thread_moves(cluster: Cluster, rights: str) -> None:
    url, replicas = cluster.url, 0
    if rights != "all":
        for node in cluster.nodes:
            with node.client() as admin:
                few = "on >secret ~* -@all +@read +@write +@connection +@transaction"
                few += " +cluster|slots +wait"
                admin.execute_command("ACL", "SETUSER", "few", *few.split())
        url, replicas = url.replace("://", "://few:secret@"), 1
    with RedisSaver(url, wait_replicas=replicas, replica_timeout=20) as saver:
        line(saver, "t", 5)
        source = node_of(cluster, saver, "t")
        target = next(n for n in cluster.nodes[:3] if n.port != source.port)
        moving = threading.Thread(target=move_slot, args=(saver, source, target))
        moving.start()
        n = 5
        while moving.is_alive() or n < 30:
            n += 1
            put(saver, "t", n)
        moving.join()
        assert node_of(cluster, saver, "t").port == target.port
        assert steps(saver, "t") == list(range(n, 0, -1))


def move_slot(saver: RedisSaver, source: Server, target: Server) -> None:
    """Move the thread's slot as `redis-cli --cluster reshard` does, one key at a time."""
    keys = saver._storage.context.keys.thread("t")
    slot = key_slot(keys.hash)
    with source.client() as old, target.client() as new:
        names = {c: c.execute_command("CLUSTER MYID").decode() for c in (old, new)}
        new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[old])
        old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[new])
        for key in keys:
            threading.Event().wait(0.3)
            old.execute_command("MIGRATE", HOST, target.port, key, 0, 5000)
        for client in (new, old):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[new])


def test_a_saver_goes_on_when_a_primary_dies(cluster: Cluster) -> None:
    with (
        RedisSaver(cluster.url, retry=120) as saver,
        RedisSaver(cluster.url, wait_replicas=1, replica_timeout=20) as careful,
    ):
        for k in range(6):
            line(careful, f"t{k}", 3)
        cluster.be_hasty()
        node_of(cluster, saver, "t0").kill()
        for k in range(6):
            put(saver, f"t{k}", 4)
            assert steps(saver, f"t{k}") == [4, 3, 2, 1]


def test_parallel_writers_of_one_thread_lose_nothing(cluster: Cluster) -> None:
    with RedisSaver(cluster.url) as saver, RedisSaver(cluster.url) as other:
        put(saver, "t", 1)
        with ThreadPoolExecutor(8) as pool:
            tasks = [f"task {k}" for k in range(80)]
            list(pool.map(lambda t: write((saver, other)[len(t) % 2], "t", 1, t), tasks))
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert sorted(w[0] for w in found.pending_writes or ()) == sorted(tasks)


async def test_clients_of_the_users_own_work_in_both_colours(cluster: Cluster) -> None:
    place = {"host": HOST, "port": cluster.nodes[0].port}
    async with redis.asyncio.RedisCluster(**place) as mine:
        with redis.RedisCluster(**place) as sync_client:
            saver = RedisSaver(sync_client, async_client=mine)
            await asyncio.to_thread(line, saver, "t", 3)
            found = await saver.aget_tuple(at("t"))
            assert found is not None
            assert found.metadata["step"] == 3
            await saver.acopy_thread("t", "copy")
            assert [each.metadata["step"] async for each in saver.alist(at("copy"))] == [3, 2, 1]
            await saver.adelete_thread("t")
            assert await asyncio.to_thread(steps, saver, None) == [3, 2, 1]
