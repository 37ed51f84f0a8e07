"""The checkpointer of a LangGraph Server: `"langgraph_durable.server.checkpointer"`.

The server enters `checkpointer` once for its main loop, and once more in each thread that runs
graphs if `BG_JOB_ISOLATED_LOOPS` is true. All of them get one saver, so they share its connections
and what it remembers. The last one to leave closes it; the threads of isolated loops never leave,
and their saver ends with the process, which none of its threads holds up.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from langgraph_durable.errors import ConfigurationError
from langgraph_durable.saver import DurableSaver
from langgraph_durable.urls import open_saver

VARIABLE = "LANGGRAPH_DURABLE_URL"


@dataclass
class _Shared:
    saver: DurableSaver
    users: int = 0


_lock = threading.Lock()
_open: dict[str, _Shared] = {}


@asynccontextmanager
async def checkpointer() -> AsyncIterator[DurableSaver]:
    """The saver that `LANGGRAPH_DURABLE_URL` names, with its options as query parameters.

    In langgraph.json: `"checkpointer": {"path": "langgraph_durable.server.checkpointer"}`.

    Raises:
        ConfigurationError: the variable is missing, or `open_saver` cannot read it.
        StorageError: the store cannot be opened; better said at the start than by the first run.
    """
    url = _url()
    saver = await asyncio.to_thread(_enter, url)
    try:
        yield saver
    finally:
        if _leave(url):
            await saver.aclose()


def _url() -> str:
    url = os.environ.get(VARIABLE, "").strip()
    if not url:
        raise ConfigurationError(
            f"{VARIABLE} is not set: langgraph_durable.server needs to know where to keep threads, "
            f"for example {VARIABLE}=sqlite:///agent.db or {VARIABLE}=redis://localhost:6379"
        )
    return url


def _enter(url: str) -> DurableSaver:
    """In a thread of its own: imports, connections and files would block the loop."""
    with _lock:
        shared = _open.get(url)
        if shared is None:
            shared = _Shared(_opened(url))
            _open[url] = shared
        shared.users += 1
        return shared.saver


def _opened(url: str) -> DurableSaver:
    try:
        saver = open_saver(url)
    except ConfigurationError as error:
        raise ConfigurationError(f"{VARIABLE} cannot be used: {error}") from error
    try:
        saver.setup()
    except BaseException:
        saver.close()
        raise
    return saver


def _leave(url: str) -> bool:
    """Whether that was the last user, who has to close the saver."""
    with _lock:
        shared = _open[url]
        shared.users -= 1
        if not shared.users:
            del _open[url]
        return not shared.users
