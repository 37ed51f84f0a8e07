"""The verbs that copy: `copy`, `dump`, `restore`, `replace`."""

from __future__ import annotations

from langgraph_durable._core.dumps import Dump, exists_already, taken
from langgraph_durable._redis import keys, rows
from langgraph_durable._redis.looking import look
from langgraph_durable._redis.marks import Seen
from langgraph_durable._redis.reading import ask, fields, patiently
from langgraph_durable._redis.removing import apply, chunked, writes_words
from langgraph_durable._redis.requests import Command, Word
from langgraph_durable._redis.writing import Context, announcements
from langgraph_durable.errors import ThreadBusy


async def copy(context: Context, source: str, target: str) -> bool:
    """Copy a thread, sealing everything anew for its new place."""
    found = await dump(context, source)
    if found is None:
        return False
    if not await restore(context, found.renamed(target)):
        raise exists_already(target)
    return True


async def dump(context: Context, thread_id: str) -> Dump | None:
    at = context.keys.thread(thread_id)
    for _ in patiently():
        whole = await look(context, thread_id)
        if whole is None:
            return None
        numbers = sorted(whole.items)
        blobs = await fields(thread_id, at.hash, list(map(keys.item_field, numbers)))
        now = (await ask(thread_id, [("HMGET", at.hash, "e", "v")]))[0]
        if now == [whole.seen.epoch, str(whole.seen.version).encode()]:
            items = {n: blob or b"" for n, blob in zip(numbers, blobs, strict=True)}
            claims = ((keys.claimer(field), claim) for field, claim in whole.claims.items())
            return taken(whole.listing, items, claims)
    raise ThreadBusy(f"thread {thread_id!r}: others wrote to it all the time while it was copied")


async def restore(context: Context, new: Dump) -> bool:
    index = list(announcements(context, new.thread_id, new.runs))
    return bool(await apply(context, new.thread_id, None, _as_new(new), index))


async def replace(context: Context, new: Dump) -> None:
    index = list(announcements(context, new.thread_id, new.runs))
    clear: list[Command] = [("DEL", "H"), ("DEL", "X")]
    for _ in patiently():
        state = await ask(new.thread_id, [_state_of(context, new.thread_id)])
        seen = Seen(state[0][0], int(state[0][1]), state[0][2]) if state[0][0] else None
        commands = [*(clear if seen else ()), *_as_new(new)]
        if await apply(context, new.thread_id, seen, commands, index):
            return
    raise ThreadBusy(f"thread {new.thread_id!r}: others wrote to it all the time")


def _state_of(context: Context, thread_id: str) -> Command:
    return ("HMGET", context.keys.thread(thread_id).hash, "e", "v", "k")


def _as_new(new: Dump) -> list[Command]:
    """The commands that make a thread."""
    words: list[Word] = ["q", len(new.rows), *writes_words(new.sealed_writes())]
    words += ("n", max(new.items, default=-1) + 1)
    for n, blob in new.sealed_items():
        words += (keys.item_field(n), blob)
    places: list[Word] = []
    for row in new.sealed_rows():
        place = keys.place(row.ns, row.id)
        words += (keys.checkpoint_field(place), rows.pack_checkpoint(row))
        places += (0, place)
    for ns, id in new.heads.items():
        words += (keys.head_field(ns), keys.id_bytes(id))
    for run in new.runs:
        words += (keys.run_field(run), b"")
    for k, (n, claim) in enumerate(new.claims):
        words += (keys.claim_field(n, k), claim)
    return [*chunked("HSET", "H", words, 2), *chunked("ZADD", "X", places, 2)]
