"""LangGraph's contract in both colours over one engine. Backends say where the bytes go.

Each operation is one coroutine (`_get_tuple`, `_put`, ...); its sync method lets the backend
`finish` it, its async method lets the backend `run` it. A config is taken apart by `addresses`
before anything is read or written, so what is wrong with a call is said at once.
"""

from __future__ import annotations

import asyncio
import builtins
import secrets
import weakref
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol, maybe_add_typed_methods

from langgraph_durable import addresses
from langgraph_durable._core.engine import Engine, Task
from langgraph_durable._core.memory import Memory
from langgraph_durable._core.metadata import checkpoint_metadata
from langgraph_durable._core.origin import OnChange
from langgraph_durable._core.outlines import Outline
from langgraph_durable._core.records import Cursor, Selection
from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable._core.storage import Storage
from langgraph_durable.artifacts import Shelf
from langgraph_durable.automatic import Backend
from langgraph_durable.errors import ConfigurationError
from langgraph_durable.keeping import Keeping
from langgraph_durable.policies import Policy
from langgraph_durable.runs import Runs, hand_of
from langgraph_durable.schema import StateSchema
from langgraph_durable.upgrades import Upgrades

if TYPE_CHECKING:
    from langgraph_durable.timeline import Timeline

T = TypeVar("T")

PAGE = 64
"""Checkpoints read at once by `list`; without a limit the first page is smaller, for those who want
one or two."""
FIRST_PAGE = 8


class DurableSaver(Keeping, Upgrades, BaseCheckpointSaver[str]):  # type: ignore[misc]
    """Everything that `SqliteSaver` and its like have in common."""

    def __init__(
        self,
        backend: Backend,
        storage: Storage,
        *,
        serde: SerializerProtocol | None,
        types: Literal["safe", "any", "plain"] | Collection[str | type],
        metadata_keys: Collection[str] | None,
        on_conflict: Literal["raise", "allow"],
        cache_bytes: int,
        retention: Policy | None = None,
        warn_bytes: int | str | None = None,
        shelf: Shelf | None = None,
        schema: StateSchema | None = None,
        environment: Mapping[str, Any] | None = None,
        on_environment_change: OnChange = "warn",
    ) -> None:
        shelf = shelf or Shelf(None)
        own = ExactSerializer(types).on_shelf(shelf)
        if isinstance(serde, ExactSerializer):
            serde = serde.on_shelf(shelf)
        if serde is not None and not any(hasattr(serde, m) for m in ("dumps_typed", "dumps")):
            raise ConfigurationError(f"serde is a serialiser, not {serde!r}")
        super().__init__(serde=maybe_add_typed_methods(serde) if serde is not None else own)
        if on_conflict not in ("raise", "allow"):
            raise ConfigurationError(f'on_conflict is "raise" or "allow", not {on_conflict!r}')
        if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int) or cache_bytes < 0:
            raise ConfigurationError(f"cache_bytes is a number of bytes, not {cache_bytes!r}")
        self._backend = backend
        evolution = self._set_up_versions(own, schema, environment, on_environment_change)
        memory = Memory(cache_bytes)
        self._engine = Engine(storage, memory, own, shelf, evolution, self._origin)
        self._shelf = shelf
        shelf.ask = _asking(shelf, self._engine, backend)
        self._metadata_keys = _checked_keys(metadata_keys)
        self._on_conflict = on_conflict
        self._set_up_retention(retention, warn_bytes)
        self._warned: set[str] = set()
        self._runs = Runs()

    # ---- opening and closing -----------------------------------------------------------------

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """The same as the class itself, for code written for LangGraph's own savers.

        >>> with SqliteSaver.from_conn_string("agent.db") as saver: ...   # doctest: +SKIP
        """
        return cls(conn_string, **options)  # type: ignore[arg-type]

    def setup(self) -> _Done:
        """Open the store now. Never needed: the first use does it. May be awaited."""
        self._backend.open()
        return _Done()

    def close(self) -> None:
        """Let go of the store. Using the saver afterwards raises `StorageError`."""
        self._end_retention()
        self._backend.close()

    async def aclose(self) -> None:
        """`close`, off the event loop."""
        await asyncio.to_thread(self._end_retention)
        await self._backend.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # ---- reading -----------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the latest one; None if there is none."""
        return self._backend.finish(self._get_tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`, off the event loop."""
        return await self._backend.run(self._get_tuple(config), writes=False)

    async def _get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = addresses.place_in(config)
        above = addresses.above_in(config) if place.ns else None
        restored = await self._engine.get(self.serde, place, above)
        if restored is None:
            return None
        if addresses.is_by_run(config) and restored.origin != self._origin.raw:
            self._notice(restored)
        hand = hand_of(config)
        found = addresses.checkpoint_tuple(restored, asked=place.id is not None, by=hand)
        self._runs.loaded(config, place, found.checkpoint["id"])
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first, read by pages: nothing is held while your code runs.

        Args:
            config: the thread, maybe a namespace and a checkpoint; None for all threads.
            filter: metadata keys and the values they must have.
            before: only checkpoints older than the one this config names.
            limit: how many at most.
        """
        pages = _Pages(self, config, filter, before, limit)

        def walk() -> Iterator[CheckpointTuple]:
            while not pages.ended:
                yield from self._backend.finish(pages.next())

        return walk()

    def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`, off the event loop."""
        pages = _Pages(self, config, filter, before, limit)

        async def walk() -> AsyncIterator[CheckpointTuple]:
            while not pages.ended:
                for found in await self._backend.run(pages.next(), writes=False):
                    yield found

        return walk()

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the ancestors of a checkpoint contributed to its DeltaChannels."""
        return self._backend.finish(self._delta_history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history`, off the event loop."""
        return await self._backend.run(self._delta_history(config, channels), writes=False)

    async def _delta_history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        place, names = addresses.place_in(config), addresses.channels(channels)
        if not names:
            return {}
        found = await self._engine.delta_history(self.serde, place, names)
        return cast("Mapping[str, DeltaChannelHistory]", found)

    def timeline(self, thread_id: str) -> Timeline:
        """A thread as a list of steps to look at; `Timeline(graph, thread_id)` can also act."""
        from langgraph_durable.timeline import Timeline

        return Timeline(self, thread_id)

    def _outlines(
        self, config: RunnableConfig, *, before: RunnableConfig | None, limit: int | None
    ) -> Iterator[Outline]:
        """`list` without values, for those who only look at what there is."""
        selection, cursor, left = addresses.selection(config, before), None, limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = self._engine.outline(selection, cursor, size, strict=False)
            found, cursor = self._backend.finish(page)
            yield from found
            left = None if left is None else left - len(found)
            if cursor is None:
                return

    # ---- writing -----------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint as a child of the one `config` names; return its own config.

        Raises:
            ConcurrentUpdate: another run has moved the thread on since this one loaded it.
            SerializationError: a value cannot be stored; names the channel and the path in it.
        """
        return self._backend.finish(self._put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`, off the event loop."""
        work = self._put(config, checkpoint, metadata, new_versions)
        return await self._backend.run(work, writes=True)

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        place = addresses.place_in(config)
        config = self._runs.recognised(config, place)
        id = addresses.check_checkpoint(checkpoint, metadata, new_versions)
        merged = checkpoint_metadata(
            metadata,
            config.get("metadata"),
            config.get("configurable"),
            only=self._metadata_keys,
            warned=self._warned,
        )
        guard = addresses.guard_for(
            config,
            strict=self._on_conflict == "raise",
            last_put=self._runs.last_put(place),
            root=self._runs.root_of(config, place),
        )
        by = addresses.model_of(config) or self._runs.author(config, place)
        self._runs.storing(by, place, id)
        with addresses.going_on(config):
            await self._engine.put(self.serde, place, checkpoint, merged, new_versions, guard, by)
        self._runs.stored(config, place, id)
        if self._steps is not None:
            await self._steps.after_put(place.thread_id)
        return addresses.config_for(place.thread_id, place.ns, id)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task has written, before its step ends. Once per task and index."""
        self._backend.finish(self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """`put_writes`, off the event loop."""
        work = self._put_writes(config, writes, task_id, task_path)
        await self._backend.run(work, writes=True)

    async def _put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        place = addresses.place_in(config)
        if place.id is None:
            raise ConfigurationError("put_writes needs the checkpoint_id that the writes are for")
        config = self._runs.recognised(config, place)
        addresses.check_text("task_id", task_id)
        addresses.check_text("task_path", task_path, most=addresses.LONGEST_PATH, empty=True)
        addresses.check_writes(writes)
        if writes:
            by = self._runs.author(config, place)
            task = Task(task_id, task_path, addresses.run_in(config), by)
            sole = addresses.sole_writer(config, strict=self._on_conflict == "raise")
            root = self._runs.root_of(config, place)
            await self._engine.put_writes(self.serde, place, writes, task, sole, root)

    # ---- removing and copying ----------------------------------------------------------------

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Take back what these runs stored: their checkpoints, and their writes on others'."""
        self._backend.finish(self._delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`, off the event loop."""
        await self._backend.run(self._delete_for_runs(run_ids), writes=True)

    async def _delete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._engine.delete_for_runs(addresses.several("run_ids", run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, with its writes, under a new id. The target must not exist."""
        self._backend.finish(self._copy_thread(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`, off the event loop."""
        work = self._copy_thread(source_thread_id, target_thread_id)
        await self._backend.run(work, writes=True)

    async def _copy_thread(self, source: str, target: str) -> None:
        await self._engine.copy_thread(addresses.thread(source), addresses.thread(target))

    # ---- the rest ----------------------------------------------------------------------------

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A version above `current` that no fork of the same step gets too."""
        try:
            text = current.partition(".")[0] if isinstance(current, str) else current
            count = 0 if text is None else int(text)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(f"{current!r} is not the version of a channel") from error
        # Every record spells its versions: with 53 bits of chance, a chat takes 2 % more room.
        return f"{count + 1:032}.{secrets.randbits(32):016}"


class _Done:
    """What `setup` returns, so that `await saver.setup()` works as with the stock async saver."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class _Pages:
    """A `list` in progress: what is asked for, and how far it got."""

    def __init__(
        self,
        saver: DurableSaver,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        self._saver = saver
        self._selection: Selection = addresses.selection(config, before)
        self._filter = addresses.checked_filter(filter)
        self._left = addresses.checked_limit(limit)
        self._cursor: Cursor | None = None
        self._size = FIRST_PAGE
        self.ended = self._left == 0

    async def next(self) -> builtins.list[CheckpointTuple]:
        # Who says how many wants that many.
        size = self._size if self._left is None else min(PAGE, self._left)
        self._size = PAGE
        found, self._cursor = await self._saver._engine.page(
            self._saver.serde, self._selection, self._filter, self._cursor, size
        )
        if self._left is not None:
            self._left -= len(found)
        self.ended = self._cursor is None or self._left == 0
        return [addresses.checkpoint_tuple(restored, asked=True) for restored in found]


def _asking(shelf: Shelf, engine: Engine, backend: Backend) -> Callable[[], bool]:
    """Lets a shelf read its names again. A handle keeps its shelf, and no saver with it."""
    own, over, by = weakref.ref(shelf), weakref.ref(engine), weakref.ref(backend)

    def ask() -> bool:
        shelf, engine, backend = own(), over(), by()
        if shelf is None or engine is None or backend is None:
            return False
        return backend.finish(shelf.refresh(engine.storage))

    return ask


def _checked_keys(keys: Collection[str] | None) -> frozenset[str] | None:
    if keys is None:
        return None
    if not isinstance(keys, Collection) or isinstance(keys, (str, bytes)):
        raise ConfigurationError(f"metadata_keys is a list of names, not {keys!r}")
    if not all(isinstance(key, str) for key in keys):
        raise ConfigurationError(f"metadata_keys is a list of names, not {keys!r}")
    return frozenset(keys)
