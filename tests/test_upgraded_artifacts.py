"""Upgrades where large values are artifacts: nothing is lost, and nothing needless is left."""

from __future__ import annotations

import asyncio
import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from backends import EVERYWHERE
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from shelves import objects
from test_schema import CONFIG, schema_of, storing
from test_upgrades import everything

from langgraph_durable import Artifact, FileArtifacts, StateSchema

NOISE = os.urandom(300_000)
SHORT = "longer than sixty bytes, so that it leaves the row as well: " + "x" * 40


@pytest.fixture(params=["sqlite", "valkey"])
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    files = FileArtifacts(tmp_path / "artifacts")
    return lambda **options: EVERYWHERE[request.param](tmp_path, artifacts=files, **options)


@pytest.fixture(params=["sync", "async"])
def upgrade(request: pytest.FixtureRequest) -> Callable[..., Any]:
    if request.param == "sync":
        return lambda saver, **more: saver.upgrade_threads(**more)
    return lambda saver, **more: asyncio.run(saver.aupgrade_threads(**more))


def stored(saver: Any) -> set[str]:
    """Keys of objects; a mark of use may outlive its object."""
    keys = {one.key for one in objects(saver._shelf.target, saver)}
    return {key for key in keys if not key.endswith(".used")}


def fill(saver: Any) -> None:
    file = Artifact.from_bytes(NOISE, name="report.bin")
    values = {"file": file, "raw": NOISE, "text": SHORT, "deep": [{"at": file}], "scratch": SHORT}
    storing(saver, values, ("file", file), ("raw", NOISE[1:]), ("text", SHORT + "!"))
    saver.copy_thread("t", "copy")


def step(state: Any) -> None:
    state.rename("file", "report")
    state.rename("raw", "bytes")
    state.transform("bytes", lambda raw: raw + b"!")
    state.transform("deep", lambda deep: {"first": deep[0], "new": Artifact.from_bytes(b"new")})
    state.drop("scratch")


def expected() -> tuple[dict[str, Any], list[Any]]:
    file = Artifact.from_bytes(NOISE, name="report.bin")
    deep = {"first": {"at": file}, "new": Artifact.from_bytes(b"new")}
    values = {"report": file, "bytes": NOISE + b"!", "text": SHORT, "deep": deep}
    writes = [("report", file), ("bytes", NOISE[1:] + b"!"), ("text", SHORT + "!")]
    return values, [("task", *write) for write in writes]


def check(saver: Any, thread: str) -> None:
    """Everything is as expected, and every handle can still be read."""
    found = saver.get_tuple({"configurable": {"thread_id": thread}})
    values = found.checkpoint["channel_values"]
    assert (values, found.pending_writes) == expected()
    assert values["report"].read() == values["deep"]["first"]["at"].read() == NOISE
    assert found.pending_writes[0][2].read() == NOISE
    assert values["deep"]["new"].read() == b"new"


@pytest.mark.parametrize("options", [{}, {"offload_above": 60}], ids=["large", "nearly all"])
def test_offloaded_values_and_handles_are_upgraded_either_way(
    open_saver: Any, upgrade: Any, options: Any
) -> None:
    with open_saver(**options) as saver:
        fill(saver)
        before = stored(saver)
    with open_saver(schema=schema_of(2, to2=step), **options) as saver:
        check(saver, "t")
        plan = upgrade(saver, dry_run=True)
        assert (plan.rewritten, plan.failed) == (2, {})
        assert stored(saver) == before  # neither a read nor a plan uploads anything
        report = upgrade(saver)
        assert (report.rewritten, report.failed) == (2, {})
        check(saver, "t")
        saver.collect_artifacts(grace=0)
        left = stored(saver)
    with open_saver(schema=StateSchema(version=2), **options) as saver:
        for thread in ("t", "copy"):
            check(saver, thread)
        assert saver.collect_artifacts(grace=0).removed == 0
        assert stored(saver) == left
        for thread in ("t", "copy"):
            saver.delete_thread(thread)
        assert saver.collect_artifacts(grace=0).removed == len(left)


def test_what_an_upgrade_has_replaced_can_be_collected(open_saver: Any, upgrade: Any) -> None:
    with open_saver() as saver:
        fill(saver)
        before = stored(saver)
        assert len(before) == 3  # what the handle holds, the value of `raw`, the write to it
    with open_saver(schema=schema_of(2, to2=step)) as saver:
        upgrade(saver)
        assert stored(saver) > before
        assert saver.collect_artifacts(grace=0).removed == 2
        assert (len(stored(saver)), len(stored(saver) & before)) == (4, 1)
        check(saver, "t")


def test_a_thread_whose_artifact_is_gone_stays_and_is_named(open_saver: Any, upgrade: Any) -> None:
    with open_saver() as saver:
        fill(saver)
        for key in stored(saver):
            saver._shelf.target.delete(key)
    with open_saver(schema=schema_of(2, to2=step)) as saver:
        report = upgrade(saver)
        assert (set(report.failed), report.rewritten) == ({"t", "copy"}, 0)
        assert all("artifact" in why for why in report.failed.values())
        assert stored(saver) == set()


def asking(node: str, channel: str, saver: Any) -> Any:
    State = TypedDict("State", {channel: Annotated[list, operator.add]})  # type: ignore[misc]

    def ask(state: Any) -> Any:
        return {channel: [interrupt("?")]}

    builder = StateGraph(State)
    builder.add_node("fetch", lambda state: {channel: [NOISE, Artifact.from_bytes(NOISE)]})
    builder.add_node(node, ask)
    builder.add_edge(START, "fetch")
    builder.add_edge("fetch", node)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("ahead", [True, False], ids=["ahead of time", "when it is read"])
def test_a_graph_goes_on_with_its_artifacts_under_other_names(
    open_saver: Any, upgrade: Any, ahead: bool
) -> None:
    def to2(state: Any) -> None:
        state.rename("docs", "documents")
        state.rename_node("ask", "asker")

    with open_saver() as saver:
        asking("ask", "docs", saver).invoke({"docs": [SHORT]}, CONFIG)
    with open_saver(schema=schema_of(2, to2=to2)) as saver:
        lazily = everything(saver)
        if ahead:
            assert not upgrade(saver).failed
            assert everything(saver) == lazily
        asking("asker", "documents", saver).invoke(Command(resume="yes"), CONFIG)
        saver.collect_artifacts(grace=0)
    with open_saver(schema=schema_of(2, to2=to2)) as saver:
        found = asking("asker", "documents", saver).get_state(CONFIG).values["documents"]
        assert found == [SHORT, NOISE, Artifact.from_bytes(NOISE), "yes"]
        assert found[2].read() == NOISE
        assert len(everything(saver)) == 4
