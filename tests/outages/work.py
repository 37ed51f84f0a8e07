"""What the tests of this folder store, and how they look at it."""

from __future__ import annotations

from typing import Any

from langgraph_durable.saver import DurableSaver
from langgraph_durable.testing.model import at, checkpoint, numbered

TEXT = "long enough to be an item of its own, and not a part of the record: "


def state(n: int) -> dict[str, Any]:
    """The values of step `n`: a list that grows, and something that changes."""
    return {"messages": [f"{TEXT}{k}" for k in range(n)], "count": n}


def put(saver: DurableSaver, thread: str, n: int, *, ns: str = "", run: str = "") -> None:
    """Store step `n` as the child of step `n - 1`."""
    values = state(n)
    versions = dict.fromkeys(values, f"{n:032}.{0:016}")
    parent = numbered(n - 1) if n > 1 else None
    metadata: Any = {"step": n, **({"run_id": run} if run else {})}
    saver.put(
        at(thread, parent, ns=ns), checkpoint(numbered(n), values, versions), metadata, versions
    )


def write(saver: DurableSaver, thread: str, n: int, task: str = "task") -> None:
    saver.put_writes(at(thread, numbered(n)), [("messages", f"{TEXT}{task}")], task)


def write_much(saver: DurableSaver, thread: str, n: int) -> None:
    """Writes whose record is too long to be kept among those of other tasks."""
    saver.put_writes(at(thread, numbered(n)), [(f"channel {k}", k) for k in range(60)], "much")


def line(saver: DurableSaver, thread: str, count: int, **more: Any) -> None:
    for n in range(1, count + 1):
        put(saver, thread, n, **more)
        write(saver, thread, n)


def is_whole(saver: DurableSaver, thread: str, n: int) -> bool:
    """Whether the newest checkpoint is step `n`, exactly."""
    found = saver.get_tuple(at(thread))
    assert found is not None
    return found.checkpoint["id"] == numbered(n) and found.checkpoint["channel_values"] == state(n)


def steps(saver: DurableSaver, thread: str | None) -> list[int]:
    """The steps that are listed, newest first; each must be whole."""
    found = list(saver.list(None if thread is None else at(thread)))
    for each in found:
        assert each.checkpoint["channel_values"] == state(each.metadata["step"])
    return [each.metadata["step"] for each in found]
