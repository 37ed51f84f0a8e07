"""Two runs side by side: the steps they share, and where they part.

Steps are paired in order, along the branch that each thread is on now; of a thread that is a fork
of the other, from the step it was forked from. Two steps are alike if the same nodes made them and
their states are equal; message ids, which are random, do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from langgraph_durable.timeline import lineage
from langgraph_durable.timeline.diff import Diff, same
from langgraph_durable.timeline.diff import diff as differences

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `Timeline.compare` found."""

    left_thread: str
    right_thread: str
    pairs: tuple[tuple[Step | None, Step | None], ...]
    parts_at: int | None
    """The first pair that differs; None if the runs are alike."""

    @property
    def parting(self) -> tuple[Step | None, Step | None] | None:
        """The first two steps that differ."""
        return None if self.parts_at is None else self.pairs[self.parts_at]

    def diff(self) -> Diff:
        """From the left state to the right one, where they part; empty if they do not."""
        if self.parting is None:
            return Diff(())
        left, right = self.parting
        old, new = (without_ids(one.values) if one else {} for one in (left, right))
        return Diff(differences(old, new), self.left_thread, self.right_thread)

    def __repr__(self) -> str:
        from langgraph_durable.timeline import text

        return text.comparison(self)

    def _repr_html_(self) -> str:
        from langgraph_durable.timeline import html, pages

        return html.page(pages.comparison(self))


def main_line(timeline: Timeline) -> list[Step]:
    """The steps that led to the thread's latest state, oldest first."""
    latest = timeline.latest
    if latest is None:
        return []
    by_id = {step.id: step for step in timeline}
    headers = {id: step._header for id, step in by_id.items()}
    return [by_id[id] for id in reversed(lineage.parent_chain(headers, latest.id))]


def compare(left: Timeline, right: Timeline) -> Comparison:
    """Pair the steps of two threads."""
    ours, theirs = main_line(left), main_line(right)
    skipped = _before_fork(theirs, ours), _before_fork(ours, theirs)
    none: list[Step | None] = [None]
    pairs = tuple(zip_longest([*none * skipped[1], *ours], [*none * skipped[0], *theirs]))
    first = max(skipped)
    # The step that a fork begins with is alike by its state: no node of that thread has made it.
    parted = (at for at in range(first + bool(first), len(pairs)) if not alike(*pairs[at]))
    return Comparison(left.thread_id, right.thread_id, pairs, next(parted, None))


def _before_fork(fork: Sequence[Step], original: Sequence[Step]) -> int:
    """How many steps of another thread lie before the one that this thread was forked from."""
    if not fork or fork[0].source != "fork":
        return 0
    state = without_ids(fork[0].values)
    near = (at for at, one in enumerate(original) if one.number == fork[0].number)
    return next((at for at in near if same(state, without_ids(original[at].values))), 0)


def alike(left: Step | None, right: Step | None) -> bool:
    """Whether two steps tell the same."""
    if left is None or right is None or left.nodes != right.nodes:
        return False
    return same(without_ids(left.values), without_ids(right.values))


def without_ids(value: Any) -> Any:
    """A value whose messages have no ids."""
    if isinstance(value, dict):
        return {key: without_ids(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    if is_message(value):
        return value.model_copy(update={"id": None})
    return value


def is_message(value: Any) -> bool:
    """Whether a value is a message of langchain-core, told by its looks."""
    return hasattr(value, "content") and hasattr(value, "type") and hasattr(value, "model_copy")


def are_messages(values: Sequence[Any]) -> bool:
    """Whether all that a list holds is messages; a long conversation is looked at as a whole."""
    if all(hasattr(kind, "model_copy") for kind in set(map(type, values))):
        with suppress(TypeError):  # of something without a `__dict__`
            if all(map(_SHOWN.issubset, map(vars, values))):
                return bool(values)
    return bool(values) and all(map(is_message, values))


_SHOWN = {"content", "type"}
