"""One checkpoint while the steps of a schema change it: what a step gets as its only argument.

`StateEdit` holds a checkpoint taken apart (values, versions, what nodes have seen, pending writes,
the rest, metadata), applies each operation to all of it at once, and notes it, so that the same can
be done to what is not here: the history of a DeltaChannel, a sub-graph's namespace. With `probing`
there are no values: names are changed, operations are noted, and no function is called.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langgraph_durable._core.ops import (
    Change,
    Drop,
    MoveClass,
    Op,
    Rename,
    RenameNode,
    Transform,
    TransformSends,
)
from langgraph_durable._core.tasks import BRANCH, JOIN
from langgraph_durable.errors import ConfigurationError

COUNTERS = "counters_since_delta_snapshot"
_DERIVED = (BRANCH, JOIN, "__")


class Probing(Exception):
    """A step wants to know something of a value while only names are known."""


class Unknown:
    """A value while only names are known: it can be held, and nothing can be told of it."""

    def _stop(self, *_: object, **__: object) -> Any:
        raise Probing

    __getattr__ = __getitem__ = __call__ = __iter__ = __len__ = __contains__ = __bool__ = _stop
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _stop


@dataclass(slots=True)
class EditedWrite:
    """A pending write, and the schema version of the program that made it."""

    task_id: str
    path: str
    idx: int
    channel: str
    value: Any
    version: int
    run: str | None = None
    by: int = 0
    """Whose hand it is by."""


class Noted(NamedTuple):
    """An operation, and the version that its step leads to."""

    to: int
    op: Op


@dataclass(slots=True)
class Content:
    """A checkpoint taken apart."""

    values: dict[str, Any]
    versions: dict[str, Any]
    seen: dict[str, dict[str, Any]]
    rest: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[EditedWrite] = field(default_factory=list)
    held: dict[str, Any] = field(default_factory=dict)
    """What is kept of the history of DeltaChannels: `(seed or nothing, writes)`."""

    @classmethod
    def empty(cls) -> Content:
        return cls({}, {}, {}, {}, {})


class StateEdit:
    """A checkpoint to be changed by a step of a schema.

    >>> def step(state):   # as registered with @schema.upgrade(to=2)
    ...     state.rename("docs", "documents")
    ...     if not state.namespace:
    ...         state.add("language", "en")
    """

    def __init__(
        self,
        content: Content,
        namespace: str,
        *,
        upwards: bool = True,
        probing: bool = False,
        writes_only: bool = False,
    ) -> None:
        self._content = content
        self.probing, self._upwards = probing, upwards
        self._writes_only = writes_only
        self.namespace = namespace
        """The names of the nodes that lead to the sub-graph, as in "research|writer"; "" above.

        As the steps so far have renamed them."""
        self.to = 0
        """The version that the present step leads to."""
        self.noted: list[Noted] = []

    # ---- looking -----------------------------------------------------------------------------

    def __contains__(self, channel: str) -> bool:
        return channel in list(self)

    def __iter__(self) -> Iterator[str]:
        """The channels there are."""
        written = [write.channel for write in self._content.writes] if self._writes_only else ()
        return iter(dict.fromkeys([*self._content.versions, *self._content.values, *written]))

    def __getitem__(self, channel: str) -> Any:
        return Unknown() if self.probing else self._content.values[channel]

    def get(self, channel: str, default: Any = None) -> Any:
        """The value of a channel."""
        known = self if self.probing else self._content.values
        return self[channel] if channel in known else default

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What is stored beside the state."""
        return self._content.metadata

    # ---- changing ----------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> None:
        """Give a channel another name."""
        _check_names(old, new)
        if old in self and new in self and not self._writes_only:
            raise ConfigurationError(f"cannot rename {old!r}: there is a channel {new!r} already")
        self._apply(Rename(old, new))

    def drop(self, channel: str) -> None:
        """Forget a channel, and what was written to it."""
        _check_names(channel)
        self._apply(Drop(channel))

    def transform(self, channel: str, change: Change, *, writes: Change | None = None) -> None:
        """Change a channel's value.

        Args:
            channel: its name; nothing happens where it has no value.
            change: what becomes of a value.
            writes: what becomes of a pending write, if that is something else than a value (an
                element, where the reducer takes elements). The same as `change` otherwise.
        """
        _check_names(channel)
        check_function("what transforms", change)
        if writes is not None:
            check_function("what transforms writes", writes)
        self._apply(Transform(channel, change, writes or change))

    def add(
        self, channel: str, value: Any = None, *, factory: Callable[[], Any] | None = None
    ) -> None:
        """Give a channel a value (or what `factory` makes) where it has none; nobody is woken."""
        _check_names(channel)
        if factory is not None:
            check_function("a factory", factory)
        content = self._content
        if channel in self or not content.versions or self._writes_only:
            return
        # Without a version LangGraph would leave the value out of the next checkpoint.
        version = max(content.versions.values())
        content.versions[channel] = version
        if not self.probing:
            content.values[channel] = factory() if factory else copy.deepcopy(value)
        for seen in content.seen.values():
            # Only a bare Pregel wakes nodes by such channels; it must not by this one.
            if any(not name.startswith(_DERIVED) for name in seen):
                seen[channel] = version

    def rename_node(self, old: str, new: str, *, calls: Iterable[str] = ()) -> None:
        """Give a node (or a task of the functional API) another name, wherever it is named.

        Args:
            old: its name before.
            new: its name now.
            calls: tasks that it calls, where it is an entrypoint: LangGraph does not note them.
        """
        _check_names(old, new)
        self._apply(RenameNode(old, new, tuple(calls)))

    def transform_sends(self, node: str, change: Change) -> None:
        """Change what `Send`s to a node carry."""
        _check_names(node)
        check_function("what transforms", change)
        self._apply(TransformSends(node, change))

    def move_class(self, old: str, new: str | type) -> None:
        """Load objects of the class `old` ("package.module.Class") as `new`."""
        _check_names(old)
        if not isinstance(new, (str, type)):
            raise ConfigurationError(f"move_class takes a name or a class, not {new!r}")
        self._apply(MoveClass(old, new))

    def load_as_dict(self, cls: str) -> None:
        """Load objects of a class that is gone as dicts of their fields."""
        _check_names(cls)
        self._apply(MoveClass(cls, None))

    # ---- how -----------------------------------------------------------------------------------

    def _applies(self, version: int) -> bool:
        """Whether the present step concerns what was written under `version`."""
        return version < self.to if self._upwards else version > self.to

    def _apply(self, op: Op) -> None:
        self.noted.append(Noted(self.to, op))
        if not self._writes_only:
            self._apply_to_state(op)
        writes = []
        for write in self._content.writes:
            channel = op.channel(write.channel) if self._applies(write.version) else write.channel
            if channel is None:
                continue
            if self._applies(write.version) and not self.probing:
                write.value = op.write(write.channel, write.value)
            write.channel = channel
            writes.append(write)
        self._content.writes = writes

    def _apply_to_state(self, op: Op) -> None:
        content, keep = self._content, self.probing
        content.values = {
            new: value if keep else op.value(old, value)
            for old, value in content.values.items()
            if (new := op.channel(old)) is not None
        }
        content.versions = moved(op, content.versions)
        content.seen = {op.node(node): moved(op, seen) for node, seen in content.seen.items()}
        content.rest = self._rest(op, content.rest)
        counters = content.metadata.get(COUNTERS)
        if isinstance(counters, dict):
            content.metadata[COUNTERS] = moved(op, counters)
        if not keep:
            content.held = {
                new: (
                    tuple(op.value(old, seed) for seed in seeds),
                    [(task, op.write(old, value)) for task, value in parts],
                )
                for old, (seeds, parts) in content.held.items()
                if (new := op.channel(old)) is not None
            }

    @staticmethod
    def _rest(op: Op, rest: dict[str, Any]) -> dict[str, Any]:
        updated = rest.get("updated_channels")
        if not isinstance(updated, list):
            return rest
        return {**rest, "updated_channels": [c for name in updated if (c := op.channel(name))]}


def moved(op: Op, by_channel: Mapping[str, Any]) -> dict[str, Any]:
    """A dict by channel, after the operation."""
    return {new: v for old, v in by_channel.items() if (new := op.channel(old)) is not None}


def check_function(what: str, given: object) -> None:
    """Steps run where nobody could wait for them."""
    if not callable(given) or inspect.iscoroutinefunction(given):
        raise ConfigurationError(f"{what} is a function, and no async one, not {given!r}")


def check_returned(made: object) -> None:
    """What a step returns is for nobody: a dict of changes, as of a node, would be lost."""
    if isinstance(made, (Mapping, Awaitable, Iterator)):
        raise ConfigurationError(f"a step edits the state it is given, and returned {made!r}")


def _check_names(*names: object) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"a name is text, not {name!r}")
