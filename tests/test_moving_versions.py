"""`copy_store` where a state has versions: no step is left out, and none is taken twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import backends
import pytest
from histories import thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver

from langgraph_durable import StateSchema, acopy_store, copy_store
from langgraph_durable.testing.model import at, checkpoint, numbered

Open = Callable[..., Any]

schema = StateSchema(version=2)


@schema.upgrade(to=2)
def _(state: Any) -> None:
    state.transform("log", lambda log: [*log, "upgraded"])


@pytest.fixture(params=["sqlite", "valkey"])
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as opened:

        def open_one(name: str, **options: Any) -> Any:
            place = tmp_path / name
            place.mkdir(exist_ok=True)
            return opened.enter_context(backends.EVERYWHERE[request.param](place, **options))

        yield open_one


@pytest.fixture(params=["sync", "async"])
def copy(request: pytest.FixtureRequest) -> Any:
    if request.param == "sync":
        return copy_store
    return lambda *args: asyncio.run(acopy_store(*args))


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a thread goes that is too large to go whole."""
    monkeypatch.setattr("langgraph_durable.moving.copying.WHOLE", -1)


def put(saver: Any, n: int, *log: str) -> None:
    made = checkpoint(numbered(n), {"log": list(log)}, {"log": f"{n:032}.0"})
    above = at("t", numbered(n - 1) if n > 1 else None)
    config = saver.put(above, made, {"step": n}, {"log": f"{n:032}.0"})
    saver.put_writes(config, [("log", [f"written {n}"])], "task")


def logs(saver: Any) -> list[Any]:
    return [one.checkpoint["channel_values"]["log"] for one in saver.list(thread("t"))]


@pytest.mark.parametrize("kind", ["memory", "stock"])
def test_what_comes_from_another_saver_is_upgraded_like_what_is_adopted(
    kind: str, copy: Any, open_saver: Open, tmp_path: Path
) -> None:
    with StockSaver.from_conn_string(str(tmp_path / "stock.db")) as stock:
        source = InMemorySaver() if kind == "memory" else stock
        for n in (1, 2):
            put(source, n, "a")
        target = open_saver("target", schema=schema)
        assert copy(source, target).checkpoints == 2
        assert copy(source, target).skipped == 2
    assert logs(target) == [["a", "upgraded"]] * 2
    assert {one.metadata["schema_version"] for one in target.list(None)} == {0}
    put(target, 3, "b")
    assert logs(target)[0] == ["b"]


def test_what_was_upgraded_on_its_way_out_is_not_upgraded_again(
    copy: Any, open_saver: Open
) -> None:
    put(open_saver("source"), 1, "a")
    source = open_saver("source", schema=schema)
    put(source, 2, "b")
    elsewhere, back = InMemorySaver(), open_saver("back", schema=schema)
    copy(source, elsewhere)
    assert logs(elsewhere) == logs(source) == [["b"], ["a", "upgraded"]]
    put(elsewhere, 3, "c")  # by the program of today, which knows nothing of versions there
    copy(elsewhere, back)
    assert copy(elsewhere, back).skipped == 3
    assert logs(back) == [["c"], ["b"], ["a", "upgraded"]]


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("known", [True, False])
def test_a_large_thread_keeps_its_versions_whether_or_not_the_copier_knows_them(
    known: bool, copy: Any, open_saver: Open
) -> None:
    options = {"schema": schema} if known else {}
    put(open_saver("source"), 1, "a")
    put(open_saver("source", schema=schema), 2, "b")
    source, target = open_saver("source", **options), open_saver("target", **options)
    assert copy(source, target).checkpoints == 2
    assert copy(source, target).skipped == 2
    expected = [["b"], ["a", "upgraded"]]
    assert logs(open_saver("target", schema=schema)) == expected
    assert logs(open_saver("source", schema=schema)) == expected


@pytest.mark.usefixtures("one_by_one")
def test_writes_of_a_newer_program_to_an_older_checkpoint_keep_their_version(
    copy: Any, open_saver: Open
) -> None:
    put(open_saver("source"), 1, "a")
    newer = open_saver("source", schema=schema)
    newer.put_writes(newer.get_tuple(thread("t")).config, [("log", ["newer"])], "task 2")
    copy(open_saver("source"), open_saver("target"))
    found, expected = (
        open_saver(name, schema=schema).get_tuple(thread("t")) for name in ("target", "source")
    )
    assert found.pending_writes == expected.pending_writes
