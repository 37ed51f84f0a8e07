"""What a step of a schema may do to a checkpoint, each as a small value with plain functions.

An operation says where a channel goes (`channel`), what a node is called now (`node`), and what
becomes of a channel's value (`value`) or of a pending write to it (`write`). All of a checkpoint is
told in these terms, so an operation need not know how a checkpoint is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_durable._core.tasks import BRANCH, JOIN, START, renamed_channel

SENDS = "__pregel_tasks"
SOURCE = "__error_source_node__"
INTERRUPT, RESUME = "__interrupt__", "__resume__"
OVERWRITE = "__overwrite__"

Change = Callable[[Any], Any]


class Op:
    """Changes nothing; the others say what they do differently."""

    def channel(self, name: str) -> str | None:
        """Where a channel goes; None if it is no more."""
        return name

    def before(self, name: str) -> str:
        """What a channel was called before."""
        return name

    def node(self, name: str) -> str:
        return name

    def value(self, channel: str, value: Any) -> Any:
        """The value of `channel` (by its name before) now."""
        return value

    def write(self, channel: str, value: Any) -> Any:
        """A pending write to `channel` now."""
        return value


def _input(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The input of a graph waits in a channel of its own, by the names of other channels."""
    return change(value) if type(value) is dict else value


@dataclass(frozen=True, slots=True)
class Rename(Op):
    old: str
    new: str

    def channel(self, name: str) -> str:
        return self.new if name == self.old else name

    def before(self, name: str) -> str:
        return self.old if name == self.new else name

    def value(self, channel: str, value: Any) -> Any:
        if channel != START:
            return value
        return _input(value, lambda given: {self.channel(k): v for k, v in given.items()})

    write = value


@dataclass(frozen=True, slots=True)
class Drop(Op):
    name: str

    def channel(self, name: str) -> str | None:
        return None if name == self.name else name

    def value(self, channel: str, value: Any) -> Any:
        if channel != START:
            return value
        return _input(value, lambda given: {k: v for k, v in given.items() if k != self.name})

    write = value


@dataclass(frozen=True, slots=True)
class Transform(Op):
    name: str
    change: Change
    change_write: Change

    def value(self, channel: str, value: Any) -> Any:
        if channel == START:
            return self.write(channel, value)
        if channel != self.name:
            return value
        if type(value) is _DeltaSnapshot:
            return _DeltaSnapshot(self.change(value.value))
        return self.change(value)

    def write(self, channel: str, value: Any) -> Any:
        if channel == START:
            return _input(
                value, lambda given: {k: self.write(k, v) for k, v in given.items() if k != START}
            )
        if channel != self.name:
            return value
        if type(value) is _DeltaSnapshot:
            return self.value(channel, value)
        if type(value).__name__ == "Overwrite" and hasattr(value, "value"):
            value.value = self.change(value.value)
            return value
        if type(value) is dict and set(value) == {OVERWRITE}:
            return {OVERWRITE: self.change(value[OVERWRITE])}
        return self.change_write(value)


def _each_send(value: Any, change: Callable[[Any], None]) -> Any:
    """Change every `Send` in a value, which is fresh, in its place."""
    several = value if isinstance(value, (list, tuple)) else [value]
    for send in several:
        if type(send).__name__ == "Send" and hasattr(send, "node"):
            change(send)
    return value


@dataclass(frozen=True, slots=True)
class RenameNode(Op):
    old: str
    new: str
    calls: tuple[str, ...] = ()
    """Tasks that the node calls (functional API), so that theirs can be found too."""

    def channel(self, name: str) -> str:
        return renamed_channel(name, self.old, self.new)

    def before(self, name: str) -> str:
        return renamed_channel(name, self.new, self.old)

    def node(self, name: str) -> str:
        return self.new if name == self.old else name

    def _send(self, send: Any) -> None:
        send.node = self.node(send.node)

    def value(self, channel: str, value: Any) -> Any:
        if channel == SENDS:
            return _each_send(value, self._send)
        if channel.startswith(JOIN):  # which of the nodes have come
            if isinstance(value, tuple) and len(value) == 2:
                return self.value(channel, value[0]), value[1]
            if isinstance(value, (set, frozenset, list)):
                return type(value)(map(self.node, value))
        return value

    def write(self, channel: str, value: Any) -> Any:
        if channel == SENDS:
            return _each_send(value, self._send)
        derived = channel.startswith((JOIN, BRANCH)) or channel == SOURCE
        return self.node(value) if derived and isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class TransformSends(Op):
    target: str
    change: Change

    def _send(self, send: Any) -> None:
        if send.node == self.target:
            send.arg = self.change(send.arg)

    def value(self, channel: str, value: Any) -> Any:
        return _each_send(value, self._send) if channel == SENDS else value

    write = value


@dataclass(frozen=True, slots=True)
class MoveClass(Op):
    old: str
    new: str | type | None
    """None: load it as a plain dict."""


def node_now(ops: Iterable[Op], name: str) -> str:
    """What a node is called after operations."""
    return reduce(lambda now, op: op.node(now), ops, name)


def node_before(ops: Sequence[Op], name: str) -> str:
    """What a node was called before operations."""
    for op in reversed(ops):
        name = op.old if isinstance(op, RenameNode) and op.new == name else name
    return name


def undone(ops: Iterable[Op]) -> list[Op]:
    """The renames that lead back."""
    renames = [op for op in ops if isinstance(op, (Rename, RenameNode))]
    return [type(op)(op.new, op.old) for op in reversed(renames)]


def told_by(ops: Iterable[Op]) -> Iterator[tuple[int, str]]:
    """Names of nodes in renames, each with the number of the operation before which it holds."""
    for at, op in enumerate(ops):
        if isinstance(op, RenameNode):
            yield from ((at, name) for name in (op.old, *op.calls))


def follow(ops: Iterable[Op], name: str) -> str | None:
    """Where a channel goes by operations; None if it is no more."""
    found: str | None = name
    for op in ops:
        found = None if found is None else op.channel(found)
    return found


def followed(ops: Iterable[Op], name: str, value: Any, kind: str) -> Any:
    """What becomes of a `value` or a `write` by operations."""
    for op in ops:
        value = getattr(op, kind)(name, value)
        name = op.channel(name) or name
    return value
