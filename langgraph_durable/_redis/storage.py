"""The storage port on Redis: each verb is a coroutine that awaits requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langgraph_durable._core.dumps import Dump
from langgraph_durable._core.lineage import Chain
from langgraph_durable._core.records import (
    CheckpointDraft,
    Cursor,
    Edit,
    Held,
    Listing,
    Loaded,
    Measured,
    Page,
    Removed,
    Selection,
    Stored,
    Watched,
    WritesDraft,
)
from langgraph_durable._core.shortening import Step
from langgraph_durable._redis import claims, copying, listing, reading, removing, writing
from langgraph_durable._redis.formats import Format
from langgraph_durable._redis.rows import Accept
from langgraph_durable._redis.writing import Context


class RedisStorage:
    """`_core.storage.Storage` as requests."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._format = Format(context)

    async def load(self, thread_id: str, ns: str, id: str | None, held: Held) -> Loaded | None:
        await self._format.check()
        return await reading.load(self.context, thread_id, ns, id, held)

    async def page(
        self,
        selection: Selection,
        after: Cursor | None,
        size: int,
        accept: Accept,
        *,
        items: bool = True,
    ) -> Page:
        await self._format.check()
        wish = listing.Wish(selection, after, size, accept, items)
        return await listing.page(self.context, wish)

    async def chain(
        self, thread_id: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> Chain | None:
        await self._format.check()
        return await reading.chain(self.context, thread_id, ns, id, channels)

    async def put(self, draft: CheckpointDraft) -> Stored:
        await self._format.check(writes=True)
        return await writing.put(self.context, draft)

    async def put_writes(self, draft: WritesDraft) -> Stored:
        await self._format.check(writes=True)
        return await writing.put_writes(self.context, draft)

    async def edit(
        self, thread_id: str, decide: Callable[[Listing], Edit | None], *, weigh: bool = False
    ) -> Removed | None:
        await self._format.check(writes=True)
        return await removing.edit(self.context, thread_id, decide, weigh)

    async def watch(self, thread_id: str, *, weigh: bool = False) -> Watched | None:
        await self._format.check(writes=True)
        return await removing.watch(self.context, thread_id, weigh)

    async def trim(
        self, watched: Watched, step: Step, *, last: bool
    ) -> tuple[Removed, Watched] | None:
        await self._format.check(writes=True)
        return await removing.trim(self.context, watched, step)

    async def drop(self, thread_id: str) -> Removed | None:
        await self._format.check(writes=True)
        return await removing.drop(self.context, thread_id)

    async def survey(self, thread_id: str, *, weigh: bool = False) -> Listing | None:
        await self._format.check()
        return await removing.survey(self.context, thread_id, weigh)

    async def threads(self, after: str | None, size: int) -> list[str]:
        await self._format.check()
        return await removing.threads_after(self.context, after, size)

    async def count(self, thread_id: str, most: int) -> int:
        return min(most, await removing.count(self.context, thread_id))

    async def measure(self, thread_id: str) -> Measured | None:
        await self._format.check()
        return await removing.measure(self.context, thread_id)

    async def reclaim(self) -> int:
        """Nothing is left to do: a server frees what is removed by itself."""
        return 0

    async def stores(self) -> dict[str, tuple[str, ...]]:
        return await claims.stores(self.context)

    async def enter_store(self, id: str, urls: Sequence[str]) -> None:
        await claims.enter_store(self.context, id, urls)

    async def claims(self, after: str | None) -> tuple[list[bytes], str | None]:
        return await claims.page(self.context, after)

    async def claims_of(self, thread_id: str) -> list[tuple[int, bytes]]:
        return await claims.of_thread(self.context, thread_id)

    async def copy(self, source: str, target: str) -> bool:
        await self._format.check(writes=True)
        return await copying.copy(self.context, source, target)

    async def dump(self, thread_id: str) -> Dump | None:
        return await copying.dump(self.context, thread_id)

    async def restore(self, dump: Dump) -> bool:
        return await copying.restore(self.context, dump)

    async def replace(self, dump: Dump) -> None:
        await copying.replace(self.context, dump)

    async def threads_of(self, runs: Sequence[str]) -> list[str]:
        await self._format.check()
        return await listing.threads_of(self.context, runs)

    async def forget_runs(self, runs: Sequence[str]) -> None:
        await self._format.check(writes=True)
        await removing.forget_runs(self.context, runs)

    # ---- what only Redis has -----------------------------------------------------------------

    async def expire(self, thread_id: str, milliseconds: int) -> bool:
        await self._format.check(writes=True)
        return await removing.expire(self.context, thread_id, milliseconds)

    async def reindex(self) -> int:
        await self._format.check(writes=True)
        return await removing.reindex(self.context)
