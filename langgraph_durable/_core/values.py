"""Plans of builtins and of the standard library's classes.

Each is a `Value`: how it is taken apart to a body, and made again. `VALUES` holds the classes
themselves; `BASES` says what a subclass of one is made of, for `classes.SubclassPlan`. What is in
one place in an object and in another in its body has a *label*, which mends paths in errors.
"""

from __future__ import annotations

import ipaddress
import pathlib
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ormsgpack import Fragment

from langgraph_durable._core.authors import GivenId, ParentId
from langgraph_durable._core.kinds import (
    ADDRESS,
    BIG_INT,
    BYTEARRAY,
    COMPLEX,
    COUNTER,
    DATE,
    DATETIME,
    DECIMAL,
    DEFAULTDICT,
    DEQUE,
    DICT,
    FRACTION,
    FROZENSET,
    ORDERED,
    PATH,
    PATTERN,
    RANGE,
    SET,
    TEXT,
    TIME,
    TIMEDELTA,
    TIMEZONE,
    TUPLE,
    UUID_,
    ZONEINFO,
    Pack,
    Steps,
    Unstorable,
    Value,
    exactly,
    ints,
)
from langgraph_durable.errors import CorruptionError, SerializationError

# --- labels: from a step inside the body to a step inside the object ---


def _same_index(obj: Any, steps: Steps) -> None:
    pass


def _index_after_first(obj: Any, steps: Steps) -> None:
    steps[-1:] = [f"[{int(step[1:-1]) - 1}]" for step in steps[-1:]]


def _pair(obj: Any, steps: Steps, skip: int = 0) -> None:
    if steps:
        key = list(obj)[(int(steps.pop()[1:-1]) - skip) // 2]
        steps.append(f"[{key!r}]")


# --- taking apart and making ---


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
    UUID.__init__(made, bytes=exactly(bytes, inner[0]), is_safe=SafeUUID(inner[1]))
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
        return _NAMED[inner[0]](exactly(str, inner[1]))
    except NotImplementedError as error:  # a WindowsPath elsewhere, or the reverse
        raise SerializationError(f"a {inner[0]} cannot be built on this system") from error


def _listed(base: Any) -> Callable[[Any, Pack], Any]:
    return lambda o, pack: list(base.__iter__(o))


# --- the tables ---

VALUES: tuple[Value, ...] = (
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
        for text in (str, GivenId, ParentId)
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
        lambda c, i: complex.__new__(c, *(exactly(float, part) for part in i)),
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
    Value(RANGE, range, lambda o, pack: [o.start, o.stop, o.step], lambda c, i: range(*ints(i))),
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
        lambda c, i: date.__new__(c, *ints(i)),
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
        lambda c, i: timedelta.__new__(c, *ints(i)),
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
        lambda c, i: Fraction.__new__(c, *ints(i)),
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
BASES: dict[type, Value] = {v.cls: v for v in VALUES if v.cls not in _FINAL}
BASES.update({v.cls: v for v in _PLAIN_BASES})
