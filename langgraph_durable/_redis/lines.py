"""Connections to one server, used past the client, which has much to count and to look after.

`Lines.send` is what a carrier needs: commands in, replies out, one round trip.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis import exceptions as theirs

from langgraph_durable._redis.requests import Command, Reply

KEPT = 16
"""Connections of our own client that are kept at hand, past its pool."""
FRESH = 1.0
"""Seconds without use after which a connection may have been cut: then the pool looks at it."""

MOST_WORDS = 1000
"""Words packed in one piece: 0.3 ms of 500 messages, and no other thread runs meanwhile."""

_packed: Callable[[Any], bytes] = hiredis.pack_command


class Lines:
    """Connections to one server, at hand for the next call.

    A pool looks at each connection before it hands it out, and counts: half of the time of a small
    call. One that was used a moment ago is as good as looked at, and calls may be repeated. The
    pool of a user's own client keeps its connections: it may have few, and others may wait.
    """

    def __init__(self, pool: Any, *, keeps: bool) -> None:
        self.pool = pool
        self._kept: deque[tuple[Any, float]] = deque()
        self._most = KEPT if keeps else 0

    def send(self, commands: Sequence[Command]) -> list[Reply]:
        """All commands on one connection, in one round trip; errors are replies."""
        connection = self._take()
        try:
            # Not `pack_commands` of the connection, which looks at every word twice: 10 us.
            connection.send_packed_command(_pieces(commands))
            replies = [read_reply(connection) for _ in commands]
        except BaseException:
            connection.disconnect()  # what comes next on it would be the answer to this
            self.pool.release(connection)
            self.let_go()  # the others are likely to be cut too
            raise
        if len(self._kept) < self._most:
            self._kept.append((connection, time.monotonic()))
        else:
            self.pool.release(connection)
        return replies

    def _take(self) -> Any:
        try:
            connection, used = self._kept.pop()
        except IndexError:
            return self.pool.get_connection()
        if time.monotonic() - used < FRESH:
            return connection
        self.pool.release(connection)
        self.let_go()
        return self.pool.get_connection()

    def let_go(self) -> None:
        """Give everything back to the pool."""
        while self._kept:
            try:
                connection, _ = self._kept.pop()
            except IndexError:  # somebody else has taken the last one
                return
            self.pool.release(connection)


def _pieces(commands: Sequence[Command]) -> list[bytes]:
    """Commands as they are sent: in one piece, but for long ones."""
    if max(map(len, commands), default=0) <= MOST_WORDS:
        return [b"".join(map(_packed, commands))]
    pieces: list[bytes] = []
    for command in commands:
        pieces.append(b"*%d\r\n" % len(command))
        for at in range(0, len(command), MOST_WORDS):
            packed = _packed(tuple(command[at : at + MOST_WORDS]))
            pieces.append(packed[packed.index(b"\n") + 1 :])
    return pieces


def read_reply(connection: Any) -> Reply:
    """The next reply on a connection; an error of the server is one."""
    try:
        return connection.read_response()
    except theirs.ResponseError as error:
        return error
