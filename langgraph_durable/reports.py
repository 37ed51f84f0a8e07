"""What retention tells its callers: plans, reports and stats, as values that print as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph_durable._core.pruning import ThreadPlan, added
from langgraph_durable._core.records import Removed
from langgraph_durable._core.units import shown_bytes
from langgraph_durable.policies import Policy

Progress = Callable[[int, int], None]
"""Called with the number of threads done so far, and of checkpoints removed."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete has removed."""

    checkpoints: int = 0
    writes: int = 0
    items: int = 0
    artifacts: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a prune has removed."""

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    items: int = 0
    artifacts: int = 0
    bytes: int = 0
    """Of records and items."""
    reclaimed: int = 0
    """Bytes given back to the file system (SQLite)."""


class Tally:
    """What was removed so far, told to a callback after every step."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.threads = 0
        self.removed = Removed()

    def add(self, removed: Removed, *, more: bool = False) -> None:
        self.removed = added([self.removed, removed])
        if more:
            self._tell()

    def end_thread(self) -> None:
        self.threads += 1
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self.threads, self.removed.checkpoints)


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What a prune would remove; nothing was touched. Prints as a table."""

    strategy: Policy | str
    threads: tuple[ThreadPlan, ...]

    @property
    def kept(self) -> int:
        return sum(sum(each.kept.values()) for each in self.threads)

    @property
    def removed(self) -> int:
        return sum(len(ids) for each in self.threads for ids in each.removed.values())

    @property
    def bytes(self) -> int:
        """Of the records; items that nothing points at afterwards come on top."""
        return sum(sum(each.bytes.values()) for each in self.threads)

    def __str__(self) -> str:
        rows = [
            (each.thread_id, ns, each.kept[ns], len(each.removed[ns]), shown_bytes(each.bytes[ns]))
            for each in self.threads
            for ns in sorted(each.kept)
        ]
        total = ("total", "", self.kept, self.removed, shown_bytes(self.bytes))
        return table([("thread", "namespace", "kept", "removed", "bytes"), *rows, total])


def table(rows: Sequence[Sequence[object]]) -> str:
    texts = [[_printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k < 2 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    )


def _printable(text: str) -> str:
    """Names are the users', or their users': they must not draw on a terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """How much there is of one channel: in how many checkpoints and writes, and their items."""

    checkpoints: int
    writes: int
    items: int
    bytes: int
    oldest: float | None
    newest: float | None
    """Seconds since 1970, where ids tell the time (LangGraph's do)."""


@dataclass(frozen=True, slots=True)
class ThreadStats(ChannelStats):
    """How much there is of one thread, and by channel, if that was asked for."""

    channels: Mapping[str, ChannelStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stats:
    """How much there is in the store."""

    threads: Mapping[str, ThreadStats]

    @property
    def oldest(self) -> float | None:
        """Seconds since 1970, as in each thread's."""
        return min((t.oldest for t in self.threads.values() if t.oldest is not None), default=None)

    @property
    def newest(self) -> float | None:
        return max((t.newest for t in self.threads.values() if t.newest is not None), default=None)

    def _sum(self, what: str) -> int:
        return sum(getattr(each, what) for each in self.threads.values())

    @property
    def checkpoints(self) -> int:
        return self._sum("checkpoints")

    @property
    def writes(self) -> int:
        return self._sum("writes")

    @property
    def items(self) -> int:
        return self._sum("items")

    @property
    def bytes(self) -> int:
        return self._sum("bytes")

    def __str__(self) -> str:
        named = "channel" if any(each.channels for each in self.threads.values()) else ""
        head = ("thread", named, "checkpoints", "writes", "items", "bytes")
        rows = [
            (*names, of.checkpoints, of.writes, of.items, shown_bytes(of.bytes))
            for *names, of in self._parts()
        ]
        return table([head, *rows])

    def _parts(self) -> Iterator[tuple[str, str, Any]]:
        for thread_id, each in self.threads.items():
            yield thread_id, "", each
            yield from (("", channel, of) for channel, of in each.channels.items())
        yield "total", "", self
