"""The verbs about artifacts: `stores`, `enter_store`, `claims`, `claims_of`.

All threads are found by a scan, not by the index, which may lag: what is on no page is removed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from langgraph_durable._redis import keys
from langgraph_durable._redis.reading import about, ask, fields
from langgraph_durable._redis.requests import Request
from langgraph_durable._redis.writing import Context

THREADS = 200
"""Threads on a page."""


async def stores(context: Context) -> dict[str, tuple[str, ...]]:
    [found] = await ask(None, [("HGETALL", context.keys.stores)])
    pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
    return {id.decode(): tuple(json.loads(urls)) for id, urls in pairs}


async def enter_store(context: Context, id: str, urls: Sequence[str]) -> None:
    command = "HSET", context.keys.stores, id, json.dumps(list(urls))
    await Request(about(None), [command], writes=True)


async def page(context: Context, after: str | None) -> tuple[list[bytes], str | None]:
    """By the names of the threads; a thread that is there all the time is on one page."""
    [stored] = await Request(about(None), scan=context.keys.pattern)
    names = sorted(
        keys.encoded(thread_id)
        for key in stored
        if (thread_id := context.keys.thread_of(key)) is not None
    )
    last = None if after is None else keys.encoded(after)
    left = [name for name in names if last is None or name > last]
    found: set[bytes] = set()
    for name in left[:THREADS]:
        found.update(claim for _, claim in await of_thread(context, keys.decoded(name)))
    following = keys.decoded(left[THREADS - 1]) if len(left) > THREADS else None
    return list(found), following


async def of_thread(context: Context, thread_id: str) -> list[tuple[int, bytes]]:
    at = context.keys.thread(thread_id)
    [all_names] = await ask(thread_id, [("HKEYS", at.hash)])
    names = [name for name in all_names if name[:1] == b"a"]
    claims = await fields(thread_id, at.hash, names)
    return [
        (keys.claimer(name), claim)
        for name, claim in zip(names, claims, strict=True)
        if claim is not None
    ]
