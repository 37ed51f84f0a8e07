"""A whole thread, free of the place where it is stored: what is copied, archived and moved.

A store makes a `Dump` of a thread in one moment, and makes a thread of a dump in one step. Seals
bind bytes to their place, so a dump holds everything without them: `taken` opens what a store
holds and so verifies all of it, `sealed_*` close it again for the thread that it goes to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from langgraph_durable._core import seal
from langgraph_durable._core.records import CheckpointRow, Items, Listing, WriteRow
from langgraph_durable.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Dump:
    """One thread."""

    thread_id: str
    rows: tuple[CheckpointRow, ...]
    writes: tuple[WriteRow, ...]
    heads: Mapping[str, str]
    items: Mapping[int, bytes]
    """Payloads by number: packed, not sealed."""
    claims: tuple[tuple[int, bytes], ...] = ()
    """What items claim in artifact stores, by number."""

    def renamed(self, thread_id: str) -> Dump:
        return replace(self, thread_id=thread_id)

    @property
    def runs(self) -> set[str]:
        """The runs that wrote to it."""
        named = {row.run for row in self.rows} | {row.run for row in self.writes}
        return {run for run in named if run is not None}

    def sealed_rows(self) -> Iterator[CheckpointRow]:
        return (row.sealed(self.thread_id) for row in self.rows)

    def sealed_writes(self) -> Iterator[WriteRow]:
        return (row.sealed(self.thread_id) for row in self.writes)

    def sealed_items(self) -> Iterator[tuple[int, bytes]]:
        seed = seal.log_seed(self.thread_id)
        return ((n, seal.seal_item(seed, n, payload)) for n, payload in self.items.items())


def taken(listing: Listing, items: Items, claims: Iterable[tuple[int, bytes]] = ()) -> Dump:
    """The dump of a listing and all its items; what does not fit its place is corrupt."""
    thread_id = listing.thread_id
    seed = seal.log_seed(thread_id)
    where = ""
    rows: list[CheckpointRow] = []
    writes: list[WriteRow] = []
    opened = {}
    try:
        for row in listing.rows:
            where = f"checkpoint {row.id}"
            rows.append(row.bare(thread_id))
        for write in listing.writes:
            where = f"checkpoint {write.id}, its pending writes"
            writes.append(write.bare(thread_id))
        for n, blob in sorted(items.items()):
            where = f"item {n}"
            opened[n] = seal.open_item(seed, n, blob)
    except seal.Damaged as error:
        raise seal.damaged(f"thread {thread_id!r}, {where}", error) from error
    rows.sort(key=lambda row: (row.id, row.ns))
    writes.sort(key=lambda row: (row.id, row.ns, row.task_id, row.idx))
    records = tuple(rows), tuple(writes), dict(listing.heads)
    return Dump(thread_id, *records, opened, tuple(sorted(claims)))


def unpacked(dump: Dump) -> Dump:
    """The same dump with everything inflated, as an archive holds it; raises `Damaged`.

    An item that is a claim is marked, because nothing tells its bytes from those of a value.
    """
    return _mapped(dump, seal.unpack, _unpacked_item)


def packed(dump: Dump) -> Dump:
    """The inverse of `unpacked`."""
    return _mapped(dump, seal.pack, _packed_item)


def _unpacked_item(payload: bytes) -> bytes:
    if payload[:1] == seal.CLAIM:
        return seal.CLAIM_MARK + payload[1:]
    return seal.unpack(payload)


def _packed_item(raw: bytes) -> bytes:
    return seal.CLAIM + raw[1:] if raw[:1] == seal.CLAIM_MARK else seal.pack(raw)


def _mapped(
    dump: Dump, change: Callable[[bytes], bytes], change_item: Callable[[bytes], bytes]
) -> Dump:
    return replace(
        dump,
        rows=tuple(row._replace(body=change(row.body)) for row in dump.rows),
        writes=tuple(row._replace(body=change(row.body)) for row in dump.writes),
        items={n: change_item(payload) for n, payload in dump.items.items()},
    )


def tallies(writes: Iterable[WriteRow]) -> dict[tuple[str, str], int]:
    """How many rows of writes each checkpoint has."""
    counts: dict[tuple[str, str], int] = {}
    for row in writes:
        counts[row.ns, row.id] = counts.get((row.ns, row.id), 0) + 1
    return counts


def exists_already(thread_id: str) -> ConfigurationError:
    return ConfigurationError(
        f"thread {thread_id!r} exists already: delete it first, or copy to another id"
    )
