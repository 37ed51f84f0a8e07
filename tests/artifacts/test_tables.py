"""Tables, arrays and pictures of other libraries: they come back exactly, or are refused."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import backends
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image
from shelves import config, put, values

from langgraph_durable import SerializationError

NAN = float("nan")


def days(**options: Any) -> pd.DatetimeIndex:
    return pd.date_range("2024-03-30", periods=3, **options)


def objects(*cells: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series(cells, dtype=object)})


def noted(frame: pd.DataFrame, **attrs: Any) -> pd.DataFrame:
    frame.attrs.update(attrs)
    return frame


FRAMES: dict[str, pd.DataFrame] = {
    "empty": pd.DataFrame(),
    "no rows": pd.DataFrame(columns=["a", "b"]),
    "no columns": pd.DataFrame(index=["x", "y"]),
    "numbered columns": pd.DataFrame([[1, 2.5], [3, NAN]]),
    "other numbers": pd.DataFrame([[1, 2]], columns=[5, 6]),
    "columns of objects": pd.DataFrame([[1]], columns=pd.Index(["a"], dtype=object)),
    "two levels": pd.DataFrame(
        [[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)], names=["x", "y"])
    ),
    "index of two levels": pd.DataFrame(
        {"a": [1, 2]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", None])
    ),
    "an index twice": pd.DataFrame({"a": [1, 2]}, index=["x", "x"]),
    "named like a column": pd.DataFrame({"a": [1]}, index=pd.Index([3], name="a")),
    "a range": pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(5, 9, 2, name="r")),
    "no range": pd.DataFrame({"a": [1, 2]}, index=pd.Index([0, 1])),
    "days": pd.DataFrame({"a": [1, 2, 3]}, index=days(freq="D")),
    "hours in a zone": pd.DataFrame({"a": [1, 2, 3]}, index=days(freq="h", tz="Europe/Berlin")),
    "days as columns": pd.DataFrame([[1, 2, 3]], columns=days(freq="D")),
    "zones": pd.DataFrame({"a": days(tz="Asia/Tokyo"), "b": days(tz=dt.UTC), "c": days()}),
    "seconds": pd.DataFrame({"a": np.array(["2024-01-01", "NaT"], "M8[s]")}),
    "durations": pd.DataFrame({"a": pd.to_timedelta(["1D", None])}),
    "periods": pd.DataFrame({"a": pd.period_range("2024", periods=2, freq="M")}),
    "intervals": pd.DataFrame({"a": pd.interval_range(0, 2)}),
    "categories": pd.DataFrame(
        {"a": pd.Categorical(["b", None], categories=["b", "a", "z"], ordered=True)},
        index=pd.CategoricalIndex(["u", "v"]),
    ),
    "texts": pd.DataFrame({"a": ["x", None, "ü"]}),
    "nullable": pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": pd.array([None, True])}),
    "arrow": pd.DataFrame({"a": pd.array([1, None], dtype="int32[pyarrow]")}),
    "attrs": noted(pd.DataFrame({"a": [1]}), source="x", rows=[1, 2]),
    "objects: texts": objects("x", None),
    "objects: numbers": objects(1, None),
    "objects: truths": objects(True, None),
    "objects: lists": objects([1, 2], [3], None),
    "objects: arrays": objects(np.array([1.5, 2.5]), np.array([3.5])),
    "objects: dicts": objects({"x": 1, "y": [1]}, {"x": 2, "y": []}),
    "objects: days": objects(dt.date(2024, 1, 1), None),
    "objects: decimals": objects(Decimal("1.10"), Decimal("2.00")),
    "objects: bytes": objects(b"a", b""),
    "objects: none": objects(None, None),
}


def check(back: Any, frame: Any) -> None:
    """Equal as pandas has it, and to the last detail."""
    series = isinstance(frame, pd.Series)
    compare = pd.testing.assert_series_equal if series else pd.testing.assert_frame_equal
    compare(back, frame, check_exact=True, check_freq=True, check_flags=True)
    assert back.attrs == frame.attrs
    for one, other in zip(back.axes, frame.axes, strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
    for column in [back] if series else (back.iloc[:, n] for n in range(back.shape[1])):
        twin = frame if series else frame[column.name]
        assert [(type(cell), repr(cell)) for cell in column.to_numpy()] == [
            (type(cell), repr(cell)) for cell in twin.to_numpy()
        ]


def round_trip(value: Any, folder: Path) -> Any:
    with backends.hasty_sqlite(folder, offload_above=100) as saver:
        put(saver, "t", {"a": [value], "b": {"x": value}})
    with backends.hasty_sqlite(folder) as saver:
        found = values(saver, "t")
        assert type(found["a"][0]) is type(found["b"]["x"])
        return found["a"][0]


@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_pandas_come_back_exactly(name: str, tmp_path: Path) -> None:
    check(round_trip(FRAMES[name], tmp_path), FRAMES[name])


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([1, 2], name="s"),
        pd.Series([1.5, NAN]),
        pd.Series([1, 2], name=0),
        pd.Series([1, 2, 3], name="", index=days(freq="D")),
        pd.Series([], dtype="float64"),
        pd.Series(["x", 1][:1], dtype=object, name="o"),
    ],
    ids=["named", "no name", "a number", "days", "empty", "objects"],
)
def test_series_of_pandas_come_back_exactly(series: Any, tmp_path: Path) -> None:
    back = round_trip(series, tmp_path)
    assert type(back.name) is type(series.name)
    check(back, series)


@pytest.mark.parametrize(
    "moment",
    [
        pd.Timestamp("2024-01-01T00:00:00.000000001"),
        pd.Timestamp("2024-01-01", tz="Europe/Berlin"),
        pd.Timestamp("2024-10-27 01:30", tz="UTC").tz_convert("Europe/Berlin"),
        pd.Timestamp("0001-01-01").as_unit("s"),
        pd.Timedelta("1D 3ns"),
        pd.NaT,
        pd.NA,
    ],
    ids=repr,
)
def test_moments_of_pandas_come_back_exactly(moment: Any, tmp_path: Path) -> None:
    back = round_trip(moment, tmp_path)
    assert (type(back), repr(back)) == (type(moment), repr(moment))
    for name in ("unit", "fold", "tzinfo"):
        assert getattr(back, name, None) == getattr(moment, name, None)


def struct() -> Any:
    kind = [("a", "i4"), ("b", "f8"), ("c", "U3"), ("d", [("x", "i1")], (2,))]
    return np.array([(1, 2.5, "x", [(1,), (2,)])], dtype=kind)


@pytest.mark.parametrize(
    "value",
    [
        np.array(5),
        np.float32(1.5),
        struct(),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(10)[::-2],
        np.array([1, 2], ">i4"),
        np.empty((0, 3)),
        np.array(["2024-01-01", "NaT"], "M8[D]"),
        np.array([b"abc", b"d"]),
        np.array([-0.0, NAN, 1j]),
    ],
    ids=lambda value: f"{value.dtype}{list(value.shape)}",
)
def test_arrays_come_back_exactly(value: Any, tmp_path: Path) -> None:
    back = round_trip(value, tmp_path)
    assert (type(back), back.dtype, back.shape) == (type(value), value.dtype, value.shape)
    assert back.tobytes() == value.tobytes()


def exotic() -> Any:
    kinds = {"n": pl.Int8, "c": pl.Categorical, "e": pl.Enum(["x", "y"]), "l": pl.List(pl.String)}
    rows = {"n": [1, None], "c": ["u", "v"], "e": ["x", None], "l": [["x"], []]}
    moment = dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Paris"))
    more = {"s": [{"x": 1}, None], "d": [Decimal("1.1"), None], "t": [moment, None]}
    return pl.DataFrame(rows, schema=kinds).with_columns(
        **{k: pl.Series(v) for k, v in more.items()}
    )


@pytest.mark.parametrize(
    "value",
    [pl.DataFrame(), pl.DataFrame(schema={"a": pl.Int8}), exotic(), pl.Series("s", [1.5, None])],
    ids=["empty", "no rows", "exotic", "series"],
)
def test_tables_of_polars_come_back_exactly(value: Any, tmp_path: Path) -> None:
    back = round_trip(value, tmp_path)
    assert type(back) is type(value)
    assert back.equals(value)
    assert (
        (back.name, back.dtype) == (value.name, value.dtype)
        if isinstance(value, pl.Series)
        else back.schema == value.schema
    )


@pytest.mark.parametrize(
    "value",
    [
        pa.table({}),
        pa.table({"a": pa.array([], pa.int8())}, metadata={"k": "v"}),
        pa.table({"a": [1, 2], "b": [{"x": 1}, None]}),
        pa.table({"a": pa.chunked_array([[1], [2, 3]])}),
        pa.table({"a": pa.array(["x", "y"]).dictionary_encode()}),
        pa.RecordBatch.from_pylist([], pa.schema([("a", pa.int8())])),
        pa.RecordBatch.from_pylist([{"a": 1}]).replace_schema_metadata({"q": "r"}),
    ],
    ids=["empty", "no rows", "structs", "chunks", "dictionary", "empty batch", "batch"],
)
def test_tables_of_arrow_come_back_exactly(value: Any, tmp_path: Path) -> None:
    back = round_trip(value, tmp_path)
    assert type(back) is type(value)
    assert back.equals(value, check_metadata=True)


def picture(mode: str) -> Image.Image:
    whole = Image.frombytes("RGBA", (5, 4), bytes(range(80)))
    return whole.convert(mode)


def with_info(image: Image.Image, **info: Any) -> Image.Image:
    image.info.update(info)
    return image


def with_alpha() -> Image.Image:
    image = Image.new("P", (3, 3), 2)
    image.putpalette(bytes(range(256)) * 4, "RGBA")
    return image


PICTURES = {
    **{mode: picture(mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")},
    "16 bits": Image.fromarray(np.arange(20, dtype="u2").reshape(4, 5) * 3000),
    "palette with alpha": with_alpha(),
    "few colours": picture("RGB").quantize(3),
    "transparent": with_info(picture("P"), transparency=3),
    "notes": with_info(picture("RGB"), dpi=(72, 72), icc_profile=b"abc", ü={("a", 1): 2}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_come_back_exactly(name: str, tmp_path: Path) -> None:
    assert round_trip(PICTURES[name], tmp_path) == PICTURES[name]


def saved(kind: str, mode: str = "RGB", frames: int = 1) -> Image.Image:
    file = io.BytesIO()
    more = [picture(mode).rotate(90 * n) for n in range(1, frames)]
    picture(mode).save(file, kind, **({"save_all": True, "append_images": more} if more else {}))
    return Image.open(file)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "TIFF", "WEBP"])
def test_a_picture_read_from_a_file_comes_back_as_its_copy(kind: str, tmp_path: Path) -> None:
    image = saved(kind)
    back = round_trip(image, tmp_path)
    assert (back, back.info) == (image.copy(), image.info)


def titled() -> Any:
    return np.array([(1,)], dtype=[(("title", "a"), "i4")])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (pd.DataFrame({"a": [1, "x"]}), "as Arrow"),
        (pd.DataFrame([[1, 2]], columns=[5, "a"]), "its columns"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate"),
        (pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False), "its flags"),
        (noted(pd.DataFrame({"a": [1]}), x=(1, 2)), "its attrs"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([3], name=7)), "its index"),
        (objects({"x": 1}, {"y": 2}), "column 'a'"),
        (objects((1, 2)), "column 'a'"),
        (objects([1.5, 2]), "column 'a'"),
        (objects(bytearray(b"a")), "column 'a'"),
        (objects(Decimal("1.10"), Decimal(2)), "column 'a'"),
        (objects("x", NAN), "column 'a'"),
        (pd.Series([1], name=(1, 2)), "name it by a str"),
        (pd.Period("2024"), "Period"),
        (pl.DataFrame({"a": [object()]}, schema={"a": pl.Object}), "type Object"),
        (pl.Series("a", [object()], dtype=pl.Object), "type Object"),
        (np.array([1, "x"], dtype=object), "dtype object"),
        (titled(), "title"),
        (np.rec.array([(1,)], dtype=[("a", "i4")]), "recarray"),
        (np.ma.array([1, 2], mask=[0, 1]), "MaskedArray"),
        (Image.new("CMYK", (2, 2)), "CMYK"),
        (Image.new("RGB", (0, 2)), "empty"),
        (saved("GIF", "P", frames=3), "3 frames.*Artifact"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.filterwarnings("ignore:The DataFrame has")
def test_what_would_not_come_back_exactly_is_refused(value: Any, why: str, tmp_path: Path) -> None:
    with backends.hasty_sqlite(tmp_path) as saver:
        with pytest.raises(SerializationError, match=rf"(?s)channel 'a'.*{why}"):
            put(saver, "t", {"a": value})
        assert saver.get_tuple(config("t")) is None


def test_tables_and_pictures_are_stored_on_every_backend(
    backend: backends.Open, tmp_path: Path
) -> None:
    state = {"frame": FRAMES["days"], "picture": PICTURES["RGB"], "moment": pd.Timestamp("2024")}
    with backend(tmp_path, artifacts=tmp_path / "artifacts", offload_above=100) as saver:
        put(saver, "t", state)
    with backend(tmp_path, artifacts=tmp_path / "artifacts") as saver:
        found = values(saver, "t")
    check(found["frame"], state["frame"])
    assert (found["picture"], found["moment"]) == (state["picture"], state["moment"])
