"""What the saver remembers of recently used threads, so that it need not read back.

For each thread: the digest and number of items known to be in its logs, the entries of the
newest checkpoints, and the *epoch* in which all of that was true. Anything that removes items
raises the epoch, a draft that shares remembered items carries the epoch it remembers, and the
store refuses it if that has passed. So this memory may be stale but never wrong, may be dropped
at any time, and is bounded: least recently used threads go first.

Digests are xxh3 (128 bit) under a seed that is drawn per process and never leaves it, because
the function resists accidents, not somebody who can choose both messages and knows the seed.
"""

from __future__ import annotations

import os
import threading
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


class ThreadMemory:
    """One thread's part. Guarded by the lock of the `Memory` it belongs to."""

    __slots__ = ("epoch", "logs", "records", "runs", "size")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.logs: dict[str, dict[bytes, int]] = {}
        self.records: OrderedDict[tuple[str, str], Entries] = OrderedDict()
        self.runs: set[str] = set()
        self.size = 0


class Memory:
    """All threads' parts, least recently used first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._threads: OrderedDict[str, ThreadMemory] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Memory of {len(self._threads)} threads, {self._size:,} of {self.limit:,} bytes>"

    @property
    def size(self) -> int:
        return self._size

    def epoch(self, thread_id: str) -> int | None:
        found = self._threads.get(thread_id)
        return found.epoch if found else None

    def known(self, thread_id: str, log: str) -> Mapping[bytes, int]:
        found = self._threads.get(thread_id)
        return found.logs.get(log, {}) if found else {}

    def entries(self, thread_id: str, ns: str, id: str) -> Entries | None:
        found = self._threads.get(thread_id)
        return found.records.get((ns, id)) if found else None

    def newest(self, thread_id: str, ns: str) -> Entries | None:
        """The entries of the checkpoint of `ns` that was remembered last."""
        with self._lock:
            found = self._threads.get(thread_id)
            for (in_ns, _), entries in reversed(found.records.items()) if found else ():
                if in_ns == ns:
                    return entries
        return None

    def knows_run(self, thread_id: str, run: str) -> bool:
        found = self._threads.get(thread_id)
        return found is not None and run in found.runs

    def forget(self, thread_id: str) -> None:
        with self._lock:
            found = self._threads.pop(thread_id, None)
            if found:
                self._size -= found.size

    def clear(self) -> None:
        with self._lock:
            self._threads.clear()
            self._size = 0

    def learn(
        self,
        thread_id: str,
        epoch: int,
        items: Iterable[tuple[str, Mapping[bytes, int]]] = (),
        record: tuple[str, str, Entries] | None = None,
        run: str | None = None,
    ) -> None:
        """Add what is known to be stored in `epoch`; another epoch than remembered starts anew."""
        if not self.limit:
            return
        with self._lock:
            part = self._threads.get(thread_id)
            if part is None or part.epoch != epoch:
                if part is not None:
                    self._size -= part.size
                part = self._threads[thread_id] = ThreadMemory(epoch)
            self._threads.move_to_end(thread_id)
            before = part.size
            for log, numbers in items:
                known = part.logs.setdefault(log, {})
                held = len(known)
                # Readers look things up without the lock, so the dict grows but never shrinks.
                known.update(numbers)
                part.size += (len(known) - held) * DIGEST_BYTES
            if record is not None:
                ns, id, entries = record
                part.records[ns, id] = entries
                part.records.move_to_end((ns, id))
                part.size += ENTRY_BYTES * (1 + len(entries))
                while len(part.records) > RECORDS:
                    _, old = part.records.popitem(last=False)
                    part.size -= ENTRY_BYTES * (1 + len(old))
            if run is not None:
                part.runs.add(run)
            self._size += part.size - before
            while self._size > self.limit and self._threads:
                _, oldest = self._threads.popitem(last=False)
                self._size -= oldest.size
