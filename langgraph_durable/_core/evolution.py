"""A program's state through its versions: the rules by which stored checkpoints are upgraded.

`Evolution` climbs the ladder of `steps` with one stored checkpoint at a time. It first runs the
steps over names alone (see `climbing`), to learn which classes have moved before any value is
rebuilt, then over everything. The engine asks for this only where the version of a record, or of
its writes, is not the program's; nothing here is ever written back by a read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from langgraph_durable._core import lineage
from langgraph_durable._core.climbing import Climber, Known, Opened, between, classes
from langgraph_durable._core.decoder import Decoder
from langgraph_durable._core.edits import Content, EditedWrite, Noted, StateEdit
from langgraph_durable._core.header import Header
from langgraph_durable._core.lineage import Chain
from langgraph_durable._core.ops import (
    INTERRUPT,
    SENDS,
    Op,
    follow,
    followed,
    node_before,
    node_now,
    told_by,
    undone,
)
from langgraph_durable._core.records import CheckpointRow
from langgraph_durable._core.tasks import BRANCH, MOST_SENDS, START, Moved, Tasks
from langgraph_durable.errors import SchemaVersionError

NULL_TASK = "00000000-0000-0000-0000-000000000000"
NOBODY = ":"
"""The name of no node."""


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


class Evolution(Climber):
    """The rules; see the top of the file."""

    def edit(
        self, opened: Opened, decoder: Decoder, known: Known, *, applied: bool = False
    ) -> Edited:
        """A stored checkpoint in today's version.

        Writes are in the order of their paths. Those that are `applied` keep the paths of then:
        in that order DeltaChannels have got them.
        """
        probed = self.probe(opened)
        header, where = opened.header, opened.where
        along, apart = self.parted(opened)
        moving = decoder.moving(classes(probed.noted))
        held = {}
        for channel, kept in header.capsules.items():
            seed, *parts = lineage.unfold(*kept)
            held[channel] = (
                () if seed is None else (moving.value(where, seed[1], seed[2]),),
                [(p[0], moving.value(where, p[1], p[2])) for p in parts if p],
            )
        content = Content(
            {
                channel: moving.value(where, entry.ref, entry.form)
                for channel, entry in header.entries.items()
            },
            dict(header.versions),
            {node: dict(seen) for node, seen in header.seen.items()},
            dict(opened.rest),
            dict(opened.metadata),
            self.valued(opened, along, moving),
            held,
        )
        sent = _sent_to(content.values.get(SENDS))
        stored = self.stored(header.schema)
        names = self.names_on_way(opened)
        edit = StateEdit(content, "", upwards=stored <= self.version)
        self.climb(opened, edit, stored, names)
        self.check_names(opened, probed, edit)
        ways: dict[int, list[Noted]] = {}
        for version, some in apart.items():
            named = [self.named(opened, write) for write in some]
            first = self.climb_apart(opened, content, named, version, names, probing=True)
            writes = self.valued(opened, some, decoder.moving(classes(first.noted)))
            last = self.climb_apart(opened, content, writes, version, names)
            ways[version] = last.noted
            content.writes = content.writes + last._content.writes
        edited = Edited(content, known.get(self.version, opened.row.ns))
        paths = [(write, write.path) for write in content.writes if applied]
        self._move_tasks(opened, edited, edit.noted, known, sent, ways)
        for write, path in paths:
            write.path = path
        content.writes.sort(key=lambda w: (w.path, w.task_id, w.idx))
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
        apart: Sequence[Noted] | None = None,
    ) -> Tasks | None:
        """The tasks after a checkpoint, as programs of two versions know them.

        `first` is the stored version if it is not given, `last` is today's. None if nobody can run
        from there. `more` are names of nodes then that the checkpoint does not tell. `apart` is
        what the steps from `first` did, where the checkpoint was never of that version.
        """
        header, step = opened.header, opened.metadata.get("step")
        if type(step) is not int:
            return None
        stored = self.stored(header.schema)
        first, last = stored if first is None else first, self.version if last is None else last
        before, ops = between(noted, stored, first), between(noted, first, last)
        after = between(noted, first, self.version)
        if apart is not None:
            ops = after = [each.op for each in apart]
            before = [*(each.op for each in noted), *undone(ops)]
        names = {node_now(before, name) for name in (*self._names(opened), *more)}
        names |= {node_now(before[at:], name) for at, name in told_by(before)}
        names |= {node_before(after[:at], name) for at, name in told_by(after)}
        writes = (write for write in opened.writes if self.version_of(opened, write) == first)
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

    def _move_tasks(
        self,
        opened: Opened,
        edited: Edited,
        noted: Sequence[Noted],
        known: Known,
        sent: Iterable[str],
        ways: Mapping[int, Sequence[Noted]],
    ) -> None:
        """Give what tasks wrote to the ids that the program will look for."""
        kinds: dict[int, Tasks | None] = {}
        kept: dict[tuple[str, int], EditedWrite] = {}
        for write in sorted(edited.content.writes, key=lambda w: abs(w.version - self.version)):
            if write.version != self.version and write.task_id != NULL_TASK:
                if write.version not in kinds:
                    kinds[write.version] = self.tasks(
                        opened,
                        noted,
                        known,
                        sent,
                        first=write.version,
                        apart=ways.get(write.version),
                    )
                tasks = kinds[write.version]
                if tasks is not None and tasks.changed:
                    lost = write.version in ways.keys() - known.keys()
                    self._move(opened, edited, tasks, write, lost=lost)
            kept.setdefault((write.task_id, write.idx), write)  # the newest program's comes first
        edited.content.writes = list(kept.values())
        if edited.ns != opened.row.ns:
            _move_parents(edited.content.metadata, opened.row.ns, edited.ns)

    def _move(
        self, opened: Opened, edited: Edited, tasks: Tasks, write: EditedWrite, *, lost: bool
    ) -> None:
        """Give one write to its task; `lost` if another version's namespace may be unknown."""
        moved = tasks.moved(write.task_id, write.path)
        if moved is None:
            if tasks.is_nobodys(write.task_id):
                write.path = tasks.path(write.path)
            elif (lost and opened.row.ns) or tasks.is_concerned(write.path):
                why = (
                    f"the pending writes of task {write.task_id} ({write.path or 'no path'}) "
                    "belong to no task that is known: "
                )
                if lost and opened.row.ns:
                    why += f"let a program of version {write.version} end this sub-graph"
                else:
                    why += (
                        "name the graph, StateSchema.of(graph, ...), or the tasks that a renamed "
                        "entrypoint calls, rename_node(..., calls=[...])"
                    )
                raise self.error(opened, self.version, why, write.version)
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

    def below(self, parent: Opened, known: Known, segment: str, version: int) -> Known:
        """What a task's part of a namespace is called in each version, from its name in one.

        Args:
            parent: the checkpoint that the task runs from.
            known: what the namespace of `parent` is called.
            segment: the part, `node:id`, as programs of `version` know it.
            version: the version.
        """
        name, _, task_id = segment.partition(":")
        noted, way = self.probe(parent).noted, self.steps.way(self.stored(parent.header.schema))
        was = node_before(between(noted, way[0], version), name)
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

    def besides(
        self, parent: Opened, known: Known, segment: str, versions: Iterable[int]
    ) -> dict[int, str]:
        """What versions that do not lie on the parent's way call a task's part of a namespace.

        Programs of these versions worked on it, and were taken back. `segment` is its name today.
        """
        name, _, task_id = segment.partition(":")
        noted, names = self.probe(parent).noted, self.names_on_way(parent)
        found = {}
        for version in versions:
            edit = self.climb_apart(parent, Content.empty(), [], version, names, probing=True)
            was = node_now(undone([each.op for each in edit.noted]), name)
            tasks = self.tasks(parent, noted, known, [was], first=version, apart=edit.noted)
            moved = None if tasks is None else tasks.back(name, task_id)
            if moved is not None:
                found[version] = moved.old_ns.rpartition("|")[2]
        return found

    def lasting(self, above: str, name: str, version: int) -> Known:
        """The same for a sub-graph that keeps one namespace, named by its node, for all calls.

        `NOBODY` where there was none: its name may have been another node's then.
        """
        found: dict[int, str] = {}
        for end in self.steps.ends():
            row = CheckpointRow(above, "", None, None, b"", b"")
            empty = Opened("", row, Header({}, {}, {}, b"", b"", schema=end), {}, {}, ())
            noted, way = self.probe(empty).noted, self.steps.way(end)
            here = way.index(version) if version in way else -1
            for each in way[: here + 1]:
                ops = between(noted, each, version)
                was = node_before(ops, name)
                found[each] = was if node_now(ops, was) == name else NOBODY
            for each in way[here + 1 :] if here >= 0 else ():
                found[each] = node_now(between(noted, version, each), name)
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
            raise self.error(opened, self.version, error) from error

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
