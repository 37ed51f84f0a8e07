"""Long lists take shortcuts, and nobody can tell: whole conversations read, numbers as runs."""

from __future__ import annotations

import datetime
import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

from langgraph_durable._core import collector, rebuilding
from langgraph_durable._core.refs import joined, numbers
from langgraph_durable._core.serde import TOGETHER, ExactSerializer

NOW = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)


class Note(BaseModel):
    text: str
    when: datetime.datetime = NOW


def models(count: int) -> list[Any]:
    kinds = (
        lambda n: HumanMessage(f"question {n}", additional_kwargs={"when": NOW}),
        lambda n: AIMessage(f"answer {n}", tool_calls=[{"name": "f", "args": {"n": n}, "id": "1"}]),
        lambda n: ToolMessage(f"result {n}", tool_call_id="1", artifact={"n": (n,)}),
        lambda n: Note(text=f"note {n}"),
    )
    return [kinds[n % len(kinds)](n) for n in range(count)]


@pytest.mark.parametrize("count", [1, 3, TOGETHER, TOGETHER + 1, 3 * TOGETHER + 7])
def test_models_read_together_are_what_each_would_be(count: int) -> None:
    own = ExactSerializer([Note])
    raws = [own.dump_item(model) for model in models(count)]
    together = own.load_models(raws)
    assert together == [own.load_item(raw) for raw in raws] == models(count)
    assert [type(model) for model in together] == [type(model) for model in models(count)]


def test_a_list_that_holds_something_else_is_not_read_together() -> None:
    own = ExactSerializer([Note])
    raws = [own.dump_item(value) for value in (*models(3), {"plain": 1})]
    assert own.load_models(raws) is None
    assert own.load_models([]) is None


@pytest.mark.parametrize("deep", [True, False])
def test_an_interrupt_while_models_are_read_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, deep: bool
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    own = ExactSerializer("safe")
    raws = [own.dump_item(HumanMessage("x", additional_kwargs={"when": NOW}))]
    hook = rebuilding.remembering(interrupt)  # as for a value inside the model
    monkeypatch.setattr(own, "_hook" if deep else "_rebuild", hook if deep else interrupt)
    with pytest.raises(KeyboardInterrupt):
        own.load_models(raws)


def test_trouble_while_models_are_read_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("trouble")

    own = ExactSerializer("safe")
    raws = [own.dump_item(HumanMessage("x", additional_kwargs={"when": NOW}))]
    monkeypatch.setattr(own, "_hook", rebuilding.remembering(fail))
    assert own.load_models(raws) is None
    assert not rebuilding._trouble.__dict__


def collections_during(act: Callable[[], object]) -> int:
    """How often Python's garbage collector began by itself meanwhile."""
    began: list[str] = []
    gc.callbacks.append(note := lambda phase, _: began.append(phase))
    try:
        act()
    finally:
        gc.callbacks.remove(note)
    return began.count("start")


def test_reading_a_long_conversation_hardly_wakes_the_garbage_collector() -> None:
    own = ExactSerializer([Note])
    raws = [own.dump_item(message) for message in models(2_000)]
    assert collections_during(lambda: own.load_models(raws)) <= 1
    assert gc.isenabled()


def test_a_garbage_collector_that_was_switched_off_stays_so() -> None:
    own = ExactSerializer([Note])
    raws = [own.dump_item(message) for message in models(500)]
    gc.disable()
    try:
        own.load_models(raws)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_damaged_conversation_leaves_the_garbage_collector_awake() -> None:
    own = ExactSerializer([Note])
    raws = [own.dump_item(message) for message in models(500)]
    raws[300] = raws[300][:-5]
    assert own.load_models(raws) is None
    assert gc.isenabled()


def test_a_child_forked_meanwhile_collects_garbage() -> None:
    with collector.asleep():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.isenabled()


stretches = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from([1, 2, 7, 8, 9, 63, 64, 65, 130])), max_size=6
)


@given(stretches, st.integers(0, 70))
def test_runs_name_the_same_numbers_in_the_same_order(old: list[tuple[int, int]], new: int) -> None:
    order = [n for first, count in old for n in range(first, first + count)]
    runs = joined(order)
    assert list(numbers(runs)) == order
    with_new = joined(order + [~n for n in range(new)])
    assert with_new == ((*runs, ~0, new) if new else runs)
    neighbours = zip(runs[::2], runs[1::2], runs[2::2], strict=False)
    assert all(start + count != following for start, count, following in neighbours)
