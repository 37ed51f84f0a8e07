"""The servers of a run: two of Redis (ours and the rival's never share one) and one of Postgres.

Each is started when it is first asked for, on a free port and in a folder of its own. What cannot
be started is remembered with the reason, and whoever needs it is left out of the results.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for place in (ROOT, ROOT / "tests"):  # `servers` of the tests knows how to start a Redis
    if str(place) not in sys.path:
        sys.path.append(str(place))

import servers  # noqa: E402

from langgraph_durable import ObjectArtifacts  # noqa: E402


class NotAvailable(Exception):
    """Why somebody cannot take part."""


class Hosts:
    """Servers that run until the block ends, started when they are needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._urls: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        self._redis: dict[str, servers.Server] = {}

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def url(self, kind: str) -> str:
        """The address of "redis" (for ours), "stack" (for the official saver) or "postgres"."""
        if kind in self._missing:
            raise NotAvailable(self._missing[kind])
        if kind not in self._urls:
            try:
                self._urls[kind] = STARTERS[kind](self)
            except Exception as error:
                self._missing[kind] = f"{type(error).__name__}: {error}"
                raise NotAvailable(self._missing[kind]) from error
        return self._urls[kind]

    def bucket(self) -> ObjectArtifacts:
        """A place on the S3 server of the tests."""
        if "s3" in self._missing:
            raise NotAvailable(self._missing["s3"])
        try:
            import objectstore

            server = objectstore.S3()
        except Exception as error:
            self._missing["s3"] = f"{type(error).__name__}: {error}"
            raise NotAvailable(self._missing["s3"]) from error
        self._stack.callback(server.end)
        return server.store("bench")

    def set_level(self, level: str) -> None:
        """What the Redis servers do before they answer; Postgres is told by each connection."""
        for server in self._redis.values():
            with server.client() as client:
                client.config_set("appendfsync", "always" if level == "full" else "everysec")

    def redis_version(self) -> str:
        """The program that serves the Redis savers."""
        self.url("redis")
        server = self._redis["redis"]
        with server.client() as client:
            told = client.info("server")
        return f"{server.flavour} {told.get('valkey_version', told['redis_version'])}"

    def clear(self) -> None:
        """Empty the Redis servers: they are ours, and the next section weighs what it stores."""
        for server in self._redis.values():
            with server.client() as client:
                client.flushall()

    def start_redis(self, kind: str, *, modules: bool) -> str:
        config: dict[str, Any] = {"appendonly": "yes", "appendfsync": "everysec"}
        server = servers.with_search(**config) if modules else servers.Server("valkey", **config)
        self._stack.callback(server.close)
        self._redis[kind] = server
        return server.url

    def start_postgres(self) -> str:
        import langgraph.checkpoint.postgres  # noqa: F401 - no server without a client

        programs = _postgres_programs()
        folder = self._folder / "postgres"
        folder.mkdir()
        become = _other_user(folder)
        data, port = folder / "data", servers.free_port()
        run = functools.partial(
            subprocess.run, check=True, capture_output=True, text=True, preexec_fn=become
        )
        run([programs / "initdb", "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8"])
        options = f"-p {port} -k {folder} -c listen_addresses={servers.HOST} -c max_connections=200"
        control = [programs / "pg_ctl", "-D", data, "-l", folder / "log", "-w"]
        subprocess.run([*control, "-o", options, "start"], check=True, preexec_fn=become,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        self._stack.callback(run, [*control, "-m", "immediate", "stop"])
        return f"postgresql://bench@{servers.HOST}:{port}/postgres"


def _start_ours(hosts: Hosts) -> str:
    """The program of the official saver's server, if there is one: the same for both."""
    try:
        return hosts.start_redis("redis", modules=True)
    except ImportError:
        return hosts.start_redis("redis", modules=False)


def _start_stack(hosts: Hosts) -> str:
    import langgraph.checkpoint.redis  # noqa: F401 - no server without a client

    return hosts.start_redis("stack", modules=True)


STARTERS: dict[str, Callable[[Hosts], str]] = {
    "redis": _start_ours,
    "stack": _start_stack,
    "postgres": Hosts.start_postgres,
}


def _postgres_programs() -> Path:
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "pg_ctl").exists():
            return place
    raise FileNotFoundError("there is no initdb on this machine (Debian: postgresql)")


def _other_user(folder: Path) -> Callable[[], None] | None:
    """How to stop being root, whom Postgres refuses to serve; None if we are not."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, user.pw_uid, user.pw_gid)
        folder.parent.chmod(0o711)  # a temporary folder of ours: others may pass, not look

        def become(user: pwd.struct_passwd = user) -> None:
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)

        return become
    raise NotAvailable("Postgres does not run as root, and there is no other user")
