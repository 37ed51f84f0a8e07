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

from langgraph_durable._core.records import Finals, Ref, Stored, settled

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
    ref: Ref


Entries = Mapping[str, Entry]


class Record(NamedTuple):
    """A checkpoint as it is remembered: the version of each channel, and which have a value."""

    versions: Mapping[str, str | int | float]
    entries: Entries


class Part:
    """What is known of one thread in one epoch; another epoch is another part.

    Readers look things up without a lock, so nothing in here is taken out again but `records`.
    """

    __slots__ = ("epoch", "logs", "records", "runs", "size", "void")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.logs: dict[str, dict[bytes, int]] = {}
        self.records: OrderedDict[tuple[str, str], Record] = OrderedDict()
        self.runs: set[str] = set()
        self.size = 0
        self.void = False
        """Something in here was undone: a draft made from this part must be made anew."""

    def newest(self, ns: str) -> Record | None:
        """The checkpoint of `ns` that was remembered last."""
        for (in_ns, _), record in reversed(list(self.records.items())):
            if in_ns == ns:
                return record
        return None

    def add(
        self,
        items: Iterable[tuple[str, Mapping[bytes, int]]],
        record: tuple[str, str, Record] | None,
        run: str | None,
    ) -> None:
        for log, numbers in items:
            known = self.logs.setdefault(log, {})
            held = len(known)
            known.update(numbers)
            self.size += (len(known) - held) * DIGEST_BYTES
        if record is not None:
            ns, id, new = record
            replaced = self.records.pop((ns, id), None)
            self.records[ns, id] = new
            old = self.records.popitem(last=False)[1] if len(self.records) > RECORDS else None
            for gone in (replaced, old):
                self.size -= ENTRY_BYTES * len(gone.versions) if gone else 0
            self.size += ENTRY_BYTES * len(new.versions)
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

    def forget(self, thread_id: str, *, void: bool = False) -> None:
        """Drop what is known of a thread; `void` if it may not have been true."""
        with self._lock:
            found = self._parts.pop(thread_id, None)
            if found:
                self._size -= found.size
                found.void = found.void or void

    def learn(
        self,
        thread_id: str,
        epoch: int,
        items: Iterable[tuple[str, Mapping[bytes, int]]] = (),
        record: tuple[str, str, Record] | None = None,
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


class Pledge:
    """What a draft was made from, and what will be known once it is stored.

    Stores speak to it (as `records.Recollection`) inside the transaction, one draft after another,
    so that a draft sees what the one before it has stored, be it in the same commit. If the commit
    fails, what was learned is void, and so is every draft that was made from it meanwhile.
    """

    __slots__ = ("_items", "_memory", "_part", "_record", "_run", "_thread_id")

    def __init__(
        self,
        memory: Memory,
        thread_id: str,
        part: Part | None,
        items: Mapping[str, Mapping[bytes, bytes]],
        record: tuple[str, str, Record] | None,
        run: str | None,
    ) -> None:
        self._memory, self._thread_id, self._part = memory, thread_id, part
        self._items, self._record, self._run = items, record, run

    def is_void(self) -> bool:
        return self._part is not None and self._part.void

    def known(self, epoch: int, log: str) -> Mapping[bytes, int]:
        part = self._memory.part(self._thread_id)
        return part.logs.get(log, {}) if part is not None and part.epoch == epoch else {}

    def keep(self, stored: Stored) -> None:
        if not self._memory.limit:
            return
        finals: Finals = stored.finals
        record = self._record
        if record is not None:
            ns, id, (versions, entries) = record
            entries = {
                channel: entry._replace(ref=settled(entry.ref, finals))
                for channel, entry in entries.items()
            }
            record = ns, id, Record(versions, entries)
        items = [
            (log, dict(zip(self._items[log], final, strict=True))) for log, final in finals.items()
        ]
        self._memory.learn(self._thread_id, stored.epoch, items, record, self._run)

    def drop(self) -> None:
        self._memory.forget(self._thread_id, void=True)


_memories: weakref.WeakSet[Memory] = weakref.WeakSet()


def _after_fork() -> None:
    for memory in list(_memories):
        memory.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
