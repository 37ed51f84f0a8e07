"""Moving artifacts to another store: killed anywhere, it is taken up again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import movers
import objectstore
import pytest
import servers
from shelves import BIG, NOISE, objects, put, values

from langgraph_durable import Artifact, FileArtifacts


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
