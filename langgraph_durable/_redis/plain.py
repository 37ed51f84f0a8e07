"""The scripts once more, for users who may not run any: the same rules under WATCH.

A twin is a generator: it yields the commands that read, and returns the answer together with the
commands that write. Whoever runs it has set a WATCH on the thread's keys before, and sends the
writes as one MULTI, which does nothing if the thread has changed; then the twin runs again. If
there is nothing to write, the MULTI only tells whether what was read belongs together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from langgraph_durable._redis import rows
from langgraph_durable._redis.keys import (
    ThreadKeys,
    task_field,
    tasks_field,
)
from langgraph_durable._redis.marks import TOKEN, TOKENS
from langgraph_durable._redis.requests import Call, Command, Word

TRIES = 100

Answer = list[Any]
Twin = Generator[Command, Any, tuple[Answer, list[Command]]]
Reading = Generator[Command, Any, Any]


def _bytes(words: Sequence[Word]) -> list[bytes]:
    return [
        word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
        for word in words
    ]


def twin(call: Call) -> Twin:
    """The twin of a script, ready to run."""
    return _TWINS[call.script](call.keys, _bytes(call.args))


def transaction(call: Call, commands: Sequence[Command]) -> list[Command]:
    """A MULTI of what a twin wants written; or one that only asks whether what it read stands."""
    return [("MULTI",), *(commands or [("EXISTS", call.keys.hash)]), ("EXEC",)]


def check(replies: list[Any]) -> list[Any]:
    """The replies; raises the first error among them."""
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
    return replies


class _Thread:
    """The state of a thread, as `scripts/thread.lua` has it."""

    def __init__(self, keys: ThreadKeys) -> None:
        self.keys = keys
        self.epoch: bytes | None = None
        self.version, self.tokens, self.life = 0, b"", b""
        self.tomb: bytes | None = None
        self.is_new = self.is_damaged = False
        self.following = 0
        self.writes: list[Command] = []

    def look(self) -> Reading:
        found = yield "HMGET", self.keys.hash, "e", "v", "k", "l", "d", "n"
        self.epoch, version, self.tokens, following = found[0], found[1], found[2] or b"", found[5]
        self.life, self.tomb, self.is_new = found[3] or b"", found[4], found[0] is None
        try:
            self.version, self.following = int(version or 0), int(following or 0)
        except ValueError:
            self.is_damaged = True
        if self.epoch is not None and (self.is_damaged or version is None or not self.tokens):
            self.epoch, self.is_damaged = None, True

    def get(self, field: bytes) -> Reading:
        return (yield "HGET", self.keys.hash, field)

    def has(self, field: bytes) -> Reading:
        return bool((yield "HEXISTS", self.keys.hash, field))

    def set(self, *words: Word) -> None:
        self.writes.append(("HSET", self.keys.hash, *words))

    def answer(self, status: bytes, *more: Any) -> tuple[Answer, list[Command]]:
        return [status, self.epoch, self.version, self.tokens, *more], []

    def missing(self) -> Reading:
        if self.is_damaged:
            return [b"BROKEN"], []
        left = yield "PTTL", self.keys.places
        return ([b"BROKEN"] if left == -1 or left > 1000 else [b"NONE"]), []

    def has_seen(self, epoch: bytes, version: bytes, token: bytes) -> bool:
        at = (self.version - int(version)) * TOKEN
        return epoch == self.epoch and at >= 0 and self.tokens[at : at + TOKEN] == token

    def refused(self, args: Sequence[bytes]) -> Reading:
        token, epoch, version, seen, fresh = args[:5]
        past = {self.tokens[at : at + TOKEN] for at in range(0, len(self.tokens), TOKEN)}
        if any(args[7][at : at + TOKEN] not in past for at in range(0, len(args[7]), TOKEN)):
            return [b"EARLY"], []
        if self.epoch is None:
            broken, _ = yield from self.missing()
            if broken == [b"BROKEN"]:
                return broken, []
            if epoch or not fresh:
                return [b"STALE"], []
            self.epoch = fresh
            return None
        if token in past:
            # Writes nothing new, so that WAIT on this connection waits for the first time's write.
            return self.answer(b"OK")[0], [("HSET", self.keys.hash, "v", self.version)]
        if epoch and not self.has_seen(epoch, version, seen):
            return self.answer(b"STALE")
        return None

    def is_deleted(self, root: bytes) -> Reading:
        if not root or (self.epoch is not None and (yield from self.has(b"c" + root + b"\0"))):
            return False
        return self.tomb is not None and self.tomb >= root

    def taken(self, args: Sequence[bytes]) -> Reading:
        base, count = int(args[0]), int(args[1])
        for n in range(base, min(base + count, self.following)):
            if (yield from self.has(b"i%d" % n)):
                return self.answer(b"TAKEN", self.following)
        if len(args) > 2:
            self.set(*args[2:], "n", max(self.following, base + count))
        return None

    def renew(self, ttl: bytes) -> None:
        ttl = self.life or ttl
        if ttl not in (b"", b"0"):
            self.writes += [("PEXPIRE", key, ttl) for key in self.keys]

    def signed(self, args: Sequence[bytes]) -> tuple[Answer, list[Command]]:
        self.version += 1
        self.tokens = args[0] + self.tokens[: TOKEN * (TOKENS - 1)]
        self.set("e", self.epoch or b"", "v", self.version, "k", self.tokens)
        if args[6]:
            self.set(b"r" + args[6], b"")
        if self.is_new and self.tomb is not None:
            self.writes.append(("PERSIST", self.keys.hash))
        self.renew(args[5])
        return [b"OK", self.epoch, self.version, self.tokens], self.writes

    def page_of(self, place: bytes, task: bytes, name: bytes) -> Reading:
        """The page that lists a task, or else the first with room: its number, the tasks on it,
        and among them this one, if it is."""
        pages = yield from self.pages(place)
        room: tuple[int, list[rows.Listed]] = len(pages), []
        for page, blob in reversed(list(enumerate(pages))):
            if len(blob) < rows.PAGE or name in blob or task in blob:
                listed = rows.unpack_page(blob)
                for each in listed:
                    if each.digest == task if each.rows is None else rows.is_of(each.rows, name):
                        return page, listed, each
                if len(blob) < rows.PAGE:
                    room = page, listed
        return *room, None

    def pages(self, place: bytes) -> Reading:
        """All pages that list the tasks of a place."""
        found: list[bytes] = []
        while True:
            names = [tasks_field(place, len(found) + k) for k in range(2)]
            for blob in (yield "HMGET", self.keys.hash, *names):
                if blob is None:
                    return found
                found.append(blob)

    def rows_of_writes(self, place: bytes) -> Reading:
        found: list[bytes | None] = []
        for page in (yield from self.pages(place)):
            for packed, digest in rows.listed(page):
                if packed is None:
                    packed = yield from self.get(task_field(digest))
                found.append(packed)
        return found


def _put(keys: ThreadKeys, args: list[bytes]) -> Twin:
    thread = _Thread(keys)
    yield from thread.look()
    if (refused := (yield from thread.refused(args))) is not None:
        return refused  # type: ignore[no-any-return]
    ns, id, parent, sole, lenient, lead, row = args[8:15]
    if (yield from thread.is_deleted(args[15])):
        return [b"DELETED"], []
    place = id + b"\0" + ns
    head = yield from thread.get(b"h" + ns)
    if sole == b"1" and (head or b"") != parent and head != id:
        is_stored = yield from thread.has(b"c" + parent + b"\0" + ns)
        if not (lenient == b"1" and head) or is_stored:
            return thread.answer(b"MOVED", head)
    added = not (yield from thread.has(b"c" + place))
    if (clash := (yield from thread.taken(args[16:]))) is not None:
        return clash  # type: ignore[no-any-return]
    thread.set(b"c" + place, row)
    if added:
        thread.writes.append(("ZADD", keys.places, 0, place))
        thread.writes.append(("HINCRBY", keys.hash, "q", 1))
    if head is None or (added and (lead == b"1" or head == parent or head < id)):
        thread.set(b"h" + ns, id)
    return thread.signed(args)


def _put_writes(keys: ThreadKeys, args: list[bytes]) -> Twin:
    thread = _Thread(keys)
    yield from thread.look()
    if (refused := (yield from thread.refused(args))) is not None:
        return refused  # type: ignore[no-any-return]
    ns, id, sole, task, name, root, count = args[8:15]
    if (yield from thread.is_deleted(root)):
        return [b"DELETED"], []
    end = 15 + 3 * int(count)
    place = id + b"\0" + ns
    if sole == b"1":
        head = yield from thread.get(b"h" + ns)
        if head != id:
            return thread.answer(b"MOVED", head)
    try:
        page, listed, mine = yield from thread.page_of(place, task, name)
        packed = b"" if mine is None else mine.rows
        if packed is None:
            packed = (yield from thread.get(task_field(task))) or b""
        held = {row[0]: row for row in rows.unpack_task(packed)}
    except struct.error:
        return [b"TORN", id], []
    new = [(int(args[k]), int(args[k + 1]), args[k + 2]) for k in range(15, end, 3)]
    for first, many, _ in held.values():
        for idx, own, _ in new:
            if idx >= 0 and first >= 0 and idx < first + many and first < idx + own:
                return thread.answer(b"HELD", packed)
    if (clash := (yield from thread.taken(args[end:]))) is not None:
        return clash  # type: ignore[no-any-return]
    held.update((row[0], row) for row in new)
    packed = rows.pack_task(held.values())
    was_inside = mine is None or mine.rows is not None
    inside = page == 0 and was_inside and len(packed) <= rows.INSIDE
    if not inside:
        thread.set(task_field(task), packed)
    now = rows.Listed(packed) if inside else rows.Listed(None, task)
    others = [each for each in listed if each is not mine]
    thread.set(tasks_field(place, page), rows.pack_page([*others, now]))
    return thread.signed(args)


def _apply(keys: ThreadKeys, args: list[bytes]) -> Twin:
    thread = _Thread(keys)
    yield from thread.look()
    if (refused := (yield from thread.refused(args))) is not None:
        return refused  # type: ignore[no-any-return]
    if thread.version and (not args[1] or int(args[2]) != thread.version):
        return thread.answer(b"STALE")
    thread.epoch, thread.tokens = args[8], b""
    at = 10
    for _ in range(int(args[9])):
        words = int(args[at])
        command, key = args[at + 1].decode(), args[at + 2]
        rest = args[at + 3 : at + words + 1]
        thread.writes.append((command, keys.hash if key == b"H" else keys.places, *rest))
        at += words + 1
    return thread.signed(args)


def _load(keys: ThreadKeys, args: list[bytes]) -> Twin:
    """Items are left to the caller, as for refs that a script cannot read."""
    thread = _Thread(keys)
    yield from thread.look()
    if thread.epoch is None:
        return (yield from thread.missing())  # type: ignore[no-any-return]
    ns, id, ttl = args[:3]
    head = yield from thread.get(b"h" + ns)
    id = id or head
    row = (yield from thread.get(b"c" + id + b"\0" + ns)) if id else None
    if row is None:
        return ([b"HEADLESS", head] if id and id == head else [b"NONE"]), []
    parent = rows.parent_of(row)
    orphan = parent is not None and not (yield from thread.has(b"c" + parent + b"\0" + ns))
    writes = yield from thread.rows_of_writes(id + b"\0" + ns)
    loaded = [id, row, int(orphan), writes, thread.following, b"", 0, 0]
    answer, _ = thread.answer(b"OK", loaded)
    if ttl:
        thread.renew(ttl)
    return answer, thread.writes


def _walk(keys: ThreadKeys, args: list[bytes]) -> Twin:
    thread = _Thread(keys)
    yield from thread.look()
    if thread.epoch is None:
        return (yield from thread.missing())  # type: ignore[no-any-return]
    ns, id, most = args
    head = yield from thread.get(b"h" + ns)
    following: bytes | None = id or head
    links: list[Any] = []
    seen: set[bytes] = set()
    while following and following not in seen and len(seen) < int(most):
        place = following + b"\0" + ns
        row = yield from thread.get(b"c" + place)
        if row is None:
            break
        seen.add(following)
        links += (following, row, (yield from thread.rows_of_writes(place)))
        following = rows.parent_of(row)
    if not links:
        return ([b"HEADLESS", head] if following and following == head else [b"NONE"]), []
    return thread.answer(b"OK", links)


def _drop(keys: ThreadKeys, args: list[bytes]) -> Twin:
    thread = _Thread(keys)
    yield from thread.look()
    if args[0] and thread.tokens[:TOKEN] != args[0]:
        return [b"STALE"], []
    names = yield "HKEYS", keys.hash
    last = yield "ZREVRANGE", keys.places, 0, 0
    if thread.epoch is None and not last:
        return [b"NONE"], []
    runs = [name[1:] for name in names if name[:1] == b"r"]
    claims = sum(name[:1] == b"a" for name in names)
    counts = dict.fromkeys((b"c", b"w", b"i"), 0)
    size = 0
    for name in names:
        kind = name[:1]
        if kind in counts:
            counts[kind] += 1
        if kind in counts or kind == b"t":
            size += yield "HSTRLEN", keys.hash, name
        if kind == b"w":  # a page: as many as there are tasks on it
            with suppress(struct.error):
                counts[kind] += len(rows.unpack_page((yield "HGET", keys.hash, name))) - 1
    writes: list[Command] = [("UNLINK", *keys)]
    if last and args[1] != b"0":
        greatest = max(last[0].partition(b"\0")[0], args[2])
        writes += [("HSET", keys.hash, "d", greatest), ("PEXPIRE", keys.hash, args[1])]
    return [b"OK", runs, *counts.values(), size, claims], writes


def _expire(keys: ThreadKeys, args: list[bytes]) -> Twin:
    thread = _Thread(keys)
    yield from thread.look()
    if thread.epoch is None:
        return (yield from thread.missing())  # type: ignore[no-any-return]
    thread.life = args[0]
    thread.set("l", args[0])
    if args[0] == b"0":
        thread.writes += [("PERSIST", key) for key in keys]
    thread.renew(b"")
    return [b"OK"], thread.writes


_TWINS: dict[str, Callable[[ThreadKeys, list[bytes]], Twin]] = {
    "apply": _apply,
    "drop": _drop,
    "expire": _expire,
    "load": _load,
    "put": _put,
    "put_writes": _put_writes,
    "walk": _walk,
}
