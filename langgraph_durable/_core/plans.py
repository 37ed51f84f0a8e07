"""How each class is taken apart for storage and put together again.

A plan turns an object into one *record*: a kind number and a body. `encode(obj, pack)` returns the
body, where `pack` turns any inner value into bytes; `serde.py` supplies it (a fast one that gives
up, a careful one that names what is wrong) and wraps the body. `rebuild(inner)` gets the unpacked
body back. Objects are rebuilt with a builtin's `__new__` and by setting state: no `__init__`,
validator or other code of the class runs, unless its fields have changed since it was stored.
Whoever can write to the store can forge a record, so every part of a body must be the plain data
that `encode` puts there: an endless network in place of a list would fill the memory.

`PLANS[cls]` also is the verdict on what counts as data: a class without a plan of the kind a
record claims is never built.
"""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import itertools
import json
import pathlib
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from types import BuiltinMethodType, MemberDescriptorType
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ormsgpack import Fragment
from pydantic import BaseModel
from xxhash import xxh3_64_intdigest

from langgraph_durable._core.records import GivenId
from langgraph_durable._core.types import (
    CORE_NUMBER,
    class_attribute,
    lineage,
    name_of,
    reference_to,
)
from langgraph_durable.errors import CorruptionError, SerializationError

Pack = Callable[[Any], bytes]
Steps = list[str]  # a path, innermost step first

# Kinds of record. Stored data holds these numbers: never reuse one.
TUPLE, DICT, BIG_INT, TEXT, BYTEARRAY, COMPLEX, SET, FROZENSET, DEQUE, ORDERED = range(1, 11)
DEFAULTDICT, COUNTER, RANGE, DATETIME, DATE, TIME, TIMEDELTA, TIMEZONE, ZONEINFO = range(11, 20)
UUID_, DECIMAL, FRACTION, PATH, PATTERN, ADDRESS, ARRAY, SCALAR = range(20, 28)
ARTIFACT, GONE = 28, 29
FRAME, SERIES, TABLE, PICTURE, MOMENT = range(30, 35)
SUBCLASS, EXCEPTION, ENUM, RECORD, NAMEDTUPLE, MODEL, MODEL_V1 = range(40, 47)

_flags = type.__dict__["__flags__"].__get__
_dictoffset = type.__dict__["__dictoffset__"].__get__
_HEAP_TYPE = 1 << 9  # set on all classes made by a class statement, and on some written in C
_new, _set = object.__new__, object.__setattr__


class Unstorable(Exception):
    """A value has no exact stored form; the path to it is gathered on the way up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: Steps = []


def _exactly(kind: type, part: Any) -> Any:
    """Return a part of a record, which must be of this very type."""
    if type(part) is not kind:
        raise CorruptionError(f"a record does not hold a {kind.__name__} where one belongs")
    return part


def _ints(parts: list[Any]) -> Iterator[int]:
    return (_exactly(int, part) for part in parts)


_serials = itertools.count()


class Plan:
    """How the objects of one class are stored and rebuilt; this one refuses them."""

    code = 0

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.serial = next(_serials)
        """A number that no other plan of this process has."""
        # 0xc1 never starts a msgpack value, so it can mark a record at the top level.
        self.lead = bytes((0xC1, self.code))
        self.item_lead = b"\x00" + self.lead

    def encode(self, obj: Any, pack: Pack) -> bytes:
        """Return the body of the record that stands for `obj`."""
        kind = f"{self.cls.__module__}.{self.cls.__qualname__}"
        raise Unstorable(f"an object of type {kind} cannot be stored exactly")

    def rebuild(self, inner: Any) -> Any:
        """Return the object that `inner`, an unpacked body, stands for."""
        raise CorruptionError(f"{name_of(self.cls)} is never stored")

    def label(self, obj: Any, steps: Steps) -> None:
        """Turn the outermost steps of a path inside the body into a path inside `obj`."""
        steps.clear()


class Value(Plan):
    """A builtin or standard library class: `take` it apart to a `body`, `make` it again."""

    def __init__(
        self,
        code: int,
        cls: type,
        take: Callable[[Any, Pack], Any],
        make: Callable[[type, Any], Any],
        label: Callable[[Any, Steps], None] | None = None,
        body: type = list,
    ) -> None:
        self.code = code
        super().__init__(cls)
        self.take, self.make, self.body = take, make, body
        if label is not None:
            self.label = label  # type: ignore[method-assign,assignment]

    def encode(self, obj: Any, pack: Pack) -> bytes:
        return pack(self.take(obj, pack))

    def rebuild(self, inner: Any) -> Any:
        return self.make(self.cls, _exactly(self.body, inner))


# --- labels: from a step inside the body to a step inside the object ---


def _same_index(obj: Any, steps: Steps) -> None:
    pass


def _index_after_first(obj: Any, steps: Steps) -> None:
    steps[-1:] = [f"[{int(step[1:-1]) - 1}]" for step in steps[-1:]]


def _pair(obj: Any, steps: Steps, skip: int = 0) -> None:
    if steps:
        key = list(obj)[(int(steps.pop()[1:-1]) - skip) // 2]
        steps.append(f"[{key!r}]")


def _attribute(obj: Any, steps: Steps) -> None:
    if steps:
        steps.pop()
    if steps and steps[-1].startswith('["'):
        steps[-1] = "." + json.loads(steps[-1][1:-1])


# --- values ---


def _flat(items: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [part for pair in items for part in pair]


def _pairs(flat: list[Any]) -> dict[Any, Any]:
    pairs = dict(zip(flat[::2], flat[1::2], strict=True))
    if len(pairs) * 2 != len(flat):
        raise CorruptionError("a stored dict repeats a key")
    return pairs


def _filled(cls: type, base: Any, fill: Callable[..., Any], content: Any) -> Any:
    made = base.__new__(cls)
    fill(made, content)
    return made


def _sorted_parts(obj: Any, pack: Pack) -> list[Fragment]:
    """Encode what has no order in the order of its bytes: equal sets, equal bytes."""
    try:
        return [Fragment(part) for part in sorted(map(pack, obj))]
    except Unstorable as error:
        error.steps.clear()
        raise


def _ordered(cls: type, flat: list[Any]) -> Any:
    made: Any = OrderedDict.__new__(cls)
    for key, value in _pairs(flat).items():
        OrderedDict.__setitem__(made, key, value)
    return made


_FACTORIES: dict[str, Any] = {
    factory.__name__: factory
    for factory in (list, dict, set, frozenset, tuple, int, float, complex, bool, str, bytes)
} | {c.__name__: c for c in (bytearray, deque, Counter, OrderedDict)}


def _take_defaultdict(obj: Any, pack: Pack) -> list[Any]:
    factory = obj.default_factory
    name = getattr(factory, "__name__", None)
    if factory is not None and _FACTORIES.get(str(name)) is not factory:
        raise Unstorable(f"a defaultdict with the factory {factory!r} cannot be stored exactly")
    return [name, *_flat(dict.items(obj))]


def _make_defaultdict(cls: type, inner: list[Any]) -> Any:
    made: Any = defaultdict.__new__(cls)
    factory = None if inner[0] is None else _FACTORIES[inner[0]]
    defaultdict.__init__(made, factory, _pairs(inner[1:]))
    return made


def _make_deque(cls: type, inner: list[Any]) -> Any:
    made: Any = deque.__new__(cls)
    deque.__init__(made, inner[1:], inner[0])
    return made


def zone_of(moment: datetime | time) -> tzinfo | None:
    """Return the time zone to store: a foreign class becomes the offset it has at that moment."""
    zone = moment.tzinfo
    if zone is None or type(zone) in (timezone, ZoneInfo):
        return zone
    offset = moment.utcoffset()
    fixed = None if offset is None else timezone(offset)
    # Inside a repeated hour no fixed offset compares equal (PEP 495).
    if fixed is None or moment.replace(tzinfo=fixed) != moment:
        raise Unstorable(f"the time zone {zone!r} cannot be stored exactly: use zoneinfo.ZoneInfo")
    return fixed


def _take_datetime(o: datetime, pack: Pack) -> list[Any]:
    clock = (o.hour, o.minute, o.second, o.microsecond)
    return [o.year, o.month, o.day, *clock, zone_of(o), o.fold]


def _take_zone_name(zone: ZoneInfo, pack: Pack) -> str:
    if zone.key is None:
        raise Unstorable("a ZoneInfo without a key cannot be stored")
    return zone.key


def _make_zoneinfo(cls: type, key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError as error:
        raise SerializationError(f"the time zone {key!r} is not installed here") from error


def _make_uuid(cls: type, inner: list[Any]) -> Any:
    made: Any = UUID.__new__(cls)
    UUID.__init__(made, bytes=_exactly(bytes, inner[0]), is_safe=SafeUUID(inner[1]))
    return made


_NAMED: dict[str, type] = {
    c.__name__: c
    for c in (
        *(pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath),
        *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
        *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
    )
}


def _make_named(cls: type, inner: list[str]) -> Any:
    try:
        return _NAMED[inner[0]](_exactly(str, inner[1]))
    except NotImplementedError as error:  # a WindowsPath elsewhere, or the reverse
        raise SerializationError(f"a {inner[0]} cannot be built on this system") from error


def _make_array(cls: type, inner: list[Any]) -> Any:
    import numpy as np

    described, shape, order, data = inner
    if type(described) is not str:
        described = _tuples(_exactly(list, described))
    dtype = np.lib.format.descr_to_dtype(described)
    if dtype.hasobject:
        raise CorruptionError("a stored array never holds objects")
    # A bytearray makes the array writable, as the stored one may have been.
    buffer = bytearray(_exactly(bytes, data))
    return np.ndarray(tuple(_ints(_exactly(list, shape))), dtype, buffer, order=order)


def _make_scalar(cls: type, inner: list[Any]) -> Any:
    import numpy as np

    if inner[0] in ("str", "bytes"):
        if inner[0] == "str":
            return np.str_(_exactly(str, inner[1]))
        return np.bytes_(_exactly(bytes, inner[1]))
    return _make_array(cls, [inner[0], [], "C", inner[1]])[()]


def _tuples(described: Any) -> Any:
    """Give the fields of a structured dtype back the tuples that numpy insists on."""
    if type(described) is not list:
        return described
    return [(f[0], _tuples(f[1]), *(tuple(shape) for shape in f[2:])) for f in described]


def _describe(dtype: Any) -> Any:
    import numpy as np

    described = np.lib.format.dtype_to_descr(dtype) if not dtype.hasobject else None
    listed = _lists(described)
    try:
        same = described is not None and np.lib.format.descr_to_dtype(_tuples(listed)) == dtype
    except (TypeError, ValueError):  # fields with titles
        same = False
    if not same:
        raise Unstorable(f"a numpy value of dtype {dtype} cannot be stored exactly")
    return listed


def _lists(described: Any) -> Any:
    return [_lists(d) for d in described] if isinstance(described, (list, tuple)) else described


def _take_array(array: Any, pack: Pack) -> list[Any]:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return [_describe(array.dtype), list(array.shape), order, array.tobytes(order)]


def _take_scalar(scalar: Any, pack: Pack) -> list[Any]:
    # numpy drops trailing NULs of its strings when it reads them from a buffer.
    if isinstance(scalar, (str, bytes)):
        base: Any = str if isinstance(scalar, str) else bytes
        return [base.__name__, base.__getitem__(scalar, slice(None))]
    return [_describe(scalar.dtype), scalar.tobytes()]


def _listed(base: Any) -> Callable[[Any, Pack], Any]:
    return lambda o, pack: list(base.__iter__(o))


_VALUES: tuple[Value, ...] = (
    Value(TUPLE, tuple, _listed(tuple), lambda c, i: tuple.__new__(c, i), _same_index),
    Value(
        DICT,
        dict,
        lambda o, pack: _flat(dict.items(o)),
        lambda c, i: _filled(c, dict, dict.update, _pairs(i)),
        _pair,
    ),
    Value(
        BIG_INT,
        int,
        lambda o, pack: o.to_bytes(o.bit_length() // 8 + 1, "little", signed=True),
        lambda c, i: int.from_bytes(i, "little", signed=True),
        body=bytes,
    ),
    *(
        Value(
            TEXT,
            text,
            lambda o, pack: str.encode(o, "utf-8", "surrogatepass"),
            lambda c, i: i.decode("utf-8", "surrogatepass"),
            body=bytes,
        )
        for text in (str, GivenId)
    ),
    Value(
        BYTEARRAY,
        bytearray,
        lambda o, pack: bytes(memoryview(o)),
        lambda c, i: _filled(c, bytearray, bytearray.extend, i),
        body=bytes,
    ),
    Value(
        COMPLEX,
        complex,
        lambda o, pack: [complex.__complex__(o).real, complex.__complex__(o).imag],
        lambda c, i: complex.__new__(c, *(_exactly(float, part) for part in i)),
    ),
    Value(SET, set, _sorted_parts, lambda c, i: _filled(c, set, set.update, i)),
    Value(FROZENSET, frozenset, _sorted_parts, lambda c, i: frozenset.__new__(c, i)),
    Value(
        DEQUE,
        deque,
        lambda o, pack: [o.maxlen, *deque.__iter__(o)],
        _make_deque,
        _index_after_first,
    ),
    Value(
        ORDERED,
        OrderedDict,
        lambda o, pack: _flat((k, dict.__getitem__(o, k)) for k in OrderedDict.__iter__(o)),
        _ordered,
        _pair,
    ),
    Value(
        DEFAULTDICT,
        defaultdict,
        _take_defaultdict,
        _make_defaultdict,
        lambda o, steps: _pair(o, steps, skip=1),
    ),
    Value(
        COUNTER,
        Counter,
        lambda o, pack: _flat(dict.items(o)),
        lambda c, i: _filled(c, dict, dict.update, _pairs(i)),
        _pair,
    ),
    Value(RANGE, range, lambda o, pack: [o.start, o.stop, o.step], lambda c, i: range(*_ints(i))),
    Value(
        DATETIME,
        datetime,
        _take_datetime,
        lambda c, i: datetime.__new__(c, *i[:8], fold=i[8]),
    ),
    Value(
        DATE,
        date,
        lambda o, pack: [o.year, o.month, o.day],
        lambda c, i: date.__new__(c, *_ints(i)),
    ),
    Value(
        TIME,
        time,
        lambda o, pack: [o.hour, o.minute, o.second, o.microsecond, zone_of(o), o.fold],
        lambda c, i: time.__new__(c, *i[:5], fold=i[5]),
    ),
    Value(
        TIMEDELTA,
        timedelta,
        lambda o, pack: [o.days, o.seconds, o.microseconds],
        lambda c, i: timedelta.__new__(c, *_ints(i)),
    ),
    Value(
        TIMEZONE,
        timezone,
        lambda o, pack: list(o.__getinitargs__()),
        lambda c, i: timezone(*i),
    ),
    Value(ZONEINFO, ZoneInfo, _take_zone_name, _make_zoneinfo, body=str),
    Value(UUID_, UUID, lambda o, pack: [o.bytes, o.is_safe.value], _make_uuid),
    Value(
        DECIMAL,
        Decimal,
        lambda o, pack: Decimal.__str__(o),
        lambda c, i: Decimal.__new__(c, i),
        body=str,
    ),
    Value(
        FRACTION,
        Fraction,
        lambda o, pack: [o.numerator, o.denominator],
        lambda c, i: Fraction.__new__(c, *_ints(i)),
    ),
    Value(
        PATTERN,
        re.Pattern,
        lambda o, pack: [o.pattern, int(o.flags)],
        lambda c, i: re.compile(*i),
    ),
    *(
        Value(
            PATH if issubclass(named, pathlib.PurePath) else ADDRESS,
            named,
            lambda o, pack: [type(o).__name__, str(o)],
            _make_named,
        )
        for named in _NAMED.values()
    ),
)
_ARRAY = Value(ARRAY, object, _take_array, _make_array)
_SCALAR = Value(SCALAR, object, _take_scalar, _make_scalar)
MAKERS: dict[int, Callable[[Any], Any]] = {v.code: v.rebuild for v in (*_VALUES, _ARRAY, _SCALAR)}

# What a subclass of a builtin is stored as. Exact ints, strings, lists ... are msgpack's own.
_PLAIN_BASES: tuple[Value, ...] = (
    Value(0, str, lambda o, pack: str.__str__(o), lambda c, i: str.__new__(c, i), body=str),
    Value(0, int, lambda o, pack: int.__int__(o), lambda c, i: int.__new__(c, i), body=int),
    Value(
        0,
        float,
        lambda o, pack: float.__float__(o),
        lambda c, i: float.__new__(c, i),
        body=float,
    ),
    Value(
        0,
        bytes,
        lambda o, pack: bytes.__getitem__(o, slice(None)),
        lambda c, i: bytes.__new__(c, i),
        body=bytes,
    ),
    Value(0, list, _listed(list), lambda c, i: _filled(c, list, list.extend, i), _same_index),
)
_FINAL = {range, timezone, ZoneInfo, re.Pattern, *_NAMED.values()}
_BASES: dict[type, Value] = {v.cls: v for v in _VALUES if v.cls not in _FINAL}
_BASES.update({v.cls: v for v in _PLAIN_BASES})


# --- classes of the user ---


def _is_c(cls: type) -> bool:
    # Extensions make heap types too, whose `__new__` is one of C: pandas does for its Timestamp.
    made = type.__getattribute__(cls, "__dict__").get("__new__")
    return not _flags(cls) & _HEAP_TYPE or type(made) is BuiltinMethodType


def _fingerprint(fields: Iterable[str]) -> int:
    return xxh3_64_intdigest("\0".join(fields).encode()) & 0xFFFFFFFF


def _storable(attributes: dict[str, Any], pack: Pack) -> tuple[dict[str, Fragment], list[str]]:
    """Encode what can be, and name what cannot (locks, clients, open files)."""
    kept: dict[str, Fragment] = {}
    left: list[str] = []
    for name, value in attributes.items():
        try:
            kept[name] = Fragment(pack(value))
        except Unstorable:
            left.append(name)
    return kept, left


class State(Plan):
    """A class whose objects carry attributes, in a `__dict__`, in slots or in both."""

    fields: tuple[str, ...] = ()

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.ref = reference_to(cls, is_data)
        self.has_dict = _dictoffset(cls) != 0
        self.slots: dict[str, Any] = {
            name: member
            for owner in reversed(lineage(cls))
            if not _is_c(owner)
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
        _exactly(dict, state)
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

    def changed(self, stored: Iterable[str], why: object) -> SerializationError:
        """Return the error for an object that today's class cannot hold."""
        stored, today = set(stored), set(self.fields)
        gained = ", ".join(sorted(today - stored)) or "nothing"
        lost = ", ".join(sorted(stored - today)) or "nothing"
        return SerializationError(
            f"{name_of(self.cls)} has changed since it was stored (gained: {gained}; "
            f"lost: {lost}) and the stored object does not fit: {why}"
        )

    def construct(self, stored: dict[str, Any], build: Callable[..., Any]) -> Any:
        """Build through the class's own constructor: its fields have changed since."""
        _exactly(dict, stored)
        try:
            return build({name: stored[name] for name in self.fields if name in stored})
        except Exception as error:
            raise self.changed(stored, error) from error

    def label(self, obj: Any, steps: Steps) -> None:
        _attribute(obj, steps)


class SubclassPlan(State):
    """A subclass of a builtin: the builtin's content and the attributes."""

    code = SUBCLASS

    def __init__(self, cls: type, base: Value) -> None:
        super().__init__(cls)
        self.base = base

    def encode(self, obj: Any, pack: Pack) -> bytes:
        return pack([self.ref, self.base.take(obj, pack), self.state(obj)])

    def rebuild(self, inner: Any) -> Any:
        _, content, state = inner
        made = self.base.make(self.cls, _exactly(self.base.body, content))
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

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.base: Any = next(owner for owner in lineage(cls) if _is_c(owner))

    def encode(self, obj: Any, pack: Pack) -> bytes:
        # Not `args`: an OSError leaves its file names out of them.
        args = [self._argument(arg, pack) for arg in self.base.__reduce__(obj)[1]]
        return pack([self.ref, args, _storable(self.state(obj), pack)[0]])

    @staticmethod
    def _argument(arg: Any, pack: Pack) -> Fragment:
        try:
            return Fragment(pack(arg))
        except Unstorable:
            return Fragment(pack(repr(arg)))

    def rebuild(self, inner: Any) -> Any:
        _, args, state = inner
        made = self.base.__new__(self.cls, *_exactly(list, args))
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

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        fields = class_attribute(cls, "__dataclass_fields__")
        self.fields = tuple(
            [f.name for f in dataclasses.fields(cls)] if fields is not None else self.slots
        )
        self.init = [f.name for f in fields.values() if f.init] if fields else self.fields
        self.fingerprint = _fingerprint(self.fields)

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

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.fields = class_attribute(cls, "_fields")
        self.fingerprint = _fingerprint(self.fields)

    def encode(self, obj: Any, pack: Pack) -> bytes:
        values = dict(zip(self.fields, tuple.__iter__(obj), strict=True))
        return pack([self.ref, self.fingerprint, values, self.state(obj)])

    def rebuild(self, inner: Any) -> Any:
        _, fingerprint, values, state = inner
        if fingerprint != self.fingerprint:
            return self.construct(values, lambda known: self.cls(**known))
        if len(_exactly(dict, values)) != len(self.fields):
            raise CorruptionError(f"a stored {name_of(self.cls)} has {len(values)} fields")
        made: Any = tuple.__new__(self.cls, values.values())
        return self.restore(made, state) if state else made


# The slots of every model; setting through them is twice as fast as by name.
_set_fields_set, _set_extra, _set_private = (
    BaseModel.__dict__[f"__pydantic_{slot}__"].__set__
    for slot in ("fields_set", "extra", "private")
)
_set_values = BaseModel.__dict__["__dict__"].__set__


def _default(private: Any) -> Any:
    """What a new object would have there; pydantic 2.14 calls a factory only when asked to."""
    factory = getattr(private, "default_factory", None)
    return private.get_default() if factory is None else factory()


class ModelPlan(State):
    """A pydantic model: `__dict__`, which fields were set, extras and private attributes.

    The usual model has no extras and no private attributes, and its record says nothing of them.
    """

    code = MODEL

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.infos = class_attribute(cls, "__pydantic_fields__") or {}
        self.fields = tuple(self.infos)
        self.fingerprint = _fingerprint(self.fields)
        self.bits = {name: 1 << n for n, name in enumerate(self.fields)}
        self.sets: dict[int, frozenset[str]] = {}
        config = class_attribute(cls, "model_config") or {}
        self.extra: dict[str, Any] | None = {} if config.get("extra") == "allow" else None
        self.private: dict[str, Any] = class_attribute(cls, "__private_attributes__") or {}

    def encode(self, obj: Any, pack: Pack) -> bytes:
        fields_set: Any = 0
        bits = self.bits
        try:
            for name in obj.__pydantic_fields_set__:
                fields_set |= bits[name]
        except KeyError:  # extras count as set too
            fields_set = sorted(obj.__pydantic_fields_set__)
        extra, private = obj.__pydantic_extra__, obj.__pydantic_private__
        body = [self.ref, self.fingerprint, fields_set, obj.__dict__]
        if private is not None or extra != self.extra:
            body += [extra, None if private is None else _storable(private, pack)]
            body[-1] = body[-1] and list(body[-1])
        return pack(body)

    def rebuild(self, inner: Any) -> Any:
        if len(inner) == 4:
            _, fingerprint, fields_set, values = inner
            extra: dict[str, Any] | None = None if self.extra is None else {}
            private = None
        else:
            _, fingerprint, fields_set, values, extra, private = inner
            if extra is not None:
                _exactly(dict, extra)
            if private is not None:
                private = self._private(*_exactly(list, private))
        if type(values) is not dict:
            raise CorruptionError(f"a stored {name_of(self.cls)} has no fields")
        if fingerprint != self.fingerprint:
            return self.construct(values | (extra or {}), self._validate)
        made: Any = _new(self.cls)
        _set_values(made, values)
        names = self.sets.get(fields_set) if type(fields_set) is int else None
        _set_fields_set(made, self._names(fields_set) if names is None else set(names))
        _set_extra(made, extra)
        _set_private(made, private)
        return made

    def _names(self, fields_set: Any) -> set[str]:
        if type(fields_set) is list:
            return set(fields_set)
        names = self.sets.get(fields_set)
        if names is None:
            names = frozenset(name for name, bit in self.bits.items() if fields_set & bit)
            if len(self.sets) < 256:  # what is stored must not fill the memory
                self.sets[fields_set] = names
        return set(names)

    def _private(self, kept: dict[str, Any], left: list[str]) -> dict[str, Any]:
        """Give attributes that could not be stored the value that a new object would have."""
        _exactly(dict, kept)
        for name in _exactly(list, left):
            default = _default(self.private[name]) if name in self.private else ...
            if default is not ... and type(default).__name__ != "PydanticUndefinedType":
                kept[name] = default
        return kept

    def _validate(self, known: dict[str, Any]) -> Any:
        def key(name: str) -> str:
            alias = self.infos[name].validation_alias
            return alias if isinstance(alias, str) else name

        return self.cls(**{key(name): value for name, value in known.items()})


class ModelV1Plan(State):
    """A model of pydantic's first generation, through the `pydantic.v1` module."""

    code = MODEL_V1

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.fields = tuple(class_attribute(cls, "__fields__") or ())
        self.fingerprint = _fingerprint(self.fields)
        self.private: dict[str, Any] = class_attribute(cls, "__private_attributes__") or {}

    def encode(self, obj: Any, pack: Pack) -> bytes:
        private = {name: getattr(obj, name) for name in self.private if hasattr(obj, name)}
        kept = list(_storable(private, pack))
        names = sorted(obj.__fields_set__)
        return pack([self.ref, self.fingerprint, obj.__dict__, names, kept])

    def rebuild(self, inner: Any) -> Any:
        _, fingerprint, values, names, (kept, left) = inner
        if fingerprint != self.fingerprint:
            return self.construct(values, lambda known: self.cls(**known))
        made: Any = _new(self.cls)
        _set(made, "__dict__", _exactly(dict, values))
        _set(made, "__fields_set__", set(_exactly(list, names)))
        # Only the slots of private attributes: another name might lead to a property.
        for name, value in _exactly(dict, kept).items():
            if name in self.private:
                _set(made, name, value)
        for name in _exactly(list, left):
            _set(made, name, _default(self.private[name]))
        return made


Classify = Callable[[type], Plan | None]
CLASSIFIERS: list[Classify] = []
"""Asked first about a new class: those of libraries that may not be there."""
_registered: list[Value] = []


def register(value: Value) -> None:
    """Add a class that is stored as a value of its own kind."""
    _registered.append(value)
    PLANS[value.cls] = value
    MAKERS[value.code] = value.rebuild


def _classify(cls: type) -> Plan:
    for classify in CLASSIFIERS:
        found = classify(cls)
        if found is not None:
            return found
    ancestors = lineage(cls)
    if enum.Enum in ancestors:
        return EnumPlan(cls)
    if BaseModel in ancestors:
        return ModelPlan(cls)
    v1 = sys.modules.get("pydantic.v1.main")
    if v1 is not None and v1.BaseModel in ancestors:
        return ModelV1Plan(cls)
    numpy = sys.modules.get("numpy")
    if numpy is not None and cls is numpy.ndarray:
        return _ARRAY
    if numpy is not None and numpy.generic in ancestors and _is_c(cls):
        return _SCALAR
    if BaseException in ancestors:
        return ExceptionPlan(cls)
    if tuple in ancestors and type(class_attribute(cls, "_fields")) is tuple:
        return NamedTuplePlan(cls)
    # A class written in C may hold more than its builtin base shows.
    native = next(owner for owner in ancestors if _is_c(owner) or owner in _BASES)
    if native in _BASES and cls is not native:
        return SubclassPlan(cls, _BASES[native])
    if native is object and cls is not object:
        if class_attribute(cls, "__dataclass_fields__") is not None:
            return RecordPlan(cls)
        if name_of(cls) in CORE_NUMBER:
            return RecordPlan(cls)
    return Plan(cls)


class _Plans(dict[type, Plan]):
    """The plan of every class met so far; a lookup of a new one makes it."""

    limit = 4096  # programs that make classes without end must not fill the memory

    def __missing__(self, cls: type) -> Plan:
        if len(self) > self.limit:
            self.clear()
            self.update({value.cls: value for value in (*_VALUES, *_registered)})
        try:
            plan = self[cls] = _classify(cls)
        except SerializationError as error:
            raise Unstorable(str(error)) from error
        return plan


PLANS = _Plans({value.cls: value for value in _VALUES})


def is_data(cls: type) -> bool:
    """Tell whether objects of `cls` can be stored and rebuilt."""
    return PLANS[cls].code != 0
