"""`StateSchema`: the versions of a program's state, and the steps between them.

Pass it to a saver. Each checkpoint then records the version it was stored under; one of another
version is brought to this one when it is read, by the steps registered here. What a step can do is
told by `StateEdit`, its only argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from langgraph_durable._core.edits import StateEdit, check_function
from langgraph_durable._core.steps import LARGEST, Steps
from langgraph_durable.errors import ConfigurationError

__all__ = ["StateEdit", "StateSchema"]

S = TypeVar("S", bound=Callable[[StateEdit], object])


class StateSchema:
    """The version of a program's state, and how older (or newer) states are brought to it.

    Steps must be pure: each runs for every checkpoint that is read, and twice (first over names
    alone, then over values), so what one does besides editing its argument is done many times. A
    step names channels, nodes and classes (`rename`, `rename_node`, `move_class`, `load_as_dict`)
    before it asks what a value is; names that depend on a value are refused.

    Args:
        version: the version of this program's state, from 1 up. Raise it by one with every change
            that stored threads must follow.
        unversioned: what threads count as that were stored before there was a schema.
        strict: raise `SchemaVersionError`, and not only warn, where the graph given to `of` has
            changed without a new version.

    Example:
        >>> schema = StateSchema(version=2)
        >>> @schema.upgrade(to=2)
        ... def _(state):
        ...     state.rename("docs", "documents")
    """

    def __init__(self, version: int, *, unversioned: int = 0, strict: bool = False) -> None:
        self._steps = Steps(_checked("version", version, 1), _checked("unversioned", unversioned))
        if not isinstance(strict, bool):
            raise ConfigurationError(f"strict is True or False, not {strict!r}")
        self.strict = strict
        self.graph: Mapping[str, Any] | None = None
        """The fingerprint of the graph given to `of`."""

    def __repr__(self) -> str:
        return f"StateSchema(version={self.version})"

    @property
    def version(self) -> int:
        """The version of this program's state."""
        return self._steps.version

    @classmethod
    def of(
        cls, graph: Any, *, version: int, unversioned: int = 0, strict: bool = False
    ) -> StateSchema:
        """A schema that also records what the graph looks like, to notice a forgotten version.

        It also knows what wakes each node, which helps to find the tasks of renamed ones.
        """
        schema = cls(version, unversioned=unversioned, strict=strict)
        schema.graph = cls.fingerprint(graph)
        schema._steps.triggers = {
            name: tuple(getattr(node, "triggers", ())) for name, node in graph.nodes.items()
        }
        return schema

    @staticmethod
    def fingerprint(graph: Any) -> dict[str, Any]:
        """The channels of a compiled graph with their types, and its nodes."""
        channels, nodes = getattr(graph, "channels", None), getattr(graph, "nodes", None)
        if not isinstance(channels, Mapping) or not isinstance(nodes, Mapping):
            raise ConfigurationError(f"a fingerprint is of a compiled graph, not of {graph!r}")
        own = {
            name: _described(channel)
            for name, channel in channels.items()
            if not name.startswith(("__", "branch:", "join:"))
        }
        return {
            "channels": dict(sorted(own.items())),
            "nodes": sorted(name for name in nodes if not name.startswith("__")),
        }

    def upgrade(self, *, to: int) -> Callable[[S], S]:
        """Register the step from the version before to `to`; in order, without gaps."""
        _checked("to", to, 1)
        steps = self._steps
        if to > self.version:
            raise ConfigurationError(
                f"upgrade(to={to}): this is version {self.version} of the schema; from a newer one "
                "a downgrade leads here"
            )
        if to in steps.up:
            raise ConfigurationError(f"upgrade(to={to}) is registered already")
        if steps.up and to != (following := max(steps.up) + 1):
            raise ConfigurationError(f"upgrade(to={to}): upgrade(to={following}) comes first")
        return self._registered(steps.up, to)

    def downgrade(self, *, to: int) -> Callable[[S], S]:
        """Register the step from the version after to `to`, for threads of a newer program."""
        _checked("to", to)
        steps = self._steps
        if to < self.version:
            raise ConfigurationError(
                f"downgrade(to={to}): this is version {self.version} of the schema; from an older "
                "one an upgrade leads here"
            )
        if to in steps.down:
            raise ConfigurationError(f"downgrade(to={to}) is registered already")
        if to != (following := self.version + len(steps.down)):
            raise ConfigurationError(f"downgrade(to={to}): downgrade(to={following}) comes first")
        return self._registered(steps.down, to)

    @staticmethod
    def _registered(steps: dict[int, Any], to: int) -> Callable[[S], S]:
        def register(step: S) -> S:
            check_function("a step", step)
            steps[to] = step
            return step

        return register


def _checked(what: str, value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value < LARGEST:
        raise ConfigurationError(f"{what} is a number from {least} up, not {value!r}")
    return value


def _described(channel: Any) -> str:
    """A channel's kind and type, without what differs between two processes."""
    try:
        kind = channel.ValueType
    except Exception:
        kind = None
    return f"{type(channel).__name__}[{_spelled(kind)}]"


def _spelled(kind: Any) -> str:
    """A type as text that is the same in every process and Python.

    What annotates it is left out: a reducer is shown with its address in memory. So are modules,
    because a program that is started has another one than the same program imported. Members of
    a union have no order of their own: `typing` hands out whichever spelling was made first.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Annotated, Required, NotRequired):
        return _spelled(args[0])
    if origin in (Union, UnionType):
        return " | ".join(sorted(map(_spelled, args), key=lambda name: (name == "None", name)))
    if origin is Literal:
        return f"Literal[{', '.join(sorted(map(_shown, args)))}]"
    if origin is not None:
        name = _spelled(origin)
        return f"{name}[{', '.join(map(_spelled, args))}]" if args else name
    if isinstance(kind, (list, tuple)):  # the arguments of a callable
        return f"[{', '.join(map(_spelled, kind))}]"
    if kind is None or kind is NoneType:
        return "None"
    if kind is Ellipsis or isinstance(kind, str):
        return "..." if kind is Ellipsis else kind
    named = getattr(kind, "__qualname__", None) or getattr(kind, "__name__", None)
    return named if isinstance(named, str) else _shown(kind)


def _shown(value: object) -> str:
    return _ADDRESS.sub("", repr(value))


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
