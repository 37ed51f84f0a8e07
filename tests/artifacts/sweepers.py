"""One process of `test_collecting`: writes and deletes threads, or collects beside those who do.

    python sweepers.py <where> <folder> write <seed> <rounds>
    python sweepers.py <where> <folder> collect <grace>

It prints a line after each round. A collector ends when its standard input does.
"""

from __future__ import annotations

import random
import select
import sys
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from langgraph_durable import FileArtifacts, RedisSaver, SqliteSaver
from langgraph_durable.saver import DurableSaver

CONTENTS, THREADS = 40, 4


def opened(where: str, folder: Path) -> DurableSaver:
    """`where` is a path, or the URL of a server and a prefix."""
    options: Any = {"artifacts": FileArtifacts(folder / "artifacts"), "offload_above": 100}
    if not where.startswith("redis:"):
        return SqliteSaver(where, durability="normal", **options)
    url, prefix = where.split("#")
    return RedisSaver(url, prefix=prefix, **options)


def content(number: int) -> bytes:
    return random.Random(number).randbytes(3000)


def write(saver: DurableSaver, seed: int, rounds: int) -> None:
    """Few contents and few threads of its own: what one deletes, another is about to store."""
    chance = random.Random(seed)
    for _ in range(rounds):
        thread = f"{seed}-{chance.randrange(THREADS)}"
        if chance.random() < 0.5:
            saver.delete_thread(thread)
        else:
            number = chance.randrange(CONTENTS)
            values = {"content": content(number), "number": number}
            versions = dict.fromkeys(values, f"{chance.randrange(10**9):032}.0")
            filled = {"channel_values": values, "channel_versions": versions}
            checkpoint: Any = {**empty_checkpoint(), **filled}
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            saver.put(config, checkpoint, {}, versions)  # type: ignore[arg-type]
        print("round", flush=True)


def collect(saver: DurableSaver, grace: float) -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        saver.collect_artifacts(grace=grace)
        print("round", flush=True)


if __name__ == "__main__":
    where, folder, role, *rest = sys.argv[1:]
    with opened(where, Path(folder)) as saver:
        if role == "write":
            write(saver, int(rest[0]), int(rest[1]))
        else:
            collect(saver, float(rest[0]))
