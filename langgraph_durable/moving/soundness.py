"""Whether what an archive tells of a thread can be a thread.

The digests of an archive are against accidents: whoever makes one can make them fit anything. So
types, lengths and numbers are looked at here, and whether all that is referred to is there, before
any of it gets near a store. What bodies and items say is checked when they are read, as always.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache

import ormsgpack

from langgraph_durable._core import claims
from langgraph_durable._core.dumps import Dump
from langgraph_durable._core.records import CheckpointRow, WriteRow
from langgraph_durable._core.refs import (
    CAPSULE,
    ORIGIN,
    VALUE,
    Ref,
    Runs,
    length,
    numbers,
    spans,
    unpack_refs,
)
from langgraph_durable._core.seal import CLAIM_MARK, SPINE_MARK, Damaged
from langgraph_durable.addresses import LONGEST, LONGEST_PATH, check_text
from langgraph_durable.errors import ConfigurationError

MOST_ITEMS = 1 << 31
"""A thread's items are numbered below this; a store keeps the numbers of all threads in one key."""
MOST_ELEMENTS = 1 << 24
"""Elements of one value, which a few bytes could make any number of."""
MOST_INDEX = 1 << 31
LONGEST_RUN = 1 << 20
LONGEST_URL = 1 << 14
DEEPEST = 8
"""Folders for guests within folders for guests."""
MOST_PLACES = 64


def check(dump: Dump) -> None:
    """Raise `Damaged` if something cannot be."""
    _text("a thread's id", dump.thread_id)
    _check_items(dump)
    check_refs = _checker_of_refs(dump)
    for row in dump.rows:
        _check_place(row)
        check_refs(row.refs)
    for write in dump.writes:
        _check_place(write)
        _check_write(write)
        check_refs(write.refs)
    places = {(row.ns, row.id) for row in dump.rows}
    indices = {(w.ns, w.id, w.task_id, w.idx) for w in dump.writes}
    _demand(len(places) == len(dump.rows), "a checkpoint is there twice")
    _demand(len(indices) == len(dump.writes), "a pending write is there twice")
    _demand(places.issuperset(dump.heads.items()), "the latest checkpoint is missing")


def _demand(true: bool, otherwise: str) -> None:
    if not true:
        raise Damaged(otherwise)


def _text(what: str, value: object, *, most: int = LONGEST, empty: bool = False) -> str:
    try:
        return check_text(what, value, most=most, empty=empty)
    except ConfigurationError as error:
        raise Damaged(str(error)) from error


def _check_place(row: CheckpointRow | WriteRow) -> None:
    _text("a namespace", row.ns, most=LONGEST_PATH, empty=True)
    _text("a checkpoint's id", row.id)
    if row.run is not None:
        _text("a run", row.run, most=LONGEST_RUN, empty=True)
    if isinstance(row, CheckpointRow) and row.parent is not None:
        _text("a parent's id", row.parent)
    _demand(type(row.refs) is bytes and type(row.body) is bytes, "a record is not made of bytes")


def _check_write(row: WriteRow) -> None:
    _text("a task's id", row.task_id)
    _text("a task's path", row.path, most=LONGEST_PATH, empty=True)
    for number in (row.idx, row.width):
        _demand(type(number) is int and abs(number) < MOST_INDEX, f"{number!r} is not an index")
    _demand(row.width > 0, "a pending write has no value")


def _check_items(dump: Dump) -> None:
    for number, raw in dump.items.items():
        _demand(type(number) is int and 0 <= number < MOST_ITEMS, f"there is no item {number!r}")
        _demand(type(raw) is bytes and raw != b"", f"item {number} is not made of bytes")
    claimed = set(dump.claims)
    _demand(len(claimed) == len(dump.claims), "a claim is there twice")
    for number, claim in claimed:
        _demand(type(number) is int and number in dump.items, "a claim belongs to no item")
        claims.unpack(claim)
    for number, raw in dump.items.items():
        if raw[:1] == CLAIM_MARK:
            _demand((number, raw[1:]) in claimed, f"the claim of item {number} is not listed")


def _checker_of_refs(dump: Dump) -> Callable[[bytes], None]:
    known = sorted(dump.items)

    @cache
    def length_of_spine(number: int) -> int:
        raw = dump.items[number]
        _demand(raw[:1] == SPINE_MARK, f"item {number} holds no references")
        return _checked_length(tuple(ormsgpack.unpackb(raw[1:])), known)

    def check_ref(ref: Ref) -> None:
        _demand(ref.kind in (VALUE, CAPSULE, ORIGIN), "a reference is of no known kind")
        total = _checked_length(ref.runs, known)
        if _checked_length(ref.spine, known):
            total += sum(map(length_of_spine, numbers(ref.spine)))
        _demand(total <= MOST_ELEMENTS, f"a value has {total:,} elements")

    @cache
    def check_refs(packed: bytes) -> None:
        for ref in unpack_refs(packed):
            check_ref(ref)

    return check_refs


def _checked_length(runs: Runs, known: Sequence[int]) -> int:
    """How many items some runs name, all of which must be there."""
    _demand(_are_numbers(runs) and len(runs) % 2 == 0, "a reference is not made of numbers")
    total = length(runs)
    _demand(total <= MOST_ELEMENTS, f"a value has {total:,} elements")
    for first, last in spans(runs):
        at = bisect_left(known, first)
        end = at + last - first
        there = at <= end < len(known) and known[at] == first and known[end] == last
        _demand(there, f"item {first} is missing")
    return total


def _are_numbers(runs: Collection[object]) -> bool:
    return all(type(number) is int and number >= 0 for number in runs)


def check_places(stores: Iterable[tuple[object, Iterable[object]]]) -> dict[str, list[str]]:
    """Where the artifacts of other databases lie: ids, and URLs of stores that anybody can open."""
    found: dict[str, list[str]] = {}
    for id, urls in stores:
        _demand(claims.is_store(id), f"{id!r} is not the id of a store")
        listed = [_text("the URL of a store", url, most=LONGEST_URL) for url in urls]
        _demand(len(listed) <= MOST_PLACES, "a store has too many places")
        for url in listed:
            private = url.startswith(("lent:", "beside:")) or url.count("guest-") > DEEPEST
            _demand(not private, "a store is where only its database finds it")
        found[str(id)] = listed
    return found
