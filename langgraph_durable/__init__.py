"""Durable checkpoints for LangGraph: `builder.compile(checkpointer=SqliteSaver("agent.db"))`."""

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
    UnsafeTypeError,
)
from langgraph_durable.sqlite import SqliteSaver
from langgraph_durable.urls import open_saver

__all__ = [
    "ConcurrentUpdate",
    "ConfigurationError",
    "CorruptionError",
    "DurableError",
    "NotAStore",
    "SerializationError",
    "SqliteSaver",
    "StorageBusy",
    "StorageError",
    "StorageFull",
    "StorageReadOnly",
    "UnsafeTypeError",
    "open_saver",
]
