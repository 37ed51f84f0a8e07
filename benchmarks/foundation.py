"""The speed and size figures of the foundation, ours against the stock savers in the same run.

    python benchmarks/foundation.py [--quick] [--only NAME] [--json out.json]

`ratio` is how many times better ours is than the rival in that line (below 1: worse). Times and
rates are medians of interleaved rounds, with the quartiles in brackets. Scenarios live in
`conversations.py` (compiled graphs), `calls.py` (one caller) and `crowds.py` (many callers).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import calls
import conversations
import crowds
from measure import Figure, Plan, table_head, table_row
from savers import find_ours

SCENARIOS: dict[str, Callable[[Plan], Iterator[Figure]]] = {
    "chat-size": conversations.chat_size,
    "turn-time": conversations.turn_time,
    "large-value": conversations.large_value,
    "subgraph-size": conversations.subgraph_size,
    "raw-calls": calls.raw_calls,
    "async-tasks": crowds.async_tasks,
    "os-threads": crowds.os_threads,
    "processes": crowds.processes,
    "send-tasks": conversations.send_tasks,
    "delete-thread": calls.delete_thread,
    "tiny-state": calls.tiny_state,
    "cold-open": crowds.cold_open,
    "event-loop": crowds.event_loop,
}
PACKAGES = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "aiosqlite")


def main() -> None:
    """Run the scenarios asked for, print each figure as it is known, and count the verdicts."""
    options = parse_options()
    saver_class, reason = find_ours()
    machine = describe_machine(options.directory)
    print("  ".join(f"{name} {value}" for name, value in machine.items()))
    if saver_class is None:
        print(f"OURS IS SKIPPED: {reason}")
    print(f"\n{table_head()}")
    figures: list[dict[str, Any]] = []
    began = time.perf_counter()
    for name in options.only or SCENARIOS:
        started = time.perf_counter()
        for figure in run_scenario(name, options, saver_class is not None):
            print(table_row(figure), flush=True)
            figures.append({"scenario": name, **figure.as_json()})
        print(f"    [{name}: {time.perf_counter() - started:.1f} s]", flush=True)
    verdicts = Counter(figure["verdict"] for figure in figures)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    print(f"\n{counted}; {time.perf_counter() - began:.0f} s")
    if options.json:
        report = {"machine": machine, "quick": options.quick, "figures": figures}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def run_scenario(name: str, options: argparse.Namespace, ours: bool) -> Iterator[Figure]:
    """Run one scenario in a directory that is gone afterwards (the stock chat alone is 2 GB)."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-", dir=options.directory) as directory:
        yield from SCENARIOS[name](Plan(options.quick, Path(directory), ours))


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure the foundation's figures.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under two minutes")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="may be repeated")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where the databases go; on tmpfs FULL costs nothing and means nothing",
    )
    return parser.parse_args()


def describe_machine(directory: Path) -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "directory": str(directory),
        **{package: version(package) for package in PACKAGES},
    }


if __name__ == "__main__":
    main()
