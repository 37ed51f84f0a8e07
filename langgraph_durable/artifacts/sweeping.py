"""Removing objects that nothing claims, beside writers that may be about to claim them.

A collector may remove an object that no row claims and that nobody has used for the grace period. A
writer that finds its content stored already *renews* the object before it writes the row: an empty
object `.used` beside it, whose time counts as its own. The two can still meet, so:

    collector   puts .doomed; looks at the times, and with a short grace at the claims again;
                deletes the object if both are old and nothing claims it; then .doomed
    writer      puts .used; waits while there is a .doomed; looks whether the object is still there;
                writes the row; waits while there is a .doomed; looks again

If the writer's .used came before the collector looked, the object stays. If it came after, the
writer waits for the end and sees that the object is gone, and uploads it again. The second look
does the same with the row in place of the .used: it holds whatever the times say, however short the
grace is. Only a writer that is killed between its row and its second look relies on the grace.

A collector that was killed leaves its mark. Its patience has an end, so a writer that meets a mark
twice as old removes it, and goes on.

Two collectors share the mark: it holds the name of the one that has put it last. Who finds another
name in it leaves the object, and the mark, to the other. Times are those of the store, so clocks
need not agree.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

from langgraph_durable._core.claims import KEY, folder
from langgraph_durable.artifacts.stores import ArtifactStore, Found
from langgraph_durable.errors import StorageFull

USED, DOOMED = ".used", ".doomed"
PATIENCE = 30.0
"""Seconds within which a collector ends what it has begun with one object."""
PAUSE = 0.02


def renew(store: ArtifactStore, key: str) -> Found | None:
    """Keep an object from being collected for now; None if it is not there."""
    if store.stat(key) is None:
        return None
    store.put(key + USED, b"")
    return stays(store, key)


def stays(store: ArtifactStore, key: str) -> Found | None:
    """The object, if it is there when no collector is about to remove it."""
    end = None
    while (mark := store.stat(key + DOOMED)) is not None:
        if end is None:
            age = _time(store, key[: key.index("/") + 1]) - mark.time
            end = time.monotonic() + 2 * PATIENCE - age
        if time.monotonic() > end:  # its collector was killed
            store.delete(key + DOOMED)
            break
        time.sleep(PAUSE)
    return store.stat(key)


def clock(store: ArtifactStore, id: str) -> float:
    """The time, as the store has it."""
    return _time(store, folder(id))


def _time(store: ArtifactStore, within: str) -> float:
    key = f"{within}clock"  # where a folder is already: a full disk has no room for another
    store.put(key, b"")
    found = store.stat(key)
    return time.time() if found is None else found.time


def is_same(one: ArtifactStore, other: ArtifactStore, key: str) -> bool:
    """Whether two stores are one place under two names (a link, a mount, an alias of a host).

    Told by a mark of no object, near to an object that is there: a full disk has no room for
    another folder. Left by a process that was killed, it is collected like any other.
    """
    head, _, name = key.rpartition("/")
    mark = f"{head}/{name[0]}{secrets.token_hex(32)[1:]}{USED}"
    try:
        one.put(mark, secrets.token_bytes(16))
        return other.stat(mark) is not None
    finally:
        one.delete(mark)


ABANDONED = 3600.0
"""Seconds after which what a writer has not ended counts as left by one that was killed.

Should it live, it is told that its upload has failed.
"""


def object_of(key: str) -> str:
    """The key of an object, by its own or that of a mark beside it."""
    return key.removesuffix(USED).removesuffix(DOOMED)


def objects(store: ArtifactStore, id: str) -> Iterator[tuple[Found, list[Found]]]:
    """All objects of one id with the marks beside them; a mark without its object as such."""
    marks: dict[str, list[Found]] = {}
    found: dict[str, Found] = {}
    for one in store.list(folder(id)):
        base = object_of(one.key)
        if KEY.fullmatch(base) is None:
            continue
        if base == one.key:
            found[base] = one
        else:
            marks.setdefault(base, []).append(one)
    for key, one in found.items():
        yield one, marks.pop(key, [])
    for left in marks.values():
        yield left[0], left[1:]


class Doom:
    """An object under the mark of one collector."""

    def __init__(self, store: ArtifactStore, key: str) -> None:
        self._store, self._key = store, key
        self._name = secrets.token_bytes(16)
        self._began = -PATIENCE
        self.error: StorageFull | None = None

    def put(self) -> None:
        """Set the mark, if there is room for it."""
        self._began = time.monotonic()
        try:
            self._store.put(self._key + DOOMED, self._name)
        except StorageFull as error:
            self.error = error

    def carry_out(self, before: float) -> bool:
        """Delete the object unless it was used since; whether it is gone."""
        store, key = self._store, self._key
        times = [found.time for one in (key, key + USED) if (found := store.stat(one))]
        if any(when > before for when in times) or not self._is_own():
            return False
        if time.monotonic() - self._began > PATIENCE:
            return False
        store.delete(key)
        store.delete(key + USED)
        return True

    def lift(self) -> None:
        """Take the mark away, if it is this collector's."""
        if self._is_own():
            self._store.delete(self._key + DOOMED)

    def _is_own(self) -> bool:
        try:
            with self._store.open(self._key + DOOMED) as mark:
                return mark.read() == self._name
        except KeyError:
            return False
