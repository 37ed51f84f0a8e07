"""Who stores what, where several runs may write to one checkpoint.

Before it is known which of two runs goes on from a checkpoint, both may write to it: under "exit"
LangGraph stores the writes of a whole run there, shortly before the one checkpoint that goes on. So
a write says whose *hand* it is by, and a checkpoint says which writes of its parent count for it:
those by the same hand, and those that were *known*, because they came with the parent when it was
loaded (see `lineage.counted`). What a rival has written first under the same id of a task stays;
the other's write is put *aside*, where nobody sees it but the checkpoint that was made with it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class GivenId(str):
    """A checkpoint id that a saver gave out; LangGraph hands the very object back.

    A string like any other; it is stored, copied and pickled as one.
    """

    __slots__ = ("asked", "by", "continued", "known")

    asked: bool
    """The caller had named it, in contrast to one found as the latest."""
    continued: bool
    """A put has gone on from it."""
    by: int
    """Whose hand it was given to; see `Author`."""
    known: tuple[KnownWrite, ...]
    """The pending writes that were given out with it."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @classmethod
    def of(
        cls, id: str, *, asked: bool, by: int = 0, known: tuple[KnownWrite, ...] = ()
    ) -> GivenId:
        given = cls(id)
        given.asked, given.continued, given.by, given.known = asked, False, by, known
        return given


class KnownWrite(NamedTuple):
    """A pending write that somebody was given with its checkpoint."""

    task_id: str
    idx: int
    channel: str | None = None
    """None if any."""


class Author(NamedTuple):
    """Who stores something, and what they know of the checkpoint that they are at.

    Two runs may write to one checkpoint before it is known which of them goes on from it. So a
    write says whose hand it is by, and a checkpoint which writes of its parent it was made with.
    """

    hand: int = 0
    """A number that the run shares with no other that works at the same time; 0 if it is none."""
    known: Collection[KnownWrite] | None = None
    """What others had written there when it was loaded; None if that cannot be told."""


ANYBODY = Author()


class ParentId(str):
    """The id of a parent as it is given out with a checkpoint: a copy put there is the same.

    LangGraph does so for `update_state(as_node="__copy__")`. Stored and pickled as a string.
    """

    __slots__ = ("author",)

    author: Author
    """Of the checkpoint it was given out with."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @classmethod
    def of(cls, id: str, author: Author) -> ParentId:
        given = cls(id)
        given.author = author
        return given
