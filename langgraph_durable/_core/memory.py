"""What the saver remembers of recently used threads, so that it need not read back.

For each thread: the digest and number of items known to be in its logs, the entries of the
newest checkpoints, and the *epoch* in which all of that was true. Anything that removes items
changes the epoch, a draft that shares remembered items carries the epoch it remembers, and the
store refuses it if that has passed. So this memory may be stale but never wrong, may be dropped
at any time, and is bounded: least recently used threads go first.

Digests are xxh3 (128 bit) under a seed that is drawn per process and never leaves it, because
the function resists accidents, not somebody who can choose both messages and knows the seed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from langgraph_durable._core.records import Runs

SEED = int.from_bytes(os.urandom(8), "little")

DIGEST_BYTES = 180
"""What one remembered item costs: a 16-byte key, an int and their share of a dict."""
ENTRY_BYTES = 250
RECORDS = 16
"""Newest checkpoints remembered per thread: enough for a run, its sub-graphs and a fork."""


class Entry(NamedTuple):
    """A channel's value in a checkpoint: its version, its form and its items."""

    version: str | int | float | None
    form: object
    runs: Runs


Entries = Mapping[str, Entry]


class Part:
    """What is known of one thread in one epoch; another epoch is another part.

    Readers look things up without a lock, so nothing in here is taken out again but `records`.
    """

    __slots__ = ("epoch", "logs", "records", "runs", "size")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.logs: dict[str, dict[bytes, int]] = {}
        self.records: OrderedDict[tuple[str, str], Entries] = OrderedDict()
        self.runs: set[str] = set()
        self.size = 0

    def newest(self, ns: str) -> Entries | None:
        """The entries of the checkpoint of `ns` that was remembered last."""
        for (in_ns, _), entries in reversed(list(self.records.items())):
            if in_ns == ns:
                return entries
        return None

    def add(
        self,
        items: Iterable[tuple[str, Mapping[bytes, int]]],
        record: tuple[str, str, Entries] | None,
        run: str | None,
    ) -> None:
        for log, numbers in items:
            known = self.logs.setdefault(log, {})
            held = len(known)
            known.update(numbers)
            self.size += (len(known) - held) * DIGEST_BYTES
        if record is not None:
            ns, id, entries = record
            self.size += ENTRY_BYTES * (len(entries) - len(self.records.get((ns, id), ())))
            self.records[ns, id] = entries
            self.records.move_to_end((ns, id))
            while len(self.records) > RECORDS:
                _, old = self.records.popitem(last=False)
                self.size -= ENTRY_BYTES * len(old)
        if run is not None and run not in self.runs:
            self.runs.add(run)
            self.size += ENTRY_BYTES


class Memory:
    """The parts of all threads, least recently used first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: OrderedDict[str, Part] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        _memories.add(self)

    def __repr__(self) -> str:
        return f"<Memory of {len(self._parts)} threads, {self._size:,} of {self.limit:,} bytes>"

    @property
    def size(self) -> int:
        """Bytes in use, estimated."""
        return self._size

    def part(self, thread_id: str) -> Part | None:
        return self._parts.get(thread_id)

    def forget(self, thread_id: str) -> None:
        with self._lock:
            found = self._parts.pop(thread_id, None)
            if found:
                self._size -= found.size

    def learn(
        self,
        thread_id: str,
        epoch: int,
        items: Iterable[tuple[str, Mapping[bytes, int]]] = (),
        record: tuple[str, str, Entries] | None = None,
        run: str | None = None,
    ) -> Part:
        """Add what is known to be stored in `epoch`; another epoch than remembered starts anew."""
        with self._lock:
            part = self._parts.get(thread_id)
            if part is None or part.epoch != epoch:
                self._size -= part.size if part else 0
                part = self._parts[thread_id] = Part(epoch)
            self._parts.move_to_end(thread_id)
            before = part.size
            part.add(items, record, run)
            self._size += part.size - before
            while self._size > self.limit and self._parts:
                _, oldest = self._parts.popitem(last=False)
                self._size -= oldest.size
        return part

    def after_fork(self) -> None:
        """In a child process: the lock may be held by a thread that does not exist here."""
        self._lock = threading.Lock()


_memories: weakref.WeakSet[Memory] = weakref.WeakSet()


def _after_fork() -> None:
    for memory in list(_memories):
        memory.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
