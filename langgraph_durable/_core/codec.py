"""Python values to items and forms, and back.

An *item* is the serialised bytes of one element; items are appended to the log of their thread
and shared by every value that contains them. A *form* says how a value is made of its items:

    b"..."           the value itself, too small to deserve an item
    ITEM             the only item
    LIST             the items in order, groups of small scalars unfolded
    DICT             the first item is the list of keys, the others are the values in order
    [TREE, parts]    the first item is the list of keys, then each value by its own [form, count]
    [form]           a DeltaChannel snapshot of the value that `form` describes

So a list that grows by one message stores one item, whoever else holds the other messages.
`Encoder` splits and recognises; `Decoder` verifies and rebuilds, a fresh object every time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ormsgpack
import xxhash
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR, _DeltaSnapshot

from langgraph_durable._core import claims, offload, seal
from langgraph_durable._core.claims import Claim, gone_item, load_gone
from langgraph_durable._core.memory import SEED, Part
from langgraph_durable._core.offload import Packed, Shelf
from langgraph_durable._core.packing import sketch
from langgraph_durable._core.records import Items, Ref, Runs, extend, joined, length, order_of
from langgraph_durable._core.serde import ITEM_TAGS, ExactSerializer
from langgraph_durable.errors import ConfigurationError, DurableError, SerializationError

ITEM, LIST, DICT, TREE = 1, 2, 3, 4
Form = object

INLINE = 48
"""Serialised values up to this size live in the record."""
WHOLE_DICT = 512
"""Dicts up to this size are one item: splitting would cost more than it shares."""
GROUP = 64
"""Neighbouring scalars share an item, so that a vector of floats is not a thousand rows."""
SHORT = 48
DEEPEST = 8
"""Dicts in dicts that are taken apart; deeper ones are items."""
CHUNK = 32
"""Records that are recognised together, where they stood together before."""
FEWEST = 64
"""Numbers (two make a run) that a ref spells itself before it grows a spine."""

_CODES = {tag: bytes([code]) for code, tag in enumerate(ITEM_TAGS)}
_NAMED, _GROUPED = 0x3F, 0x40
_SCALARS = frozenset({int, float, bool, type(None)})
_GROUPABLE = _SCALARS | {str}
_NOT_RECORDS = _GROUPABLE | {bytes, bytearray}


class Encoder:
    """Turns values into refs and forms, collecting the items the log does not have yet."""

    def __init__(
        self, serde: SerializerProtocol, part: Part | None, shelf: Shelf | None = None
    ) -> None:
        self._exact = isinstance(serde, ExactSerializer)
        if isinstance(serde, ExactSerializer):
            self._dump_item: Callable[[Any], bytes] = serde.dump_item
            self._dump_items: Callable[[list[Any]], list[bytes]] = serde.dump_items
        else:
            self._dump_item, self._dump_items = partial(_dump_item, serde), _none
        self._depth = 0
        self._part = part
        self._known: Mapping[bytes, int] = part.numbers if part is not None else {}
        self.raws: dict[bytes, bytes] = {}
        """New items by digest, in the order of their provisional numbers ~0, ~1, ..."""
        self._provisional: dict[bytes, int] = {}
        self.shared = False
        """Something refers to an item that was already there."""
        self._shelf = shelf
        self._above = shelf.above if shelf is not None else math.inf
        self._handles: dict[Claim, Any] = {}
        self._hashes: dict[bytes, bytes] = {}
        self.leaves = False
        """Something goes to an artifact store, or is there and gets one more claim."""

    def packed(self, *, uploads: bool = True) -> Packed:
        """The new items, packed; what leaves the row is in its artifact store afterwards.

        Without `uploads` nothing leaves: for a draft that is looked at, and not stored.
        """
        if self._shelf is not None and self.leaves and uploads:
            return offload.pack(
                self.raws, self._shelf, self._handles, self._hashes, readable=self._exact
            )
        return Packed({digest: seal.pack(raw) for digest, raw in self.raws.items()}, {})

    def learned(self) -> list[tuple[bytes, int, bytes]]:
        """What the memory is to know of the new items."""
        most = self._above
        return [(mark, 0, raw if len(raw) <= most else b"") for mark, raw in self.raws.items()]

    def value(self, channel: str, value: Any) -> tuple[Ref, Form]:
        """The ref and form of `value` in `channel`."""
        runs, form = self.pieces(channel, value)
        ref = Ref(channel, tuple(runs))
        if len(runs) > 2 * FEWEST:
            ref = self._with_spine(ref)
        return ref, form

    def pieces(self, channel: str, value: Any) -> tuple[Sequence[int], Form]:
        """The runs of the items of `value`, without a spine, and its form."""
        wrapped = type(value) is _DeltaSnapshot
        if wrapped:
            value = value.value
        elif channel == ERROR and isinstance(value, BaseException):
            # LangGraph's readers expect the text of an error, as the stock serialiser gives it.
            value = repr(value) if self._exact else value
        try:
            runs, form = self._split(value) if self._shelf is None else self._collected(value)
        except _At as error:
            raise error.named(channel) from error.__cause__
        return runs, [form] if wrapped else form

    def raw(self, raw: bytes) -> int:
        """Where an item is that was serialised before; a provisional number if it is new."""
        return self._number(raw)

    def _collected(self, value: Any) -> tuple[Sequence[int], Form]:
        """`_split`, noting the artifacts inside."""
        now = claims.collecting
        now.desk, now.found = self._shelf, self._handles
        try:
            return self._split(value)
        finally:
            now.desk = now.found = None
            self.leaves = self.leaves or bool(self._handles)

    def _with_spine(self, ref: Ref) -> Ref:
        """Leave the front of the runs to spine items.

        They end where the numbers say so, not after a fixed count, so that an edit or a sliding
        window changes one of them and not all that follow.
        """
        runs = ref.runs
        spine: list[int] = []
        begin = 0
        for end in _cuts(runs[::2]):
            chunk = ormsgpack.packb(runs[2 * begin : 2 * end])
            spine.append(self._number(seal.SPINE_MARK + chunk))
            begin = end
        return ref._replace(runs=runs[2 * begin :], spine=joined(spine))

    def _split(self, value: Any) -> tuple[Sequence[int], Form]:
        """The runs and the form of a value."""
        kind = type(value)
        if kind is list:
            if not value:
                return (), LIST
            if len(value) > 4 or not _is_scalar(value[0]):
                # A copy, because the graph may go on and change the list under a background put.
                return self._elements(value[:]), LIST
        elif kind is dict and value and all(type(key) is str for key in value):
            return self._dict(value)
        return self._whole(value)

    def _whole(self, value: Any) -> tuple[Sequence[int], Form]:
        try:
            raw = self._dump_item(value)
        except Exception as error:
            raise _At("", value) from error
        # What may hold a handle is an item, for only items have claims.
        is_small = len(raw) <= INLINE and (self._exact or not self._handles)
        return ((), raw) if is_small else ((self._number(raw), 1), ITEM)

    def _dict(self, value: dict[str, Any]) -> tuple[Sequence[int], Form]:
        names, values = map(list, zip(*value.items(), strict=True))
        if not self._exact and any(isinstance(seal.name(name), bytes) for name in names):
            return self._whole(value)  # a serde may treat keys and texts unlike
        if self._depth < DEEPEST and any(map(_is_records, values)):
            self._depth += 1
            try:
                return self._tree(names, values)
            finally:
                self._depth -= 1
        if len(values) > 1:
            raws = list(self._raws(values, names))
            if sum(map(len, raws)) > WHOLE_DICT:
                return joined([self._keys(names), *map(self._number, raws)]), DICT
        return self._whole(value)

    def _tree(self, names: list[str], values: list[Any]) -> tuple[Sequence[int], Form]:
        """A dict that contains lists of records, as the input of a graph or a sub-graph does."""
        runs = [self._keys(names), 1]
        parts: list[list[Any]] = []
        for name, value in zip(names, values, strict=True):
            try:
                own, form = self._split(value)
            except _At as error:
                raise _At(f"[{name!r}]{error.at}", error.value) from error.__cause__
            extend(runs, own)
            parts.append([form, length(own)])
        return runs, [TREE, parts]

    def _keys(self, names: list[str]) -> int:
        try:
            return self._number(self._dump_item(names))
        except Exception as error:
            raise _At("", names) from error

    def _number(self, raw: bytes) -> int:
        """Where an item is; a provisional number if it is nowhere yet."""
        mark = xxhash.xxh3_128_digest(raw, SEED)
        n = self._known.get(mark)
        if n is not None:
            self.shared = True
            return n
        n = self._provisional.get(mark)
        if n is None and len(raw) > self._above:
            n = self._claimed(raw)
        if n is None:
            n = self._provisional[mark] = ~len(self.raws)
            self.raws[mark] = raw
        return n

    def _claimed(self, raw: bytes) -> int | None:
        """Where an item is that was offloaded, if a claim on its content is known."""
        sha = hashlib.sha256(raw).digest()
        n = self._known.get(claims.mark_of(sha))
        if n is None:
            self._hashes[sha] = raw
            self.leaves = True
        else:
            self.shared = True
        return n

    def _elements(self, values: list[Any]) -> list[int]:
        """The runs of the elements. What goes over every message at every step."""
        runs: list[int] = []
        done = 0
        if self._exact and self._part is not None and len(values) >= 2 * CHUNK:
            done = self._chunks(values, self._part.chunks, runs)
        extend(runs, joined(self._each(values[done:] if done else values, done)))
        return runs

    def _chunks(self, values: list[Any], chunks: dict[bytes, Runs], runs: list[int]) -> int:
        """Add to `runs` where whole chunks are, up to one that has no sketch; how far that is.

        A sketch takes a third of the time that an item for each element does: 0.45 us a message.
        """
        for begin in range(0, len(values) - CHUNK + 1, CHUNK):
            chunk = values[begin : begin + CHUNK]
            mark = _mark(chunk)
            if mark is None:
                return begin
            found = chunks.get(mark)
            if found is not None:
                extend(runs, found)
                self.shared = True
                continue
            order = self._each(chunk, begin)
            own = joined(order)
            extend(runs, own)
            # The graph may change a message meanwhile: then the sketch is of something else.
            if len(order) == CHUNK and min(order) >= 0 and _mark(chunk) == mark:
                chunks[mark] = own
        return len(values) // CHUNK * CHUNK

    def _each(self, values: list[Any], first: int) -> list[int]:
        known, digest = self._known.get, xxhash.xxh3_128_digest
        raws = self._dump_items(values)
        order = [known(digest(raw, SEED), -1) for raw in raws]
        if -1 in order:
            order = [self._number(raws[i]) if n < 0 else n for i, n in enumerate(order)]
        self.shared = self.shared or any(n >= 0 for n in order)
        held = len(raws)
        if held == len(values):
            return order
        return order + [self._number(raw) for raw in self._raws(values[held:], first=first + held)]

    def _raws(
        self, values: Sequence[Any], keys: Sequence[str] | None = None, first: int = 0
    ) -> Iterator[bytes]:
        """Elements as items, with neighbouring scalars in groups."""
        i, end = 0, len(values)
        while i < end:
            try:
                if not _is_scalar(values[i]):
                    yield self._dump_item(values[i])
                    i += 1
                    continue
                stop = i + 1
                while stop < end and stop - i < GROUP and _is_scalar(values[stop]):
                    stop += 1
                raw = self._dump_item(list(values[i:stop]))
            except Exception as error:
                at = f"[{i + first}]" if keys is None else f"[{keys[i]!r}]"
                raise _At(at, values[i]) from error
            yield bytes([raw[0] | _GROUPED]) + raw[1:]
            i = stop


def _cuts(starts: Sequence[int]) -> Iterator[int]:
    """After how many runs each spine item ends; what has no number yet is in none."""
    if min(starts) < 0:
        starts = starts[: next(at for at, start in enumerate(starts) if start < 0)]
    least, most, begin = FEWEST // 2, 4 * FEWEST, 0
    for end in [at for at, start in enumerate(starts, 1) if not start * 0x9E3779B1 % 32]:
        while end - begin > most:
            begin += most
            yield begin
        if end - begin >= least:
            begin = end
            yield end
    yield from range(begin + most, len(starts) + 1, most)


def _mark(chunk: list[Any]) -> bytes | None:
    sketched = sketch(chunk)
    return None if sketched is None else xxhash.xxh3_128_digest(sketched, SEED)


def _none(values: list[Any]) -> list[bytes]:
    return []


def _dump_item(serde: SerializerProtocol, value: Any) -> bytes:
    """Item bytes: one byte (or a name) for the serialiser's tag, then its data."""
    tag, data = serde.dumps_typed(value)
    code = _CODES.get(tag)
    if code is not None:
        return code + data
    named = tag.encode("utf-8", "surrogatepass")
    return bytes([_NAMED, len(named)]) + named + data


class _At(Exception):
    """Where inside a channel's value something cannot be stored; its cause says why."""

    def __init__(self, at: str, value: Any) -> None:
        self.at, self.value = at, value

    def named(self, channel: str) -> SerializationError:
        error, inner = self.__cause__, ""
        if isinstance(error, SerializationError):
            reason, inner = error.reason, error.path
        else:
            reason = f"{type(self.value).__name__} cannot be stored: {error}"
        return SerializationError(reason, path=f"channel {channel!r}{self.at}{inner}")


def _is_records(value: Any) -> bool:
    """Whether a value inside a dict is a list worth splitting: messages, documents, rows."""
    return type(value) is list and bool(value) and type(value[0]) not in _NOT_RECORDS


def _is_scalar(value: Any) -> bool:
    kind = type(value)
    return kind in _SCALARS or (kind is str and len(value) <= SHORT)


class Decoder:
    """Rebuilds values from items. One per read: raw items are unpacked once, objects are fresh."""

    def __init__(
        self,
        serde: SerializerProtocol,
        thread_id: str,
        items: Items,
        held: Mapping[int, bytes] | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        self._load_item: Callable[[bytes], Any]
        self._load_models: Callable[[Sequence[bytes]], list[Any] | None]
        if isinstance(serde, ExactSerializer):
            self._load_item, self._load_models = serde.load_item, serde.load_models
        else:
            self._load_item, self._load_models = partial(_load_item, serde), _no_models
        self._serde, self._thread_id = serde, thread_id
        self._seed = seal.log_seed(thread_id)
        self._items = items
        self._held: Mapping[int, bytes] = held or {}
        self._shelf = shelf
        self.raws: dict[int, bytes] = {}
        """What was unpacked so far."""
        self._claims: dict[int, Claim] = {}
        """Items whose bytes are elsewhere; None was found of them where they are `_gone`."""
        self._gone: set[int] = set()

    def moving(self, classes: Mapping[str, str | type | None]) -> Decoder:
        """The same for data whose classes are elsewhere now; None: read it as a dict."""
        if not classes:
            return self
        if not isinstance(self._serde, ExactSerializer):
            raise ConfigurationError("move_class and load_as_dict need the serialiser of the saver")
        serde = self._serde.moving(classes)
        other = Decoder(serde, self._thread_id, self._items, self._held, self._shelf)
        other.raws, other._claims, other._gone = self.raws, self._claims, self._gone
        return other

    def raw(self, where: str, ref: Ref) -> bytes:
        """The only item of a ref, as it is."""
        try:
            return self._held.get(ref.runs[0]) or self._unpacked(ref.runs[:1])[0]
        except (seal.Damaged, IndexError, TypeError) as error:
            raise seal.damaged(where, seal.Damaged(str(error))) from error

    def value(self, where: str, ref: Ref, form: Form, role: str = "channel") -> Any:
        """The value; `where` names thread and checkpoint, and `role` the channel, for errors."""
        claims.collecting.place = where, role, ref.channel
        try:
            if type(form) is bytes:
                return self._load_item(form)
            return self._value(self._unpacked(order_of(ref, self.spine)), form)
        except seal.Damaged as error:
            raise seal.damaged(f"{where}, {role} {ref.channel!r}", error) from error
        except DurableError as error:
            error.args = (f"{where}, {role} {ref.channel!r}: {error}", *error.args[1:])
            raise
        except (IndexError, TypeError, UnicodeDecodeError) as error:
            malformed = seal.Damaged(f"an item is malformed: {error}")
            raise seal.damaged(f"{where}, {role} {ref.channel!r}", malformed) from error
        finally:
            claims.collecting.place = ()

    def _value(self, raws: Sequence[bytes], form: Form) -> Any:
        if form == LIST:
            return self._many(raws)
        if form == DICT:
            return self._dict(raws[0], self._many(raws[1:]))
        if form == ITEM:
            return self._load_item(raws[0])
        if isinstance(form, bytes):
            return self._load_item(form)
        if isinstance(form, list) and len(form) == 1:
            return _DeltaSnapshot(self._value(raws, form[0]))
        if isinstance(form, list) and form[:1] == [TREE]:
            values, at = [], 1
            for inner, count in form[1]:
                values.append(self._value(raws[at : at + count], inner))
                at += count
            return self._dict(raws[0], values)
        raise seal.Damaged(f"unknown form {form!r}")

    def _dict(self, keys: bytes, values: list[Any]) -> dict[str, Any]:
        names = self._load_item(keys)
        if type(names) is not list or len(names) != len(values):
            raise seal.Damaged("a dict's keys and values do not match")
        return dict(zip(names, values, strict=True))

    def spine(self, number: int) -> Runs:
        """The runs in a spine item."""
        raw = self._unpacked((number,))[0]
        if raw[:1] != seal.SPINE_MARK:
            raise seal.Damaged(f"item {number} is not what it should be")
        return tuple(ormsgpack.unpackb(raw[1:]))

    def _unpacked(self, order: Sequence[int], *, fetch: bool = True) -> list[bytes]:
        """Verified, unpacked items in order; empty for those elsewhere, unless they are fetched."""
        try:
            return [self._held[n] for n in order]
        except KeyError:
            pass
        held, done, items, seed = self._held.get, self.raws, self._items, self._seed
        out, away = [], False
        for n in order:
            raw = held(n) or done.get(n)
            if raw is None:
                blob = items.get(n)
                if blob is None:
                    raise seal.Damaged(f"item {n} is missing")
                payload = seal.open_item(seed, n, blob)
                if payload[:1] == seal.CLAIM:
                    self._claims[n], raw, away = claims.unpack(payload[1:]), b"", True
                else:
                    raw = done[n] = seal.unpack(payload)
            out.append(raw)
        return self._fetched(order, out) if away and fetch else out

    def _fetched(self, order: Sequence[int], out: list[bytes]) -> list[bytes]:
        """`out`, with the items that are elsewhere."""
        wanted = {n: self._claims[n] for n, raw in zip(order, out, strict=True) if not raw}
        if self._shelf is None:
            raise seal.Damaged("an item was offloaded, and there is no artifact store")
        found = self._shelf.fetch(list(wanted.values()))
        for (n, claim), raw in zip(wanted.items(), found, strict=True):
            if raw is None:
                self._gone.add(n)
                raw = gone_item(claim)
            self.raws[n] = raw
        return [raw or self.raws[n] for n, raw in zip(order, out, strict=True)]

    def check(self, where: str, ref: Ref) -> None:
        """Verify items without building anything from them, or fetching what was offloaded."""
        try:
            self._unpacked(order_of(ref, self.spine), fetch=False)
        except seal.Damaged as error:
            raise seal.damaged(f"{where}, channel {ref.channel!r}", error) from error

    def learned(self) -> list[tuple[bytes, int, bytes]]:
        """Digest, number and raw bytes of every item unpacked so far."""
        digest = xxhash.xxh3_128_digest
        if not self._claims:
            return [(digest(raw, SEED), n, raw) for n, raw in self.raws.items()]
        away, gone = self._claims, self._gone
        known = [(claims.mark_of(claim.sha), n, b"") for n, claim in away.items() if n not in gone]
        return known + [
            (digest(raw, SEED), n, b"" if n in away else raw)
            for n, raw in self.raws.items()
            if n not in gone
        ]

    def _many(self, raws: Sequence[bytes]) -> list[Any]:
        models = self._load_models(raws)
        if models is not None:
            return models
        load = self._load_item
        out: list[Any] = []
        for raw in raws:
            if raw[0] & _GROUPED:
                group = load(bytes([raw[0] & ~_GROUPED]) + raw[1:])
                if type(group) is not list:
                    raise seal.Damaged("a group is not a list")
                out.extend(group)
            else:
                out.append(load(raw))
        return out


def _no_models(raws: Sequence[bytes]) -> None:
    return None


def _load_item(serde: SerializerProtocol, raw: bytes) -> Any:
    """The inverse of `_dump_item`."""
    if (gone := load_gone(raw)) is not None:
        return gone
    code, end = raw[0], 1
    if code == _NAMED:
        end = 2 + raw[1]
        tag = raw[2:end].decode("utf-8", "surrogatepass")
    elif code < len(ITEM_TAGS):
        tag = ITEM_TAGS[code]
    else:
        raise seal.Damaged(f"unknown item tag {code}")
    try:
        return serde.loads_typed((tag, raw[end:]))
    except DurableError:
        raise
    except Exception as error:
        raise SerializationError(
            f"the serialiser of this saver cannot load what is stored: {error!r}"
        ) from error
