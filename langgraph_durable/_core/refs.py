"""Which items a value needs: runs of numbers, and refs that name them for a channel.

The items of a thread are numbered 0, 1, 2 ... in one log. A *run* is a stretch of numbers, written
flat: `(start, count, start, count, ...)`, and stored with gaps instead of starts. A *ref* says
which runs a channel's value needs. Refs travel beside the body of a record, in plain msgpack, so
that a store can fetch and count items without understanding anything else. A long ref leaves its
first runs to *spine* items, each of which holds some runs in its turn: they are shared like any
item, so that a list in many pieces does not spell all of them in every record.

New items have no numbers yet: they are written `~0, ~1, ...` (negative) until they are `settled`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import ormsgpack

from langgraph_durable._core import seal

Runs = tuple[int, ...]
Stretches = Sequence[tuple[int, int]]
"""`(first, last)` of runs, in order."""

Finals = Sequence[int]
"""The numbers that the new items of a draft got, in their order."""

VALUE, CAPSULE, ORIGIN = 0, 1, 3
"""What a ref belongs to: a channel's value, the history kept for a channel (see `lineage`), or the
note of the program that stored the record (see `origin`)."""


class Ref(NamedTuple):
    channel: str
    runs: Runs
    kind: int = VALUE
    spine: Runs = ()
    """Items whose runs come before `runs`."""


Refs = tuple[Ref, ...]


def pack_refs(refs: Iterable[Ref]) -> bytes:
    packed = [_packed(ref) if len(ref[1]) <= SHORT_REF else _pack_ref(ref) for ref in refs]
    # The head of a short array as msgpack spells it: 2 us less than asking for it.
    count = len(packed)
    if count < 16:
        return bytes((0x90 | count,)) + b"".join(packed)
    return ormsgpack.packb([ormsgpack.Fragment(each) for each in packed])


def _pack_ref(ref: Ref) -> bytes:
    parts: list[Any] = [seal.name(ref.channel), _gaps(ref.runs), ref.kind]
    if ref.spine:
        parts.append(_gaps(ref.spine))
    return ormsgpack.packb(parts)


def _gaps(runs: Runs) -> Sequence[int]:
    """Runs as they are stored: instead of where each starts, how far behind the end of the last.

    Most gaps take one byte where the numbers of a long thread take three: LangGraph gives messages
    their ids when they have been stored once without, so a conversation is a run for each message.
    """
    if len(runs) <= 2:
        return runs
    gaps = list(runs)
    gaps[2::2] = [
        start - last - count
        for start, last, count in zip(runs[2::2], runs[::2], runs[1::2], strict=False)
    ]
    return gaps


def _starts(gaps: Sequence[int]) -> Runs:
    """The inverse of `_gaps`."""
    if len(gaps) <= 2:
        sum(gaps)  # raises if a flipped bit has made something else of a number
        return tuple(gaps)
    runs: list[int] = []
    end = 0
    for gap, count in zip(gaps[::2], gaps[1::2], strict=True):
        runs += (end + gap, count)
        end += gap + count
    return tuple(runs)


SHORT_REF = 8
_packed = lru_cache(maxsize=4096)(_pack_ref)
"""Most refs of a checkpoint are those of the checkpoint before."""


def unpack_refs(blob: bytes) -> Refs:
    return _unpacked(blob) if len(blob) <= 256 else _unpack(blob)


def _unpack(blob: bytes) -> Refs:
    try:
        return tuple(
            Ref(seal.unname(channel), _starts(runs), kind, *map(_starts, spine))
            for channel, runs, kind, *spine in ormsgpack.unpackb(blob)
        )
    except Exception as error:
        raise seal.Damaged("references cannot be read") from error


_unpacked = lru_cache(maxsize=1024)(_unpack)  # a row's refs are needed twice, and often once more


def spans(runs: Runs) -> Iterator[tuple[int, int]]:
    """`(first, last)` of every run."""
    for start, count in zip(runs[::2], runs[1::2], strict=True):
        yield start, start + count - 1


def numbers(runs: Runs) -> Iterator[int]:
    for start, count in zip(runs[::2], runs[1::2], strict=True):
        yield from range(start, start + count)


def joined(order: Sequence[int]) -> Runs:
    """Item numbers in order as runs; new items (negative) run downwards."""
    runs: list[int] = []
    following = None
    for begin in range(0, len(order), STRETCH):
        some = order[begin : begin + STRETCH]
        first, step = some[0], 1 if some[0] >= 0 else -1
        if len(some) > FEW and some == list(range(first, first + step * len(some), step)):
            # Nearly all of a long conversation, and compared without a step of Python for each.
            if first == following:
                runs[-1] += len(some)
            else:
                runs += (first, len(some))
            following = some[-1] + step
            continue
        for n in some:
            if n == following:
                runs[-1] += 1
            else:
                runs += (n, 1)
            following = n + 1 if n >= 0 else n - 1
    return tuple(runs)


STRETCH, FEW = 64, 8


def extend(runs: list[int], more: Sequence[int]) -> None:
    """Add more runs at the end, as if the numbers of both had been `joined`."""
    if runs and more:
        start, count = runs[-2:]
        if more[0] == (start + count if start >= 0 else start - count):
            runs[-1] += more[1]
            more = more[2:]
    runs += more


def length(runs: Sequence[int]) -> int:
    """How many items they name."""
    return sum(runs[1::2])


def placed(runs: Runs, final: Sequence[int]) -> Runs:
    """`runs` with new items under their `final` numbers, neighbours joined."""
    out: list[int] = []
    for start, count in zip(runs[::2], runs[1::2], strict=True):
        pieces = (
            [(start, count)] if start >= 0 else [(n, 1) for n in final[~start : ~start + count]]
        )
        for first, many in pieces:
            if out and out[-2] + out[-1] == first:
                out[-1] += many
            else:
                out += (first, many)
    return tuple(out)


def settled(ref: Ref, finals: Finals) -> Ref:
    """`ref` with all its items under their final numbers."""
    runs = ref.runs
    if not ref.spine:
        if not runs or min(runs) >= 0:
            return ref
        if len(runs) == 2 and runs[1] == 1:  # one new item, as mostly: a fifth of the time
            return Ref(ref.channel, (finals[~runs[0]], 1), ref.kind)
    return Ref(ref.channel, placed(runs, finals), ref.kind, placed(ref.spine, finals))


Spines = Callable[[int], Runs]
"""The runs that a spine item holds."""


def order_of(ref: Ref, spines: Spines) -> list[int]:
    """The numbers of all items of a value, in order."""
    order: list[int] = []
    for n in numbers(ref.spine):
        _extend(order, spines(n))
    _extend(order, ref.runs)
    return order


def _extend(order: list[int], runs: Runs) -> None:
    for at in range(0, len(runs), 2):
        order += range(runs[at], runs[at] + runs[at + 1])


def stretches(refs: Iterable[Ref], spines: Spines) -> set[tuple[int, int]]:
    """`(first, last)` of all runs that the refs and their spines hold."""
    found: set[tuple[int, int]] = set()
    for ref in refs:
        found.update(spans(ref.runs))
        if ref.spine:
            found.update(spans(ref.spine))
            for n in numbers(ref.spine):
                found.update(spans(spines(n)))
    return found


def reach(blobs: Iterable[bytes], spines: Spines) -> set[tuple[int, int]]:
    """The `stretches` of packed refs; most are those of the checkpoint before, and read once."""
    seen: set[tuple[tuple[int, ...], ...]] = set()
    refs: list[Ref] = []
    for blob in blobs:
        try:
            for channel, gaps, kind, *spine in ormsgpack.unpackb(blob):
                held = tuple(gaps), *map(tuple, spine)
                if held not in seen:
                    seen.add(held)
                    refs.append(Ref(channel, _starts(gaps), kind, *map(_starts, spine)))
        except Exception as error:
            raise seal.Damaged("references cannot be read") from error
    return stretches(refs, spines)


def merged(stretches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same numbers in as few stretches as possible."""
    first, last = -1, -2
    for low, high in sorted(stretches):
        if low > last + 1:
            if last >= 0:
                yield first, last
            first, last = low, high
        else:
            last = max(last, high)
    if last >= 0:
        yield first, last


def without(stretches: Iterable[tuple[int, int]], others: Stretches) -> Iterator[tuple[int, int]]:
    """The numbers of `stretches` that none of `others` has; both are in order."""
    at = 0
    for low, last in stretches:
        while at < len(others) and others[at][1] < low:
            at += 1
        k, first = at, low
        while k < len(others) and others[k][0] <= last:
            if first < others[k][0]:
                yield first, others[k][0] - 1
            first = others[k][1] + 1
            k += 1
        if first <= last:
            yield first, last
