"""Which plan a class has: how its objects are taken apart for storage and put together again.

`PLANS[cls]` also is the verdict on what counts as data: a class without a plan of the kind a
record claims is never built. `MAKERS` rebuilds the records of values, which name no class. What a
plan is stands in `kinds`; the plans themselves are in `values`, `arrays`, `frames`, `classes` and
`models`. A class of a room above joins in with `register`.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from langgraph_durable._core import arrays, claims, frames
from langgraph_durable._core.classes import (
    EnumPlan,
    ExceptionPlan,
    NamedTuplePlan,
    RecordPlan,
    SubclassPlan,
)
from langgraph_durable._core.kinds import GONE, Plan, Unstorable, Value
from langgraph_durable._core.models import ModelPlan, ModelV1Plan
from langgraph_durable._core.types import CORE_NUMBER, class_attribute, is_c, lineage, name_of
from langgraph_durable._core.values import BASES, VALUES
from langgraph_durable.errors import SerializationError

MAKERS: dict[int, Callable[[Any], Any]] = {
    **{value.code: value.rebuild for value in VALUES},
    **arrays.MAKERS,
    **frames.MAKERS,
    GONE: claims.missing,
}
_registered: list[Value] = []


def register(value: Value) -> None:
    """Add a class that is stored as a value of its own kind."""
    _registered.append(value)
    PLANS[value.cls] = value
    MAKERS[value.code] = value.rebuild


def _classify(cls: type) -> Plan:
    foreign = frames.classify(cls)
    if foreign is not None:
        return foreign
    ancestors = lineage(cls)
    if enum.Enum in ancestors:
        return EnumPlan(cls, is_data)
    if BaseModel in ancestors:
        return ModelPlan(cls, is_data)
    v1 = sys.modules.get("pydantic.v1.main")
    if v1 is not None and v1.__dict__.get("BaseModel") in ancestors:  # not yet, while imported
        return ModelV1Plan(cls, is_data)
    of_numpy = arrays.classify(cls)
    if of_numpy is not None:
        return of_numpy
    if BaseException in ancestors:
        return ExceptionPlan(cls, is_data)
    if tuple in ancestors and type(class_attribute(cls, "_fields")) is tuple:
        return NamedTuplePlan(cls, is_data)
    # A class written in C may hold more than its builtin base shows.
    native = next(owner for owner in ancestors if is_c(owner) or owner in BASES)
    if native in BASES and cls is not native:
        return SubclassPlan(cls, is_data, BASES[native])
    if native is object and cls is not object:
        if class_attribute(cls, "__dataclass_fields__") is not None:
            return RecordPlan(cls, is_data)
        if name_of(cls) in CORE_NUMBER:
            return RecordPlan(cls, is_data)
    return Plan(cls)


class _Plans(dict[type, Plan]):
    """The plan of every class met so far; a lookup of a new one makes it."""

    limit = 4096  # programs that make classes without end must not fill the memory

    def __missing__(self, cls: type) -> Plan:
        if len(self) > self.limit:
            self.clear()
            self.update({value.cls: value for value in (*VALUES, *_registered)})
        try:
            plan = self[cls] = _classify(cls)
        except SerializationError as error:
            raise Unstorable(str(error)) from error
        return plan


PLANS = _Plans({value.cls: value for value in VALUES})


def is_data(cls: type) -> bool:
    """Tell whether objects of `cls` can be stored and rebuilt."""
    return PLANS[cls].code != 0
