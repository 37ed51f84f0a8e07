"""Ids of tasks after a node was renamed.

LangGraph makes a task's id of the checkpoint's id, the namespace, the step, the node's name and
its triggers, and files what the task wrote, asked and was answered under it. A program whose node
has another name computes another id, and finds nothing. This module knows how ids are made
(`langgraph/pregel/_algo.py`): it finds out which task an old id belongs to by making the ids of all
tasks that could have been, and tells the id that the new program will make for the same one.
"""

from __future__ import annotations

import binascii
import hashlib
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import NamedTuple

import xxhash

PULL, PUSH, START = "__pregel_pull", "__pregel_push", "__start__"
BRANCH, JOIN = "branch:to:", "join:"
MOST_SENDS = 4096
"""Sends of one step that are looked through for one of them, where its number is not known."""
MOST_JOINS = 5
_PULLED, _PUSHED = f"~{PULL}, ", f"~{PUSH}, "
_HANDLER = ", node_error_handler, "
_LATE = "ffffffff-"
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def renamed_channel(channel: str, old: str, new: str) -> str:
    """A channel that LangGraph derives from node names, after one of them was renamed."""
    if channel == BRANCH + old:
        return BRANCH + new
    if channel.startswith(JOIN):
        starts, _, end = channel[len(JOIN) :].rpartition(":")
        several = [new if name == old else name for name in starts.split("+")]
        return f"{JOIN}{'+'.join(several)}:{new if end == old else end}"
    return channel


def interrupt_id(task_ns: str, answered: int) -> str:
    """The id of the question that a task asks after so many answers."""
    text = f"{task_ns}|{answered}" if answered else task_ns
    return xxhash.xxh3_128_hexdigest(text.encode())


class Moved(NamedTuple):
    """A task before and after."""

    old_ns: str
    new_ns: str
    """The namespaces that belong to the task: `...|node:id`."""

    @property
    def id(self) -> str:
        return self.new_ns.rpartition(":")[2]

    def interrupt(self, id: str) -> str | None:
        """The id by which the new program knows a question of this task; None if it is none."""
        for answered in range(64):
            if interrupt_id(self.old_ns, answered) == id:
                return interrupt_id(self.new_ns, answered)
        return None


@dataclass(slots=True)
class Tasks:
    """The tasks that can have run after one checkpoint."""

    id: str
    v: int
    step: int
    old_ns: str
    new_ns: str
    names: Collection[str]
    """What nodes were called that may have run."""
    node: Callable[[str], str]
    """The name of a node now."""
    channels: Collection[str]
    """Channels there were, by the names they had."""
    channel: Callable[[str], str | None]
    """The name of a channel now."""
    seen: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    hints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Triggers of nodes, where they are known, all by the names they had."""
    sends: int = MOST_SENDS
    """How many sends there can have been."""
    _found: dict[str, Moved] | None = None

    @property
    def changed(self) -> bool:
        """Whether any id may be another now."""
        return (
            self.old_ns != self.new_ns
            or any(self.node(name) != name for name in self.names)
            or any(self.channel(channel) not in (channel, None) for channel in self.channels)
        )

    def moved(self, task_id: str, path: str = "") -> Moved | None:
        """What became of a task; None if that cannot be found out."""
        if self._found is None:
            self._found = {old.rpartition(":")[2]: Moved(old, new) for old, new in self._all()}
        found = self._found.get(task_id)
        if found is None and (not path or path.startswith(_PUSHED)):
            found = self._called(task_id, path) or self._sent(task_id, path)
        if found is None and _HANDLER in path:
            found = self._handler(task_id)
        return found

    def back(self, name: str, task_id: str) -> Moved | None:
        """The task that has this id in the new program."""
        if self._found is None:
            self.moved("")
        assert self._found is not None
        ending = f"{name}:{task_id}"
        # Those that had another name first: the name of now may have meant nothing then.
        own = sorted((was for was in self.names if self.node(was) == name), key=name.__eq__)
        pulled = sorted(self._found.values(), key=lambda found: found.old_ns == found.new_ns)
        sent = (Moved(*self._send(was, n)) for was in own for n in range(self.sends))
        return next((m for m in chain(pulled, sent) if m.new_ns.endswith(ending)), None)

    def path(self, path: str) -> str:
        """The path of a task under the names of now."""
        for name in sorted(self.names, key=len, reverse=True):
            head = _PULLED + name
            at = path.find(head)
            if at >= 0 and path[at + len(head) :][:1] in ("", ","):
                return path[:at] + _PULLED + self.node(name) + path[at + len(head) :]
        return path

    def is_concerned(self, path: str) -> bool:
        """Whether the task with this path must have another id now."""
        return self.old_ns != self.new_ns or self.path(path) != path

    def is_nobodys(self, task_id: str) -> bool:
        """Whether LangGraph has made this id up to file writes under, for no task to find.

        It does so for input and `update_state` (a UUID of the checkpoint's id), and for what
        `DeltaChannel`s got in a run that stores only its end: the number of the step, and the rest
        of a task's id.
        """
        if task_id.startswith(_LATE) or task_id[:8] in (f"{self.step + n:08d}" for n in range(2)):
            return True
        made = uuid.UUID(task_id) if _UUID.fullmatch(task_id) else None
        return made is not None and made.version == 5 and made in self._made_up()

    def _made_up(self) -> Iterator[uuid.UUID]:
        try:
            own = uuid.UUID(self.id)
        except ValueError:
            return
        yield uuid.uuid5(own, "__input__")
        yield uuid.uuid5(own, "__interrupt__")
        yield from (uuid.uuid5(own, f"__interrupt__:{n}") for n in range(1, MOST_SENDS))

    # ---- all tasks that can have been --------------------------------------------------------

    def _all(self) -> Iterator[tuple[str, str]]:
        for name in self.names:
            for triggers in self._trigger_sets(name):
                now = [self.channel(trigger) or trigger for trigger in triggers]
                yield self._pair(name, (PULL, *sorted(triggers)), (PULL, *sorted(now)))

    def _send(self, name: str, number: int) -> tuple[str, str]:
        return self._pair(name, (PUSH, str(number)), (PUSH, str(number)))

    def _sent(self, task_id: str, path: str) -> Moved | None:
        """A task that was sent for: `~push, number, 0`."""
        number = path[len(_PUSHED) :].partition(", ")[0]
        numbers = [int(number)] if number.isdigit() else range(self.sends)
        for name in self.names:
            for n in numbers:
                pair = self._send(name, n)
                if pair[0].endswith(":" + task_id):
                    return Moved(*pair)
        return None

    def _pair(self, name: str, old: Iterable[str], new: Iterable[str]) -> tuple[str, str]:
        now = self.node(name)
        return self._task_ns(self.old_ns, name, old), self._task_ns(self.new_ns, now, new)

    def _task_ns(self, above: str, name: str, parts: Iterable[str]) -> str:
        ns = f"{above}|{name}" if above else name
        return f"{ns}:{self._hash(ns, str(self.step), name, *parts)}"

    def _hash(self, *parts: str) -> str:
        try:
            start = binascii.unhexlify(self.id.replace("-", ""))
        except ValueError:  # an id of somebody else's making: LangGraph could not run from it
            start = self.id.encode("utf-8", "surrogatepass")
        text = start + "".join(parts).encode("utf-8", "surrogatepass")
        if self.v > 1:
            found = xxhash.xxh3_128_hexdigest(text)
        else:
            found = hashlib.sha1(text, usedforsecurity=False).hexdigest()
        return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:32]}"

    def _trigger_sets(self, name: str) -> Iterator[tuple[str, ...]]:
        """What the node may have been triggered by; joins that nobody reached leave no trace."""
        yield (BRANCH + name,)
        yield (START,)
        joins = [c for c in self.channels if c.startswith(JOIN) and c.endswith(f":{name}")]
        for many in range(1, min(len(joins), MOST_JOINS) + 1):
            for some in combinations(joins, many):
                yield (BRANCH + name, *some)
        if seen := self.seen.get(name):
            yield tuple(seen)
        if hint := self.hints.get(name):
            yield tuple(hint)

    # ---- tasks within tasks ------------------------------------------------------------------

    def _called(self, task_id: str, path: str) -> Moved | None:
        """A task of the functional API: `~push, <path of the caller>, number, 1`."""
        above, _, rest = path[len(_PUSHED) :].rpartition(", ")
        caller, _, number = above.rpartition(", ")
        if not caller.startswith("~") or not number.isdigit() or not rest.isdigit():
            return None
        assert self._found is not None
        old = PUSH, caller, str(int(number))
        new = PUSH, self.path(caller), str(int(number))
        for above_it in list(self._found.values()):
            for name in self.names:
                was = self._task_ns(above_it.old_ns, name, old)
                if was.endswith(":" + task_id):
                    now = self._task_ns(above_it.new_ns, self.node(name), new)
                    found = self._found[task_id] = Moved(was, now)  # it may call others
                    return found
        return None

    def _handler(self, task_id: str) -> Moved | None:
        """The task that handles the error of another one."""
        assert self._found is not None
        for failed, moved in self._found.items():
            for name in self.names:
                mark = PUSH, "node_error_handler"
                pair = self._pair(name, (*mark, failed), (*mark, moved.id))
                if pair[0].endswith(":" + task_id):
                    return Moved(*pair)
        return None
