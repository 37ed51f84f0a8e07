"""LangGraph's own conformance suite: all eight capabilities, in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import backends
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from langgraph.checkpoint.conformance.validate import validate

from langgraph_durable.saver import DurableSaver


def in_thread(method: str) -> Callable[..., Any]:
    """An async method that calls the sync one of the saver inside, on a thread of its own."""

    async def call(self: SyncOnly, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(getattr(self.inner, method), *args, **kwargs)

    return call


class SyncOnly(BaseCheckpointSaver[str]):
    """The suite only knows async methods; these lead to the sync ones."""

    def __init__(self, inner: DurableSaver) -> None:
        super().__init__()
        self.inner = inner

    aput = in_thread("put")
    aput_writes = in_thread("put_writes")
    aget_tuple = in_thread("get_tuple")
    adelete_thread = in_thread("delete_thread")
    adelete_for_runs = in_thread("delete_for_runs")
    acopy_thread = in_thread("copy_thread")
    aprune = in_thread("prune")

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await asyncio.to_thread(lambda: list(self.inner.list(*args, **kwargs))):
            yield found


@pytest.mark.parametrize("capability", [capability.value for capability in Capability])
@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize("backend", backends.EVERYWHERE)
async def test_the_capability_conforms(
    backend: str, colour: str, capability: str, tmp_path: Path
) -> None:
    async def make() -> AsyncIterator[BaseCheckpointSaver[str]]:
        async with backends.EVERYWHERE[backend](tmp_path) as saver:
            yield saver if colour == "async" else SyncOnly(saver)

    report = await validate(RegisteredCheckpointer("durable", make), capabilities={capability})
    result = report.results[capability]
    assert result.failures == []
    assert result.passed
    assert result.tests_passed > 0


def test_there_are_eight_capabilities() -> None:
    assert len(Capability) == 8
