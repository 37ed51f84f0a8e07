"""What was last seen of each thread, so that a write needs one round trip and is still safe.

A write that shares items with earlier ones relies on those being stored. Servers that take over
from a failed one, or that start again from an old file, may have lost acknowledged writes; so a
thread carries the tokens of its last writes, and a write says which one it has seen: if that is
not in the thread's past, nothing is written, and the saver loads and tries again.

Towards the rules, `Mark.stamp` plays the epoch: it changes when the thread's epoch does, and when
what was seen of the thread does not fit what was seen before.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from typing import NamedTuple

TOKEN, TOKENS = 6, 32
"""Bytes of a token, and how many a thread keeps; as in `scripts/thread.lua`."""
MOST_HELD = 16
"""Stretches of items that a reader says it has."""
THREADS = 10_000
"""How many threads are remembered."""


def new_token() -> bytes:
    return os.urandom(TOKEN)


def new_epoch() -> int:
    """A number that no epoch of this thread has had or will have."""
    return int.from_bytes(os.urandom(7), "little")


class Seen(NamedTuple):
    """The state of a thread as a server told it."""

    epoch: bytes
    version: int
    tokens: bytes

    def token(self, version: int) -> bytes | None:
        """Which write made that version; None if it is too old to know, or still to come."""
        at = (self.version - version) * TOKEN
        return self.tokens[at : at + TOKEN] or None if at >= 0 else None

    def follows(self, older: Seen) -> bool:
        return self.epoch == older.epoch and self.token(older.version) == older.tokens[:TOKEN]


class HeldRuns:
    """The numbers that a caller has, as runs; counted on from where they were counted last."""

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}
        self._counted = 0
        self._runs: list[int] = []

    def runs(self, held: dict[int, bytes]) -> list[int]:
        """The longest stretches of `held`, to which items are only ever added."""
        if held is not self._held:
            self._held, self._counted, self._runs = held, 0, []
        runs = self._runs.copy()
        try:
            new = list(itertools.islice(held, self._counted, None))
        except RuntimeError:  # somebody adds to it this very moment
            new = []
        for n in new:
            if runs and runs[-2] + runs[-1] == n:
                runs[-1] += 1
            else:
                runs += (n, 1)
        self._counted, self._runs = self._counted + len(new), runs
        if len(runs) <= 2 * MOST_HELD:
            return runs
        longest = sorted(zip(runs[1::2], runs[::2], strict=True), reverse=True)[:MOST_HELD]
        return [n for count, start in longest for n in (start, count)]


class Mark:
    """The last that was seen of a thread, and which number its next item will get."""

    __slots__ = ("flights", "following", "held", "seen", "stamp")

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.stamp = new_epoch()
        self.following = 0
        self.held = HeldRuns()
        self.flights: dict[bytes, tuple[int, bytes]] = {}
        """Items that are on their way: digest, to the number and the token of the write."""


class Marks:
    """The marks of recently used threads."""

    def __init__(self) -> None:
        self._marks: OrderedDict[str, Mark] = OrderedDict()
        self._lock = threading.Lock()
        self.numbering = threading.Lock()
        """Held while the items of a draft get their numbers."""

    def get(self, thread_id: str) -> Mark | None:
        return self._marks.get(thread_id)

    def see(self, thread_id: str, seen: Seen, following: int = 0) -> Mark:
        """Note what a server said. If it does not continue what was seen before, begin anew."""
        with self._lock:
            mark = self._marks.get(thread_id)
            if mark is None or not (seen.follows(mark.seen) or _is_late(seen, mark.seen)):
                mark = self._marks[thread_id] = Mark(seen)
            elif seen.version > mark.seen.version:
                mark.seen = seen
            self._marks.move_to_end(thread_id)
            with self.numbering:
                mark.following = max(mark.following, following)
            while len(self._marks) > THREADS:
                self._marks.popitem(last=False)
        return mark

    def forget(self, thread_id: str) -> None:
        with self._lock:
            self._marks.pop(thread_id, None)

    def after_fork(self) -> None:
        """In a child process: a lock may be held by a thread that does not exist here."""
        self._lock = threading.Lock()
        self.numbering = threading.Lock()
        self._marks.clear()


def _is_late(seen: Seen, newest: Seen) -> bool:
    """An answer that was overtaken by the answer to a later call."""
    if seen.version >= newest.version or seen.epoch != newest.epoch:
        return False
    token = newest.token(seen.version)
    return token is None or token == seen.tokens[:TOKEN]
