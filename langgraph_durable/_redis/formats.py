"""The storage format of what is under a prefix: one key that says its number.

It is looked at once, by the first call of a saver, and set by the first one that writes. Redis has
no transaction over all threads: a migration goes through them one by one, each in one script that
does nothing where it was done before, and the number is raised at the end. Killed half way, it
begins again with the next saver; several at once do no harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from langgraph_durable._redis.requests import Command, Request
from langgraph_durable._redis.writing import Context
from langgraph_durable.errors import NotAStore, StorageReadOnly, StorageTooNew

FORMAT = 1
"""The storage format this version writes; a store with a higher one is refused."""
OLDEST = 1
"""The oldest format that can be read as it is, where nothing may be written."""

_ABOUT = "the storage format"

MIGRATIONS: dict[int, Callable[[Context], Awaitable[object]]] = {}
"""What makes the threads of the format before those of this format; twice does no harm."""


class Format:
    """What is known of the format of one store."""

    __slots__ = ("_context", "_is_marked", "_is_read")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_read = self._is_marked = False

    async def check(self, *, writes: bool = False) -> None:
        """Before anything else: make sure that this version understands the store."""
        if self._is_marked or (self._is_read and not writes):
            return
        key = self._context.keys.format
        [found] = await Request(_ABOUT, [("GET", key)])
        if found is None and writes:
            commands: list[Command] = [("SET", key, FORMAT, "NX"), ("GET", key)]
            _, found = await Request(_ABOUT, commands, writes=True)
        if found is not None:
            await self._understand(found)
        self._is_read, self._is_marked = True, found is not None

    async def _understand(self, found: bytes) -> None:
        key = self._context.keys.format
        if not found.isdigit():
            raise NotAStore(f"{key!r} is {found!r}, and not the number of a storage format")
        stored = int(found)
        if stored > FORMAT:
            raise StorageTooNew(
                f"what is stored under {self._context.keys.prefix!r} has format {stored}, and this "
                f"version of langgraph_durable reads format {FORMAT}: upgrade the package (nothing "
                "was changed)"
            )
        try:
            for number in range(stored + 1, FORMAT + 1):
                await MIGRATIONS[number](self._context)
                await Request(_ABOUT, [("SET", key, number)], writes=True)
        except StorageReadOnly:
            if stored < OLDEST:
                raise
