"""Upgrading threads ahead of time, and noticing that a program has changed."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from backends import ALL, EVERYWHERE
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from test_renamed_graphs import extend
from test_schema import (
    CONFIG,
    NESTED,
    approving,
    delta,
    fanning,
    nested,
    schema_of,
    storing,
)

from langgraph_durable import (
    ConfigurationError,
    EnvironmentChanged,
    SchemaVersionError,
    SqliteSaver,
    StateSchema,
)


@pytest.fixture(params=[*EVERYWHERE, "scriptless"])
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    return lambda **options: ALL[request.param](tmp_path, **options)


@pytest.fixture(params=["sync", "async"])
def upgrade(request: pytest.FixtureRequest) -> Callable[..., Any]:
    if request.param == "sync":
        return lambda saver, *args, **more: saver.upgrade_threads(*args, **more)
    return lambda saver, *args, **more: asyncio.run(saver.aupgrade_threads(*args, **more))


def everything(saver: Any) -> list[Any]:
    return [(t.config, t.checkpoint, t.parent_config, t.pending_writes) for t in saver.list(None)]


# ---- ahead of time -------------------------------------------------------------------------------


def test_eager_and_lazy_upgrades_agree(open_saver: Any, upgrade: Any) -> None:
    def to2(state: Any) -> None:
        state.rename("docs", "documents")
        state.rename_node("research", "researcher")

    with open_saver() as saver:
        approving("research", "docs", saver).invoke({"docs": ["in"]}, CONFIG)
    with open_saver(schema=schema_of(2, to2=to2)) as saver:
        lazily = everything(saver)
        plan = upgrade(saver, dry_run=True)
        assert (plan.rewritten, plan.failed) == (3, {})
        assert everything(saver) == lazily
        seen: list[tuple[int, int]] = []
        report = upgrade(saver, progress=lambda *now: seen.append(now))
        assert (report.rewritten, seen) == (3, [(1, 3)])
        assert everything(saver) == lazily
        assert upgrade(saver).rewritten == 0
    with open_saver(schema=StateSchema(version=2)) as saver:  # the steps are needed no more
        assert everything(saver) == lazily
        graph = approving("researcher", "documents", saver)
        graph.invoke(Command(resume="a"), CONFIG)
        assert graph.invoke(Command(resume="b"), CONFIG)["log"] == "in/begun/a/b"


def test_namespaces_of_sub_graphs_are_renamed(open_saver: Any, upgrade: Any) -> None:
    with open_saver() as saver:
        nested("research", "ask", saver).invoke({"said": []}, CONFIG)
    with open_saver(schema=schema_of(2, **NESTED)) as saver:
        upgrade(saver)
    with open_saver(schema=StateSchema(version=2)) as saver:
        names = {t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)}
        assert {ns.partition(":")[0] for ns in names} == {"", "researcher"}
        graph = nested("researcher", "ask", saver)
        new = graph.get_state(CONFIG, subgraphs=True).tasks[0].interrupts[0].id
        graph.invoke(Command(resume={new: "a"}), CONFIG)
        found = graph.invoke(Command(resume="b"), CONFIG)
        assert found == {"said": ["prepared", "a", "b"]}


def test_delta_channels_and_sends_are_rewritten(open_saver: Any, upgrade: Any) -> None:
    def to2(state: Any) -> None:
        state.rename("docs", "documents")
        state.rename_node("work", "worker")

    other: Any = {"configurable": {"thread_id": "other"}}
    with open_saver() as saver:
        for n in range(4):
            delta("docs", saver).invoke({"docs": [f"in {n}"], "n": n}, CONFIG)
        saver.prune(["t"], strategy="keep_latest")
        delta("docs", saver).invoke({"docs": ["in 4"], "n": 4}, CONFIG)
        expected = delta("docs", saver).get_state(CONFIG).values["docs"]
        fanning("work", saver).invoke({"done": []}, other)
    with open_saver(schema=schema_of(2, to2=to2)) as saver:
        report = upgrade(saver)
        assert report.failed == {}
    with open_saver(schema=StateSchema(version=2)) as saver:
        assert delta("documents", saver).get_state(CONFIG).values["documents"] == expected
        found = fanning("worker", saver).invoke(Command(resume="!"), other)
        assert found == {"done": ["0", "1", "2!", "3"]}


def test_a_thread_that_cannot_be_upgraded_stays_and_is_named(open_saver: Any, upgrade: Any) -> None:
    with open_saver() as saver:
        storing(saver, {"score": "x"})
        saver.copy_thread("t", "u")
        before = everything(saver)
    schema = schema_of(2, to2=lambda state: state.transform("score", float))
    with open_saver(schema=schema) as saver:
        report = upgrade(saver, ["t"])
        assert list(report.failed) == ["t"]
        assert "could not convert" in report.failed["t"]
        assert "error" in str(report)
    with open_saver() as saver:
        assert everything(saver) == before
        with pytest.raises(ConfigurationError):
            saver.upgrade_threads()


def test_a_plan_prints_as_a_table(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "a.db") as saver:
        storing(saver, {"a": 1})
    with SqliteSaver(tmp_path / "a.db", schema=StateSchema(version=1)) as saver:
        assert str(saver.upgrade_threads(dry_run=True)).splitlines() == [
            "thread  versions  checkpoints  rewritten",
            "t       0                   1          1",
            "total   to 1                1          1",
        ]


# ---- noticing ------------------------------------------------------------------------------------


def counting(saver: Any, **channels: Any) -> Any:
    builder = StateGraph(TypedDict("State", {"n": int, **channels}))  # type: ignore[operator]
    builder.add_node("count", lambda state: {"n": state["n"] + 1})
    builder.add_edge(START, "count")
    return builder.compile(checkpointer=saver)


def test_the_environment_is_noted_once_and_shown(open_saver: Any) -> None:
    with open_saver(environment={"model": "m1"}) as saver:
        counting(saver).invoke({"n": 0}, CONFIG)
        counting(saver).invoke({"n": 1}, CONFIG)
        first = saver.stats(["t"]).items
        counting(saver).invoke({"n": 2}, CONFIG)
        assert saver.stats(["t"]).items == first
    with open_saver(environment={"model": "m2"}) as saver:
        assert saver.environment(CONFIG)["model"] == "m1"
        assert asyncio.run(saver.aenvironment(CONFIG))["python"] == sys.version.split()[0]
        counting(saver).invoke({"n": 2}, CONFIG)
        assert saver.environment(CONFIG)["model"] == "m2"
        steps = list(saver.timeline("t"))
        assert [step.environment["model"] for step in steps] == ["m1"] * 9 + ["m2"] * 3


def test_a_changed_environment_is_told_once_when_a_run_goes_on(
    open_saver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with open_saver(environment={"model": "m1"}) as saver:
        counting(saver).invoke({"n": 0}, CONFIG)
    with caplog.at_level(logging.WARNING, "langgraph_durable"):
        with open_saver(environment={"model": "m2", "git": "abc"}) as saver:
            saver.get_tuple(CONFIG)
            assert not caplog.records
            saver.copy_thread("t", "u")
            for thread in "tu":
                counting(saver).invoke({"n": 0}, {"configurable": {"thread_id": thread}})
        assert [r.getMessage() for r in caplog.records if "another program" in r.getMessage()] == [
            next(r.getMessage() for r in caplog.records)
        ]
        assert "git: (none) -> abc; model: m1 -> m2" in caplog.text
        caplog.clear()
        with open_saver(on_environment_change="ignore") as saver:
            counting(saver).invoke({"n": 0}, CONFIG)
        assert not caplog.records
    with open_saver(environment={"model": "m3"}, on_environment_change="error") as saver:
        for _ in range(2):
            with pytest.raises(EnvironmentChanged, match="model"):
                counting(saver).invoke({"n": 0}, CONFIG)


def test_a_forgotten_version_is_noticed(open_saver: Any, caplog: pytest.LogCaptureFixture) -> None:
    def schema(strict: bool = False, **channels: Any) -> StateSchema:
        return StateSchema.of(counting(None, **channels), version=1, strict=strict)

    with open_saver(schema=schema(old=str, kind=int)) as saver:
        counting(saver, old=str, kind=int).invoke({"n": 0}, CONFIG)
    with caplog.at_level(logging.WARNING, "langgraph_durable"):
        with open_saver(schema=schema(old=str, kind=int)) as saver:
            counting(saver).invoke({"n": 0}, CONFIG)
        assert not caplog.records
        with open_saver(schema=schema(new=str, kind=str)) as saver:
            counting(saver).invoke({"n": 0}, CONFIG)
            counting(saver).invoke({"n": 0}, CONFIG)
        assert len(caplog.records) == 1
        for told in ("added channel 'new'", "removed channel 'old'", "retyped channel 'kind'"):
            assert told in caplog.text
    with (
        open_saver(schema=schema(strict=True)) as saver,
        pytest.raises(SchemaVersionError, match="the version has not"),
    ):
        counting(saver).invoke({"n": 0}, CONFIG)


def test_a_fingerprint_names_channels_types_and_nodes() -> None:
    assert StateSchema.fingerprint(counting(None)) == {
        "channels": {"n": "LastValue[int]"},
        "nodes": ["count"],
    }


def annotated(union: Any) -> Any:
    """A state with all that may be said of a type, by objects of its own."""
    kinds = {
        "said": Annotated[list[Annotated[union, object()]], lambda old, new: old + new],
        "told": NotRequired[dict[str, Annotated[int, object()]]],
        "asked": Callable[..., tuple[Literal["b", "a"], ...]],
    }
    builder = StateGraph(TypedDict("State", kinds))  # type: ignore[operator]
    builder.add_node("count", lambda state: {})
    builder.add_edge(START, "count")
    return builder.compile()


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    one, other = (StateSchema.fingerprint(annotated(union)) for union in (int | str, str | int))
    assert one == other
    assert one["channels"] == {
        "asked": "LastValue[Callable[..., tuple[Literal['a', 'b'], ...]]]",
        "said": "BinaryOperatorAggregate[list[int | str]]",
        "told": "LastValue[dict[str, int]]",
    }


def beside(first: str, saver: Any) -> Any:
    """Two nodes write to one DeltaChannel in one step, in the order of their names."""
    kind = DeltaChannel(extend, snapshot_frequency=50)
    builder = StateGraph(TypedDict("State", {"said": Annotated[list, kind]}))  # type: ignore[operator]
    for name, word in ((first, "first"), ("middle", "second")):
        builder.add_node(name, lambda state, word=word: {"said": [word]})
        builder.add_edge(START, name)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("eager", [False, True], ids=["lazy", "eager"])
def test_what_delta_channels_got_keeps_its_order_when_nodes_are_renamed(
    open_saver: Any, upgrade: Any, eager: bool
) -> None:
    with open_saver() as saver:
        for _ in range(2):
            expected = beside("a", saver).invoke({"said": ["in"]}, CONFIG)["said"]
    assert expected == ["in", "first", "second"] * 2
    schema = schema_of(2, to2=lambda state: state.rename_node("a", "z"))
    with open_saver(schema=schema) as saver:
        if eager:
            assert upgrade(saver).failed == {}
        graph = beside("z", saver)
        assert graph.get_state(CONFIG).values["said"] == expected
        expected += ["in", "second", "first"]  # as programs do that call it so
        assert graph.invoke({"said": ["in"]}, CONFIG)["said"] == expected
        assert graph.get_state(CONFIG).values["said"] == expected
