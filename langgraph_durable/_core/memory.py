"""What the saver remembers of recently used threads, so that it need not read back.

For each thread: the digest, number and bytes of items known to be stored, the entries of the
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
from typing import Any, NamedTuple

from langgraph_durable._core.records import Edit, Stored
from langgraph_durable._core.refs import Ref, Runs, numbers, settled

SEED = int.from_bytes(os.urandom(8), "little")

DIGEST_BYTES = 200
"""What one remembered item costs: a 16-byte key, an int, their share of a dict and of a chunk."""
ENTRY_BYTES = 250
MOST_CHUNKS = 64
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
    capsules: Mapping[str, Any] = {}
    """What is kept of ancestors that are gone; see `lineage`."""
    schema: int | None = None


class Learned(NamedTuple):
    """Something that is stored: items (digest, number, raw bytes), and maybe a checkpoint.

    No bytes are given of items that are too large to be held here.
    """

    items: Iterable[tuple[bytes, int, bytes]] = ()
    place: tuple[str, str] = ("", "")
    record: Record | None = None
    run: str | None = None
    fresh: Iterable[str] = ()
    """The channels of the record whose refs may name items that have no number yet."""


class Part:
    """What is known of one thread in one epoch; another epoch is another part.

    `raws` are the items themselves, so that a thread in use is not read again and again; they go
    when they are many, the digests stay. Readers look things up without a lock.
    """

    __slots__ = (
        *("chunks", "epoch", "numbers", "raw_size", "raws", "records", "runs", "size", "void"),
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.numbers: dict[bytes, int] = {}
        self.chunks: dict[bytes, Runs] = {}
        """The runs of items that stood together, by a digest of all; `Encoder` keeps it."""
        self.raws: dict[int, bytes] = {}
        self.records: OrderedDict[tuple[str, str], Record] = OrderedDict()
        self.runs: set[str] = set()
        self.size = 0
        self.raw_size = 0
        self.void = False
        """Something in here was undone: a draft made from this part must be made anew."""

    def newest(self, ns: str) -> Record | None:
        """The checkpoint of `ns` that was remembered last."""
        for place in reversed(list(self.records)):
            if place[0] == ns:
                return self.records.get(place)
        return None

    def add(self, new: Learned, most_raw: int) -> None:
        before = len(self.numbers)
        for digest, number, raw in new.items:
            self.numbers[digest] = number
            if raw and number not in self.raws:
                self.raws[number] = raw
                self.raw_size += len(raw)
        self.size += (len(self.numbers) - before) * DIGEST_BYTES
        if self.raw_size > most_raw:
            self.raws, self.raw_size = {}, 0
        if len(self.chunks) > MOST_CHUNKS + len(self.numbers) // 16:  # what stands so no more
            self.chunks.clear()
        if new.record is not None:
            replaced = self.records.pop(new.place, None)
            self.records[new.place] = new.record
            old = self.records.popitem(last=False)[1] if len(self.records) > RECORDS else None
            for gone in (replaced, old):
                self.size -= ENTRY_BYTES * len(gone.versions) if gone else 0
            self.size += ENTRY_BYTES * len(new.record.versions)
        if new.run is not None and new.run not in self.runs:
            self.runs.add(new.run)
            self.size += ENTRY_BYTES

    def after(self, edit: Edit, epoch: int) -> Part:
        """What of this is true in the epoch that an edit has begun."""
        left = Part(epoch)
        left.numbers = {digest: n for digest, n in self.numbers.items() if edit.stays(n)}
        left.raws = {n: raw for n, raw in self.raws.items() if edit.stays(n)}
        left.raw_size = sum(map(len, left.raws.values()))
        left.chunks = {m: own for m, own in self.chunks.items() if edit.stay(numbers(own))}
        changed = edit.drop.union((row.ns, row.id) for row in (*edit.replace, *edit.add))
        left.size = len(left.numbers) * DIGEST_BYTES
        for place, record in self.records.items():
            if place not in changed:
                left.records[place] = record
                left.size += ENTRY_BYTES * len(record.versions)
        return left


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
                self._size -= found.size + found.raw_size
                found.void = found.void or void

    def clear(self) -> None:
        """Forget all threads."""
        with self._lock:
            self._parts.clear()
            self._size = 0

    def learn(self, thread_id: str, epoch: int, new: Learned) -> Part:
        """Add what is known to be stored in `epoch`; another epoch than remembered starts anew."""
        with self._lock:
            part = self._parts.get(thread_id)
            if part is None or part.epoch != epoch:
                self._size -= part.size + part.raw_size if part else 0
                part = self._parts[thread_id] = Part(epoch)
            self._parts.move_to_end(thread_id)
            before = part.size + part.raw_size
            part.add(new, self.limit // 4)
            self._size += part.size + part.raw_size - before
            while self._size > self.limit and self._parts:
                _, oldest = self._parts.popitem(last=False)
                self._size -= oldest.size + oldest.raw_size
        return part

    def edited(self, thread_id: str, edit: Edit) -> None:
        """Keep of a thread what an edit has left as it was; nothing if that cannot be told."""
        old, new = edit.epochs or (None, None)
        with self._lock:
            part = self._parts.get(thread_id)
            if part is None or part.epoch == new:  # or somebody has read it again meanwhile
                return
            self._size -= part.size + part.raw_size
            if new is None or part.epoch != old or part.void:
                del self._parts[thread_id]
                return
            left = self._parts[thread_id] = part.after(edit, new)
            self._size += left.size + left.raw_size

    def after_fork(self) -> None:
        """In a child process: the lock may be held by a thread that does not exist here."""
        self._lock = threading.Lock()


class Pledge:
    """What a draft was made from, and what will be known once it is stored.

    Stores speak to it (as `records.Recollection`) inside the transaction, one draft after another,
    so that a draft sees what the one before it has stored, be it in the same commit. If the commit
    fails, what was learned is void, and so is every draft that was made from it meanwhile. Those of
    the commit itself were made before: a store that will try them again vouches for them first.
    """

    __slots__ = ("_learned", "_memory", "_part", "_sound", "_taught", "_thread_id")

    def __init__(self, memory: Memory, thread_id: str, part: Part | None, learned: Learned) -> None:
        self._memory, self._thread_id, self._part = memory, thread_id, part
        self._learned = learned
        self._taught: Part | None = None
        self._sound = False

    def vouch(self) -> None:
        self._sound = not self.is_void()

    def is_void(self) -> bool:
        return not self._sound and self._part is not None and self._part.void

    def known(self, epoch: int) -> Mapping[bytes, int]:
        part = self._memory.part(self._thread_id)
        return part.numbers if part is not None and part.epoch == epoch else {}

    def keep(self, stored: Stored) -> None:
        if not self._memory.limit:
            return
        new, finals = self._learned, stored.finals
        record = new.record
        if record is not None and finals:
            versions, known, capsules, schema = record
            entries = dict(known)
            for channel in new.fresh:
                version, form, ref = entries[channel]
                entries[channel] = Entry(version, form, settled(ref, finals))
            if capsules:
                capsules = {
                    channel: (capsule, settled(ref, finals))
                    for channel, (capsule, ref) in capsules.items()
                }
            record = Record(versions, entries, capsules, schema)
        items = [(digest, n, raw) for (digest, _, raw), n in zip(new.items, finals, strict=False)]
        self._taught = self._memory.learn(
            self._thread_id, stored.epoch, Learned(items, new.place, record, new.run)
        )

    def knows_run(self, epoch: int, run: str) -> bool:
        part = self._memory.part(self._thread_id)
        return part is not None and part.epoch == epoch and run in part.runs

    def drop(self) -> None:
        for part in (self._part, self._taught):
            if part is not None:
                part.void = True  # also where it has left the memory meanwhile
        self._memory.forget(self._thread_id, void=True)


_memories: weakref.WeakSet[Memory] = weakref.WeakSet()


def _after_fork() -> None:
    for memory in list(_memories):
        memory.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
