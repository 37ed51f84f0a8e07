"""A process of its own for `processes.py`: reads commands, one JSON object a line, until the end.

Every command is answered with one line of JSON: the seconds it took, and what it has to say.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from entrants import Saver, Spot, open_saver
from workloads import Chat, Step, TenChannels, thread


class Session:
    """The savers this process holds open, the state it continues, and the steps it will save."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.states: dict[str, tuple[Saver, TenChannels]] = {}
        self.saver: Saver | None = None
        self.steps: list[Step] = []

    def prepare(self, command: Mapping[str, Any]) -> None:
        """Make the next steps of this process's thread, out of the time that is measured."""
        spot = Spot(**command["spot"])
        if spot.folder not in self.states:
            saver = self.stack.enter_context(open_saver(spot))
            self.states[spot.folder] = (saver, TenChannels(saver, command["thread"]))
        self.saver, state = self.states[spot.folder]
        self.steps = [state.change_one() for _ in range(command["steps"])]

    def go(self, command: Mapping[str, Any]) -> None:
        """Save the prepared steps."""
        assert self.saver is not None
        for step in self.steps:
            self.saver.put(*step.arguments)

    def read(self, command: Mapping[str, Any]) -> None:
        """Open the store and read the newest checkpoint of a thread."""
        saver = self.stack.enter_context(open_saver(Spot(**command["spot"])))
        if saver.get_tuple(thread(command["thread"])) is None:
            raise RuntimeError(f"{command['thread']} was saved and is not found")

    def converse(self, command: Mapping[str, Any]) -> int:
        """Have a conversation; how many bytes larger the process is than before."""
        saver = self.stack.enter_context(open_saver(Spot(**command["spot"])))
        chat = Chat(saver)
        chat.turn()
        before = resident_bytes()
        for _ in range(command["turns"]):
            chat.turn()
        return resident_bytes() - before

    def ready(self, command: Mapping[str, Any]) -> None:
        """Importing is not what the others measure."""
        __import__(IMPORTS.get(command["saver"], "langgraph_durable"))


IMPORTS = {
    "stock sqlite": "langgraph.checkpoint.sqlite",
    "stock postgres": "langgraph.checkpoint.postgres",
    "official redis": "langgraph.checkpoint.redis",
}


def resident_bytes() -> int:
    """The memory this process occupies now (its peak, where the system does not say)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(one for one in status.read_text().splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Answer commands until the benchmark closes our input."""
    with ExitStack() as stack:
        session = Session(stack)
        for line in sys.stdin:
            command = json.loads(line)
            cpu, began = time.process_time(), time.perf_counter()
            said = getattr(session, command["do"])(command)
            took = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
            print(json.dumps({**took, "said": said}), flush=True)


if __name__ == "__main__":
    main()
