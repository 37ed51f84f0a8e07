"""A saver that keeps references and serialises nothing: what is left is LangGraph's own time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)


class ReferenceSaver(BaseCheckpointSaver[int]):
    """Keeps references to what it is given: the floor under every saver, not a usable one."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: dict[tuple[str, str], dict[str, CheckpointTuple]] = {}
        self.writes: dict[tuple[str, str, str], dict[tuple[str, int], tuple[str, str, Any]]] = {}

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the stored objects themselves, under a fresh top level."""
        thread, ns = place(config)
        stored = self.checkpoints.get((thread, ns))
        if not stored:
            return None
        found = stored.get(get_checkpoint_id(config) or max(stored))
        if found is None:
            return None
        pending = self.writes.get((thread, ns, found.checkpoint["id"]), {})
        return found._replace(
            checkpoint=shallow(found.checkpoint), pending_writes=list(pending.values())
        )

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Remember the checkpoint's own objects."""
        thread, ns = place(config)
        where = {"thread_id": thread, "checkpoint_ns": ns}
        saved: RunnableConfig = {"configurable": {**where, "checkpoint_id": checkpoint["id"]}}
        parent = get_checkpoint_id(config)
        self.checkpoints.setdefault((thread, ns), {})[checkpoint["id"]] = CheckpointTuple(
            saved,
            shallow(checkpoint),
            metadata,
            {"configurable": {**where, "checkpoint_id": parent}} if parent else None,
        )
        return saved

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Remember the written objects."""
        stored = self.writes.setdefault((*place(config), get_checkpoint_id(config) or ""), {})
        for number, (channel, value) in enumerate(writes):
            stored[task_id, WRITES_IDX_MAP.get(channel, number)] = (task_id, channel, value)


def place(config: RunnableConfig) -> tuple[str, str]:
    """The thread and the namespace a config names."""
    configurable = config["configurable"]
    return configurable["thread_id"], configurable.get("checkpoint_ns", "")


def shallow(checkpoint: Checkpoint) -> Checkpoint:
    """A copy whose dictionary of channels may be changed without touching the stored one."""
    copied = checkpoint.copy()
    copied["channel_values"] = checkpoint["channel_values"].copy()
    return copied
