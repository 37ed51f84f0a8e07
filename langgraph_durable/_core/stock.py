"""What the stock serialiser wrote, read under our own rules.

Its records say what to call: a class or a method by name. Only classes that are data are called,
and a few of the standard library; `serde.py` hands each record to `build`.
"""

from __future__ import annotations

import ipaddress
import pathlib
import re
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_durable._core.kinds import (
    ARRAY,
    ENUM,
    MODEL,
    MODEL_V1,
    NAMEDTUPLE,
    RECORD,
    SUBCLASS,
)
from langgraph_durable._core.plans import MAKERS, PLANS, is_data
from langgraph_durable._core.rebuilding import only_data
from langgraph_durable._core.types import Gate, is_class
from langgraph_durable.errors import CorruptionError, SerializationError, UnsafeTypeError

_VALUES: dict[tuple[str, str], Callable[..., Any]] = {
    (cls.__module__, cls.__name__): cls
    for cls in (
        *(datetime, date, time, timedelta, timezone, UUID, Decimal, set, frozenset, deque),
        *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
        *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
    )
}
_VALUES |= {
    (module, cls.__name__): cls
    for cls in (pathlib.Path, pathlib.PosixPath, pathlib.WindowsPath)
    for module in ("pathlib", "pathlib._local")
}
_VALUES |= {("zoneinfo", "ZoneInfo"): ZoneInfo, ("re", "compile"): re.compile}

_CONSTRUCTED = frozenset({ENUM, RECORD, NAMEDTUPLE, SUBCLASS})
# Extension code -> the kinds of class that its records may build.
_KINDS = {
    0: _CONSTRUCTED,
    1: _CONSTRUCTED,
    2: _CONSTRUCTED,
    4: frozenset({MODEL_V1, MODEL}),
    5: frozenset({MODEL}),
}
# Extension code -> the types of argument that its records hold; an enum takes any value.
_ARGUMENTS: dict[int, frozenset[type]] = {
    0: frozenset({list, str, bytes, int, float, bool, type(None)}),
    1: frozenset({list}),
    2: frozenset({dict}),
    4: frozenset({dict}),
    5: frozenset({dict}),
}


def _target(gate: Gate, code: int, module: Any, name: Any) -> Any:
    """Return what a stock record may call, or refuse."""
    if type(module) is not str or type(name) is not str:
        raise CorruptionError("a stock record does not name a type")
    if code < 4 and (module, name) in _VALUES:
        return _VALUES[module, name]
    cls = gate.find(f"{module}:{name}", is_data)
    if PLANS[cls].code not in _KINDS[code]:
        raise only_data(cls)
    return cls


def build(gate: Gate, code: int, inner: Any) -> Any:
    """The object that an unpacked record of the stock serialiser stands for."""
    if code == 7:
        return _DeltaSnapshot(inner)
    if code == 6:
        return MAKERS[ARRAY](inner)
    if type(inner) is not list:
        raise CorruptionError("a stock record is not a list")
    module, name, argument = inner[:3]
    if code == 3:
        if (module, name, inner[3]) != ("datetime", "datetime", "fromisoformat"):
            raise UnsafeTypeError(
                f"stored data asks to call {module}.{name}.{inner[3]}: methods are never called"
            )
        return datetime.fromisoformat(argument)
    if code not in _KINDS:
        raise CorruptionError(f"the stock serializer has no extension {code}")
    target = _target(gate, code, module, name)
    # An endless network or range in place of a list would be unrolled.
    if type(argument) not in _ARGUMENTS[code] and not _is_enum(target):
        raise CorruptionError(f"the argument of a stock {name} is a {type(argument).__name__}")
    try:
        if code == 0:
            return target(argument)
        if code == 1 and (module, name) == ("langgraph.types", "Send"):
            return target(*argument[:2], **dict(zip(["timeout"], argument[2:], strict=False)))
        return target(*argument) if code == 1 else _call(target, code, argument)
    except Exception as error:
        raise SerializationError(f"{module}.{name} cannot be rebuilt: {error}") from error


def _is_enum(target: Any) -> bool:
    return is_class(target) and PLANS[target].code == ENUM


def _call(target: Any, code: int, fields: dict[str, Any]) -> Any:
    try:
        return target(**fields)
    except Exception:
        if code == 2:
            raise
        # As the stock serializer does: data that no longer validates is kept as it was.
        return (target.construct if code == 4 else target.model_construct)(**fields)
