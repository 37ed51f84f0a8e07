"""What is loaded equals what was stored, in value and in type, or storing it was refused."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import ipaddress
import math
import os
import pathlib
import re
import subprocess
import sys
import threading
import typing
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import langchain_core.messages as lc
import numpy as np
import pydantic
import pydantic.v1 as pydantic_v1
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import (
    Command,
    Interrupt,
    Overwrite,
    PregelTask,
    Send,
    StateSnapshot,
    TimeoutPolicy,
)

from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable.errors import (
    ConfigurationError,
    CorruptionError,
    DurableError,
    SerializationError,
    UnsafeTypeError,
)

serde = ExactSerializer()
T = TypeVar("T")


def roundtrip(value: Any) -> Any:
    return serde.loads_typed(serde.dumps_typed(value))


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    if isinstance(a, np.ndarray):
        # A view with gaps comes back whole, in C order.
        layout = b.flags.c_contiguous == (a.flags.c_contiguous or not a.flags.f_contiguous)
        return a.dtype == b.dtype and a.shape == b.shape and layout and a.tobytes() == b.tobytes()
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()  # a signalling NaN refuses to be compared
    if isinstance(a, type(threading.Lock())):
        return True  # never stored, made anew
    if isinstance(a, enum.Enum):
        return a is b or (isinstance(a, enum.Flag) and a._value_ == b._value_)
    if isinstance(a, pydantic.BaseModel):
        names = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
        return same(a.__dict__, b.__dict__) and all(
            same(getattr(a, n), getattr(b, n)) for n in names
        )
    if isinstance(a, pydantic_v1.BaseModel):
        return same(a.__dict__, b.__dict__) and a.__fields_set__ == b.__fields_set__
    if isinstance(a, BaseException):
        return same(a.args, b.args) and same(a.__dict__, b.__dict__)
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items())) and _same_attributes(a, b)
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(map(same, a, b)) and _same_attributes(a, b)
    if isinstance(a, (set, frozenset)):
        return a == b and {(type(x), x) for x in a} == {(type(x), x) for x in b}
    if dataclasses.is_dataclass(a):
        return all(
            same(getattr(a, f.name, None), getattr(b, f.name, None)) for f in dataclasses.fields(a)
        ) and _same_attributes(a, b)
    if isinstance(a, (datetime, time)):
        return a == b and a.fold == b.fold and same(a.tzinfo, b.tzinfo)
    if isinstance(a, (Send, Item)):
        return all(same(getattr(a, n), getattr(b, n)) for n in a.__slots__)
    return bool(a == b or (a != a and b != b)) and _same_attributes(a, b)


def _same_attributes(a: Any, b: Any) -> bool:
    mine, theirs = getattr(a, "__dict__", {}), getattr(b, "__dict__", {})
    return mine is a or (
        mine.keys() == theirs.keys() and all(same(mine[k], theirs[k]) for k in mine)
    )


class Colour(enum.Enum):
    RED = "red"
    BLUE = (1, 2)


class Palette:
    class Nested(enum.IntEnum):
        ONE = 1


class Label(str, enum.Enum):  # noqa: UP042
    A = "a"


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    X = 1
    Y = 4


@dataclass
class Step:
    name: str
    args: tuple[int, ...] = ()
    made: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.calls = 1
        self.made.append("post")

    @dataclass(frozen=True)
    class Inner:
        at: datetime


@dataclass(frozen=True, slots=True)
class Slotted:
    x: int
    unset: int = field(init=False)


@dataclass
class GenericBox(Generic[T]):
    item: T


class Point(NamedTuple):
    x: int
    y: Any = None


class NoisyPoint(Point):
    def __new__(cls, *args: Any) -> NoisyPoint:
        raise AssertionError("never called")


Misnamed = namedtuple("SomethingElse", "a b")  # type: ignore[name-match]


class MyStr(str):
    pass


class MyInt(int):
    pass


class MyFloat(float):
    pass


class MyBytes(bytes):
    pass


class MyList(list):  # type: ignore[type-arg]
    def append(self, item: Any) -> None:
        raise AssertionError("never called")


class MyDict(dict):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.note = "kept"

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("never called")


class MyOrdered(OrderedDict):  # type: ignore[type-arg]
    pass


class MySet(set):  # type: ignore[type-arg]
    pass


class MyTuple(tuple):  # type: ignore[type-arg]
    pass


class MyMoment(datetime):
    pass


class MyError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}")
        self.code, self.detail = code, detail


class Animal(pydantic.BaseModel):
    name: str


class Dog(Animal):
    tricks: tuple[str, ...] = ()


class Owner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    pet: Animal
    nick: str = pydantic.Field("n", alias="nickName")
    _seen: int = pydantic.PrivateAttr(0)
    _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)


class Counted(pydantic.BaseModel):
    n: int
    _seen: dict[str, int] = pydantic.PrivateAttr(default_factory=dict)

    @pydantic.field_validator("n")
    @classmethod
    def double(cls, n: int) -> int:
        return n * 2


class Box(pydantic.BaseModel, Generic[T]):
    item: T


Positive = Box[Annotated[int, pydantic.Field(gt=0)]]
Kept = Box[collections.abc.Callable[[int], str] | int]


class Root(pydantic.RootModel[list[int]]):
    pass


class Old(pydantic_v1.BaseModel):
    a: int
    b: list[int] = []


class FixedZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=3)

    def dst(self, when: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, when: datetime | None) -> str:
        return "fixed"


def _counted() -> Counted:
    made = Counted(n=2)
    made._seen["a"] = 1
    return made


def _noted() -> Exception:
    error = ValueError("a", 1)
    error.add_note("noted")
    return error


def _generic_box() -> Any:
    return GenericBox[int](3)


NOW = datetime(2024, 2, 29, 12, 30, 1, 5)
PARIS = ZoneInfo("Europe/Paris")

VALUES: dict[str, Any] = {
    "none": None,
    "bools": [True, False],
    "ints": [0, -1, 2**63, -(2**63), 2**64 - 1, 2**64, 2**70, -(2**70), -(2**63) - 1, 2**2000],
    "floats": [0.1, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324],
    "complex": [1j, complex(-0.0, float("inf"))],
    "strings": ["", "a\0b", "łódź", "\ud800", "x\udfff\0", "😀"],
    "surrogate key": {"\ud800": 1},
    "bytes": [b"", b"\0\xff"],
    "bytearray": bytearray(b"ab"),
    "nested bytearray": {"a": [bytearray(b""), b"x"], "b": (bytearray(b"y"),)},
    "tuples": ((), (1, (2, [3, (4,)])), [()]),
    "keys": {1: "a", 1.5: 0, None: 2, (1, "x"): 3, b"b": 4, Colour.RED: 5, NOW: 6, "s": 7},
    "bool keys": {True: 1, False: 2},
    "string subclass key": {MyStr("k"): 1, "j": 2},
    "order": {"b": 1, "a": 2},
    "sets": [{1, "a", (1, 2)}, frozenset({b"", frozenset({1})}), set()],
    "deque": [deque([1, (2,)], maxlen=3), deque()],
    "ordereddict": OrderedDict([("b", 1), (2, [])]),
    "defaultdict": [defaultdict(list, {1: [2]}), defaultdict(None, {"a": 1}), defaultdict(Counter)],
    "counter": Counter("hello"),
    "range": [range(3), range(10, 0, -3)],
    "datetime": [NOW, NOW.replace(tzinfo=UTC), NOW.replace(tzinfo=PARIS), datetime.max],
    "fold": datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=1),
    "date": date(2024, 1, 1),
    "time": [time(1, 2, 3, 4), time(1, tzinfo=UTC, fold=1), time(2, tzinfo=PARIS)],
    "timedelta": [timedelta(-1, 3, 7), timedelta.max],
    "timezone": [UTC, timezone(timedelta(hours=-5, minutes=-30), "odd")],
    "zoneinfo": PARIS,
    "uuid": uuid.UUID(int=7),
    "decimal": [Decimal("1.10"), Decimal("sNaN12"), Decimal("-Infinity"), Decimal("1E+9")],
    "fraction": Fraction(-3, 2**80),
    "paths": [
        pathlib.Path("a/../b"),
        pathlib.PurePosixPath("/x"),
        pathlib.PureWindowsPath("c:\\y"),
    ],
    "patterns": [re.compile("(?i)a.b", re.S), re.compile(b"x", re.I), re.compile("a", re.A)],
    "addresses": [
        ipaddress.ip_address("1.2.3.4"),
        ipaddress.ip_interface("1.2.3.4/8"),
        ipaddress.ip_network("1.0.0.0/8"),
        ipaddress.ip_address("fe80::1%eth0"),
        ipaddress.ip_interface("::1/64"),
        ipaddress.ip_network("::/64"),
    ],
    "enums": [Colour.RED, Colour.BLUE, Palette.Nested.ONE, Label.A],
    "flags": [Mode.READ, Mode.READ | Mode.WRITE, Mode(0), Bits.X | Bits.Y, Bits(8)],
    "dataclass": [Step("a", (1,)), Step.Inner(NOW), Slotted(1), GenericBox((1,))],
    "namedtuple": [Point(1, [2]), Misnamed(1, (2,)), (Point(1),)],
    "subclasses": [MyStr("a"), MyInt(2**80), MyFloat(1.5), MyBytes(b"x"), MyList([1, (2,)])],
    "more subclasses": [MyDict({1: (2,)}), MyOrdered(a=1), MySet({1, 2}), MyTuple((1, [2]))],
    "moment subclass": MyMoment(2024, 1, 1, tzinfo=UTC),
    "exceptions": [_noted(), MyError(3, detail="d"), KeyError("k"), OSError(2, "no", "file")],
    "exception group": ExceptionGroup("g", [ValueError(1), KeyError("x")]),
    "unicode error": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "models": [Dog(name="d", tricks=("sit",)), _counted(), Root([1, 2])],
    "nested model subclass": Owner.model_construct(pet=Dog(name="d")),
    "generic model": [Box[int](item=1), Box[list[Dog] | None](item=[Dog(name="x")]), Box(item=())],
    "generic model by spelling": [
        Box[spelt].model_construct(item=1)
        for spelt in (
            *(list[int], tuple[int, ...], dict[str, int], OrderedDict[str, int], type[Animal]),
            *(collections.abc.Sequence[int], int | None, None, type(None), pathlib.Path),
            # What ruff would have otherwise; to pydantic these are others than the ones above.
            *(getattr(typing, name)[int] for name in ("List", "Set", "Sequence", "Deque", "Type")),
            *(getattr(typing, name)[str, int] for name in ("Dict", "Tuple", "Mapping", "Union")),
            *(getattr(typing, name) for name in ("List", "Dict")),
        )
    ],
    "generic model that its module names": [Positive(item=1), Kept(item=1)],
    "generic of generic": Box[Box[int]](item=Box[int](item=1)),
    "unvalidated": Animal.model_construct(name=(1, 2)),
    "v1 model": [Old(a=1), Old(a=1, b=[2])],
    "secrets": [pydantic.SecretStr("s"), pydantic.SecretBytes(b"s")],
    "v1 secret": pydantic_v1.SecretStr("s"),
    "arrays": [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(5),
        np.zeros((0, 3), "f2"),
        np.array(["a", "bc"]),
        np.array([b"x"]),
        np.array(["2024-01-01"], "M8[s]"),
        np.array([1, 2], ">i4"),
        np.array([True]),
        np.array([1j], "c8"),
        np.array([(1, 2.0, [3, 4])], [("a", "i4"), ("b", "f8"), ("c", "u1", (2,))]),
        np.arange(10)[::2],
    ],
    "scalars": [np.float64(1.5), np.int8(-3), np.bool_(True), np.str_("a\0"), np.bytes_(b"")],
    "time scalars": [np.datetime64("2024-01-01"), np.timedelta64(3, "D"), np.float32("nan")],
    "send": [Send("n", {"a": (1,)}), Send("n", 1, timeout=TimeoutPolicy(run_timeout=2.0))],
    "interrupt": Interrupt(value=("q",), id="i"),
    "command": Command(update={"a": (1,)}, goto=[Send("n", 1)], resume={"i": 2}),
    "overwrite": Overwrite([1]),
    "snapshot": StateSnapshot(
        {"a": 1}, ("n",), {}, None, None, None, (PregelTask("i", "n", ("p", 1)),), ()
    ),
    "item": Item(value={"a": 1}, key="k", namespace=("n",), created_at=NOW, updated_at=NOW),
    "delta": _DeltaSnapshot([1, (2,)]),
    "messages": [
        lc.HumanMessage("h", id="1"),
        lc.AIMessage(
            "a",
            tool_calls=[{"name": "t", "args": {"x": 1}, "id": "c"}],
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        ),
        lc.SystemMessage([{"type": "text", "text": "s"}]),
        lc.ToolMessage("t", tool_call_id="c", artifact=(1, np.float64(2))),
        lc.FunctionMessage("f", name="fn"),
        lc.ChatMessage("c", role="r"),
        lc.RemoveMessage(id="x"),
    ],
    "chunks": [
        lc.AIMessageChunk(
            "a", tool_call_chunks=[{"name": "t", "args": "{", "id": "1", "index": 0}]
        ),
        lc.HumanMessageChunk("h"),
        lc.SystemMessageChunk("s"),
        lc.ToolMessageChunk("t", tool_call_id="c"),
        lc.ChatMessageChunk("c", role="r"),
        lc.FunctionMessageChunk("f", name="fn"),
    ],
    "message extras": lc.HumanMessage("h", custom=(1, 2)),
    "text accessor": lc.HumanMessage("h").text,
    "document": Document("page", metadata={"a": (1,)}),
}


@pytest.mark.parametrize("name", VALUES)
def test_value_comes_back_equal_and_of_equal_type(name: str) -> None:
    value = VALUES[name]
    assert same(value, roundtrip(value))
    assert same([value], roundtrip([value]))
    assert same({1: (value,)}, roundtrip({1: (value,)}))


@pytest.mark.parametrize(
    "value",
    [v for each in VALUES.values() if type(each) in (list, tuple) for v in each],
    ids=lambda value: type(value).__name__,
)
def test_each_listed_value_comes_back_at_the_top_level(value: Any) -> None:
    assert same(value, roundtrip(value))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.binary().map(bytearray)
    | st.datetimes()
    | st.decimals(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.lists(inner).map(deque)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.text(), st.floats(0, 1)), inner)
        | st.frozensets(st.text() | st.integers() | st.binary())
    ),
    max_leaves=20,
)


@given(plain)
def test_any_nested_plain_data_comes_back(value: Any) -> None:
    assert same(value, roundtrip(value))


@given(plain, st.data())
def test_damaged_bytes_give_a_typed_error_or_a_value(value: Any, data: st.DataObject) -> None:
    tag, body = serde.dumps_typed((value, lc.HumanMessage("x"), Point(1)))
    at = data.draw(st.integers(0, len(body) - 1))
    flipped = bytearray(body)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        serde.loads_typed((tag, bytes(flipped)))
    except DurableError:
        pass


@pytest.mark.parametrize("name", ["keys", "messages", "dataclass", "arrays"])
def test_truncated_bytes_are_corruption(name: str) -> None:
    tag, body = serde.dumps_typed(VALUES[name])
    for end in range(len(body)):
        with pytest.raises(CorruptionError):
            serde.loads_typed((tag, body[:end]))


def test_validators_and_constructors_do_not_run_again() -> None:
    assert roundtrip(Counted(n=2)).n == 4
    assert roundtrip(Step("a")).made == ["post"]
    point = tuple.__new__(NoisyPoint, (1, 2))
    assert same(roundtrip(point), point)


def test_foreign_time_zone_becomes_an_equal_fixed_offset() -> None:
    moment = NOW.replace(tzinfo=FixedZone())
    back = roundtrip(moment)
    assert back == moment
    assert back.tzinfo == timezone(timedelta(hours=3))


def test_note_of_typing_on_generic_dataclass_is_left_out() -> None:
    assert roundtrip(_generic_box()) == GenericBox(3)


def test_loaded_array_is_writable() -> None:
    back = roundtrip(np.arange(3))
    back[0] = 9
    assert back.tolist() == [9, 1, 2]


@pytest.mark.parametrize("library", ["numpy", "pandas", "polars", "PIL.Image", "pydantic.v1.main"])
def test_a_library_that_another_thread_is_importing_is_in_nobodys_way(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, ModuleType(library))
    local = dataclasses.make_dataclass("Local", ["n"])
    assert roundtrip([local(1)]) == [local(1)]


def test_private_attribute_that_cannot_be_stored_is_made_anew() -> None:
    owner = Owner(pet=Dog(name="d"), nickName="x", more=(1,))
    owner._seen = 5
    back = roundtrip({"a": owner})["a"]
    assert back._seen == 5
    assert type(back._lock) is type(threading.Lock())
    assert back._lock is not owner._lock
    assert type(back.pet) is Dog
    assert back.more == (1,)
    assert back.model_fields_set == {"pet", "nick", "more"}


def test_exception_with_unstorable_parts_is_still_stored() -> None:
    error = ValueError("bad", threading.Lock())
    error.client = threading.Lock()  # type: ignore[attr-defined]
    back = roundtrip(error)
    assert type(back) is ValueError
    assert back.args == ("bad", repr(error.args[1]))
    assert back.__dict__ == {}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"plan": Step("x", (1, 2, lambda: 0))}, '["plan"].args[2]'),  # type: ignore[arg-type]
        ([1, {"a": (1, open)}], '[1]["a"][1]'),
        ({1: [threading.Lock()]}, "[1][0]"),
        (lc.HumanMessage("h", additional_kwargs={"f": print}), '.additional_kwargs["f"]'),
        (Dog.model_construct(name=int), ".name"),
        (Point(1, os), ".y"),
        (deque([1, int]), "[1]"),
        (defaultdict(list, {"k": int}), "['k']"),
        (MyList([0, int]), "[1]"),
        (np.array([object()]), ""),
        (defaultdict(lambda: 0), ""),
        ([memoryview(b"x")], "[0]"),
        ([(i for i in ())], "[0]"),
        (int, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_unstorable_value_is_refused_by_path(value: Any, path: str) -> None:
    with pytest.raises(SerializationError) as caught:
        serde.dumps_typed(value)
    assert caught.value.path == path


def test_refusal_names_the_offending_type() -> None:
    with pytest.raises(SerializationError, match=r'\["a"\]: .*_thread\.lock'):
        serde.dumps_typed({"a": threading.Lock()})


def _deep(wrap: Any, depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def test_cycles_are_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    step = Step("a")
    step.made.append(step)  # type: ignore[arg-type]
    mapping: dict[Any, Any] = {}
    mapping[1] = (mapping,)
    for cyclic in (ring, step, mapping, (ring,)):
        with pytest.raises(SerializationError, match="contains itself"):
            serde.dumps_typed(cyclic)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {1: v}, GenericBox])
@pytest.mark.parametrize("depth", [30, 90, 99, 100, 101, 102, 254, 255, 256, 5000])
def test_deep_nesting_is_stored_whole_or_refused(wrap: Any, depth: int) -> None:
    value = _deep(wrap, depth)
    try:
        stored = serde.dumps_typed(value)
    except SerializationError:
        assert depth > 90
    else:
        assert serde.dumps_typed(serde.loads_typed(stored)) == stored


def _below(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames == 0 else _below(frames - 1, call)


@pytest.mark.parametrize("wrap", [lambda v: (v,), lambda v: {1: v}, GenericBox])
def test_a_load_deep_inside_the_programs_own_calls_is_not_corruption(wrap: Any) -> None:
    stored = serde.dumps_typed(_deep(wrap, 60))
    refused = 0
    for frames in range(0, sys.getrecursionlimit() - 60, 30):
        try:
            back = _below(frames, lambda: serde.loads_typed(stored))
        except SerializationError:
            refused += 1
        else:
            assert refused == 0
            assert serde.dumps_typed(back) == stored
    assert refused > 0


def _namesakes() -> list[Any]:
    """Objects of classes that share their names, as programs that make classes have them."""
    made = [
        pydantic.create_model("Answer", text=str, sources=(list[str], [])),
        pydantic.create_model("Answer", text=str),
        pydantic.create_model("Answer", text=str, score=(float, 0.5)),
        pydantic.create_model("Animal", __module__=__name__, text=str, legs=(int, 4)),
        dataclasses.make_dataclass("Reply", ["text"]),
        dataclasses.make_dataclass("Reply", ["text", ("score", float, field(default=0.5))]),
        namedtuple("Animal", "text"),  # type: ignore[name-match]
        namedtuple("Reply", "text score", defaults=[0.5]),  # type: ignore[name-match]
    ]
    return [cls(text="why") for cls in made]


def test_of_classes_with_one_name_the_one_with_the_same_fields_comes_back() -> None:
    values = [*_namesakes(), Animal(name="a")]
    stored = [serde.dumps_typed(value) for value in values]
    assert all(
        same(value, serde.loads_typed(each)) for value, each in zip(values, stored, strict=True)
    )
    assert same(values, roundtrip(values))
    assert same(values * 9, roundtrip(values * 9))


def test_shared_objects_are_not_cycles() -> None:
    shared = [threading, 1][1:]
    assert roundtrip([shared, (shared,), {1: shared}]) == [[1], ([1],), {1: [1]}]


PROGRAM = """
import tests.test_roundtrip as t
parts = [{"b", "a", 3, (1, "x")}, frozenset("hello"), {1: {"q", "r"}}, t.MySet("xyz")]
print(t.serde.dumps_typed(parts)[1].hex())
"""


def test_bytes_do_not_depend_on_the_process() -> None:
    root = str(pathlib.Path(__file__).parent.parent)
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": root},
            cwd=root,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def _replace(monkeypatch: pytest.MonkeyPatch, name: str, cls: type) -> None:
    cls.__module__, cls.__qualname__ = __name__, name
    monkeypatch.setattr(sys.modules[__name__], name, cls)


def test_class_that_gained_and_lost_fields_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = [serde.dumps_typed(v) for v in (Dog(name="d"), Step("s"), Point(1, 2))]

    class NewDog(pydantic.BaseModel):
        name: str
        age: int = 3

    @dataclass
    class NewStep:
        name: str
        retries: int = 1

    class NewPoint(NamedTuple):
        x: int
        z: int = 9

    _replace(monkeypatch, "Dog", NewDog)
    _replace(monkeypatch, "Step", NewStep)
    _replace(monkeypatch, "Point", NewPoint)
    assert [serde.loads_typed(s) for s in stored] == [NewDog(name="d"), NewStep("s"), (1, 9)]


def test_class_that_no_longer_fits_names_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = serde.dumps_typed(Dog(name="d"))

    class NewDog(pydantic.BaseModel):
        breed: str

    _replace(monkeypatch, "Dog", NewDog)
    with pytest.raises(SerializationError, match=r"Dog has changed.*gained: breed; lost: name"):
        serde.loads_typed(stored)


def test_enum_member_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = serde.dumps_typed(Colour.RED)
    _replace(monkeypatch, "Colour", enum.Enum("Colour", {"GREEN": 1}))
    with pytest.raises(SerializationError, match="RED"):
        serde.loads_typed(stored)


def test_local_class_comes_back_in_the_same_process_only() -> None:
    @dataclass
    class Local:
        x: int

    stored = serde.dumps_typed(Local(1))
    assert serde.loads_typed(stored) == Local(1)
    elsewhere = stored[1].replace(b"<locals>.Local", b"<locals>.Lokal")
    with pytest.raises(UnsafeTypeError, match=r"types=\[Lokal\]"):
        serde.loads_typed((stored[0], elsewhere))


def test_class_passed_by_object_is_found_by_name() -> None:
    @dataclass
    class Given:
        x: int

    Given.__qualname__ = "f.<locals>.Unseen"
    ref = f"{__name__}:f.<locals>.Given".encode()
    body = serde.dumps_typed(Given(1))[1].replace(b"Unseen", b"Absent")
    Given.__qualname__ = "f.<locals>.Absent"
    assert ref
    with pytest.raises(UnsafeTypeError):
        serde.loads_typed(("x1", body))
    assert ExactSerializer(types=[Given]).loads_typed(("x1", body)) == Given(1)


@pytest.mark.parametrize(
    "types", ["", "my_pkg", None, 3, [""], [3], [None], ["a..b"], [open], [object]]
)
def test_bad_types_argument_is_refused(types: Any) -> None:
    with pytest.raises(ConfigurationError):
        ExactSerializer(types=types)


def test_allowlist_of_langgraph_gives_a_clone() -> None:
    clone = serde.with_msgpack_allowlist([("some.module", "Name"), Step])
    assert clone is not serde
    assert serde.with_msgpack_allowlist([]) is serde
    assert clone.loads_typed(serde.dumps_typed(Step("a"))) == Step("a")


def test_unknown_tag_is_refused() -> None:
    with pytest.raises(SerializationError, match="unknown serialization tag"):
        serde.loads_typed(("x9", b""))


def test_threads_share_one_serializer() -> None:
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(200):
                value = {"m": lc.HumanMessage(f"{n}-{i}"), i: (n, Step(str(i)))}
                assert same(roundtrip(value), value)
                with pytest.raises(SerializationError, match=rf"\[{n}\]"):
                    serde.dumps_typed({n: print})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
