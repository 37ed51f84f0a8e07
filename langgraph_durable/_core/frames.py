"""Tables and pictures of libraries that may be there, in formats that run no code when read.

pandas and pyarrow go as Arrow, polars as its own Arrow stream, Pillow images as PNG; never as a
pickle. What would not come back equal (objects that Arrow guesses at, an image mode that PNG lacks)
is refused when it is stored. `serde` enters the plans of this file beside those of `plans`.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

from langgraph_durable._core.plans import (
    FRAME,
    PICTURE,
    SERIES,
    TABLE,
    Pack,
    Plan,
    Unstorable,
    Value,
)
from langgraph_durable._core.types import name_of
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


def _frame_bytes(frame: Any) -> bytes:
    try:
        data = _write_arrow(_arrow().Table.from_pandas(frame, preserve_index=True))
        back = _read_arrow(data).to_pandas()
    except Unstorable:
        raise
    except Exception as error:
        raise Unstorable(f"a DataFrame cannot be stored exactly as Arrow: {error}") from error
    same = back.equals(frame) and list(back.dtypes) == list(frame.dtypes)
    names = list(back.columns.names) == list(frame.columns.names)
    names = names and list(back.index.names) == list(frame.index.names)
    if not (same and names and back.index.equals(frame.index) and back.attrs == frame.attrs):
        raise Unstorable("a DataFrame would not come back equal from Arrow: change its columns")
    return data


def _take_frame(frame: Any, pack: Pack) -> list[Any]:
    if type(frame).__module__.partition(".")[0] == POLARS:
        sink = io.BytesIO()
        _refusing(lambda: frame.write_ipc_stream(sink), frame)
        return [POLARS, sink.getvalue()]
    return [PANDAS, _frame_bytes(frame)]


def _make_frame(cls: type, inner: list[Any]) -> Any:
    library, data = inner
    if library == POLARS:
        return _library(POLARS).read_ipc_stream(io.BytesIO(data))
    _library(PANDAS)
    return _read_arrow(data).to_pandas()


def _take_series(series: Any, pack: Pack) -> list[Any]:
    if type(series).__module__.partition(".")[0] == POLARS:
        return [POLARS, series.name, _take_frame(series.to_frame(), pack)[1]]
    name = series.name
    if name is not None and type(name) is not str:
        raise Unstorable(f"a Series with the name {name!r} cannot be stored: name it by a str")
    return [PANDAS, name, _frame_bytes(series.to_frame("0" if name is None else name))]


def _make_series(cls: type, inner: list[Any]) -> Any:
    library, name, data = inner
    frame = _make_frame(cls, [library, data])
    if library == POLARS:
        return frame.to_series(0)
    series = frame.iloc[:, 0]
    series.name = name
    return series


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
    picture.load()
    pixels, colours = picture, None
    if picture.mode == "P":  # the numbers of the colours as an image, the colours beside it
        pixels = _library("PIL.Image").frombytes("L", picture.size, picture.tobytes())
        colours = [picture.palette.mode, bytes(picture.palette.getdata()[1])]
    sink = io.BytesIO()
    _refusing(lambda: pixels.save(sink, "PNG"), picture)
    return [sink.getvalue(), colours, {k: v for k, v in picture.info.items() if type(k) is str}]


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
MAKERS: dict[int, Callable[[Any], Any]] = {
    plan.code: plan.rebuild for plan in (_FRAME, _SERIES, _TABLE, _PICTURE)
}

_CLASSES: tuple[tuple[str, str, Plan], ...] = (
    ("pandas", "DataFrame", _FRAME),
    ("pandas", "Series", _SERIES),
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
    pil = sys.modules.get("PIL.Image")
    if pil is not None and pil.Image in cls.__mro__ and cls.__module__.startswith("PIL."):
        return _PICTURE
    return None
