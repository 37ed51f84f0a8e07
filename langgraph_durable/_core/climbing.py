"""Climbing: the steps of a schema run over one stored checkpoint, as far as names go.

`Climber` runs the ladder of `steps` over a checkpoint taken apart (`StateEdit`): without values to
learn what the steps do to channels, nodes and classes, and for `evolution`, which knows the rest.
Pending writes climb with their checkpoint, except those of a version that does not lie on its way
(a newer program wrote them, and was rolled back): they climb from their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

from langgraph_durable._core.decoder import Decoder
from langgraph_durable._core.edits import Content, EditedWrite, Noted, StateEdit, check_returned
from langgraph_durable._core.header import Header
from langgraph_durable._core.lineage import Pending
from langgraph_durable._core.ops import (
    MoveClass,
    Op,
    Rename,
    RenameNode,
    node_before,
    node_now,
)
from langgraph_durable._core.records import CheckpointRow
from langgraph_durable._core.steps import Steps
from langgraph_durable.errors import SchemaVersionError

Known = Mapping[int, str]
"""What a namespace is called in each version, where that is not what it is stored under."""


class Opened(NamedTuple):
    """A stored checkpoint before anything was decoded."""

    thread_id: str
    row: CheckpointRow
    header: Header
    rest: dict[str, Any]
    metadata: dict[str, Any]
    writes: Sequence[Pending]

    @property
    def where(self) -> str:
        where = f"thread {self.thread_id!r}, checkpoint {self.row.id}"
        return f"{where} of {self.row.ns!r}" if self.row.ns else where


class Climber:
    """Runs the steps; see the top of the file."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.version = steps.version

    def stored(self, version: int | None) -> int:
        return self.steps.unversioned if version is None else version

    # ---- climbing ----------------------------------------------------------------------------

    def climb(self, opened: Opened, edit: StateEdit, stored: int, names: Known) -> None:
        """Run the steps from `stored`; `SchemaVersionError` if that cannot be done.

        `names` is what the namespace (without ids) is called in each version.
        """
        before = stored
        for to, step in self.steps.between(stored):
            if step is None:
                raise self.error(opened, to, None, stored)
            edit.to, edit.namespace = to, names[before]
            try:
                check_returned(step(edit))
            except Exception as error:
                # Without values it may have asked for one; what is wrong shows when there are some.
                if not edit.probing:
                    raise self.error(opened, to, error, stored) from error
            before = to

    def error(
        self, opened: Opened, to: int, cause: Exception | str | None, stored: int | None = None
    ) -> SchemaVersionError:
        stored = self.stored(opened.header.schema) if stored is None else stored
        return SchemaVersionError(
            opened.thread_id, opened.row.id, stored, self.version, to, _told(cause)
        )

    def called(self, opened: Opened, namespace: str, version: int, first: int) -> Known:
        """What a namespace of `version` (without ids) is called on the way from `first`."""
        if not namespace:
            return dict.fromkeys(self.steps.way(first), "")
        above, _, name = namespace.rpartition("|")
        names = self.called(opened, above, version, first)
        edit = StateEdit(Content.empty(), "", upwards=first <= self.version, probing=True)
        self.climb(opened, edit, first, names)
        was = node_before(between(edit.noted, first, version), name)
        return {
            each: f"{names[each]}|{now}" if above else now
            for each in self.steps.way(first)
            for now in [node_now(between(edit.noted, first, each), was)]
        }

    def names_on_way(self, opened: Opened) -> Known:
        stored = self.stored(opened.header.schema)
        return self.called(opened, namespace_of(opened.row.ns), stored, stored)

    def probe(self, opened: Opened) -> StateEdit:
        """The steps over names alone: what they do to channels, nodes and classes."""
        header, stored = opened.header, self.stored(opened.header.schema)
        along, apart = self.parted(opened)
        content = Content(
            dict.fromkeys(header.entries),
            dict(header.versions),
            {node: dict(seen) for node, seen in header.seen.items()},
            dict(opened.rest),
            dict(opened.metadata),
            [self.named(opened, write) for write in along],
        )
        edit = StateEdit(content, "", upwards=stored <= self.version, probing=True)
        names = self.names_on_way(opened)
        self.climb(opened, edit, stored, names)
        for version, writes in apart.items():
            named = [self.named(opened, write) for write in writes]
            made = self.climb_apart(opened, content, named, version, names, probing=True)
            content.writes = content.writes + made._content.writes
        return edit

    def named(self, opened: Opened, write: Pending) -> EditedWrite:
        place = write.task_id, write.path, write.idx, write.ref.channel
        return EditedWrite(*place, None, self.version_of(opened, write), write.run, write.by)

    def parted(self, opened: Opened) -> tuple[list[Pending], dict[int, list[Pending]]]:
        """The pending writes that climb with their checkpoint, and the others by version."""
        low, high = sorted((self.stored(opened.header.schema), self.version))
        along: list[Pending] = []
        apart: dict[int, list[Pending]] = {}
        for write in opened.writes:
            version = self.version_of(opened, write)
            (along if low <= version <= high else apart.setdefault(version, [])).append(write)
        return along, apart

    def climb_apart(
        self,
        opened: Opened,
        content: Content,
        writes: list[EditedWrite],
        version: int,
        names: Known,
        *,
        probing: bool = False,
    ) -> StateEdit:
        """Bring writes of `version` to a checkpoint that has come to this one already."""
        own = replace(content, writes=writes)
        upwards = version <= self.version
        edit = StateEdit(own, "", upwards=upwards, probing=probing, writes_only=True)
        today = self.version
        called = self.called(opened, names[today], today, version)
        self.climb(opened, edit, version, called)
        return edit

    def version_of(self, opened: Opened, write: Pending) -> int:
        return self.stored(opened.header.schema if write.schema is None else write.schema)

    def valued(
        self, opened: Opened, writes: Iterable[Pending], decoder: Decoder
    ) -> list[EditedWrite]:
        made = []
        for write in writes:
            made.append(each := self.named(opened, write))
            each.value = decoder.value(opened.where, write.ref, write.form, "pending write to")
        return made

    def check_names(self, opened: Opened, probed: StateEdit, edit: StateEdit) -> None:
        """What was learned over names alone must have been all there is."""
        first, last = (
            [each for each in noted if isinstance(each.op, (MoveClass, Rename, RenameNode))]
            for noted in (probed.noted, edit.noted)
        )
        if first != last:
            pairs = zip_longest(first, last)
            to = next((now or then).to for then, now in pairs if then != now)
            why = (
                "which names it changes (rename, rename_node, move_class, load_as_dict) depends "
                "on a value: name them before asking for values"
            )
            raise self.error(opened, to, why)


def namespace_of(ns: str) -> str:
    """The names of nodes in a namespace, without their ids."""
    return "|".join(part.partition(":")[0] for part in ns.split("|") if not part.isdigit())


def classes(noted: Iterable[Noted]) -> dict[str, str | type | None]:
    """Where classes have moved to, at the end of the way."""
    moves = {each.op.old: each.op.new for each in noted if isinstance(each.op, MoveClass)}

    def last(target: str | type | None) -> str | type | None:
        for _ in moves:
            if not isinstance(target, str) or target not in moves:
                break
            target = moves[target]
        return target

    return {old: last(new) for old, new in moves.items()}


def between(noted: Iterable[Noted], first: int, last: int) -> list[Op]:
    """What the steps from one version to another do."""
    if first <= last:
        return [each.op for each in noted if first < each.to <= last]
    return [each.op for each in noted if last <= each.to < first]


def _told(cause: Exception | str | None) -> str | None:
    return f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else cause
