"""An exhaustive scan of a store for what points at nothing, and for what nothing points at.

It asks the port for all rows of each thread, and the tables or keys for what belongs to no thread.
What is stored must also be readable; that is for the caller to see.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import redis

from langgraph_durable._core.lineage import read_row
from langgraph_durable._core.records import Listing
from langgraph_durable._core.refs import merged, stretches, unpack_refs
from langgraph_durable._redis import rows
from langgraph_durable._redis.keys import ThreadKeys
from langgraph_durable.saver import DurableSaver


def faults(saver: DurableSaver, place: Path | redis.Redis) -> list[str]:
    """What is wrong in the store of this saver, which is a file, or on the server of this client.

    Between prunes there may be items that nothing points at: those of what was stored again.
    """
    found: list[str] = []
    threads = list(saver.stats().threads)
    for thread_id in threads:
        listing = saver._backend.finish(saver._engine.storage.survey(thread_id, weigh=True))
        found += (f"{thread_id}: {fault}" for fault in _faults(listing))
    if isinstance(place, Path):
        return [*found, *_in_file(place)]
    keys = saver._engine.storage.context.keys  # type: ignore[attr-defined]
    return [*found, *_on_server(place, {t: keys.thread(t) for t in threads})]


def _faults(listing: Listing) -> Iterator[str]:
    kept = {(row.ns, row.id): row for row in listing.rows}
    refs = [ref for row in (*listing.rows, *listing.writes) for ref in unpack_refs(row.refs)]
    held: set[int] = set()
    for first, last in merged(stretches(refs, listing.spines)):
        held.update(range(first, last + 1))
    stored = listing.sizes.keys()
    if dangling := held - stored:
        yield f"items {sorted(dangling)} are missing"
    if left := stored - held:
        yield f"items {sorted(left)} belong to nothing"
    for place in listing.heads.items():
        if place not in kept:
            yield f"the head {place} is missing"
    for place, row in kept.items():
        if read_row(listing.thread_id, row).linked and (row.ns, row.parent) not in kept:
            yield f"the parent of {place} is missing"
        if row.ns not in listing.heads:
            yield f"the namespace of {place} has no head"


def _in_file(path: Path) -> Iterator[str]:
    owner = dict.fromkeys(("checkpoints", "writes", "tallies", "runs", "heads"), "tid")
    owner |= dict.fromkeys(("items", "claims"), "key >> 32")
    with sqlite3.connect(path) as conn:
        for table, tid in owner.items():
            rows = f"lgd_{table} WHERE {tid} NOT IN (SELECT tid FROM lgd_threads)"
            if count := conn.execute(f"SELECT count(*) FROM {rows}").fetchone()[0]:
                yield f"{count} rows of lgd_{table} belong to no thread"
        tallies = "SELECT tid, ns, id, count FROM lgd_tallies ORDER BY 1, 2, 3"
        writes = "SELECT tid, ns, id, count(*) FROM lgd_writes GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        if conn.execute(tallies).fetchall() != conn.execute(writes).fetchall():
            yield "the tallies of writes are wrong"
        if conn.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            yield "the file is damaged"


def _on_server(client: redis.Redis, threads: Mapping[str, ThreadKeys]) -> Iterator[str]:
    for thread_id, at in threads.items():
        fields: Any = client.hgetall(at.hash)
        tasks = {name[1:] for name in fields if name[:1] == b"t"}
        pages = [value for name, value in fields.items() if name[:1] == b"w"]
        listed = [each for page in pages for each in rows.unpack_page(page)]
        apart = {each.digest for each in listed if each.rows is None}
        if tasks != apart:
            yield f"{thread_id}: tasks {tasks ^ apart} are not both there and listed"
        places: Any = client.zrange(at.places, 0, -1)
        if set(places) != {name[1:] for name in fields if name[:1] == b"c"}:
            yield f"{thread_id}: its index of checkpoints is wrong"
