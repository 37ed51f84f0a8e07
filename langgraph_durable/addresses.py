"""What a `RunnableConfig` says: which thread, namespace and checkpoint, and who asked for it.

Everything a caller can get wrong about an address is found here, as `ConfigurationError`, before
anything is read or written.

*Who asked.* Two runs that load the same checkpoint and both go on from it would lose one another's
work. So a put by a run is refused if its parent is no longer the head, unless the caller had asked
for that very checkpoint: then it is a fork, and meant. LangGraph hands the loaded `checkpoint_id`
back as the parent of the first put, so the saver gives it out as a `GivenId`, a string like any
other that remembers who asked. The same goes for the writes that a run adds to the checkpoint it
loaded, until a put of its own has gone on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard, cast
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple

from langgraph_durable._core.authors import Author, GivenId, ParentId
from langgraph_durable._core.engine import Place, Restored
from langgraph_durable._core.records import (
    Guard,
    Selection,
)
from langgraph_durable.errors import ConfigurationError

LONGEST = 1024
"""Bytes of UTF-8 that a thread id, checkpoint id or task id may have."""
LONGEST_PATH = 64 * 1024
"""Namespaces and task paths grow with the depth of sub-graphs."""
_TEXT = {str}
RUN_LOOP = "__pregel_runtime"
"""LangGraph puts this into `configurable` for a run's own puts, and for nobody else's."""


def check_text(what: str, value: object, *, most: int = LONGEST, empty: bool = False) -> str:
    """`value` if it is text of a sensible length."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} is a string, not {_shown(value)}")
    if not value and not empty:
        raise ConfigurationError(f"{what} is empty")
    if len(value) > most // 4 and len(value.encode("utf-8", "surrogatepass")) > most:
        raise ConfigurationError(
            f"{what} is longer than {most:,} bytes of UTF-8 ({_shown(value)}): use a shorter one"
        )
    return value


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return type(value) is dict or isinstance(value, Mapping)  # the latter alone takes 0.4 us


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}... ({len(text):,} characters)"


def thread(value: object) -> str:
    """A thread id: text, or an int as LangGraph's own savers take it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    return str(check_text("thread_id", value))


def _configurable(config: object) -> Mapping[str, Any]:
    found = config.get("configurable") if _is_mapping(config) else None
    if not _is_mapping(found):
        raise ConfigurationError(
            'a config looks like {"configurable": {"thread_id": "..."}}, not ' + _shown(config)
        )
    return found


def _namespace(configurable: Mapping[str, Any]) -> str | None:
    ns = configurable.get("checkpoint_ns")
    if ns is None:
        return None
    return str(check_text("checkpoint_ns", ns, most=LONGEST_PATH, empty=True))


def _id(configurable: Mapping[str, Any]) -> str | None:
    id = configurable.get("checkpoint_id")
    return str(check_text("checkpoint_id", id, empty=True)) or None if id is not None else None


def place_in(config: RunnableConfig) -> Place:
    """Thread, namespace and checkpoint of a config; without an id, the latest is meant."""
    configurable = _configurable(config)
    return Place(_thread(configurable), _namespace(configurable) or "", _id(configurable))


def _thread(configurable: Mapping[str, Any]) -> str:
    if configurable.get("thread_id") is None:
        raise ConfigurationError(
            'the config has no thread_id: pass {"configurable": {"thread_id": "..."}}'
        )
    return thread(configurable["thread_id"])


def check_checkpoint(checkpoint: object, metadata: object, new_versions: object) -> str:
    """The id of a checkpoint that is to be stored, if everything about it has the right shape."""
    if not _is_mapping(checkpoint) or "id" not in checkpoint:
        raise ConfigurationError(f"a checkpoint is a dict with an id, not {_shown(checkpoint)}")
    for part in ("channel_values", "channel_versions"):
        _check_channels(f"the checkpoint's {part}", checkpoint.get(part))
    if None in checkpoint["channel_versions"].values():
        raise ConfigurationError("the checkpoint's channel_versions names a channel with None")
    _check_channels("new_versions", new_versions)
    if not _is_mapping(metadata):
        raise ConfigurationError(f"metadata is a dict, not {_shown(metadata)}")
    return str(check_text("the checkpoint's id", checkpoint["id"]))


def _check_channels(what: str, value: object) -> None:
    if not _is_mapping(value) or not set(map(type, value)) <= _TEXT:
        raise ConfigurationError(f"{what} is a dict by channel name, not {_shown(value)}")


def check_writes(writes: object) -> None:
    """Pairs of channel and value are writes; anything else is a mistake."""
    if not isinstance(writes, Sequence) or isinstance(writes, (str, bytes)):
        raise ConfigurationError(f"writes is a list of (channel, value), not {_shown(writes)}")
    for write in writes:
        if not (isinstance(write, (tuple, list)) and len(write) == 2 and type(write[0]) is str):
            raise ConfigurationError(f"a write is a (channel, value), not {_shown(write)}")


def run_in(config: RunnableConfig) -> str | None:
    """The run that makes a call, if the config names it."""
    for source in (config.get("metadata"), config.get("configurable")):
        run = source.get("run_id") if isinstance(source, Mapping) else None
        if isinstance(run, (str, UUID)):
            return str(run)
    return None


def guard_for(
    config: RunnableConfig, *, strict: bool, last_put: str | None, root: str | None
) -> Guard:
    """What the store must check for a put under this config; see the top of the file.

    `last_put` is the id that this saver stored last in the thread: a run goes on from it, so it is
    not one that the caller made up. By `root` the store tells whether the thread was deleted.
    """
    parent = config["configurable"].get("checkpoint_id")
    asked = False
    if isinstance(parent, GivenId):
        asked = parent.asked
    made_up = not isinstance(parent, GivenId) and bool(parent) and parent != last_put
    sole = strict and not asked and _by_run_in_root(config)
    return Guard(sole=sole, lenient=made_up, lead=asked, root=root)


def model_of(config: RunnableConfig) -> Author | None:
    """Who made the checkpoint that is copied, if a put does that."""
    parent = config["configurable"].get("checkpoint_id")
    return parent.author if isinstance(parent, ParentId) and not is_by_run(config) else None


class going_on:
    """A put that goes on from the checkpoint of its config: that is `continued`, unless it fails.

    Marked before the put begins, because a task's writes on the same checkpoint may come beside it.
    """

    __slots__ = ("_given",)

    def __init__(self, config: RunnableConfig) -> None:
        given = config["configurable"].get("checkpoint_id")
        first = isinstance(given, GivenId) and not given.continued
        self._given: GivenId | None = given if first else None

    def __enter__(self) -> None:
        if self._given is not None:
            self._given.continued = True

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None and self._given is not None:
            self._given.continued = False


def root_of_run(config: RunnableConfig) -> str | None:
    """The checkpoint of the root namespace that the run behind a call is at; None if it is none."""
    configurable = config["configurable"]
    if RUN_LOOP not in configurable:
        return None
    if not configurable.get("checkpoint_ns"):
        return configurable.get("checkpoint_id") or None
    above = configurable.get("checkpoint_map")
    return above.get("") if isinstance(above, Mapping) else None


def above_in(config: RunnableConfig) -> Mapping[str, str]:
    """Where a run is in the graphs above a sub-graph: checkpoints by namespace."""
    found = config["configurable"].get("checkpoint_map")
    return found if isinstance(found, Mapping) else {}


def is_by_run(config: RunnableConfig) -> bool:
    """Whether a run makes the call, and not somebody who looks."""
    return RUN_LOOP in config["configurable"]


def _by_run_in_root(config: RunnableConfig) -> bool:
    configurable = config["configurable"]
    return RUN_LOOP in configurable and not configurable.get("checkpoint_ns")


def sole_writer(config: RunnableConfig, *, strict: bool) -> Callable[[], bool]:
    """Whether writes under this config must find their checkpoint to be the head."""
    given = config["configurable"].get("checkpoint_id")
    if not strict or not isinstance(given, GivenId) or given.asked or not _by_run_in_root(config):
        return bool
    return lambda: not given.continued


def config_for(thread_id: str, ns: str, id: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id}}


def checkpoint_tuple(restored: Restored, *, asked: bool, by: int = 0) -> CheckpointTuple:
    """What a caller gets of a checkpoint; the hand of a run knows it again by its id."""
    thread_id, ns, id = restored.place
    assert id is not None
    given, parent = GivenId.of(id, asked=asked, by=by, known=restored.known), restored.parent
    checkpoint = restored.checkpoint
    if parent is not None and restored.author is not None:
        parent = ParentId.of(parent, restored.author)
    if by:
        checkpoint["id"] = given
    return CheckpointTuple(
        config_for(thread_id, ns, given),
        cast("Checkpoint", checkpoint),
        cast("CheckpointMetadata", restored.metadata),
        None if parent is None else config_for(thread_id, ns, parent),
        restored.writes,
    )


def selection(config: RunnableConfig | None, before: RunnableConfig | None) -> Selection:
    """What `list` is asked for."""
    thread_id = ns = id = older_than = None
    if config is not None:
        configurable = _configurable(config)
        thread_id = _thread(configurable)
        ns, id = _namespace(configurable), _id(configurable)
    if before is not None:
        if not isinstance(before, Mapping):
            raise ConfigurationError(f"before is a config, not {_shown(before)}")
        # LangGraph Server passes a bare checkpoint: its keys without a `configurable` around them.
        older_than = _id(before.get("configurable") or before)
    return Selection(thread_id, ns, id, older_than)


def channels(names: object) -> Sequence[str]:
    """Several names of channels; a lone string would be read as one per character."""
    if not isinstance(names, str) and isinstance(names, Iterable):
        found = [*names]
        if set(map(type, found)) <= _TEXT:
            return found
    raise ConfigurationError(f"channels is a list of names, not {_shown(names)}")


def checked_filter(filter: object) -> Mapping[str, Any] | None:
    if filter is None:
        return None
    if not isinstance(filter, Mapping) or not all(isinstance(key, str) for key in filter):
        raise ConfigurationError(f"filter is a dict of metadata keys, not {_shown(filter)}")
    return filter


def checked_limit(limit: object) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ConfigurationError(f"limit is a number from 0 up, not {_shown(limit)}")
    return limit


def several(what: str, values: Iterable[Any]) -> Sequence[str]:
    """A list of ids; a lone string is a mistake that would be read as one id per character."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        shown = _shown(values)
        raise ConfigurationError(f"{what} is a list of ids, not {shown}: pass [{shown}]")
    return [
        str(value)
        if isinstance(value, (int, UUID)) and not isinstance(value, bool)
        else str(check_text(f"each of {what}", value))
        for value in values
    ]
