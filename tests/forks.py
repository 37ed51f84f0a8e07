"""Fresh processes at the price of a fork, to be killed at any moment.

A *program* imports what its jobs need and calls `serve(jobs)`. The test talks to it through a
`ForkServer`: each job is done by a child of its own, which tells what it does line by line
(`acknowledge`) until it ends or is killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def import_path(*folders: Path) -> str:
    """`PYTHONPATH` for a child: these folders, that of the tests, and what this process has."""
    own = os.environ.get("PYTHONPATH")
    return os.pathsep.join(
        [*map(str, folders), str(Path(__file__).parent), *([own] if own else [])]
    )


_job = 0
"""The number of the job that this process does."""


def acknowledge(what: str, **details: Any) -> None:
    """Tell the parent, now; a line shorter than PIPE_BUF arrives whole or not at all."""
    line = json.dumps({"job": _job, "what": what, **details}).encode() + b"\n"
    assert len(line) < 4096
    os.write(1, line)


def run_and_exit(work: Callable[..., None], *positional: Any, **named: Any) -> None:
    """Run a job in this freshly forked process and never return."""
    try:
        work(*positional, **named)
    except BaseException as error:
        acknowledge("failed", error=repr(error)[:2000])
        os._exit(1)
    os._exit(0)


def serve(jobs: Mapping[str, Callable[..., None]]) -> None:
    """Fork a child for each job asked for, and say when it has ended."""
    global _job
    for line in sys.stdin:
        order, _job = json.loads(line), _job + 1
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            acknowledge("born", pid=os.getpid())
            run_and_exit(jobs[order.pop("job")], **order)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        acknowledge("ended", status=status)


@dataclass
class Victim:
    """A child at work: what it has told so far, and the means to end it."""

    pid: int
    said: Iterator[dict[str, Any]]
    told: list[dict[str, Any]] = field(default_factory=list)

    def until(self, what: str) -> dict[str, Any]:
        """Wait for a certain line."""
        for line in self.said:
            self.told.append(line)
            if line["what"] == what:
                return line
        if not self.told or self.told[-1]["what"] != "ended":
            os.killpg(self.pid, signal.SIGKILL)
            raise AssertionError(f"the child hangs; its last words: {self.told[-3:]}")
        raise AssertionError(f"the child ended without saying {what!r}: {self.told[-3:]}")

    def end(self) -> list[dict[str, Any]]:
        """Wait for the child to end by itself; what it told comes back."""
        self.until("ended")
        return self.told

    def kill_after(self, seconds: float) -> list[dict[str, Any]]:
        """Let it live for so long, then SIGKILL; what it told comes back."""
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGKILL)
        return self.end()


class ForkServer:
    """The parent's end of `serve`: one child at a time."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": import_path()},
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._jobs = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)

    def _said(self, job: int, patience: float) -> Iterator[dict[str, Any]]:
        """The lines of one child, until it has ended or patience has.

        Those of a child that nobody waited for, because its test had failed, are passed over.
        """
        end = time.monotonic() + patience
        line = {"what": ""}
        while line["what"] != "ended":
            try:
                line = json.loads(self._lines.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                return
            if line.pop("job") == job:
                yield line
            else:
                line = {"what": ""}

    def start(self, job: str, *, patience: float = 240, **arguments: Any) -> Victim:
        """Fork a child that does this job; whoever waits for it waits at most `patience` s."""
        order = json.dumps({"job": job, **arguments}).encode() + b"\n"
        assert self._process.stdin
        self._process.stdin.write(order)
        self._process.stdin.flush()
        self._jobs += 1
        said = self._said(self._jobs, patience)
        born = next(line for line in said if line["what"] == "born")
        return Victim(born["pid"], said)

    def close(self) -> None:
        """End the server, even one whose child hangs."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
