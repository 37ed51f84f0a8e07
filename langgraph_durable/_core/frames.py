"""Tables and pictures of libraries that may be there, in formats that run no code when read.

pandas and pyarrow go as Arrow, polars as its own Arrow stream, Pillow images as PNG; never as a
pickle. Arrow alone would give some tables of pandas back a little different: what it forgets is
noted beside them. What would still not come back equal (a column that Arrow guesses at, an image
mode that PNG lacks) is refused when it is stored. `plans` asks `classify` about every new class.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from datetime import date, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from langgraph_durable._core.kinds import (
    FRAME,
    MOMENT,
    PICTURE,
    SERIES,
    TABLE,
    Pack,
    Plan,
    Unstorable,
    Value,
)
from langgraph_durable._core.types import lineage, name_of
from langgraph_durable._core.values import zone_of
from langgraph_durable.errors import CorruptionError, SerializationError

PANDAS, POLARS = "pandas", "polars"
_PNG_MODES = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}


def _library(name: str) -> Any:
    import importlib

    if name not in ("pandas", "polars", "pyarrow", "PIL.Image"):
        raise CorruptionError(f"a stored table names the library {name!r}")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SerializationError(f"this value needs {name}, which is not installed") from error


def _arrow() -> Any:
    try:
        return _library("pyarrow")
    except SerializationError as error:
        raise Unstorable(
            f"tables of pandas are stored as Arrow: pip install pyarrow ({error})"
        ) from error


def _write_arrow(table: Any) -> bytes:
    sink = io.BytesIO()
    ipc = _library("pyarrow").ipc
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _read_arrow(data: bytes) -> Any:
    return _library("pyarrow").ipc.open_stream(io.BytesIO(data)).read_all()


# --- pandas ---


def _taken(frame: Any) -> tuple[bytes, dict[str, Any]]:
    """A DataFrame as Arrow, and notes on what Arrow forgets."""
    try:
        table = _arrow().Table.from_pandas(frame)
        notes: dict[str, Any] = {
            "index": _axis_note(frame.index),
            "columns": _axis_note(frame.columns),
            "listed": _listed(table, frame),
        }
        data = _write_arrow(table)
        why = _difference(_rebuilt(_read_arrow(data), notes), frame)
    except Unstorable:
        raise
    except Exception as error:
        raise Unstorable(f"a DataFrame cannot be stored exactly as Arrow: {error}") from error
    if why is not None:
        raise Unstorable(f"a DataFrame would not come back equal from Arrow: {why} would differ")
    return data, notes


def _rebuilt(table: Any, notes: dict[str, Any]) -> Any:
    pd = _library(PANDAS)
    frame = table.to_pandas()
    for at in notes["listed"]:
        cells = table.column(at).to_pylist()
        frame.isetitem(at, pd.Series(cells, index=frame.index, dtype=object))
    frame.index = _axis(frame.index, notes["index"])
    frame.columns = _axis(frame.columns, notes["columns"])
    return frame


def _axis_note(axis: Any) -> dict[str, Any]:
    kind = type(axis).__name__
    note: dict[str, Any] = {}
    if kind == "RangeIndex":
        note["range"] = [axis.start, axis.stop, axis.step]
    elif kind == "Index" and _holds_objects(axis):
        note["object"] = True
    elif kind in ("DatetimeIndex", "TimedeltaIndex") and axis.freq is not None:
        note["freq"] = axis.freqstr
    return note


def _axis(axis: Any, note: dict[str, Any]) -> Any:
    if "range" in note:
        return _library(PANDAS).RangeIndex(*note["range"], name=axis.name)
    if "object" in note:
        return axis.astype(object)
    return type(axis)(axis, freq=note["freq"]) if "freq" in note else axis


def _holds_objects(cells: Any) -> bool:
    return bool(cells.dtype == object)


def _listed(table: Any, frame: Any) -> list[int]:
    """The columns of objects that are better made of Arrow's values one by one."""
    objects = [at for at in range(frame.shape[1]) if _holds_objects(frame.iloc[:, at])]
    if not objects:
        return []
    back = table.select(objects).to_pandas()
    return [
        at
        for n, at in enumerate(objects)
        if not _holds_objects(back.iloc[:, n])
        or not _cells_alike(back.iloc[:, n], frame.iloc[:, at])
    ]


def _difference(back: Any, frame: Any) -> str | None:
    """What of a DataFrame did not come back as it was."""
    for side in ("index", "columns"):
        if not _axes_alike(getattr(back, side), getattr(frame, side)):
            return f"its {side}"
    for at, label in enumerate(frame.columns):
        one, other = back.iloc[:, at], frame.iloc[:, at]
        same = one.dtype == other.dtype and one.equals(other)
        if not same or (_holds_objects(other) and not _cells_alike(one, other)):
            return f"column {label!r}"
    if back.attrs != frame.attrs:
        return "its attrs"
    return None if back.flags == frame.flags else "its flags"


def _axes_alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or not one.equals(other):
        return False
    if not _alike(list(one.names), list(other.names)):
        return False
    if getattr(one, "freq", None) != getattr(other, "freq", None):
        return False
    if type(one).__name__ == "MultiIndex":
        return bool((one.dtypes == other.dtypes).all())
    return bool(one.dtype == other.dtype) and (not _holds_objects(one) or _cells_alike(one, other))


_PLAIN = {str, bytes, int, bool, type(None), date}
"""What is the same if it is equal, and of the same type."""


def _cells_alike(one: Any, other: Any) -> bool:
    left, right = list(one), list(other)
    kinds = set(map(type, left))
    if kinds <= _PLAIN:
        return left == right and list(map(type, left)) == list(map(type, right))
    return _alike(left, right)


def _alike(one: Any, other: Any) -> bool:
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in (list, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if kind is dict:
        return _alike(list(one.items()), list(other.items()))
    if kind.__name__ == "ndarray":
        if one.dtype == object:
            return one.shape == other.shape and _alike(one.tolist(), other.tolist())
        same = one.dtype == other.dtype and one.shape == other.shape
        return bool(same and one.tobytes() == other.tobytes())
    if kind is Decimal:
        return bool(one.as_tuple() == other.as_tuple())
    if kind is float:
        return bool(one == other) or (one != one and other != other)
    return bool(one == other) or (one is other)


def _take_frame(frame: Any, pack: Pack) -> list[Any]:
    if type(frame).__module__.partition(".")[0] == POLARS:
        return [POLARS, _polars_bytes(frame), {}]
    return [PANDAS, *_taken(frame)]


def _polars_bytes(frame: Any) -> bytes:
    sink = io.BytesIO()
    _refusing(lambda: frame.write_ipc_stream(sink), frame)
    data = sink.getvalue()
    # Objects of Python would be written as their addresses.
    back = _library(POLARS).read_ipc_stream(io.BytesIO(data), n_rows=0).schema
    for name, kind in frame.schema.items():
        if back[name] != kind:
            raise Unstorable(f"a polars column of type {kind} ({name!r}) cannot be stored exactly")
    return data


def _make_frame(cls: type, inner: list[Any]) -> Any:
    library, data, notes = inner
    if library == POLARS:
        return _library(POLARS).read_ipc_stream(io.BytesIO(data))
    _library(PANDAS)
    return _rebuilt(_read_arrow(data), notes)


def _take_series(series: Any, pack: Pack) -> list[Any]:
    if type(series).__module__.partition(".")[0] == POLARS:
        return [series.name, _take_frame(series.to_frame(), pack)]
    name = series.name
    if type(name) not in (str, int, type(None)):
        raise Unstorable(f"a Series with the name {name!r} cannot be stored: name it by a str")
    return [name, _take_frame(series.to_frame("0"), pack)]


def _make_series(cls: type, inner: list[Any]) -> Any:
    name, taken = inner
    frame = _make_frame(cls, taken)
    if taken[0] == POLARS:
        return frame.to_series(0)
    series = frame.iloc[:, 0]
    series.name = name
    return series


def _take_moment(moment: Any, pack: Pack) -> list[Any]:
    """A Timestamp or a Timedelta, which know more than datetime does; NaT, or NA."""
    kind = type(moment).__name__
    if kind in ("NaTType", "NAType"):
        return [kind]
    number = [kind, moment.unit, int(moment.asm8.view("i8"))]
    taken = [*number, zone_of(moment)] if kind == "Timestamp" else number
    back = _make_moment(type(moment), taken)
    if back != moment or getattr(back, "fold", 0) != getattr(moment, "fold", 0):
        raise Unstorable(f"{moment!r} cannot be stored exactly")
    return taken


def _make_moment(cls: type, inner: list[Any]) -> Any:
    pd, kind = _library(PANDAS), inner[0]
    if kind in ("NaTType", "NAType"):
        return pd.NaT if kind == "NaTType" else pd.NA
    _, unit, number, *zone = inner
    if kind == "Timedelta":
        return pd.Timedelta(_numpy().timedelta64(number, unit))
    made = pd.Timestamp(_numpy().datetime64(number, unit))
    if type(zone[0]) not in (timezone, ZoneInfo):
        return made
    return made.tz_localize("UTC").tz_convert(zone[0])


def _numpy() -> Any:
    import numpy as np

    return np


# --- pyarrow, Pillow ---


def _take_table(table: Any, pack: Pack) -> list[Any]:
    batch = type(table).__name__ == "RecordBatch"
    whole = _library("pyarrow").Table.from_batches([table]) if batch else table
    return [batch, _refusing(lambda: _write_arrow(whole), table)]


def _make_table(cls: type, inner: list[Any]) -> Any:
    batch, data = inner
    table = _read_arrow(data)
    if not batch:
        return table
    found = table.combine_chunks().to_batches()
    return found[0] if found else _library("pyarrow").RecordBatch.from_pylist([], table.schema)


def _take_picture(picture: Any, pack: Pack) -> list[Any]:
    if picture.mode not in _PNG_MODES:
        raise Unstorable(f"an image of mode {picture.mode!r} has no exact PNG: convert it first")
    if getattr(picture, "n_frames", 1) > 1:
        raise Unstorable(
            f"of the {picture.n_frames} frames of an image one would come back: keep its file "
            "as an Artifact, or its frames in a list"
        )
    picture.load()
    pixels, colours = picture, None
    if picture.mode == "P":  # the numbers of the colours as an image, the colours beside it
        pixels = _library("PIL.Image").frombytes("L", picture.size, picture.tobytes())
        colours = [picture.palette.mode, bytes(picture.palette.getdata()[1])]
    sink = io.BytesIO()
    _refusing(lambda: pixels.save(sink, "PNG"), picture)
    return [sink.getvalue(), colours, picture.info]


def _make_picture(cls: type, inner: list[Any]) -> Any:
    image = _library("PIL.Image")
    data, colours, info = inner
    opened = image.open(io.BytesIO(data), formats=("PNG",))
    opened.load()
    mode = opened.mode if colours is None else "P"
    made = image.frombytes(mode, opened.size, opened.tobytes())  # of the class of plain images
    if colours is not None:
        made.putpalette(colours[1], colours[0])
    made.info = info
    return made


def _refusing(act: Callable[[], Any], value: Any) -> Any:
    try:
        return act()
    except Exception as error:
        raise Unstorable(f"{name_of(type(value))} cannot be stored exactly: {error}") from error


class _Foreign(Value):
    """A value of a library; what the library says against stored bytes is damage."""

    def rebuild(self, inner: Any) -> Any:
        try:
            return super().rebuild(inner)
        except (CorruptionError, SerializationError):
            raise
        except Exception as error:
            raise CorruptionError(
                f"a stored {self.cls.__name__} cannot be read: {error}"
            ) from error


_FRAME = _Foreign(FRAME, object, _take_frame, _make_frame)
_SERIES = _Foreign(SERIES, object, _take_series, _make_series)
_TABLE = _Foreign(TABLE, object, _take_table, _make_table)
_PICTURE = _Foreign(PICTURE, object, _take_picture, _make_picture)
_MOMENT = _Foreign(MOMENT, object, _take_moment, _make_moment)
MAKERS: dict[int, Callable[[Any], Any]] = {
    plan.code: plan.rebuild for plan in (_FRAME, _SERIES, _TABLE, _PICTURE, _MOMENT)
}

_CLASSES: tuple[tuple[str, str, Plan], ...] = (
    ("pandas", "DataFrame", _FRAME),
    ("pandas", "Series", _SERIES),
    ("pandas", "Timestamp", _MOMENT),
    ("pandas", "Timedelta", _MOMENT),
    ("polars", "DataFrame", _FRAME),
    ("polars", "Series", _SERIES),
    ("pyarrow", "Table", _TABLE),
    ("pyarrow", "RecordBatch", _TABLE),
)


def classify(cls: type) -> Plan | None:
    """The plan of a table or picture; None for any other class."""
    for module, name, plan in _CLASSES:
        found = sys.modules.get(module)
        if found is not None and found.__dict__.get(name) is cls:
            return plan
    pandas = sys.modules.get(PANDAS)
    # By `is`, and by `lineage`: the metaclass of a class that stored data names is not asked.
    missing = [type(pandas.__dict__.get(name)) for name in ("NaT", "NA")] if pandas else []
    if cls is not type(None) and any(cls is kind for kind in missing):
        return _MOMENT
    pil = sys.modules.get("PIL.Image")
    picture = None if pil is None else pil.__dict__.get("Image")  # not yet, while it is imported
    if picture is not None and any(base is picture for base in lineage(cls)):
        return _PICTURE if name_of(cls).startswith("PIL.") else None
    return None
