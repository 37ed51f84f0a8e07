"""Looking at all of a thread but its items, for the verbs that change more than one write does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from langgraph_durable._core import seal
from langgraph_durable._core.records import CheckpointRow, Listing, WriteRow
from langgraph_durable._core.refs import Ref, Runs
from langgraph_durable._redis import keys, rows
from langgraph_durable._redis.keys import ThreadKeys
from langgraph_durable._redis.marks import Seen
from langgraph_durable._redis.reading import MANY, ask, fetch, fields, steadily
from langgraph_durable._redis.requests import Command
from langgraph_durable._redis.writing import Context, refuse
from langgraph_durable.errors import CorruptionError

Fields = dict[bytes, dict[bytes, bytes]]
"""By the letter of their kind, and the rest of their names."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All of a thread but its items, from one moment (or the script will notice)."""

    seen: Seen
    listing: Listing
    items: set[int]
    runs: frozenset[str]
    writes: Mapping[bytes, list[bytes]]
    """The fields that hold the writes of a place."""
    claims: Mapping[bytes, bytes]
    """By field."""


async def look(context: Context, thread_id: str, *, weigh: bool = False) -> Whole | None:
    """All of a thread but its items; again, if a removal came in between."""

    async def read(mark: object) -> Whole | None:
        try:
            return await _look_once(context, thread_id, weigh)
        except UnicodeDecodeError as error:
            raise seal.damaged(f"thread {thread_id!r}", seal.Damaged(f"a name: {error}")) from error

    return await steadily(context, thread_id, read)


async def _look_once(context: Context, thread_id: str, weigh: bool) -> Whole | None:
    at = context.keys.thread(thread_id)
    state, names = await ask(thread_id, [("HMGET", at.hash, "e", "v", "k"), ("HKEYS", at.hash)])
    if state[0] is None:
        if (await ask(thread_id, [("PTTL", at.places)]))[0] == -1:
            refuse(thread_id, [b"BROKEN"])
        return None
    seen = Seen(state[0], int(state[1]), state[2])
    found = await _read(thread_id, at, names)
    made = [rows.unpack_checkpoint(*keys.unplace(place), row) for place, row in found[b"c"].items()]
    writes, fields_of = await _writes(thread_id, at, seen, found)
    items = {int(name[1:]) for name in names if name[:1] == b"i"}
    listing = Listing(
        thread_id,
        tuple(made),
        tuple(writes),
        {keys.decoded(ns): keys.id_text(id) for ns, id in found[b"h"].items()},
        await _spines(context, thread_id, [*made, *writes]),
        await sizes(context, thread_id, items) if weigh else {},
    )
    runs = frozenset(keys.decoded(name[1:]) for name in names if name[:1] == b"r")
    claims = {b"a" + name: claim for name, claim in found[b"a"].items()}
    return Whole(seen, listing, items, runs, fields_of, claims)


async def _read(thread_id: str, at: ThreadKeys, names: Iterable[bytes]) -> Fields:
    """What the fields hold that rows, heads and claims are made of."""
    wanted: dict[bytes, list[bytes]] = {kind: [] for kind in (b"c", b"h", b"w", b"t", b"a")}
    for name in names:
        if name[:1] in wanted:
            wanted[name[:1]].append(name)
    found: Fields = {}
    for kind, own in wanted.items():
        values = await fields(thread_id, at.hash, own)
        pairs = zip(own, values, strict=True)
        found[kind] = {name[1:]: value for name, value in pairs if value is not None}
    return found


async def _writes(
    thread_id: str, at: ThreadKeys, seen: Seen, found: Fields
) -> tuple[list[WriteRow], dict[bytes, list[bytes]]]:
    """The rows of all tasks that pages list, and the fields that hold them, by place."""
    tasks, named = found[b"t"], dict[bytes, list[rows.Listed]]()
    fields_of: dict[bytes, list[bytes]] = {}
    for name, page in found[b"w"].items():
        place = name.partition(b":")[2]
        named.setdefault(place, []).extend(rows.listed(page))
        fields_of.setdefault(place, []).append(b"w" + name)
    lacks = {d for own in named.values() for packed, d in own if packed is None} - tasks.keys()
    if lacks:
        # What was not there at first is new, unless nobody has written since: then it is lost.
        [version] = await ask(thread_id, [("HGET", at.hash, "v")])
        if version != str(seen.version).encode():
            named = {
                place: [each for each in own if each.digest not in lacks]
                for place, own in named.items()
            }
    made: list[WriteRow] = []
    for place, own in named.items():
        fields_of[place] += [keys.task_field(d) for packed, d in own if packed is None]
        packed = [tasks.get(digest) if inside is None else inside for inside, digest in own]
        made += rows.tasks_or_lost(thread_id, *keys.unplace(place), packed)
    return made, fields_of


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


async def sizes(context: Context, thread_id: str, items: Iterable[int]) -> dict[int, int]:
    at, order = context.keys.thread(thread_id), sorted(items)
    sizes: dict[int, int] = {}
    for start in range(0, len(order), MANY):
        some = order[start : start + MANY]
        commands: list[Command] = [("HSTRLEN", at.hash, keys.item_field(n)) for n in some]
        sizes.update(zip(some, await ask(thread_id, commands), strict=True))
    return sizes
