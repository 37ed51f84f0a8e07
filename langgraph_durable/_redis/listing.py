"""Listings: `page` of one thread or of all, and the index of threads.

A thread is read in windows of places, newest first, and the whole page with `reading.steadily`.
All threads are a merge: the newest place of each is asked for in one request, then those rows
that can be on the page.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from langgraph_durable._core.records import (
    CheckpointRow,
    Cursor,
    Loaded,
    Page,
    Selection,
    WriteRow,
)
from langgraph_durable._core.refs import Ref
from langgraph_durable._redis import keys, rows
from langgraph_durable._redis.keys import ThreadKeys
from langgraph_durable._redis.marks import Mark
from langgraph_durable._redis.reading import MANY, about, ask, fetch, fields, steadily
from langgraph_durable._redis.requests import Command, Request, Word
from langgraph_durable._redis.rows import Accept
from langgraph_durable._redis.writing import Context
from langgraph_durable.errors import CorruptionError, StorageError

T = TypeVar("T")
logger = logging.getLogger("langgraph_durable")

WINDOW = 256
"""Places looked at at once for one page."""
GRACE = 3600
"""Seconds for which the index may name a thread that is not there: it may be about to come."""


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

    def row(self, blob: bytes) -> CheckpointRow:
        return rows.unpack_checkpoint(*keys.unplace(self.place), blob)


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
                row = key.row(blob or b"")  # or it is listed, and missing
                if accept(thread_id, row):
                    picked.append(row)
                if len(picked) == size:
                    loaded = await _complete(thread_id, at, mark, picked, items)
                    return Page(loaded, key.cursor)
        if len(places) < WINDOW:
            return Page(await _complete(thread_id, at, mark, picked, items), None)
        last = _key(thread_id, places[-1]).cursor


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
    thread_id: str,
    at: ThreadKeys,
    mark: Mark,
    picked: Sequence[CheckpointRow],
    items: bool,
    *,
    several: bool = False,
) -> tuple[Loaded, ...]:
    """The rows with their writes, maybe items; what several of them share is read once.

    Where threads are listed together, a row that is damaged is left out.
    """
    if not picked:
        return ()
    places = [keys.place(row.ns, row.id) for row in picked]
    parents = [b"" if r.parent is None else keys.place(r.ns, r.parent) for r in picked]
    there = await ask(
        thread_id,
        [("HEXISTS", at.hash, keys.checkpoint_field(parent)) for parent in parents],
    )
    writes = await _writes_of(thread_id, at, places)
    refs: list[Ref] = []
    whole: list[tuple[CheckpointRow, tuple[WriteRow, ...], bool]] = []
    for row, own, is_there in zip(picked, writes, there, strict=True):
        try:
            if items:  # or nothing need be known of references, which may be damaged
                refs += rows.all_refs(thread_id, row, own)
        except CorruptionError as error:
            if not several:
                raise
            logger.error("left out of the list: %s", error)
            continue
        whole.append((row, own, row.parent is not None and not is_there))
    found = await fetch(thread_id, at, refs)
    return tuple(
        Loaded(thread_id, mark.stamp, row, own, found, orphan) for row, own, orphan in whole
    )


async def _writes_of(
    thread_id: str, at: ThreadKeys, places: Sequence[bytes]
) -> list[tuple[WriteRow, ...]]:
    """The rows of writes of each place."""
    tasks: dict[bytes, list[rows.Listed]] = {place: [] for place in places}
    left, page = list(places), 0
    while left:
        names = [keys.tasks_field(place, n) for place in left for n in (page, page + 1)]
        pages = await fields(thread_id, at.hash, names)  # two at once: few places have more
        for place, one, two in zip(left, pages[::2], pages[1::2], strict=True):
            tasks[place] += rows.listed(one) + (rows.listed(two) if one is not None else [])
        left = [place for place, last in zip(left, pages[1::2], strict=True) if last is not None]
        page += 2
    apart = [keys.task_field(d) for own in tasks.values() for packed, d in own if packed is None]
    found = iter(await fields(thread_id, at.hash, apart))
    return [
        rows.tasks_or_lost(
            thread_id,
            *keys.unplace(place),
            [next(found) if packed is None else packed for packed, _ in own],
        )
        for place, own in tasks.items()
    ]


# ---- all threads ---------------------------------------------------------------------------------


async def threads(context: Context) -> list[str]:
    """What the index of threads names; some may be gone.

    A scan finds all that is there all the time. Ranks would not do: they move when an entry goes,
    or is renewed.
    """
    found: dict[bytes, None] = {}
    cursor: Word = 0
    while True:
        command = "ZSCAN", context.keys.threads, cursor, "COUNT", 10 * MANY
        cursor, entries = (await ask(None, [command]))[0]
        is_flat = not entries or isinstance(entries[0], bytes)  # clients of redis-py make pairs
        found.update(dict.fromkeys(entries[::2] if is_flat else [name for name, _ in entries]))
        if int(cursor) == 0:
            return list(map(keys.decoded, found))


async def threads_of(context: Context, runs: Sequence[str]) -> list[str]:
    """The threads that these runs wrote to.

    A run's entry in the index lives as long as a thread at most, and threads are renewed: where
    there is none, every thread is asked whether it knows the run.
    """
    found: dict[bytes, None] = {}
    unknown: list[bytes] = []
    entries = await ask(None, [("SMEMBERS", context.keys.run(run)) for run in runs])
    for run, names in zip(runs, entries, strict=True):
        found.update(dict.fromkeys(sorted(names)))
        if not names:
            unknown.append(keys.run_field(run))
    named = await threads(context) if unknown else []
    for start in range(0, len(named), MANY):
        some = named[start : start + MANY]
        commands: list[Command] = [
            ("HMGET", context.keys.thread(name).hash, *unknown) for name in some
        ]
        for name, notes in zip(some, await ask(None, commands), strict=True):
            if any(note is not None for note in notes):
                found[keys.encoded(name)] = None
    return list(map(keys.decoded, found))


async def _page_of_all(context: Context, wish: Wish) -> Page:
    """A merge of all threads; a page may be shorter than asked for, and the next one goes on."""
    selection, after, size, accept, items = wish
    named = await threads(context)
    newest = {k.thread_id: k for k in await _next_of(context, named, selection, after, 1)}
    if after is None:
        with suppress(StorageError):  # a replica takes no writes, and not everybody may make any
            unseen = [thread_id for thread_id in named if thread_id not in newest]
            await tidy(context, unseen[:MANY], once=True)
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
    """A row, or None if it has gone; whoever asks for its thread will hear if it should not."""
    at = context.keys.thread(key.thread_id)
    [blob] = await fields(key.thread_id, at.hash, [keys.checkpoint_field(key.place)])
    return None if blob is None else key.row(blob)


async def _part(
    context: Context, thread_id: str, picked: Sequence[CheckpointRow], items: bool
) -> tuple[Loaded, ...]:
    """Rows of one thread of many; one thread's trouble is not another's.

    They are read again: a removal since they were picked may have taken or changed them.
    """
    at = context.keys.thread(thread_id)
    places = [keys.place(row.ns, row.id) for row in picked]

    async def read(mark: Mark) -> tuple[Loaded, ...]:
        blobs = await fields(thread_id, at.hash, list(map(keys.checkpoint_field, places)))
        rows_now = [
            rows.unpack_checkpoint(*keys.unplace(place), blob)
            for place, blob in zip(places, blobs, strict=True)
            if blob is not None
        ]
        return await _complete(thread_id, at, mark, rows_now, items, several=True)

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


async def tidy(context: Context, named: Sequence[str], *, once: bool = False) -> None:
    """Take threads that are gone out of the index; not those that may be about to come."""
    gone = await _gone(context, list(map(keys.encoded, named)))
    if gone:
        scores = await ask(None, [("ZSCORE", context.keys.threads, name) for name in gone])
        old = time.time() - GRACE
        pairs = zip(gone, scores, strict=True)
        gone = [name for name, since in pairs if since is not None and float(since) < old]
    if gone:
        entries: list[Command] = [("ZREM", context.keys.threads, *gone)]
        await Request(about(None), entries, writes=True, once=once)
        left = set(await _gone(context, gone))
        now = int(time.time())
        back = [("ZADD", context.keys.threads, now, name) for name in gone if name not in left]
        if back:  # somebody has begun them again meanwhile
            await Request(about(None), back, writes=True)


async def _gone(context: Context, named: Sequence[bytes]) -> list[bytes]:
    """Those of the threads that are not there."""
    hashes = [context.keys.thread(keys.decoded(name)).hash for name in named]
    there = await ask(None, [("HEXISTS", hash, "e") for hash in hashes]) if hashes else []
    return [name for name, is_there in zip(named, there, strict=True) if not is_there]


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
