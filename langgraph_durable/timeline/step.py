"""One step of a timeline: a checkpoint whose values are read when somebody asks for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langgraph_durable.timeline import actions, editing, lineage
from langgraph_durable.timeline.diff import Diff, short
from langgraph_durable.timeline.diff import diff as differences
from langgraph_durable.timeline.headers import (
    CONTROL,
    ERROR,
    INTERRUPT,
    NULL_TASK,
    SENDS,
    Header,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

    from langgraph_durable.timeline.timeline import Timeline

TAGS = "checkpoint_tags", "tags"
"""Metadata that hold tags: those of `saver.tag`, and those that a run was given."""
CONTINUES = "loop"
"""The source of steps that a run made of its own accord."""


def tags_of(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The tags of a checkpoint, as its metadata tells them."""
    found: list[str] = []
    for key in TAGS:
        tags = metadata.get(key) or ()
        found += [tags] if isinstance(tags, str) else map(str, tags)
    return tuple(dict.fromkeys(found))


def may_have_sent(header: Header) -> bool:
    """Whether `Send`s may have been open at a step; sure only where LangGraph noted it."""
    return SENDS in (header.versions if header.updated is None else header.updated)


class Step:
    """A checkpoint of a thread: what the state was, what made it, and what can be done from it.

    Made by a `Timeline`; values, writes and tasks are read on first use and kept.
    """

    def __init__(self, timeline: Timeline, header: Header, index: int | None = None) -> None:
        self._timeline, self._header = timeline, header
        self.index = index
        """Its place in the timeline; negative, from the end, if the beginning is not read."""

    # ---- without values ----------------------------------------------------------------------

    @property
    def header(self) -> Header:
        """What is known of it without its values; the functions of lineage take it."""
        return self._header

    @property
    def id(self) -> str:
        """The checkpoint's id."""
        return self._header.id

    @property
    def path(self) -> tuple[str, ...]:
        """The nodes whose sub-graphs it is a step of, outermost first."""
        return tuple(part.partition(":")[0] for part in self.ns.split("|")) if self.ns else ()

    @property
    def ns(self) -> str:
        """The namespace: empty, or that of the sub-graph it is a step of."""
        return self._header.ns

    @property
    def number(self) -> int | None:
        """LangGraph's number of the step: -1 for the first input."""
        return self._header.metadata.get("step")

    @property
    def source(self) -> str:
        """What made it: "input", "loop", "update" or "fork"."""
        return self._header.source

    @property
    def config(self) -> dict[str, Any]:
        """The config that names it, for `graph.invoke` and its like."""
        return self._header.config

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What is stored beside the state."""
        return self._header.metadata

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, if it has any."""
        return tags_of(self._header.metadata)

    @property
    def environment(self) -> Mapping[str, Any] | None:
        """What the saver noted about the program that stored it; None if it notes nothing."""
        look: Any = getattr(self._timeline.saver, "environment", None)
        found = look(self.config) if callable(look) else None
        return found if isinstance(found, Mapping) and found else None

    @property
    def created_at(self) -> datetime | None:
        """When it was stored."""
        return self._header.created_at

    @property
    def parent(self) -> Step | None:
        """The step it follows; None for the first, or if that one was removed."""
        return self._timeline._parent_of(self)

    @property
    def took(self) -> timedelta | None:
        """The time since its parent, waiting for humans included; None if no run led from it."""
        parent = self.parent
        if self.source != CONTINUES or parent is None or not parent.created_at:
            return None
        return None if self.created_at is None else self.created_at - parent.created_at

    @property
    def children(self) -> list[Step]:
        """The steps of the sub-graphs that ran from this step, oldest first."""
        return self._timeline._below(self)

    @property
    def is_waiting(self) -> bool:
        """Whether a task asked something and has had no answer."""
        return self._header.open_interrupts()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that made this step, each once; more than one if they ran side by side."""
        if self._header.damage is not None:
            return ()
        if self.source in ("input", "fork"):
            return ("__input__",) if self.source == "input" else ()
        parent = self.parent
        before = parent._header if parent and parent._header.damage is None else None
        names = lineage.ran(self._header, before)
        if parent and before and self.source == CONTINUES and may_have_sent(before):
            sends = parent._stored.checkpoint["channel_values"].get(SENDS) or ()
            names += [send.node for send in sends if send.node not in names]
        return tuple(dict.fromkeys(names))

    @property
    def tasks(self) -> int:
        """How many tasks made it: more than its nodes, if `Send` started some of them twice."""
        parent = self.parent if self.source == CONTINUES else None
        writes = parent._header.writes if parent else ()
        return len({task for task, name in writes if task != NULL_TASK and name not in CONTROL})

    @property
    def node(self) -> str:
        """`nodes` as text; "__start__" is the step that takes the input in."""
        names = self.nodes
        if names:
            return ", ".join(names)
        if self._header.damage is not None:
            return "(damaged)"
        return "__start__" if self.source == CONTINUES else f"({self.source or 'unknown'})"

    # ---- with values -------------------------------------------------------------------------

    @cached_property
    def _stored(self) -> CheckpointTuple:
        return self._timeline._whole(self._header)

    @cached_property
    def _snapshot(self) -> Any:
        return self._timeline._snapshot(self._header)

    @cached_property
    def values(self) -> Any:
        """The state, as `graph.get_state` gives it."""
        if self._timeline.graph is not None and not self.ns:
            return self._snapshot.values
        stored = self._stored.checkpoint["channel_values"]
        return {name: value for name, value in stored.items() if not is_internal(name)}

    @property
    def next(self) -> tuple[str, ...]:
        """The nodes that were to run from here."""
        if self._timeline.graph is not None and not self.ns:
            return tuple(self._snapshot.next)
        header, stored = self._header, self._stored.checkpoint["channel_values"]
        due = [
            channel.rpartition(":")[2]
            for channel, version in header.versions.items()
            if channel.startswith(("branch:to:", "join:")) and channel in stored
            if version != (header.seen.get(channel.rpartition(":")[2]) or {}).get(channel)
        ]
        return (*due, *(send.node for send in stored.get(SENDS) or ()))

    @property
    def writes(self) -> dict[str, list[Any]]:
        """What the tasks that ran from here wrote, by channel."""
        found: dict[str, list[Any]] = {}
        for task, channel, value in self._stored.pending_writes or ():
            if task != NULL_TASK and channel not in CONTROL and not is_internal(channel):
                found.setdefault(channel, []).append(value)
        return found

    @property
    def interrupts(self) -> tuple[Any, ...]:
        """What tasks asked at this step, answered since or not."""
        if not self._header.wrote(INTERRUPT):
            return ()
        found: list[Any] = []
        for _, channel, value in self._stored.pending_writes or ():
            if channel == INTERRUPT:
                found += value if isinstance(value, (list, tuple)) else [value]
        return tuple(found)

    @property
    def error(self) -> Any:
        """How the run that went on from here failed; None if it did not."""
        if not self._header.wrote(ERROR):
            return None
        writes = self._stored.pending_writes or ()
        return next((value for _, channel, value in writes if channel == ERROR), None)

    @cached_property
    def bytes_by_channel(self) -> dict[str, int]:
        """The serialised size of each value of the state."""
        serde = self._timeline.saver.serde
        values = self.values if isinstance(self.values, dict) else {"(value)": self.values}
        return {name: _size(serde, value) for name, value in values.items()}

    @property
    def bytes(self) -> int:
        """The serialised size of the state."""
        return sum(self.bytes_by_channel.values())

    # ---- comparing and editing ---------------------------------------------------------------

    def diff(self, other: Step | None = None) -> Diff:
        """What changed since its parent, or since `other`."""
        before = other if other is not None else self.parent
        old = before.values if before is not None else {}
        label = before.label if before is not None else "(nothing)"
        return Diff(differences(old, self.values), label, self.label)

    def to_json(self, indent: int | None = 2) -> str:
        """The state as JSON text; what JSON has no word for is tagged with its type."""
        return json.dumps(editing.to_plain(self.values), indent=indent, ensure_ascii=False)

    def edit(self) -> editing.Draft:
        """The state as JSON text to change and save as a new checkpoint.

        >>> draft = step.edit()                                     # doctest: +SKIP
        >>> draft.text = draft.text.replace("Paris", "Rome")        # doctest: +SKIP
        >>> step = draft.save(as_node="planner")                    # doctest: +SKIP
        """
        return editing.Draft(self)

    # ---- acting ------------------------------------------------------------------------------

    def fork(
        self, values: Any = None, *, as_node: str | None = None, to_thread: str | None = None
    ) -> Step:
        """A new branch that starts here with `values` changed; the old one stays.

        Args:
            values: an update, as a node would return it.
            as_node: the node it should seem to come from; the next ones run after it.
            to_thread: begin a new thread with this state instead. It must not exist yet. What its
                sub-graphs remember of earlier calls comes along, as it was at this step, not what
                they have learned since. If the thread waits at this step and nothing is changed,
                its questions and finished tasks come along too, to be answered there.

        Raises:
            ConfigurationError: the node, the thread or the step is not one to fork from or to.
            StepNotFound: the step is no longer stored.
        """
        return actions.fork(self, values, as_node, to_thread)

    async def afork(
        self, values: Any = None, *, as_node: str | None = None, to_thread: str | None = None
    ) -> Step:
        """`fork`, off the event loop."""
        return await actions.afork(self, values, as_node, to_thread)

    def replay(self, *, until: str | None = None, **options: Any) -> Any:
        """Run again from here, on a new branch; `until` stops before that node.

        A node that is due at this very step runs first; then `until` stops before its next turn.
        Options go to `graph.invoke`, and its answer comes back.
        """
        return actions.replay(self, until, options)

    async def areplay(self, *, until: str | None = None, **options: Any) -> Any:
        """`replay` through `graph.ainvoke`."""
        return await actions.areplay(self, until, options)

    # ---- showing -----------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """A short name for people."""
        number = "?" if self.number is None else self.number
        return f"step {number} ({self.node.strip('()')})"

    def __repr__(self) -> str:
        from langgraph_durable.timeline import text

        return text.step(self)

    def _repr_html_(self) -> str:
        from langgraph_durable.timeline import html, pages

        return html.page(pages.alone(self))


def _size(serde: Any, value: Any) -> int:
    """The serialised size; a handle that only a saver can store counts as long as it looks."""
    try:
        return len(serde.dumps_typed(value)[1])
    except Exception:
        if isinstance(value, Mapping):
            return sum(_size(serde, key) + _size(serde, one) for key, one in value.items())
        if isinstance(value, (list, tuple)):
            return sum(_size(serde, one) for one in value)
        return len(short(value, 1000))


def is_internal(channel: str) -> bool:
    """Whether a channel is LangGraph's own book-keeping."""
    return channel.startswith(("branch:", "join:", "__"))
