"""The serializer: Python value to bytes and back, exactly or not at all.

A value is msgpack with records as extensions; a record at the top level stands behind a lead of two
bytes instead. `packing` writes it, and `rebuilding` makes objects of what ormsgpack has unpacked;
`stock` does so for the records of LangGraph's own serialiser. `encoder.py` calls `dump_item`, and
`decoder.py` `load_item`, once per item; `dump_items` and `load_models` take a conversation at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from ormsgpack import unpackb

from langgraph_durable._core import collector, stock
from langgraph_durable._core.kinds import LEAD, MODEL, Plan
from langgraph_durable._core.packing import NATIVE, dump_carefully, pack
from langgraph_durable._core.plans import PLANS
from langgraph_durable._core.rebuilding import explained, reader, remembering
from langgraph_durable._core.types import Gate, gate_for
from langgraph_durable.errors import (
    ConfigurationError,
    CorruptionError,
    SerializationError,
    UnsafeTypeError,
)

TAG = "x1"
ITEM_TAGS = (TAG, "null", "bytes", "bytearray", "msgpack")
"""Tags that stand in stored items as their position here: append only."""
TAG_CODES = {tag: bytes([code]) for code, tag in enumerate(ITEM_TAGS)}
NAMED = 0x3F
"""In place of a position: the tag stands in the item itself, behind its length."""
_MODEL_LEAD = bytes((0, LEAD, MODEL))
_ARRAY_LEAD = b"\xdd"  # of an array with four bytes for its length
TOGETHER = 64
"""Models unpacked at once: larger buffers come from the system each time, and cost more."""
MANY = 128
"""Models that are worth putting the garbage collector to sleep for."""
OBJECTS = 6
"""Of each model, as the garbage collector counts."""
_TAGGED = NATIVE | {bytes, bytearray, type(None)}


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
        self._rebuild = rebuild = reader(gate, self._messages, self._shelf)

        def hook(code: int, data: Any) -> Any:
            return rebuild(code, unpackb(data, ext_hook=self._hook))

        self._hook = remembering(hook)

        def stock_hook(code: int, data: Any) -> Any:
            option = ormsgpack.OPT_NON_STR_KEYS
            inner = unpackb(data, ext_hook=self._stock_hook, option=option)
            return stock.build(gate, code, inner)

        self._stock_hook = remembering(stock_hook)

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
            if kind in NATIVE:
                return TAG, pack(obj)
            plan = PLANS[kind]
            return TAG, plan.lead + plan.encode(obj, pack)
        except Exception:
            return TAG, dump_carefully(obj)

    def dump_item(self, obj: Any) -> bytes:
        """Return the bytes of `dumps_typed` behind one byte for the tag; the way of the encoder."""
        kind = type(obj)
        if kind not in _TAGGED:
            try:
                plan = PLANS[kind]
                return plan.item_lead + plan.encode(obj, pack)
            except Exception:  # `dumps_typed` finds out what is wrong
                pass
        tag, data = self.dumps_typed(obj)
        return TAG_CODES[tag] + data

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
                raws.append(lead + encode(value, pack))
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
                raise explained(error)  # noqa: B904
        if raw[0] == NAMED:
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
            with collector.asleep(OBJECTS * len(packed)):
                return self._load_packed(packed)
        except BaseException as error:
            cause = explained(error)
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
                raise explained(error)  # noqa: B904
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
            raise explained(error)  # noqa: B904
