"""Plans of numpy's arrays and scalars: a dtype, a shape and the bytes, never objects.

numpy is imported only to read what holds an array; `plans` asks `classify` about classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from langgraph_durable._core.kinds import (
    ARRAY,
    SCALAR,
    Pack,
    Plan,
    Unstorable,
    Value,
    exactly,
    ints,
)
from langgraph_durable._core.types import is_c, lineage
from langgraph_durable.errors import CorruptionError


def _make_array(cls: type, inner: list[Any]) -> Any:
    import numpy as np

    described, shape, order, data = inner
    if type(described) is not str:
        described = _tuples(exactly(list, described))
    dtype = np.lib.format.descr_to_dtype(described)
    if dtype.hasobject:
        raise CorruptionError("a stored array never holds objects")
    # A bytearray makes the array writable, as the stored one may have been.
    buffer = bytearray(exactly(bytes, data))
    return np.ndarray(tuple(ints(exactly(list, shape))), dtype, buffer, order=order)


def _make_scalar(cls: type, inner: list[Any]) -> Any:
    import numpy as np

    if inner[0] in ("str", "bytes"):
        if inner[0] == "str":
            return np.str_(exactly(str, inner[1]))
        return np.bytes_(exactly(bytes, inner[1]))
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


_ARRAY = Value(ARRAY, object, _take_array, _make_array)
_SCALAR = Value(SCALAR, object, _take_scalar, _make_scalar)
MAKERS: dict[int, Callable[[Any], Any]] = {plan.code: plan.rebuild for plan in (_ARRAY, _SCALAR)}


def classify(cls: type) -> Plan | None:
    """The plan of an array or scalar; None for any other class."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    # While another thread imports numpy, its names may not be there yet.
    if cls is numpy.__dict__.get("ndarray"):
        return _ARRAY
    return _SCALAR if numpy.__dict__.get("generic") in lineage(cls) and is_c(cls) else None
