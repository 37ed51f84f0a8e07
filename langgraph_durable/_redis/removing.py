"""The verbs that remove: `edit`, `trim`, `drop`; a life's end, and the index.

`edit` looks at a whole thread, decides here, and sends all changes in one script that does nothing
if the thread has changed since; then it looks again. `copying` does the same. `trim` goes on with
what is left of the thread after its own last step, and leaves looking again to the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from langgraph_durable._core import seal
from langgraph_durable._core.records import (
    CheckpointRow,
    Edit,
    Listing,
    Measured,
    Removed,
    Watched,
    WriteRow,
)
from langgraph_durable._core.retention import id_at
from langgraph_durable._core.shortening import Step
from langgraph_durable._redis import keys, rows
from langgraph_durable._redis.listing import threads, tidy
from langgraph_durable._redis.looking import Whole, look, sizes
from langgraph_durable._redis.marks import Seen, new_epoch, new_token
from langgraph_durable._redis.reading import MANY, about, ask, patiently
from langgraph_durable._redis.requests import Call, Command, Request, Word
from langgraph_durable._redis.writing import Context, announcements, refuse
from langgraph_durable.errors import StorageFull, ThreadBusy

TOMB = 7 * 86_400_000
"""Milliseconds for which late writes of a deleted thread are told apart."""


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
        if await _carry_out(context, thread_id, left):
            return removed
    raise ThreadBusy(
        f"thread {thread_id!r}: others wrote to it all the time while parts of it were to be "
        "removed. Nothing is half removed; try again."
    )


async def trim(context: Context, watched: Watched, step: Step) -> tuple[Removed, Watched] | None:
    if not step.drop:
        return Removed(), watched
    whole: Whole = watched.since
    left = Left(whole, step)
    thread_id = whole.listing.thread_id
    removed = await _weighed(context, thread_id, left)
    if not (seen := await _carry_out(context, thread_id, left)):
        return None
    return removed, Watched(watched.listing, left.whole_now(seen))


async def watch(context: Context, thread_id: str, weigh: bool) -> Watched | None:
    whole = await look(context, thread_id, weigh=weigh)
    return None if whole is None else Watched(whole.listing, whole)


async def _carry_out(context: Context, thread_id: str, left: Left) -> Seen | None:
    """Do it if the thread is still as it was; then, how it is seen now."""
    before = context.marks.get(thread_id)
    seen = await apply(context, thread_id, left.whole.seen, left.commands())
    if seen is None:
        return None
    if before is not None and left.whole.seen.follows(before.seen):
        after = context.marks.see(thread_id, seen, before.following)
        left.plan.epochs = before.stamp, after.stamp
    await _unannounce(context, thread_id, left.gone_runs)
    return seen


async def _weighed(context: Context, thread_id: str, left: Left) -> Removed:
    """What an edit removes."""
    gone: list[CheckpointRow | WriteRow] = [*left.gone_rows, *left.gone_writes]
    found = await sizes(context, thread_id, left.gone_items)
    size = sum(len(row.refs) + len(row.body) for row in gone) + sum(found.values())
    counts = len(left.gone_rows), len(left.gone_writes), len(left.gone_items)
    return Removed(*counts, size, len(left.gone_claims))


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
        self.rows: list[CheckpointRow] = []
        self.gone_rows: list[CheckpointRow] = []
        for row in whole.listing.rows:
            place = row.ns, row.id
            if place in plan.drop:
                self.gone_rows.append(row)
            else:
                self.rows.append(replaced.get(place, row))
        self.writes: list[WriteRow] = []
        self.gone_writes: list[WriteRow] = []
        for write in whole.listing.writes:
            goes = (write.ns, write.id) in plan.drop or (taken_back and write in taken_back)
            (self.gone_writes if goes else self.writes).append(write)
        self.rows += plan.add
        self.writes += plan.add_writes
        stay = {row.run for row in self.rows} | {write.run for write in self.writes}
        self.gone_runs = [run for run in whole.runs if run not in stay]
        self.gone_items = {n for n in whole.items if not plan.stays(n)}
        self.gone_claims = [f for f in whole.claims if not plan.stays(keys.claimer(f))]

    def whole_now(self, seen: Seen) -> Whole:
        """The thread as an edit that adds nothing has left it."""
        old, rows, writes = self.whole, tuple(self.rows), tuple(self.writes)
        moved = {ns: head for ns, head in {**old.listing.heads, **self.plan.heads}.items() if head}
        listing = replace(old.listing, rows=rows, writes=writes, heads=moved)
        gone = set(self.gone_claims)
        claims = {f: claim for f, claim in old.claims.items() if f not in gone}
        runs = old.runs.difference(self.gone_runs)
        return Whole(seen, listing, old.items - self.gone_items, runs, old.writes, claims)

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
        gone += map(keys.item_field, self.gone_items)
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
