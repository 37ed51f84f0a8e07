"""Backends and artifact stores for every test of this folder."""

from __future__ import annotations

from pathlib import Path

import backends
import objectstore
import pytest

from langgraph_durable import (
    FileArtifacts,
)
from langgraph_durable.artifacts import handle
from langgraph_durable.artifacts.stores import ArtifactStore


@pytest.fixture(params=backends.EVERYWHERE)
def backend(request: pytest.FixtureRequest) -> backends.Open:
    return backends.EVERYWHERE[request.param]


@pytest.fixture(params=["files", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "files":
        return FileArtifacts(tmp_path / "artifacts")
    return objectstore.shared().store(tmp_path.name)


@pytest.fixture(autouse=True)
def no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is at hand that another test has read."""
    monkeypatch.setattr(handle, "_copies", {})


@pytest.fixture
def files(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(tmp_path / "artifacts")
