"""The serializer: Python value to bytes and back, exactly or not at all.

Plain data is packed by ormsgpack in one call. Whatever ormsgpack does not know, or would change
(tuples, subclasses, datetimes ...), comes to a hook here, which asks `plans.py` for the plan of the
class and embeds its record as a msgpack extension; a record at the top level stands behind a lead
of two bytes instead. When the fast call gives up, `_Careful` walks the value in Python: it writes
the same bytes, and knows the path to what cannot be stored. Loading asks `types.py` for classes.
`codec.py` calls `dumps_typed` and `loads_typed` once per item.
"""

from __future__ import annotations

import copy
import ipaddress
import pathlib
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from ormsgpack import Ext, Fragment, packb, unpackb

from langgraph_durable._core import collector
from langgraph_durable._core.classes import State
from langgraph_durable._core.kinds import (
    ARRAY,
    ARTIFACT,
    ENUM,
    EXCEPTION,
    LEAD,
    MODEL,
    MODEL_V1,
    NAMEDTUPLE,
    RECORD,
    SUBCLASS,
    Pack,
    Plan,
    Unstorable,
)
from langgraph_durable._core.plans import MAKERS, PLANS, is_data
from langgraph_durable._core.types import Gate, gate_for, is_class, name_of, unreachable
from langgraph_durable.errors import (
    ConfigurationError,
    CorruptionError,
    DurableError,
    SerializationError,
    UnsafeTypeError,
)

TAG = "x1"
ITEM_TAGS = (TAG, "null", "bytes", "bytearray", "msgpack")
"""Tags that stand in stored items as their position here: append only."""
_TAG_CODES = {tag: bytes([code]) for code, tag in enumerate(ITEM_TAGS)}
_NAMED = 0x3F
_MODEL_LEAD = bytes((0, LEAD, MODEL))
_ARRAY_LEAD = b"\xdd"  # of an array with four bytes for its length
TOGETHER = 64
"""Models unpacked at once: larger buffers come from the system each time, and cost more."""
MANY = 128
"""Models that are worth putting the garbage collector to sleep for: six objects it counts each."""
# Records inside records. Each costs three Python frames on load, and LangGraph has its own.
_LEVELS = 100
_TOO_DEEP = "the value is nested too deeply to be stored"
_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
)
_NATIVE = frozenset({str, int, float, bool, list, dict})
_TAGGED = _NATIVE | {bytes, bytearray, type(None)}

Default = Callable[[Any], Any]


# --- the fast way out ---


def _hides_buffer(value: Any) -> bool:
    """Tell whether ormsgpack has packed a bytearray or memoryview here as if it were bytes."""
    kind = type(value)
    if kind is list:
        return any(map(_hides_buffer, value))
    if kind is dict:
        return any(map(_hides_buffer, value.values()))
    return kind is bytearray or kind is memoryview


def _may_hide_buffer(out: bytes) -> bool:
    """One of these bytes starts any packed buffer. Looking costs 0.02 us each, a walk more."""
    return 0xC4 in out or 0xC5 in out or 0xC6 in out


def _level(deeper: Default) -> tuple[Default, Pack]:
    def pack(inner: Any) -> bytes:
        out = packb(inner, deeper, _OPTIONS)
        if _may_hide_buffer(out) and _hides_buffer(inner):
            raise TypeError("bytearray")
        return out

    def default(obj: Any) -> Ext:
        plan = PLANS[type(obj)]
        return Ext(plan.code, plan.encode(obj, pack))

    return default, pack


def _fast_pack() -> Pack:
    """Chain one hook per level of nesting: the depth is bounded and nothing has to count it."""

    def default(obj: Any) -> NoReturn:
        raise RecursionError(_TOO_DEEP)

    hook: Default = default
    for _ in range(_LEVELS):
        hook, pack = _level(hook)
    return pack


_pack = _fast_pack()


def sketch(values: list[Any]) -> bytes | None:
    """Bytes that differ whenever the stored forms of pydantic models do; None if in doubt.

    All of them in one call of ormsgpack, which makes it cheap; nothing can be rebuilt from it.
    """
    serials: dict[type, int] = {}
    try:
        for kind in set(map(type, values)):
            plan = PLANS[kind]
            if plan.code != MODEL:
                return None
            serials[kind] = plan.serial
        usual = {*values[0].__pydantic_fields_set__}
        flat: list[Any] = [[*usual]]
        for value in values:
            fields_set = value.__pydantic_fields_set__
            flat += (
                serials[type(value)],
                value.__dict__,
                None if fields_set == usual else [*fields_set],
                value.__pydantic_extra__,
                value.__pydantic_private__,
            )
        out = packb(flat, None, _OPTIONS)
    except Exception:  # something inside is not plain data
        return None
    return None if _may_hide_buffer(out) and _hides_buffer(flat) else out


# --- the careful way out ---


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Careful:
    """Rewrites a value into what ormsgpack packs as it is, and knows where it is."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.level = 0

    def pack(self, inner: Any) -> bytes:
        lowered = self.lower(inner)
        try:
            return packb(lowered, None, _OPTIONS)
        except TypeError as error:
            raise Unstorable(_TOO_DEEP) from error

    def lower(self, obj: Any) -> Any:
        kind = type(obj)
        if obj is None or kind in (bool, float, bytes, Fragment):
            return obj
        if kind is int and -(1 << 63) <= obj < 1 << 64:
            return obj
        if kind is str and _is_text(obj):
            return obj
        if kind is list:
            return self._inside(obj, self._list)
        if kind is dict and all(type(key) is str and _is_text(key) for key in obj):
            return self._inside(obj, self._dict)
        plan, body = self.record(obj)
        return Ext(plan.code, body)

    def record(self, obj: Any) -> tuple[Plan, bytes]:
        plan = PLANS[type(obj)]
        return plan, self._inside(obj, lambda o: self._encode(plan, o))

    def _inside(self, obj: Any, act: Callable[[Any], Any]) -> Any:
        if id(obj) in self.open:
            raise Unstorable(f"this {type(obj).__qualname__} contains itself")
        self.open.add(id(obj))
        try:
            return act(obj)
        finally:
            self.open.discard(id(obj))

    def _encode(self, plan: Plan, obj: Any) -> bytes:
        if self.level >= _LEVELS:
            raise Unstorable(_TOO_DEEP)
        self.level += 1
        try:
            return plan.encode(obj, self.pack)
        except Unstorable as error:
            plan.label(obj, error.steps)
            raise
        finally:
            self.level -= 1

    def _list(self, items: list[Any]) -> list[Any]:
        out = []
        for index, item in enumerate(items):
            try:
                out.append(self.lower(item))
            except Unstorable as error:
                error.steps.append(f"[{index}]")
                raise
        return out

    def _dict(self, items: dict[str, Any]) -> dict[str, Any]:
        out = {}
        for key, item in items.items():
            try:
                out[key] = self.lower(item)
            except Unstorable as error:
                error.steps.append(f'["{key}"]')
                raise
        return out


def _dump_carefully(obj: Any) -> bytes:
    careful = _Careful()
    try:
        if type(obj) in _NATIVE:
            return careful.pack(obj)
        plan, body = careful.record(obj)
        return plan.lead + body
    except Unstorable as error:
        raise SerializationError(error.reason, path="".join(reversed(error.steps))) from None
    except RecursionError:
        raise SerializationError(_TOO_DEEP) from None
    except Exception as error:
        kind = name_of(type(obj))
        raise SerializationError(f"{kind} could not be taken apart: {error}") from error


# --- the way in ---

# ormsgpack replaces an exception of its hook by a bare ValueError: the first one is kept here.
_trouble = threading.local()


def _remembering(hook: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
    def remembered(code: int, data: Any) -> Any:
        try:
            return hook(code, data)
        except BaseException as error:
            if not hasattr(_trouble, "error"):
                _trouble.error = error
            raise

    return remembered


def _is_crowded() -> bool:
    """Whether calls take up so much of the stack that a value may be sound which finds no room."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth > sys.getrecursionlimit() // 2


def _explained(error: BaseException) -> BaseException:
    """Return the error to raise for what went wrong while loading."""
    cause = _trouble.__dict__.pop("error", error)
    if isinstance(cause, DurableError) or not isinstance(cause, Exception):
        return cause
    no_room = isinstance(cause, RecursionError) or str(cause) == "ext_hook failed"
    if no_room and _is_crowded():  # the latter where not even the hook could be called
        return SerializationError("the calls around this load leave no room to rebuild the value")
    corrupt = CorruptionError(f"stored bytes are not a value this serializer wrote: {cause}")
    corrupt.__cause__ = cause
    return corrupt


def _only_data(cls: type) -> UnsafeTypeError:
    module, _, qualname = name_of(cls).partition(":")
    return UnsafeTypeError(
        f"stored data names {module}.{qualname}, which is not the kind of data class its record "
        "claims. Only pydantic models, dataclasses, enums, named tuples, exceptions and "
        f"subclasses of builtins are rebuilt, also with types=[{module!r}]"
    )


def _reader(gate: Gate, messages: dict[Any, Plan], shelf: Any = None) -> Callable[[int, Any], Any]:
    """Return the function that turns an unpacked record into its object.

    Artifacts are told their `shelf`, where they will find their content.

    It notes in `messages` the plans of the models of the `CORE` table that it has met, so that the
    next one need not come here.
    """
    core: dict[int, Plan] = {}
    may_be_plain = gate.plain or bool(gate.moves)

    def rebuild(code: int, inner: Any) -> Any:
        make = MAKERS.get(code)
        if make is not None:
            made = make(inner)
            if code == ARTIFACT and shelf is not None:
                made.lie_on(shelf)
            return made
        if not SUBCLASS <= code <= MODEL_V1:
            raise CorruptionError(f"there is no record of kind {code}")
        if type(inner) is not list:
            raise CorruptionError("a record is not a list")
        ref = inner[0]
        if may_be_plain and gate.reads_plainly(ref):
            return plainly(code, inner)
        plan = core.get(ref) if type(ref) is int else None
        if plan is None:
            plan = PLANS[gate.find(ref, is_data)]
            if type(ref) is int:
                core[ref] = plan
                if plan.code == MODEL:
                    messages[ref] = plan
            elif type(ref) is str and not gate.moves and not _fits(plan, code, inner):
                namesakes = (PLANS[cls] for cls in unreachable(ref))
                plan = next((each for each in namesakes if _fits(each, code, inner)), plan)
        if plan.code != code:
            fields = plainly(code, inner) if gate.moves else None
            if type(fields) is dict and isinstance(plan, State):
                return plan.construct(fields, lambda known: plan.cls(**known))
            raise _only_data(plan.cls)
        return plan.rebuild(inner)

    return rebuild


def _fits(plan: Plan, code: int, inner: list[Any]) -> bool:
    """Whether a record is of this plan's kind, and of a class with the same fields."""
    return plan.code == code and getattr(plan, "fingerprint", inner[1]) == inner[1]


def plainly(code: int, inner: Any) -> Any:
    """What a record of a user's class holds, without the class."""
    if code == MODEL and len(inner) > 4:
        return {**inner[3], **(inner[4] or {})}
    if code == EXCEPTION:
        return {"args": inner[1], **inner[2]}
    return inner[_CONTENT[code]]


_CONTENT = {MODEL: 3, MODEL_V1: 2, RECORD: 2, NAMEDTUPLE: 2, ENUM: 1, SUBCLASS: 1}


# --- what the stock serializer wrote ---

_STOCK_VALUES: dict[tuple[str, str], Callable[..., Any]] = {
    (cls.__module__, cls.__name__): cls
    for cls in (
        *(datetime, date, time, timedelta, timezone, UUID, Decimal, set, frozenset, deque),
        *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
        *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
    )
}
_STOCK_VALUES |= {
    (module, cls.__name__): cls
    for cls in (pathlib.Path, pathlib.PosixPath, pathlib.WindowsPath)
    for module in ("pathlib", "pathlib._local")
}
_STOCK_VALUES |= {("zoneinfo", "ZoneInfo"): ZoneInfo, ("re", "compile"): re.compile}

_CONSTRUCTED = frozenset({ENUM, RECORD, NAMEDTUPLE, SUBCLASS})
# Stock extension code -> the kinds of class that its records may build.
_STOCK_KINDS = {
    0: _CONSTRUCTED,
    1: _CONSTRUCTED,
    2: _CONSTRUCTED,
    4: frozenset({MODEL_V1, MODEL}),
    5: frozenset({MODEL}),
}
# Stock extension code -> the types of argument that its records hold; an enum takes any value.
_STOCK_ARGUMENTS: dict[int, frozenset[type]] = {
    0: frozenset({list, str, bytes, int, float, bool, type(None)}),
    1: frozenset({list}),
    2: frozenset({dict}),
    4: frozenset({dict}),
    5: frozenset({dict}),
}


def _stock_target(gate: Gate, code: int, module: Any, name: Any) -> Any:
    """Return what a stock record may call, or refuse."""
    if type(module) is not str or type(name) is not str:
        raise CorruptionError("a stock record does not name a type")
    if code < 4 and (module, name) in _STOCK_VALUES:
        return _STOCK_VALUES[module, name]
    cls = gate.find(f"{module}:{name}", is_data)
    if PLANS[cls].code not in _STOCK_KINDS[code]:
        raise _only_data(cls)
    return cls


def _stock_build(gate: Gate, code: int, inner: Any) -> Any:
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
    if code not in _STOCK_KINDS:
        raise CorruptionError(f"the stock serializer has no extension {code}")
    target = _stock_target(gate, code, module, name)
    # An endless network or range in place of a list would be unrolled.
    if type(argument) not in _STOCK_ARGUMENTS[code] and not _is_enum(target):
        raise CorruptionError(f"the argument of a stock {name} is a {type(argument).__name__}")
    try:
        if code == 0:
            return target(argument)
        if code == 1 and (module, name) == ("langgraph.types", "Send"):
            return target(*argument[:2], **dict(zip(["timeout"], argument[2:], strict=False)))
        return target(*argument) if code == 1 else _stock_call(target, code, argument)
    except Exception as error:
        raise SerializationError(f"{module}.{name} cannot be rebuilt: {error}") from error


def _is_enum(target: Any) -> bool:
    return is_class(target) and PLANS[target].code == ENUM


def _stock_call(target: Any, code: int, fields: dict[str, Any]) -> Any:
    try:
        return target(**fields)
    except Exception:
        if code == 2:
            raise
        # As the stock serializer does: data that no longer validates is kept as it was.
        return (target.construct if code == 4 else target.model_construct)(**fields)


class ExactSerializer(JsonPlusSerializer):
    """Stores every value so that it comes back equal and of equal type, or refuses it.

    Args:
        types: which classes stored data may rebuild. "safe": data classes (pydantic models,
            dataclasses, enums, named tuples, exceptions, subclasses of builtins) of modules that
            are already imported, and LangGraph's own types. A list of module names, dotted class
            names and classes: these too, importing their modules when needed. "any": data classes
            of every module, and the stock serializer's records with its own permissive rules.
            "plain": none at all; objects of the user's classes are read as dicts.

    Raises:
        SerializationError: a value cannot be stored; the message names the path to it.
        UnsafeTypeError: stored data names a type that `types` does not allow.
        CorruptionError: stored bytes are damaged.

    Example:
        >>> serde = ExactSerializer()
        >>> serde.loads_typed(serde.dumps_typed({"point": (1, 2.0), 3: {"x"}}))
        {'point': (1, 2.0), 3: {'x'}}
    """

    def __init__(
        self, types: Literal["safe", "any", "plain"] | Iterable[str | type] = "safe"
    ) -> None:
        gate = gate_for(types)
        permitted: Literal[True] | None = True if gate.everything else None
        super().__init__(allowed_json_modules=permitted, allowed_msgpack_modules=permitted)
        self._open(gate)

    def _open(self, gate: Gate) -> None:
        for cls in gate.classes.values():
            if PLANS[cls].code == 0:
                raise ConfigurationError(f"types: {cls!r} is not a data class")
        self._gate = gate
        self._messages: dict[Any, Plan] = {}
        self._rebuild = rebuild = _reader(gate, self._messages, self._shelf)

        def hook(code: int, data: Any) -> Any:
            return rebuild(code, unpackb(data, ext_hook=self._hook))

        self._hook = _remembering(hook)

        def stock_hook(code: int, data: Any) -> Any:
            option = ormsgpack.OPT_NON_STR_KEYS
            inner = unpackb(data, ext_hook=self._stock_hook, option=option)
            return _stock_build(gate, code, inner)

        self._stock_hook = _remembering(stock_hook)

    _shelf: Any = None

    def on_shelf(self, shelf: Any) -> ExactSerializer:
        """Return the same serializer for a saver with this shelf of artifacts."""
        clone = copy.copy(self)
        clone._shelf = shelf
        clone._open(self._gate)
        return clone

    def with_msgpack_allowlist(
        self, extra_allowlist: Iterable[tuple[str, ...] | type]
    ) -> ExactSerializer:
        """Return a serializer that also allows these classes and (module, name) pairs."""
        gate = self._gate.allowing(extra_allowlist)
        if gate == self._gate:
            return self
        clone = copy.copy(self)
        clone._open(gate)
        return clone

    def moving(self, moves: Mapping[str, str | type | None]) -> ExactSerializer:
        """Return a serializer for data whose classes are elsewhere now."""
        clone = copy.copy(self)
        clone._open(replace(self._gate, moves=dict(moves)))
        return clone

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the tag and the bytes that stand for `obj`."""
        kind = type(obj)
        if obj is None:
            return "null", b""
        if kind is bytes:
            return "bytes", obj
        if kind is bytearray:
            return "bytearray", bytes(obj)
        try:
            if kind in _NATIVE:
                return TAG, _pack(obj)
            plan = PLANS[kind]
            return TAG, plan.lead + plan.encode(obj, _pack)
        except Exception:
            return TAG, _dump_carefully(obj)

    def dump_item(self, obj: Any) -> bytes:
        """Return the bytes of `dumps_typed` behind one byte for the tag; the way of the codec."""
        kind = type(obj)
        if kind not in _TAGGED:
            try:
                plan = PLANS[kind]
                return plan.item_lead + plan.encode(obj, _pack)
            except Exception:  # `dumps_typed` finds out what is wrong
                pass
        tag, data = self.dumps_typed(obj)
        return _TAG_CODES[tag] + data

    def dump_items(self, values: Iterable[Any]) -> list[bytes]:
        """`dump_item` of the first values, up to one that is plain data or needs more care.

        A conversation passes through here whole at every step, so it is worth a loop of its own.
        """
        raws: list[bytes] = []
        kind = None
        try:
            for value in values:
                if type(value) is not kind:
                    kind = type(value)
                    if kind in _TAGGED:
                        break
                    plan = PLANS[kind]
                    lead, encode = plan.item_lead, plan.encode
                raws.append(lead + encode(value, _pack))
        except Exception:  # `dump_item` finds out what is wrong with it
            pass
        return raws

    def load_item(self, raw: bytes) -> Any:
        """Return the value that `dump_item` was given."""
        if raw[0] == 0:
            try:
                if raw[1] == LEAD:
                    inner = unpackb(raw[3:], ext_hook=self._hook)
                    if raw[2] == MODEL and type(inner[0]) is int:
                        plan = self._messages.get(inner[0])
                        if plan is not None:
                            return plan.rebuild(inner)
                    return self._rebuild(raw[2], inner)
                return unpackb(raw[1:], ext_hook=self._hook)
            except BaseException as error:
                raise _explained(error)  # noqa: B904
        if raw[0] == _NAMED:
            end = 2 + raw[1]
            return self.loads_typed((raw[2:end].decode("utf-8", "surrogatepass"), raw[end:]))
        if raw[0] >= len(ITEM_TAGS):
            raise CorruptionError(f"unknown item tag {raw[0]}")
        return self.loads_typed((ITEM_TAGS[raw[0]], raw[1:]))

    def load_models(self, raws: Sequence[bytes]) -> list[Any] | None:
        """`load_item` of each, if all are models and load without trouble; else None.

        A conversation passes through here whole at every read: it is unpacked in a few arrays.
        """
        packed = [raw[3:] for raw in raws if raw.startswith(_MODEL_LEAD)]
        if not packed or len(packed) < len(raws):
            return None
        try:
            if len(packed) < MANY:
                return self._load_packed(packed)
            with collector.asleep():
                return self._load_packed(packed)
        except BaseException as error:
            cause = _explained(error)
            if not isinstance(cause, Exception):  # an interrupt, maybe from within the unpacker
                raise cause  # noqa: B904
            return None  # `load_item` finds out what is wrong with it

    def _load_packed(self, packed: Sequence[bytes]) -> list[Any]:
        plan_of, rebuild, made = self._messages.get, self._rebuild, []
        for begin in range(0, len(packed), TOGETHER):
            some = packed[begin : begin + TOGETHER]
            array = b"".join((_ARRAY_LEAD, len(some).to_bytes(4, "big"), *some))
            for inner in unpackb(array, ext_hook=self._hook):
                plan = plan_of(inner[0]) if type(inner[0]) is int else None
                made.append(rebuild(MODEL, inner) if plan is None else plan.rebuild(inner))
        return made

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value that `dumps_typed`, or the stock serializer, was given."""
        tag, body = data
        if tag == TAG:
            try:
                if body[0] == LEAD:
                    return self._rebuild(body[1], unpackb(body[2:], ext_hook=self._hook))
                return unpackb(body, ext_hook=self._hook)
            except BaseException as error:
                raise _explained(error)  # noqa: B904
        if tag in ("null", "bytes", "bytearray"):
            return None if tag == "null" else bytes(body) if tag == "bytes" else bytearray(body)
        if tag == "pickle" or (tag == "json" and not self._gate.everything):
            allow = "" if tag == "pickle" else ' unless the saver is opened with types="any"'
            raise UnsafeTypeError(
                f'stored data is tagged "{tag}", a format that can run code, and is not read{allow}'
            )
        if tag == "json" or (tag == "msgpack" and self._gate.everything):
            return super().loads_typed(data)
        if tag == "msgpack":
            return self._load_stock(body)
        raise SerializationError(f"unknown serialization tag {tag!r}")

    def _load_stock(self, body: bytes) -> Any:
        try:
            return unpackb(body, ext_hook=self._stock_hook, option=ormsgpack.OPT_NON_STR_KEYS)
        except BaseException as error:
            raise _explained(error)  # noqa: B904
