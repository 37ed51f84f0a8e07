"""What a verb asks of a server, and how it is handed over.

A verb is a coroutine that awaits a `Request`; whoever runs the coroutine (`driver`) carries the
request out and sends the replies back in. Nothing above the driver knows whether the caller is
sync or async, or whether one server answers or a cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from langgraph_durable._redis.keys import ThreadKeys

Word = bytes | str | int
Command = Sequence[Word]
Reply = Any


@cache
def source(script: str) -> str:
    """The text of a script."""
    folder = resources.files("langgraph_durable._redis") / "scripts"
    parts = (folder / "thread.lua", folder / f"{script}.lua")
    return "\n".join(part.read_text("utf-8") for part in parts)


@cache
def digest(script: str) -> str:
    """The name under which a server remembers a script."""
    return hashlib.sha1(source(script).encode(), usedforsecurity=False).hexdigest()


class Call(NamedTuple):
    """A script, or its twin in `plain`, on the keys of one thread."""

    script: str
    keys: ThreadKeys
    args: Sequence[Word]

    def command(self, *, spelled: bool = False) -> Command:
        """As a command: by digest, or spelled out for a server that does not know it."""
        how = ("EVAL", source(self.script)) if spelled else ("EVALSHA", digest(self.script))
        return (*how, len(self.keys), *self.keys, *self.args)


class Request:
    """A script, or commands on the keys of one thread, or a search for keys on all nodes.

    `index` commands may be about any key; they are carried out first, and twice does no harm.
    What is asked for `once` can as well be done another day: nobody waits until it succeeds.
    """

    __slots__ = ("about", "call", "commands", "index", "once", "scan", "writes")

    def __init__(
        self,
        about: str,
        commands: Sequence[Command] = (),
        *,
        call: Call | None = None,
        index: Sequence[Command] = (),
        scan: bytes | None = None,
        writes: bool = False,
        once: bool = False,
    ) -> None:
        self.about, self.commands, self.call = about, commands, call
        self.index, self.scan, self.writes, self.once = index, scan, writes, once

    def __await__(self) -> Generator[Request, list[Reply], list[Reply]]:
        return (yield self)
