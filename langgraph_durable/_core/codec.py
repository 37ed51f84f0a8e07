"""Python values to items and forms, and back.

An *item* is the serialised bytes of one element; items are appended to the log of their channel
and shared by every value that contains them. A *form* says how a value is made of its items:

    b"..."      the value itself, too small to deserve an item
    ITEM        the only item
    LIST        the items in order, groups of small scalars unfolded
    DICT        the first item is the list of keys, the others are the values in order
    [form]      a DeltaChannel snapshot of the value that `form` describes

So a list that grows by one message stores one item, whoever else holds the other messages.
`Encoder` splits and recognises; `Decoder` verifies and rebuilds, a fresh object every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import ormsgpack
import xxhash
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR, _DeltaSnapshot

from langgraph_durable._core import seal
from langgraph_durable._core.memory import SEED
from langgraph_durable._core.records import Items, Ref, Runs, joined, order_of
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable.errors import DurableError, SerializationError

ITEM, LIST, DICT = 1, 2, 3
Form = object

INLINE = 48
"""Serialised values up to this size live in the record."""
WHOLE_DICT = 512
"""Dicts up to this size are one item: splitting would cost more than it shares."""
GROUP = 64
"""Neighbouring scalars share an item, so that a vector of floats is not a thousand rows."""
SHORT = 48
FEWEST = 64
"""Numbers (two make a run) that a ref spells itself before it grows a spine."""

_TAGS = ("x1", "null", "bytes", "bytearray", "msgpack")
_CODES = {tag: bytes([code]) for code, tag in enumerate(_TAGS)}
_GROUPED, _NAMED = 0x40, 0x3F
_GROUP_CODES = {tag: bytes([_GROUPED | code]) for code, tag in enumerate(_TAGS)}
_NOTHING: Mapping[bytes, int] = {}
_SCALARS = frozenset({int, float, bool, type(None)})

Dump = Callable[[Any], tuple[str, bytes]]


def _raw(tag: str, data: bytes, codes: Mapping[str, bytes], grouped: int = 0) -> bytes:
    """Item bytes before packing: one byte (or a name) for the serialiser's tag, then its data."""
    code = codes.get(tag)
    if code is not None:
        return code + data
    named = tag.encode("utf-8", "surrogatepass")
    return bytes([_NAMED | grouped, len(named)]) + named + data


class Encoder:
    """Turns values into refs and forms, collecting the items the logs do not have yet."""

    def __init__(
        self,
        serde: SerializerProtocol,
        known: Mapping[str, Mapping[bytes, int]],
    ) -> None:
        self._dump: Dump = serde.dumps_typed
        self._exact = isinstance(serde, ExactSerializer)
        self._known = known
        self.items: dict[str, dict[bytes, bytes]] = {}
        """New payloads by log and digest, in the order of their provisional numbers ~0, ~1, ..."""
        self._provisional: dict[str, dict[bytes, int]] = {}
        self.shared = False
        """Something refers to an item that was already there."""

    def value(self, channel: str, value: Any) -> tuple[Ref, Form]:
        """The ref and form of `value` in `channel`."""
        wrapped = type(value) is _DeltaSnapshot
        if wrapped:
            value = value.value
        elif channel == ERROR and isinstance(value, BaseException) and self._exact:
            # LangGraph's readers expect the text of an error, as the stock serialiser gives it.
            value = repr(value)
        order, form = self._split(channel, value)
        ref = Ref(channel, joined(order))
        if len(ref.runs) > 2 * FEWEST:
            ref = self._with_spine(ref)
        return ref, [form] if wrapped else form

    def _with_spine(self, ref: Ref) -> Ref:
        """Leave the front of the runs to spine items.

        They end where the numbers say so, not after a fixed count, so that an edit or a sliding
        window changes one of them and not all that follow.
        """
        runs = ref.runs
        chunks: list[bytes] = []
        begin = 0
        for at in range(0, len(runs), 2):
            if runs[at] < 0:  # has no number yet
                break
            length = at + 2 - begin
            ends = runs[at] * 0x9E3779B1 % 32 == 0
            if (length >= FEWEST and ends) or length >= 8 * FEWEST:
                chunk = ormsgpack.packb(runs[begin : at + 2])
                chunks.append(seal.SPINE_MARK + chunk)
                begin = at + 2
        return ref._replace(runs=runs[begin:], spine=joined(self._numbers(ref.log, chunks)))

    def _split(self, channel: str, value: Any) -> tuple[list[int], Form]:
        kind = type(value)
        if kind is list:
            if not value:
                return [], LIST
            if len(value) > 4 or not _is_scalar(value[0]):
                # A copy, because the graph may go on and change the list under a background put.
                return self._numbers(channel, self._elements(channel, value[:])), LIST
        elif kind is dict and len(value) > 1 and all(type(key) is str for key in value):
            names, values = map(list, zip(*value.items(), strict=True))
            elements = list(self._elements(channel, values, names))
            if sum(map(len, elements)) > WHOLE_DICT:
                keys = self._one(channel, names)
                return self._numbers(channel, [keys, *elements]), DICT
        whole = self._one(channel, value)
        if len(whole) <= INLINE:
            return [], whole
        return self._numbers(channel, [whole]), ITEM

    def _numbers(self, channel: str, raws: Sequence[bytes] | Iterator[bytes]) -> list[int]:
        """Where the items are, appending those that are nowhere yet."""
        known = self._known.get(channel, _NOTHING).get
        fresh = self._provisional.setdefault(channel, {})
        payloads = self.items.setdefault(channel, {})
        digest = xxhash.xxh3_128_digest
        order: list[int] = []
        for raw in raws:
            mark = digest(raw, SEED)
            n = known(mark)
            if n is None:
                n = fresh.get(mark)
                if n is None:
                    n = fresh[mark] = ~len(payloads)
                    payloads[mark] = seal.pack(raw)
            else:
                self.shared = True
            order.append(n)
        return order

    def _elements(
        self, channel: str, values: Sequence[Any], keys: Sequence[str] | None = None
    ) -> Iterator[bytes]:
        dump, codes = self._dump, _CODES
        i, end = 0, len(values)
        while i < end:
            element = values[i]
            try:
                if _is_scalar(element):
                    stop = i + 1
                    while stop < end and stop - i < GROUP and _is_scalar(values[stop]):
                        stop += 1
                    tag, data = dump(list(values[i:stop]))
                    yield _raw(tag, data, _GROUP_CODES, _GROUPED)
                    i = stop
                    continue
                tag, data = dump(element)
            except Exception as error:
                at = f"[{i}]" if keys is None else f"[{keys[i]!r}]"
                raise _unstorable(channel, at, element, error) from error
            yield codes[tag] + data if tag == "x1" else _raw(tag, data, codes)
            i += 1

    def _one(self, channel: str, value: Any) -> bytes:
        try:
            tag, data = self._dump(value)
        except Exception as error:
            raise _unstorable(channel, "", value, error) from error
        return _raw(tag, data, _CODES)


def _is_scalar(value: Any) -> bool:
    kind = type(value)
    return kind in _SCALARS or (kind is str and len(value) <= SHORT)


def _unstorable(channel: str, at: str, value: Any, error: Exception) -> SerializationError:
    if isinstance(error, SerializationError):
        reason, inner = error.reason, error.path
    else:
        reason, inner = f"{type(value).__name__} cannot be stored: {error}", ""
    return SerializationError(reason, path=f"channel {channel!r}{at}{inner}")


class Decoder:
    """Rebuilds values from items. One per read: raw items are unpacked once, objects are fresh."""

    def __init__(self, serde: SerializerProtocol, thread_id: str, items: Items) -> None:
        self._load = serde.loads_typed
        self._thread_id = thread_id
        self._items = items
        self._raws: dict[str, dict[int, bytes]] = {}

    def value(self, where: str, ref: Ref, form: Form) -> Any:
        """The value; `where` names thread, checkpoint and channel for errors."""
        try:
            return self._value(ref, form)
        except seal.Damaged as error:
            raise seal.damaged(where, error) from error
        except (IndexError, UnicodeDecodeError) as error:
            raise seal.damaged(where, seal.Damaged(f"an item is malformed: {error}")) from error
        except DurableError as error:
            error.args = (f"{where}: {error}", *error.args[1:])
            raise

    def _value(self, ref: Ref, form: Form) -> Any:
        if isinstance(form, bytes):
            return self._one(form)
        if isinstance(form, list):
            return _DeltaSnapshot(self._value(ref, form[0]))
        raws = self.raws(ref)
        if form == LIST:
            return self._many(raws)
        if form == DICT:
            keys, values = self._one(raws[0]), self._many(raws[1:])
            if type(keys) is not list or len(keys) != len(values):
                raise seal.Damaged("a dict's keys and values do not match")
            return dict(zip(keys, values, strict=True))
        if form == ITEM:
            return self._one(raws[0])
        raise seal.Damaged(f"unknown form {form!r}")

    def raws(self, ref: Ref) -> list[bytes]:
        """Verified, unpacked items in order."""
        return self._unpacked(ref.log, order_of(ref, self.spine))

    def spine(self, log: str, number: int) -> Runs:
        """The runs in a spine item."""
        raw = self._unpacked(log, (number,))[0]
        if raw[:1] != seal.SPINE_MARK:
            raise seal.Damaged(f"item {number} of log {log!r} is not what it should be")
        return tuple(ormsgpack.unpackb(raw[1:]))

    def _unpacked(self, log: str, order: Iterable[int]) -> list[bytes]:
        stored = self._items.get(log, {})
        done = self._raws.setdefault(log, {})
        seed = seal.log_seed(self._thread_id, log)
        out = []
        for n in order:
            raw = done.get(n)
            if raw is None:
                blob = stored.get(n)
                if blob is None:
                    raise seal.Damaged(f"item {n} of log {log!r} is missing")
                raw = done[n] = seal.unpack(seal.open_item(seed, n, blob))
            out.append(raw)
        return out

    def check(self, where: str, ref: Ref) -> None:
        """Verify items without building anything from them."""
        try:
            self.raws(ref)
        except seal.Damaged as error:
            raise seal.damaged(f"{where}, channel {ref.log!r}", error) from error

    def digests(self, log: str) -> dict[bytes, int]:
        """Digest to number of every item of `log` unpacked so far."""
        digest = xxhash.xxh3_128_digest
        return {digest(raw, SEED): n for n, raw in self._raws.get(log, {}).items()}

    @property
    def logs(self) -> tuple[str, ...]:
        return tuple(self._raws)

    def _many(self, raws: Sequence[bytes]) -> list[Any]:
        out: list[Any] = []
        load, append = self._load, out.append
        for raw in raws:
            code = raw[0]
            if code == 0:
                append(load(("x1", raw[1:])))
            elif code & _GROUPED:
                group = self._one(raw)
                if type(group) is not list:
                    raise seal.Damaged("a group is not a list")
                out.extend(group)
            else:
                append(self._one(raw))
        return out

    def _one(self, raw: bytes) -> Any:
        code = raw[0] & ~_GROUPED
        if code == _NAMED:
            end = 2 + raw[1]
            tag = raw[2:end].decode("utf-8", "surrogatepass")
            return self._load((tag, raw[end:]))
        if code >= len(_TAGS):
            raise seal.Damaged(f"unknown item tag {code}")
        return self._load((_TAGS[code], raw[1:]))
