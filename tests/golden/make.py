"""Writes the golden stores of today's format: `python tests/golden/make.py`.

A golden store is what a released version has written: it is read back for ever, and only made anew
while its format is not released. `format-N.db.gz` is a SQLite file, `format-N.redis.json` the keys
of a Redis store with their contents.
"""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Send

HERE = Path(__file__).parent
PREFIX = "golden"
ID = "1f0c0000-0000-6000-8000-{:012d}"
VERSION = "{:032d}.0000000000000001"
TASK, RUN = "5c1e0b5e-6f0c-5d8a-9c39-3a6b8f1d2e47", "0198b2d4-7f1e-7c52-b6a8-94d1e2f30c75"


def said(many: int) -> list[Any]:
    return [
        (AIMessage if n % 2 else HumanMessage)(f"message {n} äöü", id=f"m{n}") for n in range(many)
    ]


def values(n: int) -> dict[str, Any]:
    """What checkpoint `n` holds."""
    found: dict[str, Any] = {
        "messages": said(40 * n),
        "number": n,
        "nothing": None,
        "nested": {"rows": [{"id": k, "text": "x" * 60} for k in range(n)], "flag": True},
        "raw": b"\x00\xff" * n,
        "tuple": (1, 2.5, {"a", "b"}),
        "__pregel_tasks": [Send("worker", {"n": n})],
    }
    return found | ({"delta": _DeltaSnapshot(["seed"])} if n == 1 else {})


WRITES = [("messages", [HumanMessage("late", id="late")]), ("delta", ["more"])]
ASKED = [("__interrupt__", [Interrupt("sure?", id="0" * 32)])]


def fill(saver: Any) -> None:
    """Three checkpoints with writes, and one in a sub-graph's namespace."""
    config: Any = {"configurable": {"thread_id": "golden", "checkpoint_ns": ""}}
    for n in (1, 2, 3):
        held = values(n)
        versions = dict.fromkeys([*held, "delta"], VERSION.format(n)) | {"delta": VERSION.format(1)}
        checkpoint: Any = {
            "v": 4,
            "id": ID.format(n),
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": held,
            "channel_versions": versions,
            "versions_seen": {"worker": {"number": VERSION.format(n)}},
        }
        metadata: Any = {"source": "loop", "step": n, "run_id": f"run {n}"}
        config = saver.put(config, checkpoint, metadata, {**versions})
        saver.put_writes(config, WRITES, f"task {n}", "~__pregel_pull, worker")
    saver.put_writes(config, ASKED, TASK)
    below: Any = {"configurable": {"thread_id": "golden", "checkpoint_ns": "worker:1"}}
    saver.put(below, checkpoint, {"source": "loop", "step": 0, "run_id": RUN}, {})
    saver.tag(config, "golden")


def meet(saver: Any) -> None:
    """Two runs load a checkpoint, and write to it as the same task; the second one goes on."""
    runs = [SimpleNamespace(control=object()) for _ in range(2)]
    place = {"thread_id": "met", "checkpoint_ns": ""}
    checkpoint: Any = {
        "v": 4,
        "id": ID.format(1),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"delta": _DeltaSnapshot(["seed"])},
        "channel_versions": {"delta": VERSION.format(1)},
        "versions_seen": {},
    }
    saver.put({"configurable": place}, checkpoint, {"source": "loop", "step": 1}, {})
    loaded: list[Any] = []
    for run in runs:
        found = saver.get_tuple({"configurable": {**place, "__pregel_runtime": run}})
        held = {**found.config["configurable"], "__pregel_runtime": run}
        loaded.append({"configurable": held})
    for config, value in zip(loaded, ("rival", "own"), strict=True):
        saver.put_writes(config, [("delta", [value])], "task")
    checkpoint |= {"id": ID.format(2), "channel_values": {}}
    metadata: Any = {
        "source": "loop",
        "step": 2,
        "counters_since_delta_snapshot": {"delta": (1, 1)},
    }
    saver.put(loaded[1], checkpoint, metadata, {})


def sqlite_bytes(path: Path) -> bytes:
    """A store in one file, without its log."""
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        conn.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def text(stored: bytes) -> str:
    return base64.b64encode(stored).decode()


def redis_keys(client: Any) -> dict[str, Any]:
    """All keys under the prefix, with their contents."""
    found: dict[str, Any] = {}
    for key in sorted(client.keys(f"{PREFIX}:*")):
        kind = client.type(key).decode()
        if kind == "hash":
            held: Any = {text(f): text(v) for f, v in sorted(client.hgetall(key).items())}
        elif kind == "zset":
            held = {text(member): score for member, score in client.zrange(key, 0, -1, False, True)}
        elif kind == "set":
            held = [text(member) for member in sorted(client.smembers(key))]
        else:
            held = text(client.get(key))
        found[text(key)] = [kind, held]
    return found


def restore(client: Any, found: dict[str, Any]) -> None:
    """Put keys back."""
    raw = base64.b64decode
    for name, (kind, held) in found.items():
        key = raw(name)
        if kind == "hash":
            client.hset(key, mapping={raw(f): raw(v) for f, v in held.items()})
        elif kind == "zset":
            client.zadd(key, {raw(member): score for member, score in held.items()})
        elif kind == "set":
            client.sadd(key, *map(raw, held))
        else:
            client.set(key, raw(held))


def main() -> None:
    sys.path.insert(0, str(HERE.parent))
    import redis
    import servers

    from langgraph_durable import RedisSaver, SqliteSaver
    from langgraph_durable._sqlite.schema import FORMAT

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.db"
        with SqliteSaver(path) as saver:
            fill(saver)
            meet(saver)
        packed = gzip.compress(sqlite_bytes(path), 9, mtime=0)
        (HERE / f"format-{FORMAT}.db.gz").write_bytes(packed)
    server = servers.shared("valkey")
    client = redis.Redis(servers.HOST, server.port, db=15)
    client.flushdb()
    with RedisSaver(f"redis://{servers.HOST}:{server.port}/15", prefix=PREFIX) as saver:
        fill(saver)
        meet(saver)
    written = json.dumps(redis_keys(client), indent=0, sort_keys=True)
    (HERE / f"format-{FORMAT}.redis.json").write_text(written + "\n")


if __name__ == "__main__":
    main()
