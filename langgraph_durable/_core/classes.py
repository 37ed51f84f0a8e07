"""Plans of the user's classes: dataclasses, named tuples, enums, exceptions, subclasses.

Their records begin with a reference to the class (see `types.py`); those with fields note a
fingerprint of them, so that a class that has changed since is built through its own constructor.
`Named` is what all have in common; `models` adds those of pydantic.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Iterable
from types import MemberDescriptorType
from typing import Any

from ormsgpack import Fragment
from xxhash import xxh3_64_intdigest

from langgraph_durable._core.kinds import (
    ENUM,
    EXCEPTION,
    NAMEDTUPLE,
    RECORD,
    SUBCLASS,
    Pack,
    Plan,
    Steps,
    Unstorable,
    Value,
    exactly,
)
from langgraph_durable._core.types import (
    IsData,
    class_attribute,
    is_c,
    lineage,
    name_of,
    reference_to,
)
from langgraph_durable.errors import CorruptionError, SerializationError

_dictoffset = type.__dict__["__dictoffset__"].__get__
_new, _set = object.__new__, object.__setattr__


def fingerprint_of(fields: Iterable[str]) -> int:
    """What a record notes of the fields of its class, to see that they have changed."""
    return xxh3_64_intdigest("\0".join(fields).encode()) & 0xFFFFFFFF


def storable(attributes: dict[str, Any], pack: Pack) -> tuple[dict[str, Fragment], list[str]]:
    """Encode what can be, and name what cannot (locks, clients, open files)."""
    kept: dict[str, Fragment] = {}
    left: list[str] = []
    for name, value in attributes.items():
        try:
            kept[name] = Fragment(pack(value))
        except Unstorable:
            left.append(name)
    return kept, left


def _attribute(obj: Any, steps: Steps) -> None:
    if steps:
        steps.pop()
    if steps and steps[-1].startswith('["'):
        steps[-1] = "." + json.loads(steps[-1][1:-1])


class Named(Plan):
    """A class of the user's: its records say which it is, and maybe what fields it had."""

    fields: tuple[str, ...] = ()

    def __init__(self, cls: type, is_data: IsData) -> None:
        super().__init__(cls)
        self.ref = reference_to(cls, is_data)

    def changed(self, stored: Iterable[str], why: object) -> SerializationError:
        """Return the error for an object that today's class cannot hold."""
        stored, today = set(stored), set(self.fields)
        gained = ", ".join(sorted(today - stored)) or "nothing"
        lost = ", ".join(sorted(stored - today)) or "nothing"
        return SerializationError(
            f"{name_of(self.cls)} has changed since it was stored (gained: {gained}; "
            f"lost: {lost}) and the stored object does not fit: {why}. Give new fields a default, "
            "or build the object in a step of a StateSchema, with load_as_dict and transform"
        )

    def construct(self, stored: dict[str, Any], build: Callable[..., Any]) -> Any:
        """Build through the class's own constructor: its fields have changed since."""
        exactly(dict, stored)
        try:
            return build({name: stored[name] for name in self.fields if name in stored})
        except Exception as error:
            raise self.changed(stored, error) from error

    def label(self, obj: Any, steps: Steps) -> None:
        _attribute(obj, steps)


class State(Named):
    """A class whose objects carry attributes, in a `__dict__`, in slots or in both."""

    def __init__(self, cls: type, is_data: IsData) -> None:
        super().__init__(cls, is_data)
        self.has_dict = _dictoffset(cls) != 0
        self.slots: dict[str, Any] = {
            name: member
            for owner in reversed(lineage(cls))
            if not is_c(owner)
            for name, member in type.__getattribute__(owner, "__dict__").items()
            if type(member) is MemberDescriptorType
        }

    def state(self, obj: Any) -> dict[str, Any]:
        """Return the attributes that are set on `obj` itself."""
        found: dict[str, Any] = object.__getattribute__(obj, "__dict__") if self.has_dict else {}
        # typing's own note on an instance of a generic class; not part of the value.
        if "__orig_class__" in found:
            found = {k: v for k, v in found.items() if k != "__orig_class__"}
        if not self.slots:
            return found
        unset = object()
        held = {}
        for name, member in self.slots.items():
            try:
                value = member.__get__(obj)
            except AttributeError:
                value = unset
            if value is not unset:
                held[name] = value
        return held | found

    def restore(self, obj: Any, state: dict[str, Any]) -> Any:
        """Set attributes past any `__setattr__` or descriptor of the class."""
        exactly(dict, state)
        if not self.slots and self.has_dict:
            _set(obj, "__dict__", state)
            return obj
        for name, value in state.items():
            if name in self.slots:
                self.slots[name].__set__(obj, value)
            elif self.has_dict:
                object.__getattribute__(obj, "__dict__")[name] = value
            else:
                raise self.changed([name], "it no longer takes attributes")
        return obj


class SubclassPlan(State):
    """A subclass of a builtin: the builtin's content and the attributes."""

    code = SUBCLASS

    def __init__(self, cls: type, is_data: IsData, base: Value) -> None:
        super().__init__(cls, is_data)
        self.base = base

    def encode(self, obj: Any, pack: Pack) -> bytes:
        return pack([self.ref, self.base.take(obj, pack), self.state(obj)])

    def rebuild(self, inner: Any) -> Any:
        _, content, state = inner
        made = self.base.make(self.cls, exactly(self.base.body, content))
        return self.restore(made, state) if state else made

    def label(self, obj: Any, steps: Steps) -> None:
        if steps and steps[-1] == "[1]":
            steps.pop()
            self.base.label(obj, steps)
        else:
            _attribute(obj, steps)


class ExceptionPlan(State):
    """An exception: class, arguments, attributes. What cannot be stored must not hide the error.

    An unstorable argument is kept as its `repr`, an unstorable attribute is left out; cause,
    context and traceback belong to the process that raised it.
    """

    code = EXCEPTION

    def __init__(self, cls: type, is_data: IsData) -> None:
        super().__init__(cls, is_data)
        self.base: Any = next(owner for owner in lineage(cls) if is_c(owner))

    def encode(self, obj: Any, pack: Pack) -> bytes:
        # Not `args`: an OSError leaves its file names out of them.
        args = [self._argument(arg, pack) for arg in self.base.__reduce__(obj)[1]]
        return pack([self.ref, args, storable(self.state(obj), pack)[0]])

    @staticmethod
    def _argument(arg: Any, pack: Pack) -> Fragment:
        try:
            return Fragment(pack(arg))
        except Unstorable:
            return Fragment(pack(repr(arg)))

    def rebuild(self, inner: Any) -> Any:
        _, args, state = inner
        made = self.base.__new__(self.cls, *exactly(list, args))
        self.base.__init__(made, *args)
        return self.restore(made, state) if state else made


class EnumPlan(State):
    """An enum member by name, a flag by value (its combinations have no name of their own)."""

    code = ENUM

    def encode(self, obj: Any, pack: Pack) -> bytes:
        return pack([self.ref, obj._value_ if isinstance(obj, enum.Flag) else obj._name_])

    def rebuild(self, inner: Any) -> Any:
        key = inner[1]
        flag = enum.Flag in lineage(self.cls)
        members = class_attribute(self.cls, "_value2member_map_" if flag else "_member_map_")
        if key in members:
            return members[key]
        if not flag:
            raise SerializationError(f"{name_of(self.cls)} has no member {key!r} any more")
        try:
            return enum.Flag.__dict__["_missing_"].__func__(self.cls, key)
        except ValueError as error:
            raise SerializationError(f"{name_of(self.cls)} has no value {key!r}") from error


class RecordPlan(State):
    """A dataclass, or one of LangGraph's slotted classes."""

    code = RECORD

    def __init__(self, cls: type, is_data: IsData) -> None:
        super().__init__(cls, is_data)
        fields = class_attribute(cls, "__dataclass_fields__")
        self.fields = tuple(
            [f.name for f in dataclasses.fields(cls)] if fields is not None else self.slots
        )
        self.init = [f.name for f in fields.values() if f.init] if fields else self.fields
        self.fingerprint = fingerprint_of(self.fields)

    def encode(self, obj: Any, pack: Pack) -> bytes:
        return pack([self.ref, self.fingerprint, self.state(obj)])

    def rebuild(self, inner: Any) -> Any:
        _, fingerprint, state = inner
        if fingerprint != self.fingerprint:
            return self.construct(
                state, lambda known: self.cls(**{k: known[k] for k in self.init if k in known})
            )
        return self.restore(_new(self.cls), state)


class NamedTuplePlan(State):
    """A named tuple, stored by name so that a class that gained a default still loads."""

    code = NAMEDTUPLE

    def __init__(self, cls: type, is_data: IsData) -> None:
        super().__init__(cls, is_data)
        self.fields = class_attribute(cls, "_fields")
        self.fingerprint = fingerprint_of(self.fields)

    def encode(self, obj: Any, pack: Pack) -> bytes:
        values = dict(zip(self.fields, tuple.__iter__(obj), strict=True))
        return pack([self.ref, self.fingerprint, values, self.state(obj)])

    def rebuild(self, inner: Any) -> Any:
        _, fingerprint, values, state = inner
        if fingerprint != self.fingerprint:
            return self.construct(values, lambda known: self.cls(**known))
        if len(exactly(dict, values)) != len(self.fields):
            raise CorruptionError(f"a stored {name_of(self.cls)} has {len(values)} fields")
        made: Any = tuple.__new__(self.cls, values.values())
        return self.restore(made, state) if state else made
