"""What to keep of a thread, as values: `KeepLast(5) | MaxAge("24h")`.

A policy looks at a `View` of one thread (light: ids, times, who continues whom) and says which
checkpoints to keep; it does no I/O and removes nothing. `|` keeps what either keeps, `&` what both
keep, `~` what the other would not. What must stay whatever a policy says is no business of
policies: see `_core.retention`.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from langgraph_durable._core.retention import Place, View
from langgraph_durable._core.units import in_bytes, in_seconds
from langgraph_durable.errors import ConfigurationError

__all__ = [
    "DropIdle",
    "Finished",
    "KeepInterrupted",
    "KeepLast",
    "KeepTagged",
    "MaxAge",
    "MaxBytes",
    "Milestones",
    "Policy",
    "Thin",
]

Duration = str | float | timedelta
Size = str | int


class Policy:
    """Which checkpoints of a thread to keep. Compose with `|`, `&` and `~`.

    Example:
        >>> KeepLast(5) | MaxAge("24h") & ~KeepInterrupted()
        KeepLast(5) | MaxAge('24h') & ~KeepInterrupted()
    """

    __slots__ = ()

    def keeps(self, view: View) -> Set[Place]:
        """The checkpoints to keep."""
        raise NotImplementedError

    def releases(self, view: View) -> bool:
        """Whether the thread is over, so that not even its newest checkpoint need stay."""
        return False

    @property
    def exact(self) -> bool:
        """Whether nothing stays but what it keeps: LangGraph's own words mean what they say."""
        return False

    @property
    def needs_sizes(self) -> bool:
        """Whether `keeps` asks for the bytes of items."""
        return False

    def __or__(self, other: Policy) -> Policy:
        return Either(self, other) if isinstance(other, Policy) else NotImplemented

    def __and__(self, other: Policy) -> Policy:
        return Both(self, other) if isinstance(other, Policy) else NotImplemented

    def __invert__(self) -> Policy:
        return Not(self)


@dataclass(frozen=True, slots=True, repr=False)
class Either(Policy):
    """`first | second`."""

    first: Policy
    second: Policy

    def keeps(self, view: View) -> Set[Place]:
        return self.first.keeps(view) | self.second.keeps(view)

    def releases(self, view: View) -> bool:
        return self.first.releases(view) and self.second.releases(view)

    @property
    def needs_sizes(self) -> bool:
        return self.first.needs_sizes or self.second.needs_sizes

    def __repr__(self) -> str:
        second = f"({self.second!r})" if isinstance(self.second, Either) else repr(self.second)
        return f"{self.first!r} | {second}"


@dataclass(frozen=True, slots=True, repr=False)
class Both(Policy):
    """`first & second`."""

    first: Policy
    second: Policy

    def keeps(self, view: View) -> Set[Place]:
        return self.first.keeps(view) & self.second.keeps(view)

    def releases(self, view: View) -> bool:
        return self.first.releases(view) or self.second.releases(view)

    @property
    def needs_sizes(self) -> bool:
        return self.first.needs_sizes or self.second.needs_sizes

    def __repr__(self) -> str:
        first = f"({self.first!r})" if isinstance(self.first, Either) else repr(self.first)
        joined = isinstance(self.second, (Either, Both))
        second = f"({self.second!r})" if joined else repr(self.second)
        return f"{first} & {second}"


@dataclass(frozen=True, slots=True, repr=False)
class Not(Policy):
    """`~policy`."""

    policy: Policy

    def keeps(self, view: View) -> Set[Place]:
        return view.places - self.policy.keeps(view)

    @property
    def needs_sizes(self) -> bool:
        return self.policy.needs_sizes

    def __repr__(self) -> str:
        joined = isinstance(self.policy, (Either, Both))
        return f"~({self.policy!r})" if joined else f"~{self.policy!r}"


class _Plain(Policy):
    """A policy whose repr is the call that makes it, by position."""

    __slots__ = ()

    def __repr__(self) -> str:
        value = getattr(self, next(iter(self.__dataclass_fields__)))  # type: ignore[attr-defined]
        return f"{type(self).__name__}({value!r})"


@dataclass(frozen=True, slots=True, repr=False)
class KeepLast(_Plain):
    """The newest `count` checkpoints of each namespace.

    Example:
        >>> saver.prune(["thread-1"], strategy=KeepLast(5))   # doctest: +SKIP
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise ConfigurationError(f"KeepLast takes a number from 1 up, not {self.count!r}")

    def keeps(self, view: View) -> Set[Place]:
        return {place for places in view.newest_first.values() for place in places[: self.count]}


@dataclass(frozen=True, slots=True, repr=False)
class MaxAge(_Plain):
    """Checkpoints younger than `age`: a timedelta, seconds, or text like "24h", "7d", "1d12h"."""

    age: Duration

    def __post_init__(self) -> None:
        in_seconds("MaxAge", self.age)

    def keeps(self, view: View) -> Set[Place]:
        return view.since(view.now - in_seconds("MaxAge", self.age))


@dataclass(frozen=True, slots=True)
class Thin(Policy):
    """All checkpoints up to the age of `after`; of older ones the newest of each `every`.

    Example:
        >>> Thin(every="1h", after="1d")    # one per hour once older than a day
        Thin(every='1h', after='1d')
    """

    every: Duration
    after: Duration = "0s"

    def __post_init__(self) -> None:
        if in_seconds("Thin(every=)", self.every) <= 0:
            raise ConfigurationError(f"Thin takes an interval above 0, not every={self.every!r}")
        in_seconds("Thin(after=)", self.after)

    def keeps(self, view: View) -> Set[Place]:
        every = in_seconds("Thin(every=)", self.every)
        kept = set(view.since(view.now - in_seconds("Thin(after=)", self.after)))
        for places in view.newest_first.values():
            slots: set[int] = set()
            for place in places:
                slot = int(view.time(place) // every)
                if place not in kept and slot not in slots:
                    slots.add(slot)
                    kept.add(place)
        return kept


@dataclass(frozen=True, slots=True, repr=False)
class MaxBytes(_Plain):
    """The newest checkpoints of a thread that fit into so many stored bytes: "2 MB", "500 KiB".

    What checkpoints share is counted once.
    """

    size: Size

    def __post_init__(self) -> None:
        in_bytes("MaxBytes", self.size)

    def keeps(self, view: View) -> Set[Place]:
        return view.within(in_bytes("MaxBytes", self.size))

    @property
    def needs_sizes(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, init=False, repr=False)
class KeepTagged(Policy):
    """Checkpoints that `saver.tag` has given one of these tags; any tag, if none is named."""

    tags: tuple[str, ...]

    def __init__(self, *tags: str) -> None:
        if not all(isinstance(tag, str) and tag for tag in tags):
            raise ConfigurationError(f"{type(self).__name__} takes names of tags, not {tags!r}")
        object.__setattr__(self, "tags", tags)

    def keeps(self, view: View) -> Set[Place]:
        wanted = set(self.tags)
        return {p for p in view.places if (own := view.tags(p)) and (not wanted or wanted & own)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.tags))})"


class Milestones(KeepTagged):
    """Only tagged checkpoints, with what always stays: the head and what waits for an answer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class KeepInterrupted(Policy):
    """Every checkpoint at which a run asked a human, answered or not."""

    def keeps(self, view: View) -> Set[Place]:
        return view.interrupted


@dataclass(frozen=True, slots=True)
class Finished(Policy):
    """Everything, until the thread has been finished for `after`; then the last one, or nothing.

    A thread is finished when its newest checkpoint has nothing left to do.

    Example:
        >>> Finished(after="0s", keep="nothing")    # clear on success
        Finished(after='0s', keep='nothing')
    """

    after: Duration = "0s"
    keep: Literal["last", "nothing"] = "last"

    def __post_init__(self) -> None:
        in_seconds("Finished(after=)", self.after)
        if self.keep not in ("last", "nothing"):
            raise ConfigurationError(f'Finished keeps "last" or "nothing", not {self.keep!r}')

    def keeps(self, view: View) -> Set[Place]:
        return frozenset() if self._applies(view) else view.places

    def releases(self, view: View) -> bool:
        return self.keep == "nothing" and self._applies(view)

    def _applies(self, view: View) -> bool:
        return view.is_finished and view.idle >= in_seconds("Finished(after=)", self.after)


@dataclass(frozen=True, slots=True)
class DropIdle(Policy):
    """Everything, until nothing was written for `after`; then the thread goes, whole.

    A thread that waits for an answer or has unfinished work stays, unless `waiting="drop"`.
    """

    after: Duration
    waiting: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        in_seconds("DropIdle", self.after)
        if self.waiting not in ("keep", "drop"):
            raise ConfigurationError(f'DropIdle(waiting=) is "keep" or "drop": {self.waiting!r}')

    def keeps(self, view: View) -> Set[Place]:
        return frozenset() if self.releases(view) else view.places

    def releases(self, view: View) -> bool:
        if view.idle < in_seconds("DropIdle", self.after):
            return False
        return self.waiting == "drop" or not view.is_waiting
