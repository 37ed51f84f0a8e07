"""Durable checkpoints for LangGraph: `builder.compile(checkpointer=SqliteSaver("agent.db"))`."""

from typing import TYPE_CHECKING, Any

from langgraph_durable.errors import (
    ConcurrentUpdate,
    ConfigurationError,
    CorruptionError,
    DurableError,
    NotAStore,
    SerializationError,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
    UnsafeTypeError,
)
from langgraph_durable.sqlite import SqliteSaver
from langgraph_durable.urls import open_saver

if TYPE_CHECKING:
    from langgraph_durable.redis import RedisSaver

__all__ = [
    "ConcurrentUpdate",
    "ConfigurationError",
    "CorruptionError",
    "DurableError",
    "NotAStore",
    "RedisSaver",
    "SerializationError",
    "SqliteSaver",
    "StorageBusy",
    "StorageError",
    "StorageFull",
    "StorageReadOnly",
    "StorageUnreachable",
    "UnsafeTypeError",
    "open_saver",
]


def __getattr__(name: str) -> Any:
    """`RedisSaver` is imported when it is asked for: redis is an extra."""
    if name != "RedisSaver":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from langgraph_durable.urls import redis_saver

    return redis_saver()
