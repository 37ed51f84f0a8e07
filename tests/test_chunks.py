"""Long lists are recognised by chunks: whatever changes inside one, however little, is saved."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langgraph_durable import SqliteSaver
from langgraph_durable._core.encoder import CHUNK
from langgraph_durable._core.packing import sketch
from langgraph_durable.testing.model import at, checkpoint, numbered

MANY = 3 * CHUNK + 5


def conversation(count: int = MANY) -> list[AnyMessage]:
    return [
        (AIMessage if n % 2 else HumanMessage)(
            content=f"message {n}", id=f"id-{n}", additional_kwargs={"n": n, "deep": {"one": 1}}
        )
        for n in range(count)
    ]


def exactly(messages: list[Any]) -> list[tuple[Any, ...]]:
    """Everything about messages, so that 1, 1.0 and True are three things."""
    return [
        (type(m), repr(m.__dict__), sorted(m.__pydantic_fields_set__), repr(m.__pydantic_extra__))
        for m in messages
    ]


class Thread:
    """A thread that is put again and again, and read by a saver that remembers nothing."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self.saver = SqliteSaver(path, durability="normal")

    def put(self, messages: list[Any]) -> None:
        self.count += 1
        values, versions = {"messages": messages}, {"messages": f"{self.count:032}.0"}
        parent = numbered(self.count - 1) if self.count > 1 else None
        whole = checkpoint(numbered(self.count), values, versions)
        self.saver.put(at("t", parent), whole, {"step": self.count}, versions)

    def get(self) -> list[Any]:
        with SqliteSaver(self.path, cache_bytes=0) as cold:
            found = cold.get_tuple(at("t"))
        assert found is not None
        return found.checkpoint["channel_values"]["messages"]

    def items(self) -> int:
        with SqliteSaver(self.path) as saver:
            read = saver._backend.connections.read  # type: ignore[attr-defined]
            return read(lambda conn: conn.execute("SELECT count(*) FROM lgd_items").fetchone()[0])


def rename_class(m: Any) -> None:
    object.__setattr__(m, "__class__", HumanMessage if type(m) is AIMessage else AIMessage)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "text": lambda m: setattr(m, "content", "other"),
    "int to bool": lambda m: m.additional_kwargs["deep"].update(one=True),
    "int to float": lambda m: m.additional_kwargs["deep"].update(one=1.0),
    "sign of zero": lambda m: m.additional_kwargs.update(n=-0.0),
    "list to tuple": lambda m: m.additional_kwargs.update(n=(1, 2)),
    "bytes to bytearray": lambda m: m.additional_kwargs.update(n=bytearray(b"x")),
    "order of keys": lambda m: m.additional_kwargs.update(n=m.additional_kwargs.pop("n")),
    "a field set": lambda m: m.__pydantic_fields_set__.add("name"),
    "an extra": lambda m: m.__pydantic_extra__.update(more=1),
    "the class": rename_class,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("position", [0, CHUNK - 1, CHUNK, 2 * CHUNK + 3, MANY - 1])
def test_a_change_in_place_is_saved(
    tmp_path: Path, change: Callable[[Any], Any], position: int
) -> None:
    thread, messages = Thread(tmp_path / "a.db"), conversation()
    for _ in range(3):  # stored; learned; recognised
        thread.put(messages)
    change(messages[position])
    wanted = exactly(messages)
    thread.put(messages)
    assert exactly(thread.get()) == wanted


def test_what_two_values_differ_in_shows_in_their_sketches() -> None:
    for name, change in CHANGES.items():
        before, after = conversation(CHUNK), conversation(CHUNK)
        assert sketch(before) == sketch(after) is not None
        change(after[7])
        assert sketch(after) != sketch(before), name


def test_what_is_recognised_is_not_stored_again(tmp_path: Path) -> None:
    thread, messages = Thread(tmp_path / "a.db"), conversation()
    thread.put(messages)
    first = thread.items()
    for n in range(50):
        messages = pickle.loads(pickle.dumps(messages))
        messages.append(HumanMessage(content=f"another {n}", id=f"another-{n}"))
        thread.put(messages)
    assert thread.items() == first + 50
    assert exactly(thread.get()) == exactly(messages)


EDITS: dict[str, Callable[[list[Any], int], None]] = {
    "append": lambda ms, n: ms.append(HumanMessage(content=f"more {n}")),
    "drop": lambda ms, n: ms.__delitem__(n % len(ms)),
    "drop many": lambda ms, n: ms.__delitem__(slice(0, min(n, len(ms) - 1))),
    "swap": lambda ms, n: ms.__setitem__(slice(0, 2), ms[:2][::-1]),
    "rotate": lambda ms, n: ms.append(ms.pop(0)),
    "repeat": lambda ms, n: ms.extend(ms[: n % 40]),
    "plain data": lambda ms, n: ms.insert(n % len(ms), n),
    "mutate": lambda ms, n: (
        setattr(ms[-1], "content", f"changed {n}") if isinstance(ms[-1], HumanMessage) else None
    ),
}


@settings(max_examples=25, deadline=None)
@given(edits=st.lists(st.tuples(st.sampled_from(sorted(EDITS)), st.integers(0, 70)), max_size=12))
def test_any_edits_of_a_long_list_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, int]]
) -> None:
    thread = Thread(tmp_path_factory.mktemp("chunks") / "a.db")
    messages: list[Any] = conversation()
    thread.put(messages)
    thread.put(messages)
    for name, n in edits:
        if messages:
            EDITS[name](messages, n)
        thread.put(messages)
        assert repr(thread.get()) == repr(messages)
    thread.saver.close()
