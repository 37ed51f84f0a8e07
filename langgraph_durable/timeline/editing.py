"""A state as JSON text that a person can change, and back, with types kept.

What JSON has words for (text, numbers, lists, dicts with text keys, None) is written as itself.
Anything else says its `"$type"`: a message, pydantic model or dataclass has `"fields"`, a tuple or
set `"items"`, a member of an enum its `"value"`, a date and the like its `"text"`: for editing.
What has no such form is `{"$kept": n}`, which stands for the value that was there. Saving reads the
text against the values it was made from: no class is looked up by name, and a value whose text is
as it was is the very value.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.timeline.diff import written
from langgraph_durable.timeline.forking import delta_channels

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step

TYPE, KEPT = "$type", "$kept"
FIELDS, ITEMS, TEXT, VALUE = "fields", "items", "text", "value"
MARKS = {TYPE, KEPT}
_SHAPES: dict[str, Any] = {FIELDS: dict, ITEMS: list, TEXT: str, VALUE: object}
_WORDS = (str, int, float, bool, type(None))
_TOKENS = re.compile(r'"(?:\\.|[^"\\])*"|[][{},:]|[^][{},:"\s]+')
Path = tuple[str | int, ...]


def fields_of(value: Any) -> dict[str, Any] | None:
    """The data of a message, model or dataclass; None if it is something else."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    names = getattr(type(value), "model_fields", None)
    if isinstance(names, dict):
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return None


class Misfit(Exception):
    """A part of an edited text that stands for no value."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


def _misfit(error: Exception, fields: dict[str, Any], path: Path) -> Misfit:
    """What a class complains about; about which field, where it says so (pydantic does)."""
    for found in error.errors() if hasattr(error, "errors") else ():
        if found["loc"] and found["loc"][0] in fields:
            return Misfit((*path, found["loc"][0]), found["msg"])
        place = ".".join(map(str, found["loc"]))
        return Misfit(path, f"{place}: {found['msg']}" if place else found["msg"])
    return Misfit(path, str(error))


def line_of(text: str, wanted: Path) -> int:
    """The line of a JSON text on which the value at a path is, or the nearest one around it."""
    path: list[str | int | None] = []  # of the value that comes next; None before its key
    word, best, deepest = "", 1, 0
    for token in _TOKENS.finditer(text):
        sign = token.group()
        if sign == ":":
            path[-1] = json.loads(word)
        elif sign == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif sign in "]}":
            path.pop()
        elif deepest < len(path) and tuple(path) == wanted[: len(path)]:
            best, deepest = text.count("\n", 0, token.start()) + 1, len(path)
        word = sign
        if sign in "[{":
            path.append(0 if sign == "[" else None)
    return best


_TEXTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    UUID: (str, UUID),
    Decimal: (str, Decimal),
}
"""How a value of a type is written as text, and made of it."""
_SERIES: tuple[type, ...] = (tuple, set, frozenset)


class _Writer:
    """Writes values as plain JSON data and remembers the classes and values that it named."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.types: dict[str, type] = {}
        self.written: dict[str, Any] = {}
        """What has been written, by its text."""

    def plain(self, value: Any) -> Any:
        if type(value) in _WORDS:
            return value
        if type(value) is list:
            return [self.plain(one) for one in value]
        if (
            type(value) is dict
            and all(type(key) is str for key in value)
            and not value.keys() & MARKS
        ):
            return {key: self.plain(one) for key, one in value.items()}
        made = self._typed(value)
        if made is None:
            self.kept.append(value)
            shown = {KEPT: len(self.kept) - 1, TYPE: type(value).__name__}
            return {**shown, "shown": written(value)[:200]}
        self.written[json.dumps(made)] = value
        return made

    def _typed(self, value: Any) -> dict[str, Any] | None:
        """A value that says its type; None if nothing in it could be edited."""
        kind, fields = type(value), fields_of(value)
        if kind in _TEXTS:
            return {TYPE: self._named(kind), TEXT: _TEXTS[kind][0](value)}
        if kind in _SERIES:
            return {TYPE: self._named(kind), ITEMS: [self.plain(one) for one in value]}
        if isinstance(value, Enum) and type(value.value) in _WORDS:
            return {TYPE: self._named(kind), VALUE: value.value}
        if fields is None:
            return None
        return {
            TYPE: self._named(kind),
            FIELDS: {key: self.plain(one) for key, one in fields.items()},
        }

    def _named(self, kind: type) -> str:
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        self.types[name] = kind
        return name

    def value(self, plain: Any, path: Path) -> Any:
        """The inverse of `plain`, for edited text too; raises `Misfit`."""
        if isinstance(plain, list):
            return [self.value(one, (*path, at)) for at, one in enumerate(plain)]
        if not isinstance(plain, dict):
            return plain
        if KEPT in plain:
            at = plain[KEPT]
            if type(at) is not int or not 0 <= at < len(self.kept):
                raise Misfit((*path, KEPT), f'"{KEPT}": {at!r} stands for no value of this state')
            return self.kept[at]
        if TYPE in plain:
            text = json.dumps(plain)
            return self.written[text] if text in self.written else self._made(plain, path)
        return {key: self.value(one, (*path, key)) for key, one in plain.items()}

    def _made(self, plain: dict[str, Any], path: Path) -> Any:
        """A value of the type that is named."""
        name = plain[TYPE]
        kind = self.types.get(name) if isinstance(name, str) else None
        if kind is None:
            raise Misfit((*path, TYPE), f'"{TYPE}": {name!r} is no type of this state')
        needs = (
            TEXT
            if kind in _TEXTS
            else ITEMS
            if kind in _SERIES
            else VALUE
            if issubclass(kind, Enum)
            else FIELDS
        )
        if not isinstance(plain.get(needs), _SHAPES[needs]):
            raise Misfit(path, f'a value of type {name} needs its "{needs}"')
        path, inner = (*path, needs), plain[needs]
        if needs == FIELDS:
            return self._model(kind, inner, path)
        given = self.value(inner, path)
        try:
            return _TEXTS[kind][1](given) if needs == TEXT else kind(given)
        except Exception as error:
            raise Misfit(path, f"{type(error).__name__}: {error}") from error

    def _model(self, kind: Any, fields: dict[str, Any], path: Path) -> Any:
        given = {key: self.value(one, (*path, key)) for key, one in fields.items()}
        late = {}
        if dataclasses.is_dataclass(kind):
            unset = {field.name for field in dataclasses.fields(kind) if not field.init}
            late = {key: given.pop(key) for key in unset & set(given)}
        try:
            made = kind(**{_argument(kind, key): one for key, one in given.items()})
        except Exception as error:
            raise _misfit(error, fields, path) from error
        for key, one in late.items():
            object.__setattr__(made, key, one)
        return made


def _argument(kind: Any, field: str) -> str:
    """What a model's constructor calls a field."""
    found = getattr(kind, "model_fields", {}).get(field)
    alias = None if found is None else found.validation_alias or found.alias
    return alias if isinstance(alias, str) else field


def to_plain(value: Any) -> Any:
    """A value as JSON data."""
    return _Writer().plain(value)


class Draft:
    """A state as text; change `text`, then `save`."""

    def __init__(self, step: Step) -> None:
        if not isinstance(step.values, dict):
            raise ConfigurationError("only a state with channels can be edited")
        self._step, self._writer = step, _Writer()
        self._before = self._writer.plain(step.values)
        self.text = json.dumps(self._before, indent=2, ensure_ascii=False)

    def __repr__(self) -> str:
        return self.text

    def changes(self) -> dict[str, Any]:
        """The channels that differ from the stored state, with their new values.

        Raises:
            ConfigurationError: the text is no JSON or does not fit; names the line.
        """
        if not isinstance(self.text, str):
            raise ConfigurationError(f"the text of a draft is a str, not {self.text!r:.100}")
        try:
            plain = json.loads(self.text)
        except RecursionError as error:
            raise ConfigurationError("the text is nested too deeply to be read") from error
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f"line {error.lineno}, column {error.colno}: {error.msg}: "
                f"{self._line(error.lineno)}"
            ) from error
        if not isinstance(plain, dict):
            raise ConfigurationError("line 1: a state is an object, one key for each channel")
        gone = sorted(set(self._before) - set(plain))
        if gone:
            raise ConfigurationError(
                f"the channel {gone[0]!r} is missing: channels cannot be removed"
            )
        changed = [name for name in plain if self._is_new(name, plain[name])]
        return {name: self._value(name, plain[name]) for name in changed}

    def _is_new(self, name: str, plain: Any) -> bool:
        return name not in self._before or json.dumps(plain) != json.dumps(self._before[name])

    def _value(self, name: str, plain: Any) -> Any:
        try:
            return self._writer.value(plain, (name,))
        except Misfit as error:
            number = line_of(self.text, error.path)
            raise ConfigurationError(
                f"line {number}, channel {name!r}: {error}: {self._line(number)}"
            ) from error

    def _line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def save(self, *, as_node: str | None = None) -> Step:
        """Store the edited state as a new checkpoint after the step; a fork, the old one stays."""
        return self._step.fork(self._update(), as_node=as_node)

    async def asave(self, *, as_node: str | None = None) -> Step:
        """`save`, off the event loop."""
        return await self._step.afork(self._update(), as_node=as_node)

    def _update(self) -> dict[str, Any]:
        changes = self.changes()
        graph = self._step._timeline.graph
        channels = getattr(graph, "channels", {})
        unknown = next((name for name in changes if channels and name not in channels), None)
        if unknown is not None:
            number = line_of(self.text, (unknown,))
            raise ConfigurationError(f"line {number}: the graph has no channel {unknown!r}")
        return replacing(graph, changes)


def replacing(graph: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """The same changes so that reducers do not add them to what is there."""
    from langgraph.channels.binop import BinaryOperatorAggregate
    from langgraph.types import Overwrite

    channels, deltas = getattr(graph, "channels", {}), delta_channels(graph)
    return {
        name: Overwrite(value)
        if name in deltas or isinstance(channels.get(name), BinaryOperatorAggregate)
        else value
        for name, value in changes.items()
    }
