"""The difference between two states: by channel and path, as text lines, and as a conversation.

`diff(old, new)` gives a list of `Change`s; `apply(old, changes)` gives `new` again. Containers that
are plain dicts and lists are looked into; everything else (messages too) is a value that is the
same or is not. What counts as the same is equality *and* type: `1`, `1.0` and `True` differ.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langgraph_durable.timeline import binary

Path = tuple[str | int, ...]
Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs. `path` starts with the channel."""

    kind: Kind
    path: Path
    old: Any = None
    new: Any = None

    @property
    def channel(self) -> str:
        return str(self.path[0]) if self.path else ""

    @property
    def where(self) -> str:
        """The path as one would write it: `state['a'][3]` is `a[3]`."""
        first, *rest = self.path or ("(value)",)
        return str(first) + "".join(f"[{part!r}]" for part in rest)

    def __str__(self) -> str:
        sign = {"added": "+", "removed": "-", "changed": "~"}[self.kind]
        values = [
            short(value)
            for value, there in (
                (self.old, self.kind != "added"),
                (self.new, self.kind != "removed"),
            )
            if there
        ]
        return f"{sign} {self.where}: {' -> '.join(values)}"


def written(value: Any) -> str:
    """The repr of a value, or that it has none: what is stored is rebuilt without a constructor."""
    try:
        return repr(value)
    except Exception as error:
        return f"({type(value).__name__}: its repr raises {type(error).__name__})"


def short(value: Any, most: int = 80) -> str:
    """A value in one line."""
    if isinstance(value, bytes) and len(value) > binary.SHORT:
        return f"<{binary.described(value)}>"
    text = written(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


IDENTITY: Any = object.__eq__


def same(old: Any, new: Any) -> bool:
    """Equal and of the same type, all the way down; what cannot be compared differs."""
    if old is new:
        return True
    kind = type(old)
    if kind is not type(new):
        return False
    if kind is dict:
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if kind in (list, tuple):
        return len(old) == len(new) and all(map(same, old, new))
    try:
        equal: Any = old == new
        if type(equal) is bool and kind.__eq__ is not IDENTITY:
            return equal or bool(old != old and new != new)
    except Exception:  # arrays in it
        pass
    try:
        return _same_inside(old, new)
    except Exception:
        return False


def _same_inside(old: Any, new: Any) -> bool:
    """The same for what has no equality, or as an array one of many parts: what is in it tells."""
    if isinstance(old, (list, tuple)):
        return same([*old], [*new])
    if isinstance(old, dict):
        return same(dict(old), dict(new))
    if dataclasses.is_dataclass(old):
        names = [field.name for field in dataclasses.fields(old)]
        return all(same(getattr(old, name), getattr(new, name)) for name in names)
    if hasattr(type(old), "model_fields"):
        return same(vars(old), vars(new))
    if hasattr(old, "equals"):  # a table; its repr tells the names of its index
        return bool(old.equals(new)) and repr(old) == repr(new)
    if hasattr(old, "__array__"):
        one, other = old.__array__(), new.__array__()
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype.hasobject:
            return same(one.tolist(), other.tolist())
        return bool(one.tobytes() == other.tobytes())
    return False


def diff(old: Any, new: Any, path: Path = ()) -> list[Change]:
    """What must change in `old` to make it `new`.

    >>> [str(change) for change in diff({"a": 1, "b": [1]}, {"b": [1, 2], "c": 3})]
    ['- a: 1', '+ b[1]: 2', '+ c: 3']
    """
    if old is new:
        return []
    if type(old) is dict and type(new) is dict and {str}.issuperset(map(type, (*old, *new))):
        return list(_dicts(old, new, path))  # not compared whole before: that is done part by part
    if same(old, new):
        return []
    if type(old) is list and type(new) is list and path:
        return list(_lists(old, new, path))
    return [Change("changed", path, old, new)]


def _dicts(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> Iterator[Change]:
    for key in old:
        if key not in new:
            yield Change("removed", (*path, key), old[key])
    for key in new:
        if key not in old:
            yield Change("added", (*path, key), None, new[key])
        else:
            yield from diff(old[key], new[key], (*path, key))


def _lists(old: Sequence[Any], new: Sequence[Any], path: Path) -> Iterator[Change]:
    """What goes, last first, by its place in `old`; then what comes, by its place in `new`.

    So the places hold while the changes are applied. Elements that stay may have changed inside.
    """
    start, end = _common(old, new)
    before, after = range(start, len(old) - end), range(start, len(new) - end)
    pairs = _paired(old, before, new, after)
    stay, kept = {at for at, _ in pairs}, {at for _, at in pairs}
    for index in reversed(before):
        if index not in stay:
            yield Change("removed", (*path, index), old[index])
    for index in after:
        if index not in kept:
            yield Change("added", (*path, index), None, new[index])
    for at, now in pairs:
        yield from diff(old[at], new[now], (*path, now))


def _common(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    """How many elements two lists begin and end with in common."""
    start, shortest = 0, min(len(old), len(new))
    while start < shortest and same(old[start], new[start]):
        start += 1
    end = 0
    while end < shortest - start and same(old[-1 - end], new[-1 - end]):
        end += 1
    return start, end


MOST_ALIGNED = 1_000
"""Elements, between the common ends of two lists, that are looked for in each other."""
MOST_ALIKE = 20_000
"""Pairs of equal elements among them; a list of few values has too many to choose from in time."""


def _paired(
    old: Sequence[Any], before: range, new: Sequence[Any], after: range
) -> list[tuple[int, int]]:
    """The places of elements that are the same, or take each other's place, in both orders."""
    if max(len(before), len(after)) > MOST_ALIGNED:
        return list(zip(before, after, strict=False))
    keys = [_key(old[at]) for at in before], [_key(new[at]) for at in after]
    often = Counter(keys[1])
    if sum(often[key] for key in keys[0]) > MOST_ALIKE:
        return list(zip(before, after, strict=False))
    pairs: list[tuple[int, int]] = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if kind in ("equal", "replace"):
            pairs += zip(before[i:j], after[k:m], strict=False)
    return pairs


def _key(value: Any) -> Any:
    """What an element is looked for by: a message's id, so that it is found when it was edited."""
    id = getattr(value, "id", None)
    if isinstance(id, str) and hasattr(value, "content"):
        return type(value), id
    return written(value)


def apply(old: Any, changes: Iterable[Change]) -> Any:
    """`old` with the changes made; `old` itself stays as it is.

    >>> apply({"a": 1}, diff({"a": 1}, {"a": [2]}))
    {'a': [2]}
    """
    root = [_copied(old)]
    for change in changes:
        holder, key = _holder(root, change.path)
        if change.kind == "removed":
            del holder[key]
        elif change.kind == "added" and isinstance(holder, list):
            holder.insert(key, change.new)
        else:
            holder[key] = change.new
    return root[0]


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if type(value) is list else value


def _holder(root: list[Any], path: Path) -> tuple[Any, Any]:
    holder: Any = root
    key: Any = 0
    for part in path:
        holder, key = holder[key], part
    return holder, key


def lines(old: str, new: str) -> list[str]:
    """The line diff of two texts, without file names: ` same`, `-old`, `+new`."""
    found = list(difflib.unified_diff(old.split("\n"), new.split("\n"), lineterm="", n=2))
    return found[2:]


class Diff(Sequence[Change]):
    """The changes between two steps; prints as text, shows as HTML."""

    def __init__(self, changes: Sequence[Change], old: str = "", new: str = "") -> None:
        self.changes, self.old, self.new = tuple(changes), old, new

    def __getitem__(self, index: Any) -> Any:
        return self.changes[index]

    def __len__(self) -> int:
        return len(self.changes)

    def _of(self, kind: Kind) -> dict[str, Any]:
        return {
            change.where: (change.old, change.new)
            if kind == "changed"
            else (change.new if kind == "added" else change.old)
            for change in self.changes
            if change.kind == kind
        }

    @property
    def added(self) -> dict[str, Any]:
        """New values by place."""
        return self._of("added")

    @property
    def removed(self) -> dict[str, Any]:
        """Values that are gone, by place."""
        return self._of("removed")

    @property
    def changed(self) -> dict[str, tuple[Any, Any]]:
        """(old, new) by place."""
        return self._of("changed")

    def __repr__(self) -> str:
        from langgraph_durable.timeline import text

        return text.diff(self)

    def _repr_html_(self) -> str:
        from langgraph_durable.timeline import html

        return html.page(html.diff(self))
