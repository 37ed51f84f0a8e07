"""`copy_store`: threads from any saver to any other, checked by reading them back.

A thread is planned first (the ids of its checkpoints; about 200 bytes each, and nothing else is
held), then read, stored and read back one checkpoint at a time, parents before their children.
What is there already and equal is passed over, so a copy that was cut short is simply done again.
Between two of our savers a thread travels whole, in one step, as it does through an archive; its
artifacts go to the store of the target first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from langgraph_durable import addresses
from langgraph_durable._core.dumps import Dump, unpacked
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable.errors import ConfigurationError, CopyMismatch
from langgraph_durable.moving import contents
from langgraph_durable.moving.colours import LATER, NOW, Colour, Saver, finish
from langgraph_durable.moving.sameness import Comparison
from langgraph_durable.moving.sides import Carried, Plan, check_saver, side_of
from langgraph_durable.moving.sources import Place
from langgraph_durable.saver import DurableSaver

Progress = Callable[[int, int], None]
"""Called with the numbers of threads that are done and of checkpoints so far."""
OFTEN = 256
"""Checkpoints between two calls of `progress`."""
WHOLE = 32 << 20
"""Bytes of a thread that travels in one step; a larger one goes checkpoint by checkpoint."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What `copy_store` has done."""

    threads: int = 0
    checkpoints: int = 0
    """All that are in the target now, of those asked for."""
    skipped: int = 0
    """Checkpoints that were there before."""


def copy_store(
    source: Saver,
    target: Saver,
    threads: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
    verify: bool = True,
) -> CopyReport:
    """Copy threads from one saver to another: ids, parents, metadata, values, pending writes.

    Any two savers of LangGraph will do. It may be interrupted and done again at any time. What is
    written to the source meanwhile may or may not be copied: do it again, or stop writing.

    Args:
        source: where the threads are.
        target: where they go. A thread that is there already must be a copy of the same thread.
        threads: which ones; None for all.
        progress: called with the numbers of threads that are done and of checkpoints so far.
        verify: read every checkpoint back and compare. A copy is as exact as the serialiser of
            the target; LangGraph's own turns tuples into lists, for instance.

    Raises:
        CopyMismatch: a checkpoint does not read back as it was; the message says what differs.
        ConfigurationError: a thread is not there, or another one has its name in the target.

    Example:
        >>> copy_store(InMemorySaver(), SqliteSaver("agent.db"))   # doctest: +SKIP
    """
    return finish(_Copy(NOW, source, target, progress, verify).threads(threads))


async def acopy_store(
    source: Saver,
    target: Saver,
    threads: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
    verify: bool = True,
) -> CopyReport:
    """`copy_store` on an event loop; a saver that has no async methods is used in a thread."""
    return await _Copy(LATER, source, target, progress, verify).threads(threads)


class _Copy:
    """One call of `copy_store`."""

    def __init__(
        self,
        colour: Colour,
        source: Saver,
        target: Saver,
        progress: Progress | None,
        verify: bool,
    ) -> None:
        check_saver("source", source)
        check_saver("target", target)
        if source is target:
            raise ConfigurationError("source and target are the same saver")
        self._colour, self._progress, self._verify = colour, progress, verify
        self._source = side_of(colour, source)
        self._target = side_of(colour, target, as_stored=True)
        self._comparison = Comparison(target.serde)
        self._ours = _both_ours(source, target)
        self._threads = self._checkpoints = self._skipped = 0

    async def threads(self, threads: Sequence[str] | None) -> CopyReport:
        named = None if threads is None else addresses.several("threads", threads)
        async for plan in self._source.plans(named):
            if not plan.keys:
                if named is not None:
                    raise ConfigurationError(f"the source has no thread {plan.thread_id!r}")
                continue
            if not await self._copy_whole(plan):
                await self._copy(plan)
            self._threads += 1
            self._report()
        return CopyReport(self._threads, self._checkpoints, self._skipped)

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self._threads, self._checkpoints)

    # ---- checkpoint by checkpoint ------------------------------------------------------------

    async def _copy(self, plan: Plan) -> None:
        if plan.capsules:
            raise ConfigurationError(
                f"thread {plan.thread_id!r} was pruned, or two runs of it have met, and what is "
                "left of its DeltaChannels cannot be told to this target: copy it to a saver of "
                "langgraph_durable"
            )
        present = await self._present(plan)
        for key in plan.oldest_first():
            place = Place(plan.thread_id, key.ns, key.id)
            with _telling(place):
                original = await self._source.read(place)
                if original is None:  # removed meanwhile
                    continue
                if (key.ns, key.id) in present and await self._is_there(original):
                    self._skipped += 1
                else:
                    await self._target.write(original)
                    if self._verify:
                        await self._check(original)
            self._checkpoints += 1
            if self._checkpoints % OFTEN == 0:
                self._report()
        await self._settle_heads(plan)

    async def _present(self, plan: Plan) -> set[tuple[str, str]]:
        """What the target has of the thread; something else under its name is not touched."""
        there = await self._target.plan(plan.thread_id)
        if not there.keys:
            return set()
        present = there.places
        if strange := present - plan.places:
            raise _in_the_way(plan.thread_id, f"{len(strange)} checkpoints")
        return present

    async def _is_there(self, original: Carried) -> bool:
        copy = await self._target.read(original.place)
        if copy is None:
            return False
        if self._verify:
            return self._comparison.difference(original, copy) is None
        return sum(len(w.pairs) for w in copy.writes) == sum(len(w.pairs) for w in original.writes)

    async def _check(self, original: Carried) -> None:
        copy = await self._target.read(original.place)
        found = self._comparison.difference(original, copy)
        if found is not None:
            raise CopyMismatch(
                f"{_shown(original.place)}: read back from the target, {found}. Either the target "
                "cannot hold it exactly, or the source was written to meanwhile; verify=False "
                "accepts it."
            )

    async def _settle_heads(self, plan: Plan) -> None:
        """What is the latest in the source is the latest in the target."""
        wanted = await self._source.heads(plan)
        found = await self._target.heads(plan)
        moved = {ns: id for ns, id in wanted.items() if found.get(ns) != id}
        if not moved or await self._target.set_heads(plan.thread_id, moved):
            return
        if self._verify:
            ns, id = next(iter(moved.items()))
            raise CopyMismatch(
                f"thread {plan.thread_id!r}: checkpoint {id} is the latest of {ns!r}, but the "
                "target takes the greatest id for the latest; verify=False accepts it."
            )

    # ---- whole threads -----------------------------------------------------------------------

    async def _copy_whole(self, plan: Plan) -> bool:
        """In one step, between two of ours; False if it must go the long way."""
        if self._ours is None:
            return False
        (source, target), do = self._ours, self._colour.do
        measured = await do(source, source._engine.storage.measure(plan.thread_id))
        if measured is None or (measured.bytes > WHOLE and not plan.capsules):
            return False
        dump = await do(source, source._engine.storage.dump(plan.thread_id))
        if dump is None:
            return True
        if dump.claims and not await self._bring_artifacts(plan, dump):
            return False
        storage = target._engine.storage
        stored = await do(target, storage.dump(plan.thread_id))
        if stored is not None and unpacked(stored) == unpacked(dump):
            self._skipped += len(dump.rows)
        else:
            if stored is not None:
                await self._present(plan)
                if strange := _single_writes(stored) - _single_writes(dump):
                    raise _in_the_way(plan.thread_id, f"{len(strange)} pending writes")
                await do(target, storage.replace(dump), writes=True)
            elif not await do(target, storage.restore(dump), writes=True):
                raise _in_the_way(plan.thread_id, "checkpoints")
            target._engine.memory.forget(plan.thread_id)
            if self._verify:
                stored = await do(target, storage.dump(plan.thread_id))
                if stored is None or unpacked(stored) != unpacked(dump):
                    raise CopyMismatch(f"thread {plan.thread_id!r} was changed in the target")
        self._checkpoints += len(dump.rows)
        return True

    async def _bring_artifacts(self, plan: Plan, dump: Dump) -> bool:
        """False if the target has no store: then values are read and put, and stay in its rows."""
        assert self._ours is not None
        source, target = self._ours
        if not target._shelf.writes and not plan.capsules:
            return False
        contents.check_target(target, plan.thread_id)
        await contents.know(self._colour, source, contents.claimed_by(dump))
        await contents.bring(self._colour, target, dump, source._shelf.open)
        return True


def _shown(place: Place) -> str:
    of = f" of {place.ns!r}" if place.ns else ""
    return f"thread {place.thread_id!r}, checkpoint {place.id}{of}"


@contextmanager
def _telling(place: Place) -> Iterator[None]:
    """Savers say what they cannot take, but seldom of which thread."""
    try:
        yield
    except CopyMismatch:
        raise
    except Exception as error:
        error.add_note(f"while it was copied: {_shown(place)}")
        raise


def _both_ours(source: Saver, target: Saver) -> tuple[DurableSaver, DurableSaver] | None:
    """Two savers of ours, if one can read what the other has serialised."""
    if not (isinstance(source, DurableSaver) and isinstance(target, DurableSaver)):
        return None
    both = source.serde, target.serde
    return (source, target) if all(isinstance(s, ExactSerializer) for s in both) else None


def _single_writes(dump: Dump) -> set[tuple[str, str, str, int]]:
    """Namespace, checkpoint, task and index of each pending write."""
    return {
        (row.ns, row.id, row.task_id, idx)
        for row in dump.writes
        for idx in range(row.idx, row.idx + row.width)
    }


def _in_the_way(thread_id: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the target has a thread {thread_id!r} with {what} that the source does not "
        "have: delete it there first, or copy other threads. Nothing of it was written."
    )
