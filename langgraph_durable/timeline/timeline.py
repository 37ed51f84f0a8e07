"""`Timeline`: a thread as a list of steps that can be looked at, compared and branched.

    headers     what is read at first: a page of the newest steps, without values
    step        one step; loads its values when asked
    actions     fork, replay, resume
    text, html  how all of it is shown

Steps are those of the whole graph, oldest first, in the order of their ids; the steps of sub-graphs
are `children` of the step they ran from. Only as many headers are read as an answer needs: the last
steps need one page, `len(tl)` and `tl[3]` need them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_durable.errors import ConfigurationError, StepNotFound
from langgraph_durable.timeline import actions
from langgraph_durable.timeline.diff import Diff
from langgraph_durable.timeline.headers import (
    ERROR,
    INTERRUPT,
    Header,
    Source,
    config_of,
    looking,
)
from langgraph_durable.timeline.step import Step

if TYPE_CHECKING:
    from langgraph_durable.timeline.compare import Comparison
    from langgraph_durable.timeline.plot import Plot

PAGE = 50
"""Steps that are read, and shown, at first."""
MORE = 1000
"""Steps that are read at once when older ones are needed."""


class Timeline:
    """The steps of a thread.

    >>> tl = Timeline(graph, "thread-1")                 # doctest: +SKIP
    >>> tl[-1].values, tl[3].diff()                      # doctest: +SKIP
    >>> tl[3].fork({"plan": "B"}, as_node="planner")     # doctest: +SKIP

    Args:
        graph: a compiled graph with a checkpointer of any kind; or just the checkpointer, to look
            at a thread without acting on it.
        thread_id: the thread. One that does not exist is a timeline without steps.

    Raises:
        ConfigurationError: `graph` has no checkpointer, or `thread_id` is no text.
    """

    def __init__(self, graph: Any, thread_id: str) -> None:
        if not isinstance(thread_id, str) or not thread_id:
            raise ConfigurationError(f"thread_id is the name of a thread, not {thread_id!r}")
        looks = isinstance(graph, BaseCheckpointSaver)
        saver = graph if looks else getattr(graph, "checkpointer", None)
        if not isinstance(saver, BaseCheckpointSaver):
            raise ConfigurationError(
                "a timeline needs a graph compiled with a checkpointer, or the checkpointer, "
                f"not {graph!r:.100}"
            )
        self.graph: Any = None if looks else graph
        self.saver: BaseCheckpointSaver[Any] = saver
        self.thread_id = thread_id
        self._source = Source(saver, thread_id)
        self.refresh()

    def refresh(self) -> None:
        """Forget what was read, to see what has been stored since. Acting does it by itself."""
        self._headers: list[Header] = []  # newest first
        self._known: dict[str, Header] = {}
        self._complete = False
        self._latest: list[Header | None] = []
        self._inner: dict[tuple[str, str], Header] = {}  # steps of sub-graphs
        self._ran_from: dict[tuple[str, str], list[Header]] = {}
        self._knows_inner = self._source.tells_all
        self._steps: dict[tuple[str, str], Step] = {}

    # ---- reading -----------------------------------------------------------------------------

    def _read(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Read older headers until there is enough of them, or no more."""
        while not self._complete and not enough():
            size = MORE if self._headers else PAGE
            before = self._headers[-1].id if self._headers else None
            found, inner = self._source.steps(before, size)
            self._take(inner)
            self._headers += found
            self._known.update((header.id, header) for header in found)
            self._complete = len(found) < size

    def _take(self, inner: list[Header]) -> None:
        """Note steps of sub-graphs, and which steps they ran from."""
        for header in inner:
            self._inner[header.ns, header.id] = header
            parents = header.metadata.get("parents") or {}
            if parents:
                ns = max(parents, key=len)
                self._ran_from.setdefault((ns, str(parents[ns])), []).append(header)

    def _read_inner(self) -> None:
        """Read the steps of all sub-graphs, where the saver does not give them on the way."""
        if not self._knows_inner:
            self._take(self._source.below())
            self._knows_inner = True

    def _at_least(self, many: int) -> None:
        self._read(lambda: len(self._headers) >= many)

    @property
    def is_complete(self) -> bool:
        """Whether the headers of all steps have been read."""
        self._at_least(1)
        return self._complete

    def _step(self, header: Header) -> Step:
        step = self._steps.get((header.ns, header.id))
        if step is None:
            step = self._steps[header.ns, header.id] = Step(self, header)
        return step

    def _at(self, place: int) -> Step:
        """The step at a place counted from the newest, 0."""
        step = self._step(self._headers[place])
        step.index = len(self._headers) - 1 - place if self._complete else -1 - place
        return step

    def recent(self, many: int = PAGE) -> list[Step]:
        """The newest steps, oldest of them first. Reads no more than those."""
        self._at_least(many)
        return [self._at(place) for place in reversed(range(min(many, len(self._headers))))]

    def _parent_of(self, step: Step) -> Step | None:
        header = step._header
        if header.parent is None or header.parent == header.id:
            return None
        if header.ns:
            inner = self._inner.get((header.ns, header.parent))
            return None if inner is None else self._step(inner)
        if header.parent not in self._known and not self._complete:
            one = self._source.one(header.parent)  # not worth a page of all that lie between
            self._known.update({} if one is None else {one.id: one})
        parent = self._known.get(header.parent)
        return None if parent is None else self._step(parent)

    def _below(self, step: Step) -> list[Step]:
        self._read_inner()
        self._read(lambda: bool(step.ns) or self._known_below(step.id))
        found = self._ran_from.get((step.ns, step.id), ())
        return [self._step(header) for header in sorted(found, key=lambda one: one.id)]

    def _whole(self, header: Header) -> CheckpointTuple:
        found = self._source.whole(header.id, header.ns)
        if found is None:
            raise self._missing(header.id)
        return found

    def _snapshot(self, header: Header) -> Any:
        with looking(self.saver):
            snapshot = self.graph.get_state(header.config)
        if snapshot.created_at is None:
            raise self._missing(header.id)
        return snapshot

    def _missing(self, id: str) -> StepNotFound:
        return StepNotFound(
            f"thread {self.thread_id!r}: step {id} is no longer stored; tl.refresh() shows what is"
        )

    def _made(self, config: Any) -> Step:
        """The step that an action has stored."""
        at = config["configurable"]
        self.refresh()
        there = self if at["thread_id"] == self.thread_id else Timeline(self.graph, at["thread_id"])
        made: Step = there[at["checkpoint_id"]]
        return made

    # ---- finding steps -----------------------------------------------------------------------

    def __len__(self) -> int:
        self._read()
        return len(self._headers)

    def __bool__(self) -> bool:
        self._at_least(1)
        return bool(self._headers)

    def __iter__(self) -> Iterator[Step]:
        self._read()
        return iter([self._at(place) for place in reversed(range(len(self._headers)))])

    @overload
    def __getitem__(self, key: int | str) -> Step: ...
    @overload
    def __getitem__(self, key: slice) -> list[Step]: ...
    def __getitem__(self, key: int | str | slice) -> Step | list[Step]:
        """By place, counted from the oldest or, negative, from the newest; by id or its start."""
        if isinstance(key, slice):
            return self._slice(key)
        if isinstance(key, str):
            return self._by_id(key)
        if isinstance(key, bool) or not isinstance(key, int):
            raise ConfigurationError(f"a step has a number or an id, not {key!r}")
        if key < 0:
            self._at_least(-key)
            place = -key - 1
        else:
            self._read()
            place = len(self._headers) - 1 - key
        if not 0 <= place < len(self._headers):
            raise StepNotFound(
                f"thread {self.thread_id!r} has {len(self._headers)} steps, none at {key}"
            )
        return self._at(place)

    def _slice(self, key: slice) -> list[Step]:
        """The last steps, as `tl[-5:]`, need not read the first ones."""
        ends = (key.start, -1 if key.stop is None else key.stop)
        if key.step is None and all(type(end) is int and end < 0 for end in ends):
            return self.recent(-key.start)[slice(None, key.stop)]
        return list(self)[key]

    def _by_id(self, start: str) -> Step:
        """Ids that are spelled out need no search; a beginning must fit one step only."""
        if len(start) >= 36:
            self._read(lambda: self._known_below(start))
        else:
            self._read()
        fitting = [place for place, one in enumerate(self._headers) if one.id.startswith(start)]
        if not start or not fitting:
            self._read_inner()
            below = self._inner.values()
            inner = [header for header in below if start and header.id.startswith(start)]
            if len(inner) == 1:
                return self._step(inner[0])
            raise StepNotFound(f"thread {self.thread_id!r} has no step with the id {start!r}")
        if len(fitting) > 1:
            ids = [self._headers[place].id for place in fitting[:3]]
            raise ConfigurationError(f"{start!r} is the start of {len(fitting)} ids, as {ids}")
        return self._at(fitting[0])

    def _known_below(self, id: str) -> bool:
        return bool(self._headers) and self._headers[-1].id <= id

    @property
    def latest(self) -> Step | None:
        """The step that the thread goes on from: usually `tl[-1]`, whatever clocks say."""
        if not self._latest:
            self._latest.append(self._source.latest())
        header = self._latest[0]
        return None if header is None else self._step(header)

    def at(self, when: str | datetime) -> Step:
        """The newest step stored at that time or before. Without a zone, UTC is meant."""
        wanted = _moment(when)
        for place in self._places():
            stored = self._headers[place].created_at
            if stored is not None and stored <= wanted:
                return self._at(place)
        raise StepNotFound(f"thread {self.thread_id!r} has no step as old as {wanted.isoformat()}")

    def _places(self) -> Iterator[int]:
        """Places from the newest on, reading as it goes."""
        place = 0
        while True:
            self._at_least(place + 1)
            if place >= len(self._headers):
                return
            yield place
            place += 1

    def _those(self, keep: Callable[[Step], bool]) -> list[Step]:
        return [step for step in self if keep(step)]

    def where(
        self, *, node: str | None = None, source: str | None = None, tag: str | None = None
    ) -> list[Step]:
        """The steps of a node, of a source ("input", "loop", "update", "fork"), with a tag."""
        return self._those(
            lambda step: (
                (source is None or step.source == source)
                and (tag is None or tag in step.tags)
                and (node is None or node in step.nodes or node == step.node)
            )
        )

    def tagged(self, tag: str) -> list[Step]:
        """The steps that carry a tag."""
        return self.where(tag=tag)

    @property
    def interrupts(self) -> list[Step]:
        """The steps at which something was asked, answered since or not."""
        return self._those(lambda step: step._header.wrote(INTERRUPT))

    @property
    def errors(self) -> list[Step]:
        """The steps from which a run failed."""
        return self._those(lambda step: step._header.wrote(ERROR))

    @property
    def waiting(self) -> dict[str, Any]:
        """The interrupts that wait for an answer now, by id."""
        if self.graph is None:
            latest = self.latest
            asked = latest.interrupts if latest is not None and latest.is_waiting else ()
            return {one.id: one for one in asked}
        with looking(self.saver):
            return actions.waiting(self.graph.get_state(config_of(self.thread_id)))

    # ---- comparing ---------------------------------------------------------------------------

    def diff(self, old: int | str | Step, new: int | str | Step) -> Diff:
        """What changed from one step to another."""
        before, after = (one if isinstance(one, Step) else self[one] for one in (old, new))
        return after.diff(before)

    def compare(self, other: str | Timeline) -> Comparison:
        """This run and another side by side: where they part."""
        from langgraph_durable.timeline.compare import compare

        theirs = other
        if isinstance(other, str):
            theirs = Timeline(self.graph if self.graph is not None else self.saver, other)
        if not isinstance(theirs, Timeline):
            raise ConfigurationError(f"compare takes a thread id or a Timeline, not {other!r}")
        return compare(self, theirs)

    # ---- acting ------------------------------------------------------------------------------

    def resume(self, answer: Any, **options: Any) -> Any:
        """Answer the interrupt that waits; several at once as `{id: answer}`.

        Options go to `graph.invoke`, and its answer comes back.

        Raises:
            ConfigurationError: nothing waits, or several do and it is not said which is meant.
        """
        return actions.resume(self, answer, options)

    async def aresume(self, answer: Any, **options: Any) -> Any:
        """`resume` through `graph.ainvoke`."""
        return await actions.aresume(self, answer, options)

    # ---- showing -----------------------------------------------------------------------------

    def plot(self) -> Plot:
        """Time per node, bytes per step and per channel, as inline SVG."""
        from langgraph_durable.timeline.plot import Plot

        return Plot(self)

    def to_html(self, path: str | Path) -> Path:
        """Save the timeline as one file that needs nothing else, with the values of its steps."""
        from langgraph_durable.timeline import pages

        target = Path(path)
        target.write_bytes(pages.document(self).encode("utf-8", "xmlcharrefreplace"))
        return target

    def watch(
        self, *, every: float = 1.0, timeout: float | None = None, show: bool = True
    ) -> Iterator[Step]:
        """Follow a live thread: gives each step stored from now on, and shows it.

        >>> for step in tl.watch(timeout=60):                # doctest: +SKIP
        ...     print(step.values)

        In a notebook `tl.watch()` alone, as the result of a cell, follows until it is interrupted.
        A step that comes to wait for an answer, or fails, is shown again.

        Args:
            every: seconds between two looks.
            timeout: seconds after which to stop if nothing new came; None waits for ever.
            show: print what is new in a terminal, or update the cell of a notebook.
        """
        from langgraph_durable.timeline.watch import watch

        return watch(self, every, timeout, show)

    def __repr__(self) -> str:
        from langgraph_durable.timeline import text

        return text.tree(self)

    def _repr_html_(self) -> str:
        from langgraph_durable.timeline import html, pages

        return html.page(pages.timeline(self))


def _moment(when: str | datetime) -> datetime:
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError as error:
            raise ConfigurationError(
                f'a time is written as "2026-11-18 10:00", not {when!r}'
            ) from error
    if not isinstance(when, datetime):
        raise ConfigurationError(f"a time is text or a datetime, not {when!r}")
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def seconds(took: timedelta | None) -> str:
    """A duration for people."""
    if took is None:
        return ""
    value = took.total_seconds()
    if value >= 120:
        return str(timedelta(seconds=round(value)))
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
