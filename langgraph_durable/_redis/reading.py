"""The verbs that read of one thread: `load` and `chain`; `listing` has the pages.

`load` is one script. Others take several round trips on one thread; nothing is removed from a
thread within an epoch, so if the epoch is the same before and after, what was read belongs
together, and otherwise it is read again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import ormsgpack

from langgraph_durable._core import seal
from langgraph_durable._core.lineage import Chain, Link, Search
from langgraph_durable._core.records import CheckpointRow, Held, Items, Loaded, WriteRow
from langgraph_durable._core.refs import Ref, numbers
from langgraph_durable._redis import keys, rows
from langgraph_durable._redis.keys import ThreadKeys
from langgraph_durable._redis.marks import TOKEN, Mark, Seen
from langgraph_durable._redis.requests import Call, Command, Request, Word
from langgraph_durable._redis.writing import Context, refuse
from langgraph_durable.errors import CorruptionError, ThreadBusy

T = TypeVar("T")

TRIES, PATIENCE = 20, 20.0
"""How often, and for how many seconds, something is tried that others make void meanwhile."""
MANY = 1000
"""Fields asked for by one command, commands sent in one request."""
GENERATIONS = 32
"""Ancestors fetched at once; four times as many each time that was not enough."""


def patiently() -> Iterator[None]:
    end = time.monotonic() + PATIENCE
    for tries in itertools.count(1):
        yield
        if tries >= TRIES and time.monotonic() > end:
            return


def about(thread_id: str | None) -> str:
    return "all threads" if thread_id is None else f"thread {thread_id!r}"


async def ask(thread_id: str | None, commands: Sequence[Command]) -> list[Any]:
    return await Request(about(thread_id), commands)


async def fields(thread_id: str, hash: bytes, names: Sequence[bytes]) -> list[bytes | None]:
    """The values of many fields, in one round trip."""
    if not names:
        return []
    commands: list[Command] = [
        ("HMGET", hash, *names[at : at + MANY]) for at in range(0, len(names), MANY)
    ]
    return [value for values in await ask(thread_id, commands) for value in values]


# ---- one checkpoint ------------------------------------------------------------------------------


async def load(
    context: Context, thread_id: str, ns: str, id: str | None, held: Held
) -> Loaded | None:
    at = context.keys.thread(thread_id)
    wanted = b"" if id is None else keys.id_bytes(id)
    life = context.life if context.refresh else ""
    known = _known(context.marks.get(thread_id), held)
    call = Call("load", at, (keys.encoded(ns), wanted, life, *known))
    [answer] = await Request(about(thread_id), call=call, writes=context.refresh)
    if answer[0] == b"NONE":
        return None
    if answer[0] != b"OK":
        refuse(thread_id, answer)
    found, blob, orphan, writes, following, packed, got, left_out = answer[4]
    mark = context.marks.see(thread_id, Seen(*answer[1:4]), following)
    if left_out and mark.stamp != held.epoch:  # what the caller has is of no use any more
        return await load(context, thread_id, ns, id, Held())
    found = keys.id_text(found)
    row = rows.unpack_checkpoint(ns, found, blob)
    own = rows.unpack_tasks(thread_id, ns, found, writes) if writes else ()
    if got == 0:  # the script cannot read the name of every channel
        items = await fetch(thread_id, at, rows.all_refs(thread_id, row, own))
        if not await _is_still(context, thread_id, mark):  # others have removed some meanwhile
            return await load(context, thread_id, ns, id, Held())
    else:
        numbered = zip(ormsgpack.unpackb(packed) or (), got, strict=True)
        items = {n: item for n, item in numbered if item is not None}
    return Loaded(thread_id, mark.stamp, row, own, items, bool(orphan))


def _known(mark: Mark | None, held: Held) -> Sequence[Word]:
    """The items that need not be sent, and the write that shows that they are still the same."""
    if mark is None or held.epoch != mark.stamp or not isinstance(held.numbers, dict):
        return "", "", "", ""
    runs = mark.held.runs(held.numbers)
    return mark.seen.epoch, mark.seen.version, mark.seen.tokens[:TOKEN], ormsgpack.packb(runs)


async def fetch(thread_id: str, at: ThreadKeys, wanted: Iterable[Ref]) -> Items:
    """The items that `wanted` name; one that is not there is simply left out."""
    wanted = list(wanted)
    found = await _items(thread_id, at, {n for ref in wanted for n in numbers(ref.spine)})
    more = {n for ref in wanted for n in numbers(ref.runs)}
    for n, blob in found.items():
        with suppress(seal.Damaged):  # a damaged count could be of billions; the reader will notice
            seal.open_item(seal.log_seed(thread_id), n, blob)
            more.update(numbers(seal.peek_spine(blob)))
    found.update(await _items(thread_id, at, more - found.keys()))
    return found


async def _items(thread_id: str, at: ThreadKeys, wanted: Iterable[int]) -> Items:
    order = sorted(wanted)
    blobs = await fields(thread_id, at.hash, list(map(keys.item_field, order)))
    return {n: blob for n, blob in zip(order, blobs, strict=True) if blob is not None}


# ---- several round trips -------------------------------------------------------------------------


async def steadily(
    context: Context, thread_id: str, read: Callable[[Mark], Awaitable[T]]
) -> T | None:
    """What `read` gives while the epoch stands still; None if there is no thread."""
    for _ in patiently():
        before = await _state(context, thread_id)
        if before is None:
            return None
        try:
            found = await read(before)
        except CorruptionError:
            # Torn by a removal that happened meanwhile, or torn for good?
            if await _state(context, thread_id) is before:
                raise
            continue
        if await _state(context, thread_id) is before:
            return found
    raise ThreadBusy(
        f"thread {thread_id!r}: others removed parts of it all the time while it was being read"
    )


async def _state(context: Context, thread_id: str) -> Mark | None:
    at = context.keys.thread(thread_id)
    commands: list[Command] = [("HMGET", at.hash, "e", "v", "k", "q"), ("ZCARD", at.places)]
    last, answer = None, await ask(thread_id, commands)
    while (answer[0][3] or b"0") != b"%d" % answer[1] and answer != last:
        last, answer = answer, await ask(thread_id, commands)  # or others wrote between the two
    (epoch, version, tokens, held), listed = answer
    if epoch is None:
        context.marks.forget(thread_id)
        if listed and (await ask(thread_id, [("PTTL", at.places)]))[0] not in range(-2, 0):
            return None
        if listed:
            refuse(thread_id, [b"BROKEN"])
        return None
    if not (tokens and version and version.isdigit()) or (held or b"0") != b"%d" % listed:
        refuse(thread_id, [b"BROKEN"])
    return context.marks.see(thread_id, Seen(epoch, int(version), tokens))


async def _is_still(context: Context, thread_id: str, mark: Mark) -> bool:
    """Whether nothing was removed since."""
    at = context.keys.thread(thread_id)
    [(epoch, version, tokens)] = await ask(thread_id, [("HMGET", at.hash, "e", "v", "k")])
    if not (epoch and tokens and version and version.isdigit()):
        return False
    return context.marks.see(thread_id, Seen(epoch, int(version), tokens)) is mark


# ---- ancestors -----------------------------------------------------------------------------------


async def chain(
    context: Context, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
) -> Chain | None:
    async def read(mark: Mark) -> Chain | None:
        return await _chain(context, thread_id, ns, id, channels)

    return await steadily(context, thread_id, read)


async def _chain(
    context: Context, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
) -> Chain | None:
    at = context.keys.thread(thread_id)
    search, links, wanted = Search(set(channels)), list[Link](), list[Ref]()
    following, most = b"" if id is None else keys.id_bytes(id), GENERATIONS
    while True:
        window = await _walk(thread_id, at, ns, following, most)
        for row, writes in window:
            if any(link.row.id == row.id for link in links):  # a cycle
                window = []
                break
            own = writes if links else ()
            links.append(Link(row, own))
            refs = rows.all_refs(thread_id, row, own)
            wanted += [ref for ref in refs if ref.channel in search.channels]
            search.visit(tuple(rows.refs(thread_id, row)))
            if not search.channels:
                break
        if not links:
            return None
        last = links[-1].row
        if not search.channels or last.parent is None or len(window) < most:
            break
        following, most = keys.id_bytes(last.parent), 4 * most
    known = any(link.row.id == last.parent for link in links)
    cut = bool(search.channels) and last.parent is not None and not known
    return Chain(thread_id, tuple(links), await fetch(thread_id, at, wanted), cut)


async def _walk(
    thread_id: str, at: ThreadKeys, ns: str, id: bytes, most: int
) -> list[tuple[CheckpointRow, tuple[WriteRow, ...]]]:
    call = Call("walk", at, (keys.encoded(ns), id, most))
    [answer] = await Request(about(thread_id), call=call)
    if answer[0] == b"NONE":
        return []
    if answer[0] != b"OK":
        refuse(thread_id, answer)
    found = []
    flat = answer[4]
    for found_id, blob, writes in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        id_of = keys.id_text(found_id)
        own = rows.unpack_tasks(thread_id, ns, id_of, writes)
        found.append((rows.unpack_checkpoint(ns, id_of, blob), own))
    return found


# ---- runs ----------------------------------------------------------------------------------------
