"""The verbs that read: `load`, `page`, `chain`, `threads_of`.

`load` is one script. The others take several round trips on one thread; nothing is removed from a
thread within an epoch, so if the epoch is the same before and after, what was read belongs
together, and otherwise it is read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import ormsgpack

from langgraph_durable._core import seal
from langgraph_durable._core.lineage import Chain, Link, Search
from langgraph_durable._core.records import (
    CheckpointRow,
    Cursor,
    Held,
    Items,
    Loaded,
    Page,
    Ref,
    Selection,
    WriteRow,
    numbers,
)
from langgraph_durable._redis import keys, rows
from langgraph_durable._redis.keys import ThreadKeys
from langgraph_durable._redis.marks import TOKEN, Mark, Seen
from langgraph_durable._redis.requests import Call, Command, Request, Word
from langgraph_durable._redis.rows import Accept
from langgraph_durable._redis.writing import Context, refuse
from langgraph_durable.errors import CorruptionError, StorageBusy

T = TypeVar("T")
logger = logging.getLogger("langgraph_durable")

TRIES = 20
MANY = 1000
"""Fields asked for by one command, commands sent in one request."""
WINDOW = 256
"""Places looked at at once for one page."""
GENERATIONS = 32
"""Ancestors fetched at once; four times as many each time that was not enough."""
GRACE = 3600
"""Seconds for which the index may name a thread that is not there: it may be about to come."""


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
    place = keys.place(ns, keys.id_text(found))
    row = rows.unpack_checkpoint(thread_id, place, blob)
    own = rows.unpack_writes(thread_id, place, writes)
    if got == 0:  # the script cannot read the name of every channel
        items = await fetch(thread_id, at, rows.all_refs(thread_id, row, own))
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
    for blob in found.values():
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
    for _ in range(TRIES):
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
    raise StorageBusy(
        f"thread {thread_id!r}: others removed parts of it {TRIES} times while it was being read"
    )


async def _state(context: Context, thread_id: str) -> Mark | None:
    at = context.keys.thread(thread_id)
    (epoch, version, tokens, held), listed = await ask(
        thread_id, [("HMGET", at.hash, "e", "v", "k", "q"), ("ZCARD", at.places)]
    )
    if epoch is None:
        context.marks.forget(thread_id)
        if listed and (await ask(thread_id, [("PTTL", at.places)]))[0] not in range(-2, 0):
            return None
        if listed:
            refuse(thread_id, [b"BROKEN"])
        return None
    if listed != int(held or 0):
        refuse(thread_id, [b"BROKEN"])
    return context.marks.see(thread_id, Seen(epoch, int(version), tokens))


class Key(NamedTuple):
    """A checkpoint's place in the order of a listing."""

    id: bytes
    thread: bytes
    ns: bytes
    place: bytes
    thread_id: str

    @property
    def cursor(self) -> Cursor:
        return Cursor(keys.id_text(self.id), self.thread_id, keys.decoded(self.ns))


def _key(thread_id: str, place: bytes) -> Key:
    ns, id = keys.unplace(place)
    return Key(keys.id_bytes(id), keys.encoded(thread_id), keys.encoded(ns), place, thread_id)


class Wish(NamedTuple):
    """A page as it is asked for."""

    selection: Selection
    after: Cursor | None
    size: int
    accept: Accept
    items: bool


async def page(context: Context, wish: Wish) -> Page:
    """Up to `size` checkpoints, read thread by thread."""
    thread_id = wish.selection.thread_id
    if thread_id is None:
        return await _page_of_all(context, wish)

    async def read(mark: Mark) -> Page:
        return await _page_of_one(context, mark, thread_id, wish)

    return await steadily(context, thread_id, read) or Page((), None)


async def _page_of_one(context: Context, mark: Mark, thread_id: str, wish: Wish) -> Page:
    at = context.keys.thread(thread_id)
    picked: list[CheckpointRow] = []
    selection, last, size, accept, items = wish
    while True:
        places = (await ask(thread_id, [_window(at, thread_id, selection, last, WINDOW)]))[0]
        matching = [key for key in (_key(thread_id, p) for p in places) if _fits(key, selection)]
        for start in range(0, len(matching), 2 * size):
            some = matching[start : start + 2 * size]
            names = [keys.checkpoint_field(key.place) for key in some]
            blobs = await fields(thread_id, at.hash, names)
            for key, blob in zip(some, blobs, strict=True):
                row = _row(thread_id, key.place, blob)
                if accept(thread_id, row):
                    picked.append(row)
                if len(picked) == size:
                    loaded = await _complete(thread_id, at, mark, picked, items)
                    return Page(loaded, key.cursor)
        if len(places) < WINDOW:
            return Page(await _complete(thread_id, at, mark, picked, items), None)
        last = _key(thread_id, places[-1]).cursor


def _row(thread_id: str, place: bytes, blob: bytes | None) -> CheckpointRow:
    if blob is None:
        raise CorruptionError(
            f"thread {thread_id!r}: checkpoint {keys.unplace(place)[1]} is listed but missing"
        )
    return rows.unpack_checkpoint(thread_id, place, blob)


def _fits(key: Key, selection: Selection) -> bool:
    return selection.ns is None or key.ns == keys.encoded(selection.ns)


def _window(
    at: ThreadKeys, thread_id: str, selection: Selection, after: Cursor | None, most: int
) -> Command:
    """The command for the next places of a thread, newest first."""
    bounds = []
    if selection.before is not None:
        bounds.append(b"(" + keys.id_bytes(selection.before))
    if selection.id is not None:
        bounds.append(b"(" + keys.id_bytes(selection.id) + b"\0\xff")
    if after is not None:
        bounds.append(_below(thread_id, after))
    least = b"-" if selection.id is None else b"[" + keys.id_bytes(selection.id) + b"\0"
    bound = min(bounds, key=lambda b: (b[1:], b[:1]), default=b"+")
    return "ZREVRANGEBYLEX", at.places, bound, least, "LIMIT", 0, most


def _below(thread_id: str, after: Cursor) -> bytes:
    """Where a thread goes on after a row of maybe another thread: by id, then thread, then ns."""
    own, other = keys.encoded(thread_id), keys.encoded(after.thread_id)
    if own == other:
        return b"(" + keys.place(after.ns, after.id)
    end = b"\0\xff" if own < other else b"\0"
    return b"(" + keys.id_bytes(after.id) + end


async def _complete(
    thread_id: str, at: ThreadKeys, mark: Mark, picked: Sequence[CheckpointRow], items: bool
) -> tuple[Loaded, ...]:
    """The rows with their writes, maybe items; what several of them share is read once."""
    if not picked:
        return ()
    places = [keys.place(row.ns, row.id) for row in picked]
    parents = [b"" if r.parent is None else keys.place(r.ns, r.parent) for r in picked]
    there = await ask(
        thread_id,
        [("HEXISTS", at.hash, keys.checkpoint_field(parent)) for parent in parents],
    )
    writes = await _writes_of(thread_id, at, places)
    pairs = list(zip(picked, writes, strict=True))
    refs = [ref for row, own in pairs for ref in rows.all_refs(thread_id, row, own)]
    found = await fetch(thread_id, at, refs) if items else {}
    return tuple(
        Loaded(thread_id, mark.stamp, row, own, found, row.parent is not None and not stored)
        for (row, own), stored in zip(pairs, there, strict=True)
    )


async def _writes_of(
    thread_id: str, at: ThreadKeys, places: Sequence[bytes]
) -> list[tuple[WriteRow, ...]]:
    """The rows of writes of each place."""
    tasks: dict[bytes, list[bytes]] = {place: [] for place in places}
    left, page = list(places), 0
    while left:
        listed = await fields(thread_id, at.hash, [keys.tasks_field(place, page) for place in left])
        for place, digests in zip(left, listed, strict=True):
            tasks[place] += rows.digests(digests or b"")
        left = [place for place in left if len(tasks[place]) == (page + 1) * keys.DIGESTS]
        page += 1
    names = [keys.task_field(task) for some in tasks.values() for task in some]
    packed = iter(await fields(thread_id, at.hash, names))
    return [
        rows.unpack_tasks(thread_id, place, [next(packed) for _ in tasks[place]])
        for place in places
    ]


# ---- all threads ---------------------------------------------------------------------------------


async def threads(context: Context) -> list[str]:
    """What the index of threads names; some may be gone."""
    found: dict[bytes, None] = {}
    start, most = 0, 10 * MANY
    while True:
        command = "ZRANGE", context.keys.threads, start, start + most - 1
        names = (await ask(None, [command]))[0]
        found.update(dict.fromkeys(names))
        if len(names) < most:
            return list(map(keys.decoded, found))
        start += most


async def _page_of_all(context: Context, wish: Wish) -> Page:
    """A merge of all threads; a page may be shorter than asked for, and the next one goes on."""
    selection, after, size, accept, items = wish
    named = await threads(context)
    newest = {k.thread_id: k for k in await _next_of(context, named, selection, after, 1)}
    await _tidy(context, [thread_id for thread_id in named if thread_id not in newest], after)
    first = sorted(newest.values(), reverse=True)
    if not first:
        return Page((), None)
    window = await _next_of(
        context, [key.thread_id for key in first[:size]], selection, after, size
    )
    order = sorted(window, reverse=True)
    end = max([*first[size : size + 1], *_ends(window, size)], default=None)
    order = [key for key in order if end is None or key >= end]
    rows_of = await together([_rows_of(context, key) for key in order])
    picked: list[tuple[Key, CheckpointRow]] = []
    last = order[-1]
    for key, row in zip(order, rows_of, strict=True):
        if row is not None and _fits(key, selection) and accept(key.thread_id, row):
            picked.append((key, row))
        if len(picked) == size:
            last = key
            break
    by_thread: dict[str, list[CheckpointRow]] = {}
    for key, row in picked:
        by_thread.setdefault(key.thread_id, []).append(row)
    parts = await together(
        [_part(context, thread_id, some, items) for thread_id, some in by_thread.items()]
    )
    found = {
        (loaded.thread_id, loaded.row.ns, loaded.row.id): loaded
        for part in parts
        for loaded in part
    }
    wanted = [found.get((key.thread_id, row.ns, row.id)) for key, row in picked]
    ended = end is None and last is order[-1]
    return Page(tuple(loaded for loaded in wanted if loaded), None if ended else last.cursor)


def _ends(window: Iterable[Key], size: int) -> Iterator[Key]:
    """The last key of each thread that has more than were asked for."""
    by_thread: dict[str, list[Key]] = {}
    for key in window:
        by_thread.setdefault(key.thread_id, []).append(key)
    for some in by_thread.values():
        if len(some) == size:
            yield min(some)


async def _rows_of(context: Context, key: Key) -> CheckpointRow | None:
    """A row, or None if it has gone or cannot be read; whoever asks for its thread will hear."""
    at = context.keys.thread(key.thread_id)
    [blob] = await fields(key.thread_id, at.hash, [keys.checkpoint_field(key.place)])
    if blob is None:
        return None
    try:
        return rows.unpack_checkpoint(key.thread_id, key.place, blob)
    except CorruptionError as error:
        logger.error("left out of the list: %s", error)
        return None


async def _part(
    context: Context, thread_id: str, picked: Sequence[CheckpointRow], items: bool
) -> tuple[Loaded, ...]:
    """Rows of one thread of many; one thread's trouble is not another's."""
    at = context.keys.thread(thread_id)

    async def read(mark: Mark) -> tuple[Loaded, ...]:
        return await _complete(thread_id, at, mark, picked, items)

    try:
        return await steadily(context, thread_id, read) or ()
    except CorruptionError as error:
        logger.error("left out of the list: %s", error)
        return ()


async def _next_of(
    context: Context,
    named: Sequence[str],
    selection: Selection,
    after: Cursor | None,
    most: int,
) -> list[Key]:
    """The next places of each thread."""
    commands = [
        _window(context.keys.thread(thread_id), thread_id, selection, after, most)
        for thread_id in named
    ]
    found: list[Key] = []
    for start in range(0, len(commands), MANY):
        answers = await ask(None, commands[start : start + MANY])
        for thread_id, places in zip(named[start:], answers, strict=False):
            found += [_key(thread_id, place) for place in places]
    return found


async def _tidy(context: Context, named: Sequence[str], after: Cursor | None) -> None:
    """Take threads that are gone out of the index; not those that may be about to come."""
    if after is not None or not named:
        return
    some = named[:MANY]
    there = await ask(None, [("HEXISTS", context.keys.thread(name).hash, "e") for name in some])
    gone = [keys.encoded(name) for name, is_there in zip(some, there, strict=True) if not is_there]
    if gone:
        scores = await ask(None, [("ZSCORE", context.keys.threads, name) for name in gone])
        old = time.time() - GRACE
        pairs = zip(gone, scores, strict=True)
        gone = [name for name, since in pairs if since is not None and float(since) < old]
    if gone:
        await Request(about(None), [("ZREM", context.keys.threads, *gone)], writes=True)


async def together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run several reads in step: what they ask for at one moment is asked for in one request."""
    results: dict[int, T] = {}
    sent: dict[int, Any] = dict.fromkeys(range(len(work)))
    while sent:
        wanted: dict[int, Request] = {}
        for k, reply in sent.items():
            try:
                wanted[k] = work[k].send(reply)
            except StopIteration as end:
                results[k] = end.value
        commands = [command for request in wanted.values() for command in request.commands]
        replies = iter(await ask(None, commands) if commands else ())
        sent = {k: [next(replies) for _ in request.commands] for k, request in wanted.items()}
    return [results[k] for k in range(len(work))]


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
        place = keys.place(ns, keys.id_text(found_id))
        row = rows.unpack_checkpoint(thread_id, place, blob)
        found.append((row, rows.unpack_writes(thread_id, place, writes)))
    return found


# ---- runs ----------------------------------------------------------------------------------------


async def threads_of(context: Context, runs: Sequence[str]) -> list[str]:
    found: dict[bytes, None] = {}
    for names in await ask(None, [("SMEMBERS", context.keys.run(run)) for run in runs]):
        found.update(dict.fromkeys(sorted(names)))
    return list(map(keys.decoded, found))
