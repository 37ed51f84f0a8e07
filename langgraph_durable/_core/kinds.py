"""The vocabulary of plans: kinds of record, and what a plan is.

A plan turns an object into one *record*: a kind number and a body. `encode(obj, pack)` returns the
body, where `pack` turns any inner value into bytes; `packing.py` supplies it (a fast one that gives
up, a careful one that names what is wrong) and wraps the body. `rebuild(inner)` gets the unpacked
body back. Objects are rebuilt with a builtin's `__new__` and by setting state: no `__init__`,
validator or other code of the class runs, unless its fields have changed since it was stored.
Whoever can write to the store can forge a record, so every part of a body must be the plain data
that `encode` puts there: an endless network in place of a list would fill the memory.

`values`, `arrays`, `classes`, `models` and `frames` are made of these; `plans` chooses among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from langgraph_durable._core.types import name_of
from langgraph_durable.errors import CorruptionError

Pack = Callable[[Any], bytes]
Steps = list[str]  # a path, innermost step first

# Kinds of record. Stored data holds these numbers: never reuse one.
TUPLE, DICT, BIG_INT, TEXT, BYTEARRAY, COMPLEX, SET, FROZENSET, DEQUE, ORDERED = range(1, 11)
DEFAULTDICT, COUNTER, RANGE, DATETIME, DATE, TIME, TIMEDELTA, TIMEZONE, ZONEINFO = range(11, 20)
UUID_, DECIMAL, FRACTION, PATH, PATTERN, ADDRESS, ARRAY, SCALAR = range(20, 28)
ARTIFACT, GONE = 28, 29
FRAME, SERIES, TABLE, PICTURE, MOMENT = range(30, 35)
SUBCLASS, EXCEPTION, ENUM, RECORD, NAMEDTUPLE, MODEL, MODEL_V1 = range(40, 47)

LEAD = 0xC1
"""Never starts a msgpack value, so it can mark a record at the top level."""


class Unstorable(Exception):
    """A value has no exact stored form; the path to it is gathered on the way up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: Steps = []


def exactly(kind: type, part: Any) -> Any:
    """Return a part of a record, which must be of this very type."""
    if type(part) is not kind:
        raise CorruptionError(f"a record does not hold a {kind.__name__} where one belongs")
    return part


def ints(parts: list[Any]) -> Iterator[int]:
    """Return parts of a record that must be whole numbers."""
    return (exactly(int, part) for part in parts)


_serials = itertools.count()


class Plan:
    """How the objects of one class are stored and rebuilt; this one refuses them."""

    code = 0

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.serial = next(_serials)
        """A number that no other plan of this process has."""
        self.lead = bytes((LEAD, self.code))
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
        return self.make(self.cls, exactly(self.body, inner))
