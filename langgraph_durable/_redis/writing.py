"""The verbs that write: `put`, `put_writes`.

Items are sealed for their numbers, and only the server knows which numbers are free. So numbers
are guessed from the last answer; if another process has used one of them, the server says which
come next, and the draft is numbered anew. After a few collisions the guess jumps ahead: gaps in a
log do no harm.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from langgraph_durable._core import seal
from langgraph_durable._core.records import CheckpointDraft, Draft, Stored, WritesDraft
from langgraph_durable._core.storage import Stale
from langgraph_durable._redis import keys, rows
from langgraph_durable._redis.keys import Keys
from langgraph_durable._redis.marks import Mark, Marks, Seen, new_epoch, new_token
from langgraph_durable._redis.requests import Call, Command, Request, Word
from langgraph_durable.errors import (
    ConcurrentUpdate,
    CorruptionError,
    SerializationError,
    StorageBusy,
    ThreadDeleted,
)

TRIES = 50
PATIENT = 3
"""Collisions after which the guess jumps ahead."""
LARGEST = (512 << 20) - seal.SUM
"""Bytes of one value that a server takes; it cuts the connection of whoever sends more."""
MOST_FLIGHTS = 8
"""Writes still on their way that one write relies on at most."""

_dice = random.Random()


@dataclass(frozen=True, slots=True)
class Context:
    """What all verbs of a store share."""

    keys: Keys
    marks: Marks
    ttl: int | None = None
    """Milliseconds that a thread lives from its last write on."""
    refresh: bool = False
    """Reading counts as well."""

    @property
    def life(self) -> Word:
        return "" if self.ttl is None else self.ttl


class Numbered(NamedTuple):
    """A draft with numbers."""

    finals: list[int]
    words: list[Word]
    """The new items as the scripts take them."""
    size: int
    shares: bool
    """It relies on items that are stored already."""
    flights: bytes
    """Tokens of writes on whose items it relies, and which are still on their way."""


def number(
    context: Context, draft: Draft, mark: Mark | None, token: bytes, collisions: int
) -> Numbered:
    """Give new items the numbers that seem to be free.

    LangGraph saves a task's writes and the next checkpoint at the same moment, with the same new
    items in both. So items that another write is just bringing are not sent a second time.
    """
    _check_sizes(draft)
    if mark is None:
        finals, add = list(range(len(draft.items))), list(draft.items.values())
        flights = set[bytes]()
        shares, base = False, 0
    else:
        skip = _dice.randrange(64 * collisions) if collisions > PATIENT else 0
        known = draft.memory.known(mark.stamp)
        with context.marks.numbering:
            base = mark.following = mark.following + skip
            finals, add, flights = _place(draft, mark, known, token, alone=collisions > 0)
        shares = draft.epoch is not None or any(digest in known for digest in draft.items)
    seed = seal.log_seed(draft.thread_id)
    words: list[Word] = [base, len(add)]
    size = 0
    for n, payload in enumerate(add, base):
        blob = seal.seal_item(seed, n, payload)
        words += (keys.item_field(n), blob)
        size += len(blob)
    for k, (n, claim) in enumerate(draft.claimed(finals, range(base, base + len(add)))):
        words += (keys.claim_field(n, k), claim)
    return Numbered(finals, words, size, shares, b"".join(flights))


def _check_sizes(draft: Draft) -> None:
    largest = max(map(len, draft.items.values()), default=0)
    if largest > LARGEST:
        raise SerializationError(
            f"thread {draft.thread_id!r}: a value takes {largest:,} bytes, and Redis takes "
            f"{LARGEST:,} at most. Nothing was written; with artifacts= large values go elsewhere."
        )


def _place(
    draft: Draft, mark: Mark, known: Mapping[bytes, int], token: bytes, *, alone: bool
) -> tuple[list[int], list[bytes], set[bytes]]:
    """The number of each item, the payloads to send, and which writes must have come before."""
    finals: list[int] = []
    add: list[bytes] = []
    flights: set[bytes] = set()
    for digest, payload in draft.items.items():
        n = known.get(digest)
        flight = mark.flights.get(digest)
        if n is None and flight and not alone and len(flights) < MOST_FLIGHTS:
            n = flight[0]
            flights.add(flight[1])
        if n is None:
            n = mark.following
            mark.following += 1
            mark.flights[digest] = n, token
            add.append(payload)
        finals.append(n)
    return finals, add, flights


def land(mark: Mark | None, draft: Draft, token: bytes) -> None:
    """What the draft has brought is not on its way any more."""
    if mark is not None:
        for digest in draft.items:
            if mark.flights.get(digest, (0, b""))[1] == token:
                mark.flights.pop(digest, None)


Answer = Sequence[Any]


async def _attempt(
    context: Context,
    script: str,
    draft: CheckpointDraft | WritesDraft,
    words: Callable[[Numbered], tuple[Sequence[Word], int]],
    end: Callable[[Answer], bool],
) -> Stored:
    """Number, send, and do it again with what the server has answered."""
    thread_id = draft.thread_id
    for collisions in range(TRIES):
        mark = context.marks.get(thread_id)
        # A token stands for these very numbers: others may rely on them. Who has seen the thread
        # begins no new one, which nobody would enter into the index.
        token, fresh = new_token(), new_epoch() if mark is None else ""
        if draft.epoch is not None and (
            mark is None or mark.stamp != draft.epoch or draft.memory.is_void()
        ):
            raise Stale
        numbered = number(context, draft, mark, token, collisions)
        try:
            answer, size = await _send(
                context, script, draft, mark, (token, fresh), numbered, words
            )
            if answer[0] == b"OK":
                following = max(numbered.finals, default=-1) + 1
                stamp = context.marks.see(thread_id, Seen(*answer[1:4]), following).stamp
                stored = Stored(stamp, numbered.finals, numbered.size + size)
                draft.memory.keep(stored)
                return stored
        finally:
            land(mark, draft, token)
        if answer[0] == b"TAKEN":
            context.marks.see(thread_id, Seen(*answer[1:4]), answer[4])
        elif answer[0] in (b"HELD", b"MOVED"):
            mark = context.marks.see(thread_id, Seen(*answer[1:4]))
            if end(answer):
                return Stored(mark.stamp, (), 0)
        elif answer[0] == b"STALE":
            _note(context, thread_id, answer)
            if draft.epoch is not None:
                raise Stale
        elif answer[0] == b"DELETED":
            raise ThreadDeleted(thread_id, draft.root)
        elif answer[0] != b"EARLY":
            refuse(thread_id, answer)
    raise StorageBusy(
        f"thread {thread_id!r}: others wrote to it {TRIES} times while this was being written. "
        "Nothing was written; try again."
    )


async def _send(
    context: Context,
    script: str,
    draft: CheckpointDraft | WritesDraft,
    mark: Mark | None,
    marks: tuple[bytes, Word],
    numbered: Numbered,
    words: Callable[[Numbered], tuple[Sequence[Word], int]],
) -> tuple[Answer, int]:
    """One attempt: the answer, and the bytes of the rows."""
    (token, fresh), thread_id = marks, draft.thread_id
    own, size = words(numbered)
    expected = _expected(mark.seen) if mark and numbered.shares else ("", "", "")
    run = draft.run if draft.announce_run and draft.run else ""
    common = token, *expected, fresh, context.life, keys.encoded(run), numbered.flights
    index: Sequence[Command] = ()
    if run or mark is None:
        index = list(announcements(context, thread_id, [run] if run else [], mark is None))
    [answer] = await Request(
        f"thread {thread_id!r}",
        call=Call(script, context.keys.thread(thread_id), (*common, *own, *numbered.words)),
        index=index,
        writes=True,
    )
    return answer, size


def announcements(
    context: Context, thread_id: str, runs: Iterable[str], news: bool = True
) -> Iterator[Command]:
    """Enter a thread into the indexes, before it is there: they may lag, not lack."""
    name = keys.encoded(thread_id)
    if news:
        yield "ZADD", context.keys.threads, int(time.time()), name
    for run in runs:
        yield "SADD", context.keys.run(run), name
        if context.ttl is not None:
            yield "PEXPIRE", context.keys.run(run), context.ttl


def _expected(seen: Seen) -> tuple[Word, Word, Word]:
    return seen.epoch, seen.version, seen.tokens[:6]


def _note(context: Context, thread_id: str, answer: Answer) -> None:
    """Remember what the server said of the thread, if there is one."""
    if len(answer) > 1:
        context.marks.see(thread_id, Seen(*answer[1:4]))
    else:
        context.marks.forget(thread_id)


def refuse(thread_id: str, answer: Answer) -> None:
    """Raise what a status other than success means."""
    if answer[0] == b"HEADLESS":
        head = answer[1].decode("utf-8", "replace")
        raise CorruptionError(f"thread {thread_id!r}: checkpoint {head}, the latest, is missing")
    if answer[0] == b"TORN":
        where = f"thread {thread_id!r}, checkpoint {keys.id_text(answer[1])}"
        raise seal.damaged(where, seal.Damaged("a record of pending writes"))
    raise CorruptionError(
        f"thread {thread_id!r}: a part of it is missing or damaged, as if the server had "
        "evicted it. Set maxmemory-policy to noeviction; delete the thread, or restore it from a "
        "backup."
    )


def _head(answer: Answer) -> str | None:
    """The head of the namespace, as an answer names it."""
    return answer[4].decode("utf-8", "replace") if len(answer) > 4 and answer[4] else None


def _root(draft: Draft) -> bytes:
    return b"" if draft.root is None else keys.id_bytes(draft.root)


async def put(context: Context, draft: CheckpointDraft) -> Stored:
    ns, id = keys.encoded(draft.ns), keys.id_bytes(draft.id)
    parent = b"" if draft.parent is None else keys.id_bytes(draft.parent)
    guard = int(draft.guard.sole), int(draft.guard.lenient), int(draft.guard.lead)

    def words(numbered: Numbered) -> tuple[Sequence[Word], int]:
        row = draft.row(numbered.finals)
        own = ns, id, parent, *guard, rows.pack_checkpoint(row), _root(draft)
        return own, len(row.refs) + len(row.body)

    def end(answer: Answer) -> bool:
        raise ConcurrentUpdate(draft.thread_id, draft.parent, _head(answer))

    return await _attempt(context, "put", draft, words, end)


async def put_writes(context: Context, draft: WritesDraft) -> Stored:
    place = keys.encoded(draft.ns), keys.id_bytes(draft.id)
    digest = keys.task_digest(keys.place(draft.ns, draft.id), draft.task_id)
    task = digest, rows.task_name(draft.task_id)
    taken: set[int] = set()

    def words(numbered: Numbered) -> tuple[Sequence[Word], int]:
        made = draft.rows(numbered.finals, taken)
        own: list[Word] = [*place, int(draft.sole()), *task, _root(draft), len(made)]
        for row in made:
            own += (row.idx, row.width, rows.pack_write(row))
        return own, sum(len(row.refs) + len(row.body) for row in made)

    def end(answer: Answer) -> bool:
        """Leave out what is there; True if nothing is left."""
        if answer[0] == b"MOVED":
            if draft.sole():
                raise ConcurrentUpdate(draft.thread_id, draft.id, _head(answer))
            return False
        held = rows.unpack_tasks(draft.thread_id, draft.ns, draft.id, [answer[4]])
        taken.update(draft.taken(held))
        return not draft.special and taken.issuperset(write.idx for write in draft.ordinary)

    return await _attempt(context, "put_writes", draft, words, end)
