"""A process that moves artifacts and is killed on the way, for `test_moves`.

    python movers.py <where> <old folder> <new folder or URL> <endpoint> <steps>

It dies before its `steps`-th step, of those that write objects or rows.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import objectstore

from langgraph_durable import FileArtifacts, ObjectArtifacts, RedisSaver, SqliteSaver
from langgraph_durable.artifacts.stores import ArtifactStore
from langgraph_durable.saver import DurableSaver


def opened(where: str, *artifacts: ArtifactStore) -> DurableSaver:
    """`where` is a path, or the URL of a server and a prefix."""
    options: Any = {"artifacts": list(artifacts), "offload_above": 100}
    if not where.startswith("redis:"):
        return SqliteSaver(where, durability="normal", **options)
    url, prefix = where.split("#")
    return RedisSaver(url, prefix=prefix, **options)


def target(place: str, endpoint: str) -> ArtifactStore:
    if not place.startswith("s3:"):
        return FileArtifacts(place)
    given = {"access_key_id": objectstore.KEY, "secret_access_key": objectstore.SECRET}
    more = {"region": "us-east-1", "virtual_hosted_style_request": False}
    client: Any = {"allow_http": True}
    return ObjectArtifacts(place, endpoint=endpoint, client_options=client, **given, **more)


class Dying:
    """Counts what it is wrapped around, and dies instead of the last one."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def before(self, act: Any) -> Any:
        def done(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*args, **options)

        return done


if __name__ == "__main__":
    where, old, new, endpoint, steps = sys.argv[1:]
    dying, store = Dying(int(steps)), target(new, endpoint)
    with opened(where, FileArtifacts(Path(old))) as saver:
        saver.setup()
        store.put = dying.before(store.put)  # type: ignore[method-assign]
        storage = saver._engine.storage
        storage.enter_store = dying.before(storage.enter_store)  # type: ignore[method-assign]
        saver.move_artifacts(store)
