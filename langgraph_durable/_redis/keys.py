"""Every name in Redis is built here: keys, fields of a thread's hash, members of its index.

A thread is two keys with one hash tag, so that they share a slot of a cluster. Whatever a thread
is called, its name lies between the only braces of the key, so no two threads, and no two
prefixes, ever meet. A *place* is `id NUL ns` with the id escaped, so that places sort by id.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import xxhash

from langgraph_durable.errors import ConfigurationError

_PREFIX = re.compile(r"[A-Za-z0-9_.:/@-]{1,128}")


def encoded(text: str) -> bytes:
    """UTF-8; lone surrogates are kept, so that every string has bytes of its own."""
    return text.encode("utf-8", "surrogatepass")


def decoded(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


def id_bytes(id: str) -> bytes:
    """An id without a NUL that could end it: escaped ids sort as the ids do."""
    return encoded(id).replace(b"\0", b"\0\xff")


def id_text(stored: bytes) -> str:
    return decoded(stored.replace(b"\0\xff", b"\0"))


def place(ns: str, id: str) -> bytes:
    return id_bytes(id) + b"\0" + encoded(ns)


def unplace(stored: bytes) -> tuple[str, str]:
    """`(ns, id)` of a place."""
    end = stored.index(b"\0")
    while stored[end + 1 : end + 2] == b"\xff":
        end = stored.index(b"\0", end + 1)
    return decoded(stored[end + 1 :]), id_text(stored[:end])


def checkpoint_field(place: bytes) -> bytes:
    return b"c" + place


DIGEST = 16
"""Bytes of a task's digest; as in `scripts/thread.lua`."""


def task_digest(place: bytes, task_id: str) -> bytes:
    """A task at a place, in few bytes: its fields would otherwise outweigh what it wrote."""
    return xxhash.xxh3_128_digest(b"%d:%b%b" % (len(place), place, encoded(task_id)))


def task_field(digest: bytes) -> bytes:
    return b"t" + digest


def tasks_field(place: bytes, page: int) -> bytes:
    return b"w%d:%b" % (page, place)


def item_field(number: int) -> bytes:
    return b"i%d" % number


def claim_field(number: int, position: int) -> bytes:
    return b"a%d.%d" % (number, position)


def claimer(field: bytes) -> int:
    """The number of the item that makes a claim."""
    return int(field[1 : field.index(b".")])


def head_field(ns: str) -> bytes:
    return b"h" + encoded(ns)


def run_field(run: str) -> bytes:
    return b"r" + encoded(run)


class ThreadKeys(NamedTuple):
    hash: bytes
    places: bytes


@lru_cache(maxsize=1024)
def _of_thread(root: bytes, thread_id: str) -> ThreadKeys:
    tagged = root + b"{%b}:" % _tag(thread_id)
    return ThreadKeys(tagged + b"h", tagged + b"x")


class Keys:
    """All keys under one prefix."""

    def __init__(self, prefix: str) -> None:
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise ConfigurationError(
                f"prefix is 1 to 128 letters, digits or _.:/@- , not {prefix!r}"
            )
        self.prefix = prefix
        self._root = prefix.encode() + b":"
        self.threads = self._root + b"threads"
        """The index of threads: a sorted set of names, by when each was first used here."""
        self.stores = self._root + b"stores"
        """A hash of artifact stores: where each is found, by its id."""
        self.format = self._root + b"format"
        """The number of the storage format of all that is under this prefix."""

    def thread(self, thread_id: str) -> ThreadKeys:
        return _of_thread(self._root, thread_id)

    def run(self, run: str) -> bytes:
        """A set of the threads that a run wrote to."""
        return self._root + b"run:{%b}" % _tag(run)

    @property
    def pattern(self) -> bytes:
        """Matches the hash of every thread under this prefix, and maybe more."""
        escaped = re.sub(rb"([*?\[\]\\])", rb"\\\1", self._root)
        return escaped + b"{*}:h"

    def thread_of(self, key: bytes) -> str | None:
        """The thread whose hash this is; None if it is something else."""
        start, end = self._root + b"{", b"}:h"
        if not (key.startswith(start) and key.endswith(end)):
            return None
        tag = key[len(start) : -len(end)]
        if b"}" in tag:
            return None
        return decoded(re.sub(rb"%(..)", lambda found: bytes([int(found[1], 16)]), tag))


def _tag(text: str) -> bytes:
    """`text` without braces and never empty, as a hash tag must be."""
    return re.sub(rb"[%{}]", lambda found: b"%%%02X" % found[0][0], encoded(text)) or b"%"
