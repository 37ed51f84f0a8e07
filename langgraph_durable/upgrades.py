"""Versions as users meet them: upgrading threads ahead of time, and what changed around a thread.

Mixed into every saver, in both colours, like `retention`, whose flows it uses: a call over many
threads is one small step per thread, and can be broken off and begun again at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig

from langgraph_durable import addresses
from langgraph_durable._core import origin
from langgraph_durable._core.evolution import Evolution
from langgraph_durable._core.origin import Note, OnChange, Origin
from langgraph_durable._core.pruning import Do
from langgraph_durable._core.restored import Restored
from langgraph_durable._core.rewriting import Rewriter
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable.errors import (
    ConfigurationError,
    DurableError,
    EnvironmentChanged,
    SchemaVersionError,
)
from langgraph_durable.reports import table
from langgraph_durable.retention import Retention, named_threads
from langgraph_durable.schema import StateSchema

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

logger = logging.getLogger("langgraph_durable")
Progress = Callable[[int, int], None]
"""Called with the number of threads looked at so far, and of checkpoints rewritten."""
MOST_NOTICED = 1000


@dataclass(frozen=True, slots=True)
class ThreadUpgrade:
    """What there is to upgrade in one thread."""

    thread_id: str
    versions: Mapping[int, int] = field(default_factory=dict)
    """Checkpoints by the version they are stored under."""
    rewritten: int = 0
    """Checkpoints that an upgrade rewrites."""
    error: str | None = None
    """Why it cannot be upgraded."""


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """What an upgrade would do: tried and verified, nothing was touched. Prints as a table."""

    version: int
    threads: tuple[ThreadUpgrade, ...]

    @property
    def rewritten(self) -> int:
        return sum(each.rewritten for each in self.threads)

    @property
    def failed(self) -> dict[str, str]:
        """Threads that cannot be upgraded, and why."""
        return {each.thread_id: each.error for each in self.threads if each.error is not None}

    def __str__(self) -> str:
        rows = [
            (
                each.thread_id,
                ", ".join(str(version) for version in sorted(each.versions)),
                sum(each.versions.values()),
                each.rewritten,
                "error" if each.error else "",
            )
            for each in self.threads
        ]
        total = sum(sum(each.versions.values()) for each in self.threads)
        head = ("thread", "versions", "checkpoints", "rewritten", "")
        errors = [f"{name}: {error}" for name, error in self.failed.items()]
        shown = table([head, *rows, ("total", f"to {self.version}", total, self.rewritten, "")])
        return "\n".join([shown, *errors])


class UpgradeReport(UpgradePlan):
    """What an upgrade has done."""

    __slots__ = ()


class Upgrades(Retention):
    """The part of a saver that knows versions; mixed into `DurableSaver`."""

    if TYPE_CHECKING:
        serde: SerializerProtocol

    def _set_up_versions(
        self, own: ExactSerializer, schema: object, environment: object, on_change: OnChange
    ) -> Evolution | None:
        if schema is not None and not isinstance(schema, StateSchema):
            raise ConfigurationError(f"schema is a StateSchema, not {schema!r}")
        if on_change not in ("warn", "ignore", "error"):
            raise ConfigurationError(
                f'on_environment_change is "warn", "ignore" or "error", not {on_change!r}'
            )
        self._plain = own
        self._schema: StateSchema | None = schema
        self._on_change = on_change
        graph = None if schema is None else schema.graph
        self._origin = Note(own, environment, graph)
        self._noticed: set[bytes] = set()
        return None if schema is None else Evolution(schema._steps)

    # ---- what changed ------------------------------------------------------------------------

    def _notice(self, restored: Restored) -> None:
        """Compare the program that stored a checkpoint with this one, which runs; say it once."""
        raw = restored.origin
        if raw is None:
            return
        noticed = raw in self._noticed
        if noticed and self._on_change != "error" and not (self._schema and self._schema.strict):
            return
        if len(self._noticed) >= MOST_NOTICED:
            self._noticed.clear()
        self._noticed.add(raw)
        found = origin.read(self._plain, raw)
        where = f"thread {restored.place.thread_id!r}, checkpoint {restored.place.id}"
        changes = origin.changes(found.environment, self._origin.environment)
        if changes and self._on_change != "ignore":
            told = f"{where}: it was stored by another program: {'; '.join(changes)}"
            if self._on_change == "error":
                raise EnvironmentChanged(f"{told}. Nothing was run.")
            if not noticed:
                logger.warning("%s", told)
        self._notice_graph(restored, found, where, noticed=noticed)

    def _notice_graph(
        self, restored: Restored, found: Origin, where: str, *, noticed: bool
    ) -> None:
        schema, graph = self._schema, self._origin.graph
        # A sub-graph's checkpoints carry the note of the graph that it is part of.
        if schema is None or graph is None or not found.graph or restored.edited is not None:
            return
        changes = origin.graph_changes(found.graph, graph)
        if not changes:
            return
        told = f"the graph has changed, and the version has not: {'; '.join(changes)}"
        if schema.strict:
            thread_id, _, id = restored.place
            version = schema.version
            raise SchemaVersionError(thread_id, str(id), version, version, version, told)
        if not noticed:
            logger.warning("%s: version %d: %s", where, schema.version, told)

    def environment(self, config: RunnableConfig) -> Mapping[str, Any]:
        """The versions, and what else was noted, of the program that stored a checkpoint."""
        return self._backend.finish(self._environment(config))

    async def aenvironment(self, config: RunnableConfig) -> Mapping[str, Any]:
        """`environment`, off the event loop."""
        return await self._backend.run(self._environment(config), writes=False)

    async def _environment(self, config: RunnableConfig) -> Mapping[str, Any]:
        found = await self._engine.origin_of(addresses.place_in(config))
        return {} if found is None else origin.read(self._plain, found).environment

    def interrupt_ids(self, config: RunnableConfig) -> dict[str, str]:
        """Ids of waiting interrupts as they were stored, and as the program knows them now.

        They differ after a node was renamed: a client that still holds an old id finds the new
        one here. `Command(resume=value)` needs none.
        """
        return self._backend.finish(self._interrupt_ids(config))

    async def ainterrupt_ids(self, config: RunnableConfig) -> dict[str, str]:
        """`interrupt_ids`, off the event loop."""
        return await self._backend.run(self._interrupt_ids(config), writes=False)

    async def _interrupt_ids(self, config: RunnableConfig) -> dict[str, str]:
        found = await self._engine.get(self.serde, addresses.place_in(config))
        return {} if found is None or found.edited is None else found.edited.interrupts

    # ---- ahead of time -----------------------------------------------------------------------

    def upgrade_threads(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> UpgradePlan | UpgradeReport:
        """Store threads in the version of the schema, each verified before it is replaced.

        Never needed: threads are upgraded as they are read. Worth it before steps are removed, or
        where nodes were renamed. Broken off, it can be begun again: what is done is passed over.
        A thread that cannot be upgraded stays as it is, and is named in the report.

        Args:
            thread_ids: which ones; None for all.
            dry_run: return the plan, and change nothing.
            progress: called with threads looked at and checkpoints rewritten so far.
        """
        named = named_threads(thread_ids)
        return self._now(lambda do: self._upgrade(do, named, dry_run, progress))

    async def aupgrade_threads(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> UpgradePlan | UpgradeReport:
        """`upgrade_threads`, off the event loop."""
        named = named_threads(thread_ids)
        return await self._later(lambda do: self._upgrade(do, named, dry_run, progress))

    async def _upgrade(
        self, do: Do, named: Sequence[str] | None, dry_run: bool, progress: Progress | None
    ) -> UpgradePlan | UpgradeReport:
        if self._schema is None or self._engine.versions is None:
            raise ConfigurationError("upgrade_threads needs a saver with schema=")
        rewriter = Rewriter(self._engine, self._engine.versions)
        act = rewriter.draft if dry_run else rewriter.upgrade
        threads: list[ThreadUpgrade] = []
        rewritten = 0
        async for thread_id in self._each(do, named):
            try:
                draft = await do(act(self.serde, thread_id), writes=not dry_run)
            except DurableError as error:
                threads.append(ThreadUpgrade(thread_id, error=str(error)))
            else:
                if draft is not None:
                    threads.append(ThreadUpgrade(thread_id, draft.versions, draft.rewritten))
                    rewritten += draft.rewritten
            if progress is not None:
                progress(len(threads), rewritten)
        kind = UpgradePlan if dry_run else UpgradeReport
        return kind(self._schema.version, tuple(threads))
