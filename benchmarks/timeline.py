"""How long a timeline takes to open on a long thread, and how much it reads.

Makes a thread of 1,000 messages and 10,000 steps, then compares opening its timeline (text and
HTML) with one `get_tuple` by a saver that has just been made.

    python benchmarks/timeline.py [--steps 10000] [--messages 1000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from langgraph_durable import SqliteSaver, Timeline
from langgraph_durable.saver import DurableSaver

THREAD: Any = {"configurable": {"thread_id": "long", "checkpoint_ns": ""}}


def fill(saver: DurableSaver, steps: int, messages: int) -> None:
    """A thread in which a conversation grows to `messages` and is then worked on."""
    config = THREAD
    said: list[Any] = []
    for step in range(steps):
        checkpoint: Any = empty_checkpoint()
        new = {"turn": f"{step + 1:032}.0000000000000000"}
        if step < messages:
            kind = HumanMessage if step % 2 else AIMessage
            said = [*said, kind(f"message {step}: " + "some words " * 20, id=f"m{step}")]
            new["messages"] = new["turn"]
        done = f"{min(step + 1, messages):032}.0000000000000000"
        checkpoint |= {
            "id": str(uuid6(clock_seq=step)),
            "ts": f"2026-11-18T10:{step // 600 % 60:02}:{step // 10 % 60:02}+00:00",
            "channel_values": {"messages": said, "turn": step},
            "channel_versions": {"messages": done, "turn": new["turn"]},
            "updated_channels": sorted(new),
        }
        config = saver.put(config, checkpoint, {"source": "loop", "step": step}, new)


def timed(work: Callable[[], Any], times: int) -> float:
    """The median of several goes, in milliseconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=1_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long.db"
        with SqliteSaver(file, durability="normal") as saver:
            fill(saver, asked.steps, asked.messages)

        def cold(work: Callable[[DurableSaver], Any]) -> Callable[[], None]:
            def run() -> None:
                with SqliteSaver(file) as saver:
                    work(saver)

            return run

        one = timed(cold(lambda saver: saver.get_tuple(THREAD)), 7)
        print(f"{asked.steps:,} steps, {asked.messages:,} messages, a new saver each time")
        print(f"{'get_tuple':<28} {one:8.1f} ms")
        for name, work in {
            "repr(Timeline)": lambda saver: repr(Timeline(saver, "long")),
            "Timeline._repr_html_()": lambda saver: Timeline(saver, "long")._repr_html_(),
            "Timeline[-1].values": lambda saver: Timeline(saver, "long")[-1].values,
            "len(Timeline)": lambda saver: len(Timeline(saver, "long")),
        }.items():
            took = timed(cold(work), 3)
            print(f"{name:<28} {took:8.1f} ms  {took / one:6.1f}x")


if __name__ == "__main__":
    main()
