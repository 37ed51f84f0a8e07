"""How a channel's value is made of items.

An *item* is the serialised bytes of one element; items are appended to the log of their thread
and shared by every value that contains them. A *form* says how a value is made of its items:

    b"..."           the value itself, too small to deserve an item
    ITEM             the only item
    LIST             the items in order, groups of small scalars unfolded
    DICT             the first item is the list of keys, the others are the values in order
    [TREE, parts]    the first item is the list of keys, then each value by its own [form, count]
    [form]           a DeltaChannel snapshot of the value that `form` describes

So a list that grows by one message stores one item, whoever else holds the other messages.

`encoder` splits and recognises; `decoder` verifies and rebuilds. An item begins with one byte for
the serialiser's tag (or with its name); `ExactSerializer` knows that by itself, and for every other
serialiser `dump_item` and `load_item` here do it.
"""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_durable._core import seal
from langgraph_durable._core.claims import load_gone
from langgraph_durable._core.serde import ITEM_TAGS, NAMED, TAG_CODES
from langgraph_durable.errors import DurableError, SerializationError

ITEM, LIST, DICT, TREE = 1, 2, 3, 4
Form = object

GROUPED = 0x40
"""Set in the first byte of an item that holds several elements."""


def dump_item(serde: SerializerProtocol, value: Any) -> bytes:
    """Item bytes: one byte (or a name) for the serialiser's tag, then its data."""
    tag, data = serde.dumps_typed(value)
    code = TAG_CODES.get(tag)
    if code is not None:
        return code + data
    named = tag.encode("utf-8", "surrogatepass")
    return bytes([NAMED, len(named)]) + named + data


def load_item(serde: SerializerProtocol, raw: bytes) -> Any:
    """The inverse of `dump_item`."""
    if (gone := load_gone(raw)) is not None:
        return gone
    code, end = raw[0], 1
    if code == NAMED:
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
