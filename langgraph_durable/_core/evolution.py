"""A program's state through its versions: the rules by which stored checkpoints are upgraded.

`Steps` is the ladder that a `StateSchema` builds; `Evolution` climbs it with one stored checkpoint
at a time. It first runs the steps over names alone (`StateEdit` with `probing`), to learn which
classes have moved before any value is rebuilt, then over everything. The engine asks for this only
where a record's version is not the program's; nothing here is ever written back by a read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from langgraph_durable._core import lineage
from langgraph_durable._core.decoder import Decoder
from langgraph_durable._core.edits import Content, EditedWrite, Noted, StateEdit
from langgraph_durable._core.header import Header
from langgraph_durable._core.lineage import Chain, Pending
from langgraph_durable._core.ops import (
    INTERRUPT,
    SENDS,
    MoveClass,
    Op,
    follow,
    followed,
    node_before,
    node_now,
    told_by,
)
from langgraph_durable._core.records import CheckpointRow
from langgraph_durable._core.tasks import BRANCH, MOST_SENDS, START, Moved, Tasks
from langgraph_durable.errors import SchemaVersionError

NULL_TASK = "00000000-0000-0000-0000-000000000000"
VERSION = "schema_version"
"""The metadata key that shows the version a checkpoint was stored under."""

Step = Callable[[StateEdit], object]
Known = Mapping[int, str]
"""What a namespace is called in each version, where that is not what it is stored under."""


@dataclass(slots=True)
class Steps:
    """The steps between versions."""

    version: int
    unversioned: int = 0
    """What data without a version counts as."""
    up: dict[int, Step] = field(default_factory=dict)
    down: dict[int, Step] = field(default_factory=dict)
    """Each by the version it leads to."""
    triggers: dict[str, Sequence[str]] = field(default_factory=dict)
    """What wakes the nodes of the program's graph, where it is known."""

    def between(self, stored: int) -> Iterator[tuple[int, Step | None]]:
        """The versions on the way from `stored`, each with the step that leads to it."""
        if stored <= self.version:
            for to in range(stored + 1, self.version + 1):
                # Version 1 is the first one: without a step of its own it is what came before.
                yield to, self.up.get(to) or (_nothing if to == 1 else None)
        else:
            for to in range(stored - 1, self.version - 1, -1):
                yield to, self.down.get(to)

    def ends(self) -> tuple[int, int]:
        """The oldest and the newest version from which there is a way."""
        oldest = self.version
        while oldest in self.up or oldest == 1:
            oldest -= 1
        return oldest, self.version + len(self.down)


def _nothing(state: StateEdit) -> None:
    """The step to the first version."""


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


@dataclass(slots=True)
class Edited:
    """A checkpoint in the program's version."""

    content: Content
    ns: str
    moved: list[Moved] = field(default_factory=list)
    """Tasks whose ids are others now."""
    interrupts: dict[str, str] = field(default_factory=dict)
    """Ids of questions before and now."""
    unknown: list[Any] = field(default_factory=list)
    """Questions that were asked further down, by sub-graphs of moved tasks."""


class Evolution:
    """The rules; see the top of the file."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.version = steps.version

    def stored(self, version: int | None) -> int:
        return self.steps.unversioned if version is None else version

    # ---- climbing ----------------------------------------------------------------------------

    def _climb(self, opened: Opened, edit: StateEdit) -> None:
        """Run the steps over a checkpoint; `SchemaVersionError` if that cannot be done."""
        stored = self.stored(opened.header.schema)
        for to, step in self.steps.between(stored):
            if step is None:
                raise self._error(opened, to, None)
            edit.to = to
            try:
                step(edit)
            except Exception as error:
                # Without values it may have asked for one; what is wrong shows when there are some.
                if not edit.probing:
                    raise self._error(opened, to, error) from error

    def _error(self, opened: Opened, to: int, cause: Exception | str | None) -> SchemaVersionError:
        stored = self.stored(opened.header.schema)
        return SchemaVersionError(
            opened.thread_id, opened.row.id, stored, self.version, to, _told(cause)
        )

    def probe(self, opened: Opened) -> StateEdit:
        """The steps over names alone: what they do to channels, nodes and classes."""
        header = opened.header
        content = Content(
            dict.fromkeys(header.entries),
            dict(header.versions),
            {node: dict(seen) for node, seen in header.seen.items()},
            dict(opened.rest),
            dict(opened.metadata),
            [self._named(opened, write) for write in opened.writes],
        )
        stored = self.stored(header.schema)
        upwards = stored <= self.version
        edit = StateEdit(content, namespace_of(opened.row.ns), upwards=upwards, probing=True)
        self._climb(opened, edit)
        return edit

    def _named(self, opened: Opened, write: Pending) -> EditedWrite:
        place = write.task_id, write.path, write.idx, write.ref.channel
        return EditedWrite(*place, None, self._version(opened, write), write.run)

    def edit(self, opened: Opened, decoder: Decoder, known: Known) -> Edited:
        """A stored checkpoint in today's version."""
        probed = self.probe(opened)
        decoder = decoder.moving(classes(probed.noted))
        header, where = opened.header, opened.where
        writes = []
        for write in opened.writes:
            made = self._named(opened, write)
            made.value = decoder.value(where, write.ref, write.form, "pending write to")
            writes.append(made)
        held = {}
        for channel, kept in header.capsules.items():
            seed, *parts = lineage.unfold(*kept)
            held[channel] = (
                () if seed is None else (decoder.value(where, seed[1], seed[2]),),
                [(p[0], decoder.value(where, p[1], p[2])) for p in parts if p],
            )
        content = Content(
            {
                channel: decoder.value(where, entry.ref, entry.form)
                for channel, entry in header.entries.items()
            },
            dict(header.versions),
            {node: dict(seen) for node, seen in header.seen.items()},
            dict(opened.rest),
            dict(opened.metadata),
            writes,
            held,
        )
        sent = _sent_to(content.values.get(SENDS))
        upwards = self.stored(header.schema) <= self.version
        edit = StateEdit(content, namespace_of(opened.row.ns), upwards=upwards)
        self._climb(opened, edit)
        edited = Edited(content, known.get(self.version, opened.row.ns))
        self._move_tasks(opened, edited, edit.noted, known, sent)
        return edited

    # ---- tasks -------------------------------------------------------------------------------

    def tasks(
        self,
        opened: Opened,
        noted: Sequence[Noted],
        known: Known,
        more: Iterable[str] = (),
        *,
        first: int | None = None,
        last: int | None = None,
    ) -> Tasks | None:
        """The tasks after a checkpoint, as programs of two versions know them.

        `first` is the stored version if it is not given, `last` is today's. None if nobody can run
        from there. `more` are names of nodes then that the checkpoint does not tell.
        """
        header, step = opened.header, opened.metadata.get("step")
        if type(step) is not int:
            return None
        stored = self.stored(header.schema)
        first, last = stored if first is None else first, self.version if last is None else last
        before, ops = _between(noted, stored, first), _between(noted, first, last)
        after = _between(noted, first, self.version)
        names = {node_now(before, name) for name in (*self._names(opened), *more)}
        names |= {node_now(before[at:], name) for at, name in told_by(before)}
        names |= {node_before(after[:at], name) for at, name in told_by(after)}
        writes = (write for write in opened.writes if self._version(opened, write) == first)
        names = (names | {_pulled(write.path) for write in writes}) - {"", INTERRUPT}
        return Tasks(
            opened.row.id,
            opened.rest.get("v", 1),
            step + 1,
            known.get(first, opened.row.ns),
            known.get(last, opened.row.ns),
            names,
            lambda name: node_now(ops, name),
            [now for name in header.versions if (now := follow(before, name)) is not None],
            lambda name: follow(ops, name),
            {
                node_now(before, node): {
                    now: v for name, v in seen.items() if (now := follow(before, name))
                }
                for node, seen in header.seen.items()
            },
            self._hints(names, after),
            MOST_SENDS if SENDS in header.entries else 0,
        )

    @staticmethod
    def _names(opened: Opened) -> set[str]:
        """Nodes that a checkpoint tells of, by their names then."""
        branches = (c[len(BRANCH) :] for c in opened.header.versions if c.startswith(BRANCH))
        return {START, *opened.header.seen, *branches}

    def _hints(self, names: Iterable[str], ops: Sequence[Op]) -> dict[str, list[str]]:
        """What wakes nodes, from what wakes those of today."""
        return {
            name: [reduce(lambda now, op: op.before(now), reversed(ops), each) for each in hint]
            for name in names
            if (hint := self.steps.triggers.get(node_now(ops, name)))
        }

    def _version(self, opened: Opened, write: Pending) -> int:
        return self.stored(opened.header.schema if write.schema is None else write.schema)

    def _move_tasks(
        self,
        opened: Opened,
        edited: Edited,
        noted: Sequence[Noted],
        known: Known,
        sent: Iterable[str],
    ) -> None:
        """Give what tasks wrote to the ids that the program will look for."""
        kinds: dict[int, Tasks | None] = {}
        kept: dict[tuple[str, int], EditedWrite] = {}
        for write in sorted(edited.content.writes, key=lambda w: abs(w.version - self.version)):
            if write.version != self.version and write.task_id != NULL_TASK:
                if write.version not in kinds:
                    kinds[write.version] = self.tasks(
                        opened, noted, known, sent, first=write.version
                    )
                tasks = kinds[write.version]
                if tasks is not None and tasks.changed:
                    self._move(opened, edited, tasks, write)
            kept.setdefault((write.task_id, write.idx), write)  # the newest program's comes first
        edited.content.writes = sorted(kept.values(), key=lambda w: (w.path, w.task_id, w.idx))
        if edited.ns != opened.row.ns:
            _move_parents(edited.content.metadata, opened.row.ns, edited.ns)

    def _move(self, opened: Opened, edited: Edited, tasks: Tasks, write: EditedWrite) -> None:
        moved = tasks.moved(write.task_id, write.path)
        if moved is None:
            if tasks.is_nobodys(write.task_id):
                write.path = tasks.path(write.path)
            elif tasks.is_concerned(write.path):
                why = (
                    f"the pending writes of task {write.task_id} ({write.path or 'no path'}) "
                    "belong to no task that is known: name the graph, StateSchema.of(graph, ...), "
                    "or the tasks that a renamed entrypoint calls, rename_node(..., calls=[...])"
                )
                raise self._error(opened, self.version, why)
            return
        if moved not in edited.moved:
            edited.moved.append(moved)
        write.task_id, write.path = moved.id, tasks.path(write.path)
        if write.channel == INTERRUPT:
            several = write.value if isinstance(write.value, (list, tuple)) else [write.value]
            for asked in several:
                if not hasattr(asked, "id"):
                    continue
                now = moved.interrupt(asked.id)
                if now is None:
                    edited.unknown.append(asked)
                else:
                    edited.interrupts[asked.id] = now
                    asked.id = now

    # ---- namespaces --------------------------------------------------------------------------

    def way(self, stored: int) -> list[int]:
        """The versions from a stored one to today's."""
        return [stored, *(to for to, _ in self.steps.between(stored))]

    def below(self, parent: Opened, known: Known, segment: str, version: int) -> Known:
        """What a task's part of a namespace is called in each version, from its name in one.

        Args:
            parent: the checkpoint that the task runs from.
            known: what the namespace of `parent` is called.
            segment: the part, `node:id`, as programs of `version` know it.
            version: the version.
        """
        name, _, task_id = segment.partition(":")
        noted, way = self.probe(parent).noted, self.way(self.stored(parent.header.schema))
        was = node_before(_between(noted, way[0], version), name)
        tasks = self.tasks(parent, noted, known, [was], last=version)
        moved = None if tasks is None else tasks.back(name, task_id)
        if moved is None:
            return dict.fromkeys(way, segment)
        stored = moved.old_ns.rpartition("|")[2]
        name, _, task_id = stored.partition(":")
        found = {}
        for each in way:
            tasks = self.tasks(parent, noted, known, [name], last=each)
            now = None if tasks is None else tasks.moved(task_id)
            found[each] = stored if now is None else now.new_ns.rpartition("|")[2]
        return found

    def lasting(self, above: str, name: str, version: int) -> Known:
        """The same for a sub-graph that keeps one namespace, named by its node, for all calls."""
        found: dict[int, str] = {}
        for end in self.steps.ends():
            row = CheckpointRow(above, "", None, None, b"", b"")
            empty = Opened("", row, Header({}, {}, {}, b"", b"", schema=end), {}, {}, ())
            noted, way = self.probe(empty).noted, self.way(end)
            if version in way:
                was = node_before(_between(noted, end, version), name)
                found |= {each: node_now(_between(noted, end, each), was) for each in way}
        return found | {version: name}

    # ---- the history of DeltaChannels --------------------------------------------------------

    def channels_before(self, opened: Opened, channels: Iterable[str]) -> dict[str, str]:
        """What today's channels were called when a checkpoint was stored."""
        ops = [each.op for each in self.probe(opened).noted]
        return {ch: reduce(lambda now, op: op.before(now), reversed(ops), ch) for ch in channels}

    def history(
        self, opened: Opened, chain: Chain, decoder: Decoder, channels: Mapping[str, str]
    ) -> dict[str, dict[str, Any]]:
        """The history of `channels` (name now: name then), seed and writes upgraded one by one."""
        noted = self.probe(opened).noted
        decoder = decoder.moving(classes(noted))
        wanted = {*channels, *channels.values()}
        try:
            found = lineage.history(chain, decoder, sorted(wanted), opened.where)
            return {now: self._joined(found, noted, now, then) for now, then in channels.items()}
        except SchemaVersionError:
            raise
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise self._error(opened, self.version, error) from error

    def _joined(
        self, found: Mapping[str, Any], noted: Sequence[Noted], now: str, then: str
    ) -> dict[str, Any]:
        old, ops = found[then], [each.op for each in noted]
        made: dict[str, Any] = {
            "writes": [(task, now, followed(ops, then, v, "write")) for task, _, v in old["writes"]]
        }
        if "seed" in old:
            made["seed"] = followed(ops, then, old["seed"], "value")
        if now != then:  # what this program has added to an old checkpoint already
            made["writes"] += found[now]["writes"]
        return made


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


def _between(noted: Iterable[Noted], first: int, last: int) -> list[Op]:
    """What the steps from one version to another do."""
    if first <= last:
        return [each.op for each in noted if first < each.to <= last]
    return [each.op for each in noted if last <= each.to < first]


def _told(cause: Exception | str | None) -> str | None:
    return f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else cause


def _pulled(path: str) -> str:
    """The node of a task that edges led to."""
    _, found, rest = path.rpartition("~__pregel_pull, ")
    return rest.partition(", ")[0] if found else ""


def _sent_to(sends: Any) -> set[str]:
    several = sends if isinstance(sends, (list, tuple)) else ()
    return {send.node for send in several if isinstance(getattr(send, "node", None), str)}


def _move_parents(metadata: dict[str, Any], old: str, new: str) -> None:
    """`parents` names the checkpoints above by namespace."""
    parents = metadata.get("parents")
    if isinstance(parents, dict):
        before, now = old.split("|"), new.split("|")
        names = {"|".join(before[:k]): "|".join(now[:k]) for k in range(1, len(before) + 1)}
        metadata["parents"] = {names.get(ns, ns): id for ns, id in parents.items()}
