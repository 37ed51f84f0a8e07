"""Python values to items and forms (see `forms.py`), as far as the log does not have them yet.

One `Encoder` per put. It serialises every element, looks its digest up in the memory, and gives new
items provisional numbers, which the store settles. What goes over a whole conversation at every
step is in loops of its own here: `_elements`, `_chunks` and `_each`.
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
from langgraph_durable._core.claims import Claim
from langgraph_durable._core.forms import DICT, GROUPED, ITEM, LIST, TREE, Form, dump_item
from langgraph_durable._core.memory import SEED, Part
from langgraph_durable._core.offload import Packed, Shelf
from langgraph_durable._core.packing import sketch
from langgraph_durable._core.refs import Ref, Runs, extend, joined, length
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable.errors import SerializationError

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
            self._dump_item, self._dump_items = partial(dump_item, serde), _none
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
        """Where an item is that was offloaded, if a good claim on its content is known."""
        sha = hashlib.sha256(raw).digest()
        n = self._known.get(claims.mark_of(sha))
        if self._shelf is not None and any(sha == each.sha for each in self._shelf.broken()):
            n = None  # stored once more, it becomes whole for all who claim it
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
            yield bytes([raw[0] | GROUPED]) + raw[1:]
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
