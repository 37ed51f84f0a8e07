"""Whether two checkpoints say the same, and if not, where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph_durable._core.serde import ExactSerializer

if TYPE_CHECKING:
    from langgraph_durable.moving.sides import Carried

_exact = ExactSerializer()


def difference(original: Carried, copy: Carried | None) -> str | None:
    """What is not the same, in words; None if everything is."""
    if copy is None:
        return "it is missing"
    if original.parent != copy.parent:
        return f"its parent is {copy.parent}, not {original.parent}"
    for part in ("channel_values", "channel_versions", "versions_seen"):
        one, other = original.checkpoint.get(part) or {}, copy.checkpoint.get(part) or {}
        if (where := _differs(one, other)) is not None:
            return f"{part}[{where!r}] differs"
    apart = ("channel_values", "channel_versions", "versions_seen")
    rest = [{k: v for k, v in c.checkpoint.items() if k not in apart} for c in (original, copy)]
    if (where := _differs(*rest)) is not None:
        return f"{where!r} of the checkpoint differs"
    if (where := _differs(original.metadata, copy.metadata)) is not None:
        return f"metadata[{where!r}] differs"
    return _writes_differ(original, copy)


def _writes_differ(original: Carried, copy: Carried) -> str | None:
    one, other = (
        [(w.task_id, channel, value) for w in each.writes for channel, value in w.pairs]
        for each in (original, copy)
    )
    if [w[:2] for w in one] != [w[:2] for w in other]:
        return "its pending writes are others, or in another order"
    for (task_id, channel, value), (_, _, copied) in zip(one, other, strict=True):
        if not same(value, copied):
            return f"the pending write of task {task_id} to {channel!r} differs"
    if all(w.indices is not None for w in (*original.writes, *copy.writes)):
        paths = [{(w.task_id, w.path) for w in each.writes} for each in (original, copy)]
        if paths[0] != paths[1]:
            return "the task paths of its pending writes differ"
    return None


def _differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first key whose value is not the same; a missing one is as good as None."""
    for key in {**one, **other}:
        if not same(one.get(key), other.get(key)):
            return key
    return None


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, also where they cannot be compared."""
    try:
        if type(one) is type(other) and bool(one == other):
            return True
    except Exception:  # arrays and the like: their bytes tell
        pass
    try:
        return _exact.dumps_typed(one) == _exact.dumps_typed(other)
    except Exception:
        return False
