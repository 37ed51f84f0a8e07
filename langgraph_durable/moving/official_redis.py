"""The store of `langgraph-checkpoint-redis`: JSON documents, read without its search index.

    checkpoint:<thread>:<ns>:<id>                       a checkpoint
    checkpoint_write:<thread>:<ns>:<id>:<task>:<idx>    a pending write
    write_keys_zset:<thread>:<ns>:<id>                  the keys of a checkpoint's writes

Its `list` ends after 10,000 checkpoints. Its `get_tuple` (0.5.2) gives writes out in the order of
their indices, and none if they were stored before their checkpoint: an open question, or a step of
a DeltaChannel. The documents have all of them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from langgraph_durable.moving.colours import LATER, Colour
from langgraph_durable.moving.sources import Place, Rows, Source, Writing

NO_ID, NO_TEXT = "00000000-0000-0000-0000-000000000000", "__empty__"
"""Its search index cannot find empty text."""
TOGETHER = 256
"""Documents that are asked for at once."""
_KEY = ("$.thread_id", "$.checkpoint_ns", "$.checkpoint_id", "$.parent_checkpoint_id")


async def _call(colour: Colour, call: Callable[..., Any], *args: Any) -> Any:
    """A method of a client of either colour."""
    if inspect.iscoroutinefunction(call):
        return await call(*args)
    found = await colour.aside(call, *args)
    return await found if inspect.isawaitable(found) else found


def _is_known(colour: Colour, saver: Any) -> bool:
    """Whether the client is a plain one that can be used in this colour."""
    client = type(saver._redis)
    is_async = client.__module__.startswith("redis.asyncio")
    return client.__name__ == "Redis" and (colour is LATER or not is_async)


async def _documents(
    colour: Colour, saver: Any, keys: Sequence[Any], *paths: str
) -> list[dict[str, Any]]:
    """Documents, or parts of them, in the order of their keys; those that are gone are left out."""
    found = []
    for begin in range(0, len(keys), TOGETHER):
        pipeline = saver._redis.pipeline(transaction=False)
        for key in keys[begin : begin + TOGETHER]:
            pipeline.execute_command("JSON.GET", key, *paths)
        answers = await _call(colour, pipeline.execute)
        found += [_document(answer) for answer in answers if answer]
    return found


def _document(answer: Any) -> dict[str, Any]:
    """Clients parse JSON themselves once their `json()` was called."""
    found: dict[str, Any] = answer if isinstance(answer, dict) else json.loads(answer)
    return found


async def _rows(colour: Colour, saver: Any, pattern: str) -> Rows | None:
    """Thread, namespace, id and parent of the checkpoints whose keys are like this."""
    if not _is_known(colour, saver):
        return None
    keys: set[Any] = set()
    cursor: Any = None
    while cursor != 0:
        cursor, some = await _call(colour, saver._redis.scan, cursor or 0, pattern, 1000)
        keys.update(some)
    rows: Rows = []
    for document in await _documents(colour, saver, list(keys), *_KEY):
        thread_id, ns, id, parent = (document[path][0] for path in _KEY)
        above = None if parent in (None, "", "None", NO_ID) else parent
        rows.append((thread_id, "" if ns == NO_TEXT else ns, id, above))
    return rows


async def _threads(colour: Colour, saver: Any) -> Rows | None:
    rows = await _rows(colour, saver, f"{saver._checkpoint_prefix}:*")
    return None if rows is None else [row[:1] for row in rows]


async def _keys(colour: Colour, saver: Any, thread_id: str) -> Rows | None:
    escaped = "".join(f"\\{c}" if c in "*?[]^\\" else c for c in thread_id)
    rows = await _rows(colour, saver, f"{saver._checkpoint_prefix}:{escaped}:*")
    return None if rows is None else [row[1:] for row in rows if row[0] == thread_id]


async def _writes(colour: Colour, saver: Any, place: Place) -> list[Writing] | None:
    registry = saver._key_registry
    if registry is None or not _is_known(colour, saver):
        return None
    keys = await _call(
        colour, saver._redis.zrange, registry.make_write_keys_zset_key(*place), 0, -1
    )
    found = []
    for document in await _documents(colour, saver, keys):
        task_id, idx = document["task_id"], document["idx"]
        (write,) = saver._load_writes(saver.serde, {(task_id, idx): document})
        found.append(Writing(document.get("task_path") or "", task_id, idx, None, write))
    return found


OFFICIAL_REDIS = Source(_threads, _keys, _writes)
