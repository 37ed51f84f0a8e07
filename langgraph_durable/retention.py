"""Retention as users call it: prune, plan, tag, delete, stats; in both colours.

A call over many threads, or a long one, is a flow of small steps, one or two transactions each, so
that others write in between. A flow is written once, as a coroutine that awaits `do(step)`: for a
sync caller `do` finishes the step where it is, for an async caller the backend runs it.
"""

from __future__ import annotations

import builtins
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.runnables import RunnableConfig

from langgraph_durable import addresses
from langgraph_durable._core.pruning import Do, Pruner, by_plan, by_policy
from langgraph_durable._core.records import Measured
from langgraph_durable._core.retention import id_time
from langgraph_durable._core.units import in_bytes, in_seconds
from langgraph_durable.automatic import Backend, Finishing, Running, Steps, finished
from langgraph_durable.background import Rounds
from langgraph_durable.errors import (
    ConfigurationError,
    CorruptionError,
    DurableError,
    StorageError,
    ThreadBusy,
)
from langgraph_durable.policies import Duration, Policy, Size
from langgraph_durable.reports import (
    ChannelStats,
    Deleted,
    Progress,
    PrunePlan,
    PruneReport,
    Stats,
    Tally,
    ThreadStats,
)

if TYPE_CHECKING:
    from langgraph_durable._core.engine import Engine
    from langgraph_durable._core.pruning import Policed

T = TypeVar("T")
logger = logging.getLogger("langgraph_durable")


class _Latest(Policy):
    """ "keep_latest": the head of each namespace."""

    __slots__ = ()

    def keeps(self, view: Any) -> Any:
        return view.heads

    @property
    def exact(self) -> bool:
        return True


class _Nothing(Policy):
    """ "delete"."""

    __slots__ = ()

    def keeps(self, view: Any) -> Any:
        return frozenset()

    def releases(self, view: Any) -> bool:
        return True


class _Usual(Policy):
    """Stands for a strategy that was not given, which is not `None`: that may be a mistake."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<the usual one>"


_USUAL = _Usual()

_NAMED: dict[str, Policy] = {
    "keep_latest": _Latest(),
    "delete": _Nothing(),
    "delete_all": _Nothing(),
}


def checked_policy(strategy: object) -> Policy:
    """A policy, or one of LangGraph's names for one."""
    found = _NAMED.get(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(found, Policy):
        raise ConfigurationError(
            f'strategy is a policy, "keep_latest", "delete" or "delete_all", not {strategy!r}'
        )
    return found


class Retention:
    """The part of a saver that removes; mixed into `DurableSaver`."""

    if TYPE_CHECKING:
        _backend: Backend
        _engine: Engine

    def _set_up_retention(self, retention: object, warn_bytes: Size | None) -> None:
        if retention is not None and not isinstance(retention, Policy):
            raise ConfigurationError(f"retention is a policy like KeepLast(20), not {retention!r}")
        self._retention = retention
        self._pruner = Pruner(self._engine)
        self._steps: Steps | None = None
        if retention is not None or warn_bytes is not None:
            most = None if warn_bytes is None else in_bytes("warn_bytes", warn_bytes)
            self._steps = Steps(self._pruner, self._backend, retention, most)
        self._rounds: Rounds | None = None

    # ---- flows -------------------------------------------------------------------------------

    def _now(self, flow: Callable[[Do], Coroutine[Any, Any, T]]) -> T:
        return finished(flow(Finishing(self._backend)))

    async def _later(self, flow: Callable[[Do], Coroutine[Any, Any, T]]) -> T:
        return await flow(Running(self._backend))

    # ---- pruning -----------------------------------------------------------------------------

    def prune(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        strategy: Policy | str = _USUAL,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PruneReport | PrunePlan:
        """Shorten threads by a policy; what the kept checkpoints need stays readable.

        Args:
            thread_ids: which ones; None for all.
            strategy: a policy, or LangGraph's "keep_latest" (the head of each namespace, no more),
                "delete" or "delete_all". If it is not given, all threads are pruned by the
                saver's `retention`, and named ones, as LangGraph has it, by "keep_latest".
            dry_run: return the plan, and remove nothing.
            progress: called with threads done and checkpoints removed so far, after each step.

        A step removes some hundred checkpoints at most, and leaves a valid thread; a thread that
        goes whole does so in one.

        Example:
            >>> saver.prune(["thread-1"], strategy=KeepLast(5))   # doctest: +SKIP
        """
        strategy = self._strategy(strategy, thread_ids)
        if dry_run:
            return self.plan_prune(thread_ids, strategy=strategy)
        policy, named = checked_policy(strategy), named_threads(thread_ids)
        tell = _checked_progress(progress)
        return self._now(lambda do: self._prune(do, named, policy, tell))

    async def aprune(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        strategy: Policy | str = _USUAL,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PruneReport | PrunePlan:
        """`prune`, off the event loop."""
        strategy = self._strategy(strategy, thread_ids)
        if dry_run:
            return await self.aplan_prune(thread_ids, strategy=strategy)
        policy, named = checked_policy(strategy), named_threads(thread_ids)
        tell = _checked_progress(progress)
        return await self._later(lambda do: self._prune(do, named, policy, tell))

    def _strategy(self, given: Policy | str, thread_ids: Sequence[str] | None) -> Policy | str:
        if given is not _USUAL:
            return given
        if thread_ids is not None:
            return "keep_latest"
        if self._retention is None:
            raise ConfigurationError(
                "prune of all threads needs strategy=, or a saver with retention="
            )
        return self._retention

    async def _prune(
        self, do: Do, named: Sequence[str] | None, policy: Policy, progress: Progress | None
    ) -> PruneReport:
        now, tally = time.time(), Tally(progress)
        choice = by_policy(policy)
        async for thread_id in self._each(do, named):
            try:
                if isinstance(policy, _Nothing):
                    tally.add(await do(self._engine.delete_thread(thread_id)))
                else:
                    async for pruned in self._pruner.shorten(do, thread_id, choice, now):
                        tally.add(pruned.removed, more=pruned.more)
            except (CorruptionError, ThreadBusy) as error:
                _leave_out(error, named)
                continue
            tally.end_thread()
        return await self._report(do, tally)

    async def _report(self, do: Do, tally: Tally) -> PruneReport:
        total = tally.removed
        freed = await self._give_back(do) if total.checkpoints else 0
        some = total.checkpoints, total.writes, total.items
        freed += total.reclaimed
        return PruneReport(tally.threads, *some, total.artifacts, total.bytes, freed)

    async def _give_back(self, do: Do) -> int:
        """Free room, to the file system; how many bytes."""
        total = 0
        try:
            while freed := await do(self._pruner.reclaim()):
                total += freed
        except StorageError as error:  # what was to be removed is removed
            logger.warning("free room is not given back yet: %s", error)
        return total

    async def _each(self, do: Do, named: Sequence[str] | None) -> Any:
        if named is not None:
            for thread_id in named:
                yield thread_id
            return
        after = None
        while page := await do(self._pruner.threads(after), writes=False):
            after = page[-1]
            for thread_id in page:
                yield thread_id

    def plan_prune(
        self, thread_ids: Sequence[str] | None = None, *, strategy: Policy | str
    ) -> PrunePlan:
        """What `prune` would remove; nothing is touched. Print it for a table."""
        named, policy = named_threads(thread_ids), checked_policy(strategy)
        return self._now(lambda do: self._plan(do, named, policy, strategy))

    async def aplan_prune(
        self, thread_ids: Sequence[str] | None = None, *, strategy: Policy | str
    ) -> PrunePlan:
        """`plan_prune`, off the event loop."""
        named, policy = named_threads(thread_ids), checked_policy(strategy)
        return await self._later(lambda do: self._plan(do, named, policy, strategy))

    async def _plan(
        self, do: Do, named: Sequence[str] | None, policy: Policed, strategy: Policy | str
    ) -> PrunePlan:
        now = time.time()
        plans = []
        async for thread_id in self._each(do, named):
            try:
                plan = await do(self._pruner.plan(thread_id, policy, now), writes=False)
            except (CorruptionError, ThreadBusy) as error:
                _leave_out(error, named)
                continue
            if plan is not None:
                plans.append(plan)
        return PrunePlan(strategy, tuple(plans))

    def apply_prune(self, plan: PrunePlan, *, progress: Progress | None = None) -> PruneReport:
        """Remove what a plan names. What was written or tagged since stays, or must stay by now."""
        tell = _checked_progress(progress)
        return self._now(lambda do: self._apply(do, plan, tell))

    async def aapply_prune(
        self, plan: PrunePlan, *, progress: Progress | None = None
    ) -> PruneReport:
        """`apply_prune`, off the event loop."""
        tell = _checked_progress(progress)
        return await self._later(lambda do: self._apply(do, plan, tell))

    async def _apply(self, do: Do, plan: PrunePlan, progress: Progress | None) -> PruneReport:
        if not isinstance(plan, PrunePlan):
            raise ConfigurationError(f"apply_prune takes what plan_prune returns, not {plan!r}")
        tally, policy = Tally(progress), checked_policy(plan.strategy)
        for each in plan.threads:
            if each.drop:
                choice = by_plan(each, policy)
                async for pruned in self._pruner.shorten(do, each.thread_id, choice, time.time()):
                    tally.add(pruned.removed, more=pruned.more)
            tally.end_thread()
        return await self._report(do, tally)

    # ---- in the background -------------------------------------------------------------------

    def start_pruning(self, *, interval: Duration = "10m", strategy: Policy | None = None) -> None:
        """Prune all threads in the background, every `interval`, until `stop_pruning` or the end.

        Args:
            interval: from the end of one round to the next.
            strategy: the policy; the saver's `retention` if None.
        """
        policy = strategy if strategy is not None else self._retention
        if policy is None:
            raise ConfigurationError("start_pruning needs strategy=, or a saver with retention=")
        seconds, checked = in_seconds("interval", interval), checked_policy(policy)
        if self._rounds is not None:
            raise ConfigurationError("pruning is under way already: stop_pruning() first")

        def work(check: Callable[[], None]) -> None:
            self.prune(strategy=checked, progress=lambda *_: check())

        self._rounds = Rounds(work, seconds)

    def stop_pruning(self) -> None:
        """End what `start_pruning` began, after the step it is at."""
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.stop()

    def _end_retention(self) -> None:
        self.stop_pruning()
        if self._steps is not None:
            self._steps.stop()

    # ---- tags --------------------------------------------------------------------------------

    def tag(self, config: RunnableConfig, *tags: str) -> None:
        """Give a checkpoint (the latest, if none is named) tags; `KeepTagged` keeps it by them.

        They show in its metadata, under `checkpoint_tags`.

        Raises:
            ConfigurationError: there is no such checkpoint.
        """
        self._backend.finish(self._retag(config, _checked_tags(tags), gone=()))

    async def atag(self, config: RunnableConfig, *tags: str) -> None:
        """`tag`, off the event loop."""
        await self._backend.run(self._retag(config, _checked_tags(tags), gone=()), writes=True)

    def untag(self, config: RunnableConfig, *tags: str) -> None:
        """Take tags from a checkpoint; all of them, if none is named."""
        self._backend.finish(self._retag(config, (), gone=(tags and _checked_tags(tags)) or None))

    async def auntag(self, config: RunnableConfig, *tags: str) -> None:
        """`untag`, off the event loop."""
        gone = tags and _checked_tags(tags)
        await self._backend.run(self._retag(config, (), gone=gone or None), writes=True)

    async def _retag(
        self, config: RunnableConfig, new: Sequence[str], *, gone: Sequence[str] | None
    ) -> None:
        def change(old: builtins.list[str]) -> builtins.list[str]:
            stay = [] if gone is None else [tag for tag in old if tag not in gone]
            return [*stay, *(tag for tag in new if tag not in stay)]

        place = addresses.place_in(config)
        if not await self._pruner.retag(place, change):
            raise ConfigurationError(
                f"thread {place.thread_id!r}: there is no checkpoint {place.id or 'yet'} to tag"
            )

    # ---- deleting ----------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> Deleted:
        """Remove a thread and everything of it, in one step; say what that was.

        It sticks: what a run that began before still writes is refused with `ThreadDeleted`. A
        new conversation under the same id just works.
        """
        return self._now(lambda do: self._delete_several(do, [thread_id], None))

    async def adelete_thread(self, thread_id: str) -> Deleted:
        """`delete_thread`, off the event loop."""
        return await self._later(lambda do: self._delete_several(do, [thread_id], None))

    async def _delete(self, thread_id: str) -> Deleted:
        gone = await self._engine.delete_thread(addresses.thread(thread_id))
        return Deleted(gone.checkpoints, gone.writes, gone.items, gone.artifacts, gone.bytes)

    def delete_threads(
        self, thread_ids: Iterable[str] | None = None, *, filter: dict[str, Any] | None = None
    ) -> Deleted:
        """Remove several threads: by id, or those with a checkpoint that fits `filter`.

        What cannot be read fits no filter, and is logged.
        """
        return self._now(lambda do: self._delete_several(do, thread_ids, filter))

    async def adelete_threads(
        self, thread_ids: Iterable[str] | None = None, *, filter: dict[str, Any] | None = None
    ) -> Deleted:
        """`delete_threads`, off the event loop."""
        return await self._later(lambda do: self._delete_several(do, thread_ids, filter))

    async def _delete_several(
        self, do: Do, thread_ids: Iterable[str] | None, filter: dict[str, Any] | None
    ) -> Deleted:
        if (thread_ids is None) == (not filter):
            raise ConfigurationError("delete_threads takes thread ids or a filter: one of them")
        if thread_ids is not None:
            named = addresses.several("thread_ids", thread_ids)
        else:
            named = [t async for t in self._each(do, None) if await self._fits(do, t, filter or {})]
        total = Deleted()
        for thread_id in named:
            gone = await do(self._delete(thread_id))
            counts = zip(_counts(total), _counts(gone), strict=True)
            total = Deleted(*(a + b for a, b in counts))
        if total.bytes:
            await self._give_back(do)
        return total

    async def _fits(self, do: Do, thread_id: str, filter: dict[str, Any]) -> bool:
        selection = addresses.selection({"configurable": {"thread_id": thread_id}}, None)
        wanted = addresses.checked_filter(filter) or {}
        try:
            return await do(self._engine.has(selection, wanted), writes=False)
        except CorruptionError as error:
            logger.error("not looked at: %s", error)
            return False

    # ---- stats -------------------------------------------------------------------------------

    def stats(self, thread_ids: Sequence[str] | None = None, *, channels: bool = False) -> Stats:
        """How much there is: of all threads, or of these.

        On SQLite by aggregates; on Redis each thread's records are read. `channels` adds items and
        bytes by channel, for which the records of each thread are read on both.
        """
        named = named_threads(thread_ids)
        return self._now(lambda do: self._stats(do, named, channels))

    async def astats(
        self, thread_ids: Sequence[str] | None = None, *, channels: bool = False
    ) -> Stats:
        """`stats`, off the event loop."""
        named = named_threads(thread_ids)
        return await self._later(lambda do: self._stats(do, named, channels))

    async def _stats(self, do: Do, named: Sequence[str] | None, channels: bool) -> Stats:
        found: dict[str, ThreadStats] = {}
        async for thread_id in self._each(do, named):
            by_channel, measured = {}, None
            try:
                measured = await do(self._pruner.measure(thread_id), writes=False)
                if channels:
                    by_channel = await do(self._pruner.channels(thread_id), writes=False)
            except (CorruptionError, ThreadBusy) as error:
                _leave_out(error, named, "statistics")
            if measured is None:
                continue
            parts = {name: ChannelStats(*_dated(each)) for name, each in by_channel.items()}
            found[thread_id] = ThreadStats(*_dated(measured), parts)
        return Stats(found)


def _dated(some: Measured) -> tuple[int, int, int, int, float | None, float | None]:
    return *some[:4], id_time(some.oldest or ""), id_time(some.newest or "")


def _counts(some: Deleted) -> tuple[int, ...]:
    return some.checkpoints, some.writes, some.items, some.artifacts, some.bytes


def named_threads(thread_ids: Sequence[str] | None) -> Sequence[str] | None:
    if thread_ids is None:
        return None
    return [addresses.thread(each) for each in addresses.several("thread_ids", thread_ids)]


def _leave_out(error: DurableError, named: Sequence[str] | None, what: str = "pruning") -> None:
    """One thread's trouble is not the others', unless the caller asked for that very one."""
    if named is not None:
        raise error
    logger.error("left out of the %s: %s", what, error)


def _checked_progress(progress: object) -> Progress | None:
    if progress is not None and not callable(progress):
        raise ConfigurationError(f"progress is a function of two numbers, not {progress!r}")
    return cast("Progress | None", progress)


def _checked_tags(tags: Sequence[str]) -> Sequence[str]:
    if not tags:
        raise ConfigurationError("tag takes the names of the tags")
    return [str(addresses.check_text("a tag", tag)) for tag in tags]
