"""A process of its own for `crowds.py`: reads commands, one JSON object a line, until end of input.

`prepare` opens a saver (once) and makes steps ahead; `go` saves them; `read` times opening a file
and reading a thread. Every command is answered with one line: the seconds it took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from calls import save_step
from savers import Saver, find_ours, open_saver
from workloads import Step, TenChannels, thread


class Session:
    """The savers this process holds open, the state it continues, and the steps it will save."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.states: dict[str, tuple[Saver, TenChannels]] = {}
        self.saver: Saver | None = None
        self.steps: list[Step] = []

    def prepare(self, command: Mapping[str, Any]) -> None:
        """Make the next steps of this process's thread, out of the time that is measured."""
        folder = command["folder"]
        if folder not in self.states:
            opened = open_saver(command["saver"], Path(folder), command["synchronous"])
            saver = self.stack.enter_context(opened)
            self.states[folder] = (saver, TenChannels(saver, command["thread"]))
        self.saver, state = self.states[folder]
        self.steps = [state.change_one() for _ in range(command["steps"])]

    def go(self, command: Mapping[str, Any]) -> None:
        """Save the prepared steps."""
        assert self.saver is not None
        for step in self.steps:
            save_step(self.saver, step)

    def read(self, command: Mapping[str, Any]) -> None:
        """Open the file and read the newest checkpoint of a thread."""
        saver = self.stack.enter_context(
            open_saver(command["saver"], Path(command["folder"]), "NORMAL")
        )
        if saver.get_tuple(thread(command["thread"])) is None:
            raise RuntimeError(f"{command['thread']} was saved and is not found")


def main() -> None:
    """Answer commands until the benchmark closes our input."""
    find_ours()  # importing is not what `read` measures
    with ExitStack() as stack:
        session = Session(stack)
        verbs = {"prepare": session.prepare, "go": session.go, "read": session.read}
        for line in sys.stdin:
            command = json.loads(line)
            started = time.perf_counter()
            verbs[command["do"]](command)
            print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
