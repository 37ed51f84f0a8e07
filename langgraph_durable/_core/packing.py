"""From a Python value to msgpack: fast, or carefully where the fast way gives up.

Plain data is packed by ormsgpack in one call. Whatever ormsgpack does not know, or would change
(tuples, subclasses, datetimes ...), comes to a hook here, which asks `plans.py` for the plan of the
class and embeds its record as a msgpack extension. When the fast call gives up, `_Careful` walks
the value in Python: it writes the same bytes, and knows the path to what cannot be stored.
`serde.py` calls `pack`, and `dump_carefully` after an error of any kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import ormsgpack
from ormsgpack import Ext, Fragment, packb

from langgraph_durable._core.kinds import MODEL, Pack, Plan, Unstorable
from langgraph_durable._core.plans import PLANS
from langgraph_durable._core.types import name_of
from langgraph_durable.errors import SerializationError

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
NATIVE = frozenset({str, int, float, bool, list, dict})

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


pack = _fast_pack()


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


def dump_carefully(obj: Any) -> bytes:
    """The bytes of a value at the top level, or an error that names what is wrong and where."""
    careful = _Careful()
    try:
        if type(obj) in NATIVE:
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
