"""A real `langgraph dev` in a process of its own, to start, kill and end.

Nothing of it leaves the machine: tracing, analytics and the browser are off. Its blocking-call
detector is on, so a call of ours that held up the loop would fail the run that made it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import served
import servers
from forks import import_path

QUIET = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "NO_COLOR": "1",
}
IMPATIENCE = """
import asyncio
from langgraph_runtime_inmem import _persistence

_persistence.stop_flush_loop()
_persistence._flush_interval = 0.1
sleep = asyncio.sleep
asyncio.sleep = lambda delay, *result: sleep(0.02 if delay == 0.5 else delay, *result)
"""
"""The server looks for new runs each half second, and writes its list of them every 10 seconds."""
JOBS = 3
"""Runs at once, so that with isolated loops several threads use the saver."""


class DevServer:
    """One server on one store; started again it finds what it had."""

    def __init__(self, folder: Path, url: str | None, *, isolated: bool = False) -> None:
        self.folder = folder
        self.port = servers.free_port()
        self._isolated = isolated
        self._store = url
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copy(served.__file__, folder / "served.py")
        config = {
            "dependencies": ["."],
            "graphs": {"story": "./served.py:story", "talk": "./served.py:talk"},
            "checkpointer": {"path": "langgraph_durable.server.checkpointer"},
        }
        (folder / "langgraph.json").write_text(json.dumps(config))
        (folder / "sitecustomize.py").write_text(IMPATIENCE)

    @property
    def url(self) -> str:
        return f"http://{servers.HOST}:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process, and do not wait for anything."""
        command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
        command += ["--host", servers.HOST, "--port", str(self.port)]
        command += ["--n-jobs-per-worker", str(JOBS)]
        environment = {**os.environ, **QUIET, "PYTHONPATH": import_path(self.folder)}
        environment["BG_JOB_ISOLATED_LOOPS"] = str(self._isolated).lower()
        environment.pop("LANGGRAPH_DURABLE_URL", None)
        if self._store is not None:
            environment["LANGGRAPH_DURABLE_URL"] = self._store
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log
            )
        return self._process

    def start(self) -> None:
        self.launch()
        servers.wait_until(self._is_up, f"the start of langgraph dev on port {self.port}", 240)

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"langgraph dev ended: {self.log[-3000:]}")
        try:
            with urllib.request.urlopen(f"{self.url}/ok", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL: no goodbye to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def stop(self) -> int:
        """SIGTERM, as an operator would; the status it ends with."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(200)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server does not end: {self.log[-3000:]}") from None

    # -- what its graphs did ----------------------------------------------------------------------

    def ledger(self, thread_id: str) -> list[str]:
        path = self.folder / f"ledger-{thread_id}"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def hold(self, thread_id: str) -> None:
        """Let the thread's runs stand still in `wait`."""
        (self.folder / f"hold-{thread_id}").touch()

    def release(self, thread_id: str) -> None:
        (self.folder / f"hold-{thread_id}").unlink(missing_ok=True)
