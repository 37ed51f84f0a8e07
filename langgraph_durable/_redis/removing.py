"""The verbs that remove: `edit`, `drop`; a life's end, and the index.

`edit` looks at a whole thread, decides here, and sends all changes in one script that does nothing
if the thread has changed since; then it looks again. `copying` does the same.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from langgraph_durable._core import seal
from langgraph_durable._core.records import (
    CheckpointRow,
    Edit,
    Listing,
    Measured,
    Removed,
    WriteRow,
)
from langgraph_durable._core.refs import Ref, Runs
from langgraph_durable._core.retention import id_at
from langgraph_durable._redis import keys, rows
from langgraph_durable._redis.listing import threads, tidy
from langgraph_durable._redis.marks import Seen, new_epoch, new_token
from langgraph_durable._redis.reading import MANY, about, ask, fetch, fields, steadily
from langgraph_durable._redis.requests import Call, Command, Request, Word
from langgraph_durable._redis.writing import Context, announcements, refuse
from langgraph_durable.errors import CorruptionError, StorageBusy, StorageFull

TRIES, PATIENCE = 20, 20.0
"""How often, and for how many seconds, something is tried that others' writes make void."""
TOMB = 7 * 86_400_000
"""Milliseconds for which late writes of a deleted thread are told apart."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All of a thread but its items, from one moment (or the script will notice)."""

    seen: Seen
    listing: Listing
    items: set[int]
    runs: frozenset[str]
    writes: dict[bytes, list[bytes]]
    """The fields that hold the writes of a place."""
    claims: dict[bytes, bytes]
    """By field."""


async def look(context: Context, thread_id: str, *, weigh: bool = False) -> Whole | None:
    """All of a thread but its items; again, if a removal came in between."""

    async def read(mark: object) -> Whole | None:
        return await _look_once(context, thread_id, weigh)

    return await steadily(context, thread_id, read)


async def _look_once(context: Context, thread_id: str, weigh: bool) -> Whole | None:
    at = context.keys.thread(thread_id)
    state, names = await ask(thread_id, [("HMGET", at.hash, "e", "v", "k"), ("HKEYS", at.hash)])
    if state[0] is None:
        if (await ask(thread_id, [("PTTL", at.places)]))[0] == -1:
            refuse(thread_id, [b"BROKEN"])
        return None
    by_kind: dict[bytes, list[bytes]] = {}
    for name in names:
        by_kind.setdefault(name[:1], []).append(name)

    async def read(kind: bytes) -> dict[bytes, bytes]:
        wanted = by_kind.get(kind, [])
        values = await fields(thread_id, at.hash, wanted)
        return {
            name[1:]: value for name, value in zip(wanted, values, strict=True) if value is not None
        }

    checkpoints, heads = await read(b"c"), await read(b"h")
    pages, tasks = await read(b"w"), await read(b"t")
    made = [rows.unpack_checkpoint(*keys.unplace(place), row) for place, row in checkpoints.items()]
    named: dict[bytes, list[rows.Listed]] = {}
    fields_of: dict[bytes, list[bytes]] = {}
    for name, page in pages.items():
        place = name.partition(b":")[2]
        named.setdefault(place, []).extend(rows.listed(page))
        fields_of.setdefault(place, []).append(b"w" + name)
    lacks = {d for own in named.values() for packed, d in own if packed is None} - tasks.keys()
    if lacks:
        # What was not there at first is new, unless nobody has written since: then it is lost.
        [version] = await ask(thread_id, [("HGET", at.hash, "v")])
        if version != state[1]:
            named = {
                place: [each for each in own if each.digest not in lacks]
                for place, own in named.items()
            }
    writes: list[WriteRow] = []
    for place, own in named.items():
        fields_of[place] += [keys.task_field(d) for packed, d in own if packed is None]
        packed = [tasks.get(digest) if inside is None else inside for inside, digest in own]
        writes += rows.tasks_or_lost(thread_id, *keys.unplace(place), packed)
    items = {int(name[1:]) for name in by_kind.get(b"i", ())}
    listing = Listing(
        thread_id,
        tuple(made),
        tuple(writes),
        {keys.decoded(ns): keys.id_text(id) for ns, id in heads.items()},
        await _spines(context, thread_id, [*made, *writes]),
        await _sizes(context, thread_id, items) if weigh else {},
    )
    runs = frozenset(keys.decoded(name[1:]) for name in by_kind.get(b"r", ()))
    seen = Seen(state[0], int(state[1]), state[2])
    claims = {b"a" + name: claim for name, claim in (await read(b"a")).items()}
    return Whole(seen, listing, items, runs, fields_of, claims)


async def _spines(
    context: Context, thread_id: str, made: Iterable[CheckpointRow | WriteRow]
) -> Callable[[int], Runs]:
    """Looks up the runs of every spine item that the rows name; read now, verified when used."""
    refs: list[Ref] = []
    for row in made:
        with suppress(CorruptionError):  # whoever keeps this row will hear of it
            refs += rows.refs(thread_id, row)
    spines = [ref._replace(runs=ref.spine, spine=()) for ref in refs if ref.spine]
    stored = await fetch(thread_id, context.keys.thread(thread_id), spines)

    @functools.cache
    def look_up(number: int) -> Runs:
        blob = stored.get(number, b"")
        try:
            seal.open_item(seal.log_seed(thread_id), number, blob)
        except seal.Damaged as error:
            raise seal.damaged(f"thread {thread_id!r}, item {number}", error) from error
        return seal.peek_spine(blob)

    return look_up


def patiently() -> Iterator[None]:
    end = time.monotonic() + PATIENCE
    for tries in itertools.count(1):
        yield
        if tries >= TRIES and time.monotonic() > end:
            return


async def apply(
    context: Context,
    thread_id: str,
    seen: Seen | None,
    commands: Sequence[Command],
    index: Sequence[Command] = (),
) -> Seen | None:
    """Carry out `commands` if the thread is as it was seen; then, how it is seen now."""
    expected: Sequence[Word] = ("", "", "")
    if seen is not None:
        expected = seen.epoch, seen.version, seen.tokens[:6]
    words: list[Word] = [word for command in commands for word in (len(command), *command)]
    common = new_token(), *expected, new_epoch(), context.life, "", ""
    args = (*common, new_epoch(), len(commands), *words)
    call = Call("apply", context.keys.thread(thread_id), args)
    [answer] = await Request(about(thread_id), call=call, index=index, writes=True)
    context.marks.forget(thread_id)
    if answer[0] == b"BROKEN":
        refuse(thread_id, answer)
    return Seen(*answer[1:4]) if answer[0] == b"OK" else None


def chunked(command: str, key: Word, words: Sequence[Word], step: int = 1) -> Iterator[Command]:
    """One command for every thousand words: scripts cannot take many more at once."""
    for at in range(0, len(words), MANY * step):
        yield (command, key, *words[at : at + MANY * step])


# ---- removing ------------------------------------------------------------------------------------


async def edit(
    context: Context, thread_id: str, decide: Callable[[Listing], Edit | None], weigh: bool
) -> Removed | None:
    for _ in patiently():
        whole = await look(context, thread_id, weigh=weigh)
        if whole is None:
            return None
        plan = decide(whole.listing)
        if plan is None:
            return Removed()
        left = Left(whole, plan)
        if not left.rows and not left.writes:
            dropped = await _drop(context, thread_id, whole.seen.tokens[:6])
            if dropped is not None:
                return dropped
            continue
        removed = await _weighed(context, thread_id, left)
        before = context.marks.get(thread_id)
        if seen := await apply(context, thread_id, whole.seen, left.commands()):
            if before is not None and whole.seen.follows(before.seen):
                after = context.marks.see(thread_id, seen, before.following)
                plan.epochs = before.stamp, after.stamp
            await _unannounce(context, thread_id, left.gone_runs)
            return removed
    raise StorageBusy(
        f"thread {thread_id!r}: others wrote to it all the time while parts of it were to be "
        "removed. Nothing was removed; try again."
    )


async def _weighed(context: Context, thread_id: str, left: Left) -> Removed:
    """What an edit removes."""
    before, plan = left.whole.listing, left.plan
    gone = [row for row in before.rows if (row.ns, row.id) in plan.drop]
    stay = set(left.writes)
    writes = [write for write in before.writes if write not in stay]
    items = left.whole.items - plan.keep
    sizes = await _sizes(context, thread_id, items)
    size = sum(len(row.refs) + len(row.body) for row in gone) + sum(sizes.values())
    size += sum(len(write.refs) + len(write.body) for write in writes)
    return Removed(len(gone), len(writes), len(items), size, len(left.gone_claims))


async def _sizes(context: Context, thread_id: str, items: Iterable[int]) -> dict[int, int]:
    at, order = context.keys.thread(thread_id), sorted(items)
    sizes: dict[int, int] = {}
    for start in range(0, len(order), MANY):
        some = order[start : start + MANY]
        commands: list[Command] = [("HSTRLEN", at.hash, keys.item_field(n)) for n in some]
        sizes.update(zip(some, await ask(thread_id, commands), strict=True))
    return sizes


async def survey(context: Context, thread_id: str, weigh: bool) -> Listing | None:
    whole = await look(context, thread_id, weigh=weigh)
    return None if whole is None else whole.listing


async def count(context: Context, thread_id: str) -> int:
    [found] = await ask(thread_id, [("ZCARD", context.keys.thread(thread_id).places)])
    return int(found)


async def measure(context: Context, thread_id: str) -> Measured | None:
    """By its records and the lengths of its items."""
    listing = await survey(context, thread_id, weigh=True)
    if listing is None:
        return None
    ids = [row.id for row in listing.rows]
    size = sum(len(row.refs) + len(row.body) for row in listing.rows)
    size += sum(len(write.refs) + len(write.body) for write in listing.writes)
    counts = len(ids), len(listing.writes), len(listing.sizes)
    ends = min(ids, default=None), max(ids, default=None)
    return Measured(*counts, size + sum(listing.sizes.values()), *ends)


async def threads_after(context: Context, after: str | None, size: int) -> list[str]:
    """By name: what the index names may come and go meanwhile."""
    last = None if after is None else keys.encoded(after)
    named = sorted(map(keys.encoded, await threads(context)))
    return [keys.decoded(name) for name in named if last is None or name > last][:size]


class Left:
    """What an edit leaves of a thread, and the commands that bring it about."""

    def __init__(self, whole: Whole, plan: Edit) -> None:
        self.whole, self.plan = whole, plan
        replaced = {(row.ns, row.id): row for row in plan.replace}
        taken_back = set(plan.drop_writes)
        self.rows = [
            replaced.get((row.ns, row.id), row)
            for row in whole.listing.rows
            if (row.ns, row.id) not in plan.drop
        ] + plan.add
        self.writes = [
            write
            for write in whole.listing.writes
            if (write.ns, write.id) not in plan.drop and write not in taken_back
        ] + plan.add_writes
        stay = {row.run for row in self.rows} | {write.run for write in self.writes}
        self.gone_runs = [run for run in whole.runs if run not in stay]
        self.gone_claims = [f for f in whole.claims if keys.claimer(f) not in plan.keep]

    def _check(self, writes: Iterable[WriteRow]) -> None:
        """Before they are packed anew: what is damaged could not be told from what was whole."""
        thread_id = self.whole.listing.thread_id
        for write in writes:
            try:
                write.bare(thread_id)
            except seal.Damaged as error:
                where = f"thread {thread_id!r}, checkpoint {write.id}, its pending writes"
                raise seal.damaged(where, error) from error

    def commands(self) -> list[Command]:
        plan = self.plan
        dropped = [keys.place(ns, id) for ns, id in plan.drop]
        thinned = {(write.ns, write.id) for write in plan.drop_writes}
        gone = [keys.checkpoint_field(place) for place in dropped]
        gone += [keys.run_field(run) for run in self.gone_runs]
        new: list[Word] = []
        for row in (*plan.replace, *plan.add):
            new += (keys.checkpoint_field(keys.place(row.ns, row.id)), rows.pack_checkpoint(row))
        for ns, head in plan.heads.items():
            if head is None:
                gone.append(keys.head_field(ns))
            else:
                new += (keys.head_field(ns), keys.id_bytes(head))
        for owner in plan.drop | thinned:
            gone += self.whole.writes.get(keys.place(*owner), ())
        came = {(row.ns, row.id) for row in plan.add}
        kept = [write for write in self.writes if (write.ns, write.id) in thinned | came]
        self._check(kept)
        gone += map(keys.item_field, self.whole.items - plan.keep)
        gone += self.gone_claims
        new += ("q", len(self.rows), *writes_words(kept))
        for n, blob in plan.add_items.items():
            new += (keys.item_field(n), blob)
        for k, (n, claim) in enumerate(plan.add_claims):
            new += (keys.claim_field(n, k), claim)
        if plan.add_items:
            new += ("n", max(plan.add_items) + 1)
        places: list[Word] = [w for ns, id in came for w in (0, keys.place(ns, id))]
        return [
            *chunked("HDEL", "H", gone),
            *chunked("HSET", "H", new, 2),
            *chunked("ZREM", "X", dropped),
            *chunked("ZADD", "X", places, 2),
        ]


def writes_words(writes: Iterable[WriteRow]) -> list[Word]:
    """Fields and values for these writes."""
    places: dict[bytes, dict[bytes, list[tuple[int, int, bytes]]]] = {}
    for write in writes:
        place = keys.place(write.ns, write.id)
        task = places.setdefault(place, {}).setdefault(keys.task_digest(place, write.task_id), [])
        task.append((write.idx, write.width, rows.pack_write(write)))
    words: list[Word] = []
    for place, tasks in places.items():
        pages: list[list[rows.Listed]] = [[]]
        for digest, own in tasks.items():
            packed = rows.pack_task(own)
            if len(rows.pack_page(pages[-1])) >= rows.PAGE:
                pages.append([])
            inside = len(pages) == 1 and len(packed) <= rows.INSIDE
            pages[-1].append(rows.Listed(packed if inside else None, digest))
            if not inside:
                words += (keys.task_field(digest), packed)
        for number, page in enumerate(pages):
            words += (keys.tasks_field(place, number), rows.pack_page(page))
    return words


async def drop(context: Context, thread_id: str) -> Removed | None:
    return await _drop(context, thread_id, "")


async def _drop(context: Context, thread_id: str, token: bytes | str) -> Removed | None:
    """Remove a thread (if its last write is still the one with this token)."""

    async def remove(tomb: int) -> list[Any]:
        call = Call("drop", context.keys.thread(thread_id), (token, tomb, id_at(time.time())))
        answers: list[list[Any]] = await Request(about(thread_id), call=call, writes=True)
        return answers[0]

    try:
        answer = await remove(TOMB)
    except StorageFull:  # without scripts: then making room is worth more than a tombstone
        answer = await remove(0)
    context.marks.forget(thread_id)
    if answer[0] != b"OK":
        return None
    await _unannounce(context, thread_id, map(keys.decoded, answer[1]), thread=True)
    return Removed(*answer[2:7])


async def _unannounce(
    context: Context, thread_id: str, runs: Iterable[str], *, thread: bool = False
) -> None:
    """Take a thread out of the indexes; back into them if somebody has made it again meanwhile."""
    name = keys.encoded(thread_id)
    runs = list(runs)
    commands: list[Command] = [("SREM", context.keys.run(run), name) for run in runs]
    if thread:
        commands.append(("ZREM", context.keys.threads, name))
        commands.append(("HEXISTS", context.keys.thread(thread_id).hash, "e"))
    if commands:
        *_, there = await Request(about(thread_id), commands, writes=True)
        if thread and there:
            await Request(
                about(thread_id), list(announcements(context, thread_id, runs)), writes=True
            )


async def forget_runs(context: Context, runs: Sequence[str]) -> None:
    if runs:
        await Request(about(None), [("UNLINK", context.keys.run(run)) for run in runs], writes=True)


# ---- a thread's life, and the index --------------------------------------------------------------


async def expire(context: Context, thread_id: str, milliseconds: int) -> bool:
    """Let a thread live that long from each use on; 0 for ever. False if there is none."""
    call = Call("expire", context.keys.thread(thread_id), (milliseconds,))
    [answer] = await Request(about(thread_id), call=call, writes=True)
    if answer[0] == b"BROKEN":
        refuse(thread_id, answer)
    return bool(answer[0] == b"OK")


async def reindex(context: Context) -> int:
    """Find all threads, and enter them and their runs into the indexes."""
    found: set[str] = set()
    [stored] = await Request(about(None), scan=context.keys.pattern)
    for thread_id in filter(None, {context.keys.thread_of(key) for key in stored}):
        at = context.keys.thread(thread_id)
        names = (await ask(thread_id, [("HKEYS", at.hash)]))[0]
        if b"e" not in names:  # a tombstone
            continue
        found.add(thread_id)
        runs = [keys.decoded(name[1:]) for name in names if name[:1] == b"r"]
        await Request(
            about(thread_id), [], index=list(announcements(context, thread_id, runs)), writes=True
        )
    gone = [thread_id for thread_id in await threads(context) if thread_id not in found]
    for start in range(0, len(gone), MANY):
        await tidy(context, gone[start : start + MANY])
    return len(found)
