"""Durable checkpoints for LangGraph: `builder.compile(checkpointer=SqliteSaver("agent.db"))`."""

from typing import TYPE_CHECKING, Any

from langgraph_durable.artifacts import (
    Artifact,
    ArtifactStore,
    FileArtifacts,
    MemoryArtifacts,
    MissingArtifact,
    ObjectArtifacts,
)
from langgraph_durable.errors import (
    ArtifactCorrupt,
    ArtifactMissing,
    ArtifactsUnreachable,
    CheckpointRemoved,
    ConcurrentUpdate,
    ConfigurationError,
    CopyMismatch,
    CorruptionError,
    DamagedArchive,
    DurableError,
    EnvironmentChanged,
    NotAStore,
    SchemaVersionError,
    SerializationError,
    StepNotFound,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageTooNew,
    StorageUnreachable,
    ThreadBusy,
    ThreadDeleted,
    UnsafeTypeError,
)
from langgraph_durable.keeping import ArtifactProblem, Collected, Moved
from langgraph_durable.moving import (
    acopy_store,
    aexport_threads,
    aimport_threads,
    copy_store,
    export_threads,
    import_threads,
)
from langgraph_durable.policies import (
    DropIdle,
    Finished,
    KeepInterrupted,
    KeepLast,
    KeepTagged,
    MaxAge,
    MaxBytes,
    Milestones,
    Policy,
    Thin,
)
from langgraph_durable.reports import Deleted, PrunePlan, PruneReport, Stats
from langgraph_durable.schema import StateEdit, StateSchema
from langgraph_durable.sqlite import SqliteSaver
from langgraph_durable.upgrades import UpgradePlan, UpgradeReport
from langgraph_durable.urls import open_saver

if TYPE_CHECKING:
    from langgraph_durable.redis import RedisSaver
    from langgraph_durable.timeline import Timeline

__all__ = [
    "Artifact",
    "ArtifactCorrupt",
    "ArtifactMissing",
    "ArtifactProblem",
    "ArtifactStore",
    "ArtifactsUnreachable",
    "CheckpointRemoved",
    "Collected",
    "ConcurrentUpdate",
    "ConfigurationError",
    "CopyMismatch",
    "CorruptionError",
    "DamagedArchive",
    "Deleted",
    "DropIdle",
    "DurableError",
    "EnvironmentChanged",
    "FileArtifacts",
    "Finished",
    "KeepInterrupted",
    "KeepLast",
    "KeepTagged",
    "MaxAge",
    "MaxBytes",
    "MemoryArtifacts",
    "Milestones",
    "MissingArtifact",
    "Moved",
    "NotAStore",
    "ObjectArtifacts",
    "Policy",
    "PrunePlan",
    "PruneReport",
    "RedisSaver",
    "SchemaVersionError",
    "SerializationError",
    "SqliteSaver",
    "StateEdit",
    "StateSchema",
    "Stats",
    "StepNotFound",
    "StorageBusy",
    "StorageError",
    "StorageFull",
    "StorageReadOnly",
    "StorageTooNew",
    "StorageUnreachable",
    "Thin",
    "ThreadBusy",
    "ThreadDeleted",
    "Timeline",
    "UnsafeTypeError",
    "UpgradePlan",
    "UpgradeReport",
    "acopy_store",
    "aexport_threads",
    "aimport_threads",
    "copy_store",
    "export_threads",
    "import_threads",
    "open_saver",
]


def __getattr__(name: str) -> Any:
    """`RedisSaver` and `Timeline` are imported when asked for: not everybody needs them."""
    if name == "RedisSaver":
        from langgraph_durable.urls import redis_saver

        return redis_saver()
    if name == "Timeline":
        from langgraph_durable.timeline import Timeline

        return Timeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
