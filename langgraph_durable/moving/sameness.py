"""Whether two checkpoints say the same, and if not, where they differ.

A copy is as exact as the serialiser of the target: LangGraph's own makes lists of tuples, and that
is not held against it. So a value may also be what that serialiser makes of the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable._core.evolution import VERSION
from langgraph_durable._core.serde import ExactSerializer

if TYPE_CHECKING:
    from langgraph_durable.moving.sides import Carried

_exact = ExactSerializer()
_APART = ("channel_values", "channel_versions", "versions_seen")


class Comparison:
    """Compares what was carried to a target with what is read back from it."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde

    def difference(self, original: Carried, copy: Carried | None) -> str | None:
        """What is not the same, in words; None if everything is."""
        if copy is None:
            return "it is missing"
        if original.parent != copy.parent:
            return f"its parent is {copy.parent}, not {original.parent}"
        for part in _APART:
            one, other = original.checkpoint.get(part) or {}, copy.checkpoint.get(part) or {}
            if (where := self._differs(one, other)) is not None:
                return f"{part}[{where!r}] differs"
        kept = _rest(original.checkpoint)  # what the target adds of its own is no loss
        rest = [kept, {key: copy.checkpoint.get(key) for key in kept}]
        if (where := self._differs(*rest)) is not None:
            return f"{where!r} of the checkpoint differs"
        told = dict(copy.metadata)
        if VERSION not in original.metadata:  # it goes on in the version of its parent
            told.pop(VERSION, None)
        if (where := self._differs(original.metadata, told)) is not None:
            return f"metadata[{where!r}] differs"
        return self._writes_differ(original, copy)

    def _writes_differ(self, original: Carried, copy: Carried) -> str | None:
        one, other = (
            [(w.task_id, channel, value) for w in each.writes for channel, value in w.pairs]
            for each in (original, copy)
        )
        if [w[:2] for w in one] != [w[:2] for w in other]:
            return "its pending writes are others, or in another order"
        for (task_id, channel, value), (_, _, copied) in zip(one, other, strict=True):
            if not self._same(value, copied):
                return f"the pending write of task {task_id} to {channel!r} differs"
        if all(w.indices is not None for w in (*original.writes, *copy.writes)):
            paths = [{(w.task_id, w.path) for w in each.writes} for each in (original, copy)]
            if paths[0] != paths[1]:
                return "the task paths of its pending writes differ"
        return None

    def _differs(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
        """The first key whose value is not the same; a missing one is as good as None."""
        for key in {**one, **other}:
            if not self._same(one.get(key), other.get(key)):
                return key
        return None

    def _same(self, value: Any, copy: Any) -> bool:
        if _equal(value, copy):
            return True
        try:
            return _equal(self._serde.loads_typed(self._serde.dumps_typed(value)), copy)
        except Exception:
            return False


def _rest(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in checkpoint.items() if key not in _APART}


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are equal, also where they cannot be compared."""
    try:
        if type(one) is type(other) and type(one) in (list, tuple):  # [1] == [True], but not to us
            return len(one) == len(other) and all(map(_equal, one, other))
        if type(one) is type(other) is dict:
            return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
        if type(one) is type(other) and bool(one == other):
            return True
    except Exception:  # arrays and the like: their bytes tell
        pass
    try:
        return _exact.dumps_typed(one) == _exact.dumps_typed(other)
    except Exception:
        return False
