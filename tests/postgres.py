"""A PostgreSQL server for the tests: from the machine, on a free port, in a folder that goes."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import servers


def _program(name: str) -> str:
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = shutil.which(name) or (str(places[0]) if places else None)
    if found is None:
        raise RuntimeError(f"there is no {name} on this machine: run tests/install_servers.sh")
    return found


@functools.cache
def url() -> str:
    """The address of a server that lives as long as the process. It does not run as root."""
    folder = tempfile.mkdtemp(prefix="postgres")
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": "postgres"}
        shutil.chown(folder, "postgres")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data, port = f"{folder}/data", servers.free_port()
    make = [_program("initdb"), "-D", data, "-U", "tests", "-A", "trust", "-N"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)
    settings = f"-p {port} -h {servers.HOST} -k {folder} -c fsync=off".split()
    log = open(f"{folder}/log", "wb")  # noqa: SIM115
    server = subprocess.Popen(
        [_program("postgres"), "-D", data, *settings], cwd=folder, stderr=log, stdout=log, **user
    )
    atexit.register(server.wait)
    atexit.register(server.send_signal, signal.SIGINT)
    address = f"postgresql://tests@{servers.HOST}:{port}"

    def answers() -> bool:
        try:
            with psycopg.connect(f"{address}/postgres"):
                return True
        except psycopg.OperationalError:
            return False

    servers.wait_until(answers, "the start of PostgreSQL")
    return address


def database(name: str) -> str:
    """The address of a new database."""
    with psycopg.connect(f"{url()}/postgres", autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
    return f"{url()}/{name}"
