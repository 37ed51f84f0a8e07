"""A copy of a thread has the versions of the original, so its state is upgraded once, not twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backends import EVERYWHERE, Open
from histories import contents
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver
from langgraph.types import Command
from test_schema import CONFIG, approving

from langgraph_durable import SqliteSaver, StateSchema, acopy_store, copy_store
from langgraph_durable.moving import copying


@pytest.fixture(params=EVERYWHERE)
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    opens: Open = EVERYWHERE[request.param]

    def open_one(name: str, **options: Any) -> Any:
        (tmp_path / name).mkdir(exist_ok=True)
        return opens(tmp_path / name, **options)

    return open_one


@pytest.fixture(params=["sync", "async"])
def copy(request: pytest.FixtureRequest) -> Any:
    if request.param == "sync":
        return copy_store
    return lambda *args: asyncio.run(acopy_store(*args))


def second(state: Any) -> None:
    state.rename("docs", "documents")
    state.transform("documents", lambda docs: [*docs, "2"], writes=list)


def third(state: Any) -> None:
    state.rename_node("research", "researcher")
    state.transform("documents", lambda docs: [*docs, "3"], writes=list)


def schema(version: int) -> StateSchema:
    """Each step leaves a mark, so that it shows how often it was taken."""
    made = StateSchema(version=version)
    for to, step in list({2: second, 3: third}.items())[: version - 1]:
        made.upgrade(to=to)(step)
    return made


NAMES = {0: ("research", "docs"), 2: ("research", "documents"), 3: ("researcher", "documents")}


def program(version: int, saver: Any) -> Any:
    return approving(*NAMES[version], saver)


def ended(saver: Any) -> Any:
    """What comes of a thread that waits for its second answer."""
    return program(3, saver).invoke(Command(resume="b"), CONFIG)["documents"]


def ask(saver: Any, version: int) -> None:
    program(version, saver).invoke({NAMES[version][1]: ["a"]}, CONFIG)


def answer(saver: Any, version: int) -> None:
    program(version, saver).invoke(Command(resume="first"), CONFIG)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "by checkpoint"])
@pytest.mark.parametrize("knowing", [True, False], ids=["schema", "no schema"])
def test_between_ours_every_record_keeps_its_version(
    open_saver: Any, copy: Any, whole: bool, knowing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        monkeypatch.setattr(copying, "WHOLE", -1)
    options = {"schema": schema(3)} if knowing else {}
    with open_saver("source") as saver:
        ask(saver, 0)
    with open_saver("source", schema=schema(2)) as saver:  # writes to what the first has stored
        answer(saver, 2)
    with open_saver("source", **options) as source, open_saver("target", **options) as target:
        assert copy(source, target).checkpoints == 3
        assert copy(source, target).skipped == 3
    for options in ({}, {"schema": schema(3)}):
        with open_saver("source", **options) as source, open_saver("target", **options) as target:
            assert contents(source) == contents(target)
    with open_saver("target", schema=schema(3)) as saver:
        assert ended(saver) == ["a", "begun", "2", "3", "first", "b"]


def test_what_another_saver_has_stored_has_no_version(open_saver: Any, copy: Any) -> None:
    memory = InMemorySaver()
    ask(memory, 0)
    answer(memory, 0)
    with open_saver("target", schema=schema(3)) as saver:
        copy(memory, saver)
        assert {found.metadata["schema_version"] for found in saver.list(CONFIG)} == {0}
        assert ended(saver) == ["a", "begun", "2", "3", "first", "b"]


def test_a_version_comes_back_from_another_saver(open_saver: Any, copy: Any) -> None:
    """Another saver gets the state as the program knows it, and the version of that."""
    with open_saver("source") as saver:
        ask(saver, 0)
        answer(saver, 0)
    memory = InMemorySaver()
    with open_saver("source", schema=schema(2)) as saver:
        copy(saver, memory)
    assert program(2, memory).get_state(CONFIG).values["documents"] == ["a", "begun", "2"]
    with open_saver("target", schema=schema(3)) as saver:
        copy(memory, saver)
        assert {found.metadata["schema_version"] for found in saver.list(CONFIG)} == {2}
        assert ended(saver) == ["a", "begun", "2", "3", "first", "b"]


def test_what_was_added_elsewhere_has_the_version_that_the_thread_had(
    open_saver: Any, copy: Any
) -> None:
    """The program of today went on with another saver, which notes no versions."""
    memory = InMemorySaver()
    with open_saver("source", schema=schema(2)) as saver:
        ask(saver, 2)
        copy(saver, memory)
    answer(memory, 2)
    with open_saver("target", schema=schema(3)) as saver:
        copy(memory, saver)
        assert copy(memory, saver).skipped == 3
        assert ended(saver) == ["a", "begun", "3", "first", "b"]


def test_a_version_comes_back_from_a_file_of_the_stock_saver(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "source.db", schema=schema(2)) as saver:
        ask(saver, 2)
        answer(saver, 2)
        with StockSaver.from_conn_string(str(tmp_path / "stock.db")) as stock:
            copy_store(saver, stock)
    with SqliteSaver(tmp_path / "stock.db", schema=schema(3)) as saver:
        assert {found.metadata["schema_version"] for found in saver.list(CONFIG)} == {2}
        assert ended(saver) == ["a", "begun", "3", "first", "b"]
