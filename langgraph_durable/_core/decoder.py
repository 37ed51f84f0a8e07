"""Items and forms (see `forms.py`) back to Python values, a fresh object every time.

One `Decoder` per read: raw items are verified and unpacked once, and remembered for the memory.
What lies in an artifact store is fetched from the shelf when a value needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ormsgpack
import xxhash
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_durable._core import claims, seal
from langgraph_durable._core.claims import Claim, gone_item
from langgraph_durable._core.forms import DICT, GROUPED, ITEM, LIST, TREE, Form, load_item
from langgraph_durable._core.memory import SEED
from langgraph_durable._core.offload import Shelf
from langgraph_durable._core.records import Items
from langgraph_durable._core.refs import Ref, Runs, order_of
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable.errors import ConfigurationError, DurableError


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
            self._load_item, self._load_models = partial(load_item, serde), _no_models
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
            n = ref.runs[0]
            return self._held.get(n) or self.raws.get(n) or self._unpacked((n,))[0]
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
        held, done = self._held, self.raws
        if held:
            try:
                return [held[n] for n in order]
            except KeyError:
                pass
        new = [n for n in order if n not in done and n not in held]
        away = seal.unpack_items(self._seed, new, self._items, done)
        if away:
            for n, payload in away.items():
                self._claims[n] = claims.unpack(payload[1:])
            out = [held.get(n) or done.get(n, b"") for n in order]
            return self._fetched(order, out) if fetch else out
        if not held:
            return [done[n] for n in order]
        return [held.get(n) or done[n] for n in order]

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
            if raw[0] & GROUPED:
                group = load(bytes([raw[0] & ~GROUPED]) + raw[1:])
                if type(group) is not list:
                    raise seal.Damaged("a group is not a list")
                out.extend(group)
            else:
                out.append(load(raw))
        return out


def _no_models(raws: Sequence[bytes]) -> None:
    return None
