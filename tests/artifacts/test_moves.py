"""Moving artifacts to another store: killed anywhere, it is taken up again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import backends
import movers
import objectstore
import pytest
import servers
from shelves import BIG, NOISE, config, objects, put, values

from langgraph_durable import Artifact, FileArtifacts
from langgraph_durable.saver import DurableSaver

Use = Callable[[DurableSaver, Artifact], Any]


def read_async(saver: DurableSaver, handle: Artifact) -> Any:
    return asyncio.run(saver.aget_tuple(config("t"))).checkpoint["channel_values"]["a"]


def put_elsewhere(saver: DurableSaver, handle: Artifact) -> Any:
    put(saver, "u", {"c": handle})
    return values(saver, "u")["c"].read()


USES: dict[str, Use] = {
    "value": lambda saver, handle: values(saver, "t")["a"],
    "value, async": read_async,
    "handle": lambda saver, handle: handle.read(),
    "open handle": lambda saver, handle: handle.open().read(),
    "handle stored again": put_elsewhere,
}


@pytest.mark.parametrize(("where", "new"), [("sqlite", "files"), ("valkey", "s3")])
def test_a_move_that_is_killed_anywhere_is_taken_up_again(
    where: str, new: str, tmp_path: Path, long: bool
) -> None:
    place = str(tmp_path / "agent.db")
    if where == "valkey":
        place = f"{servers.shared('valkey').url}#{servers.prefix_for(tmp_path)}"
    server = objectstore.shared()
    to = f"s3://{objectstore.BUCKET}/{tmp_path.name}" if new == "s3" else str(tmp_path / "new")
    old, target = FileArtifacts(tmp_path / "old"), movers.target(to, server.endpoint)
    state = {"a": NOISE, "b": Artifact.from_text("text " * 100), "c": BIG}
    with movers.opened(place, old) as saver:
        put(saver, "t", state)
    paths = [str(Path(objectstore.__file__).parent), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    # Each goes on where the one before it died. Three objects are put or renewed, and then the
    # place is noted: the fourth step.
    for steps in (1, 2, 3, 4, 99) if long else (2, 4, 99):
        command = [sys.executable, movers.__file__, place, str(old.folder), to, server.endpoint]
        done = subprocess.run([*command, str(steps)], capture_output=True, check=False, env=env)
        assert done.returncode == (0 if steps == 99 else -signal.SIGKILL), done.stderr
        with movers.opened(place, old, target) as saver:
            assert values(saver, "t") == state
            assert values(saver, "t")["b"].text() == "text " * 100
            assert saver.check_artifacts("t") == []
    with movers.opened(place, target) as saver:
        saver.collect_artifacts(grace=0)
        assert values(saver, "t") == state
        assert len(objects(target, saver)) == 3
        assert objects(old, saver) == []


@pytest.mark.parametrize("missing", ["raise", "placeholder"])
@pytest.mark.parametrize("use", USES)
def test_what_another_process_has_moved_is_found(
    use: str, missing: Any, backend: backends.Open, tmp_path: Path
) -> None:
    old, new = FileArtifacts(tmp_path / "old"), FileArtifacts(tmp_path / "new")
    with (
        backend(tmp_path, artifacts=old, cache_bytes=0, on_missing_artifact=missing) as running,
        backend(tmp_path, artifacts=old) as another,
    ):
        put(running, "t", {"a": NOISE, "b": Artifact.from_bytes(NOISE)})
        handle = values(running, "t")["b"]
        another.move_artifacts(new)
        another.collect_artifacts(grace=0)
        assert objects(old, another) == []
        assert USES[use](running, handle) == NOISE
