"""`langgraph_durable.server.checkpointer` as the server enters it: by many, from any thread."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
import servers
from dev import DevServer

from langgraph_durable import ConfigurationError, StorageError
from langgraph_durable.server import VARIABLE, checkpointer


@pytest.fixture(params=["sqlite", "valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'agent.db'}?durability=normal"
    else:
        url = f"{servers.shared().url}?prefix={servers.prefix_for(tmp_path)}"
    monkeypatch.setenv(VARIABLE, url)
    return url


async def test_all_get_one_saver_and_the_last_one_closes_it(url: str) -> None:
    async with checkpointer() as one:
        async with checkpointer() as other:
            assert other is one
        assert await one.aget_tuple({"configurable": {"thread_id": "t"}}) is None
    with pytest.raises(StorageError, match="closed"):
        await one.aget_tuple({"configurable": {"thread_id": "t"}})
    async with checkpointer() as again:
        assert again is not one
        assert await again.aget_tuple({"configurable": {"thread_id": "t"}}) is None


def test_many_threads_with_loops_of_their_own_enter_at_once(url: str) -> None:
    barrier, entered = threading.Barrier(8), []

    async def use() -> None:
        barrier.wait(120)
        async with checkpointer() as saver:
            entered.append(saver)
            assert await saver.aget_tuple({"configurable": {"thread_id": "t"}}) is None
            await asyncio.to_thread(barrier.wait, 120)

    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entered) == 8
    assert len(set(map(id, entered))) == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (None, "LANGGRAPH_DURABLE_URL is not set"),
        (" ", "LANGGRAPH_DURABLE_URL is not set"),
        ("agent.db", "LANGGRAPH_DURABLE_URL cannot be used: .*sqlite:///"),
        ("sqlite:///agent.db?speed=9", "'speed' is not known; known: durability"),
        ("redis://localhost?ttl=never", "LANGGRAPH_DURABLE_URL cannot be used: .*ttl"),
    ],
)
async def test_a_wrong_variable_is_named(
    url: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if url is not None:
        monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(ConfigurationError, match=said):
        async with checkpointer():
            pass


async def test_a_store_that_cannot_be_opened_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for url in (
        f"sqlite:///{tmp_path / 'no' / 'folder' / 'agent.db'}",
        f"redis://127.0.0.1:{servers.free_port()}?retry=0",
    ):
        monkeypatch.setenv(VARIABLE, url)
        with pytest.raises(StorageError):
            async with checkpointer():
                pass


def test_a_server_without_the_variable_ends_and_says_why(tmp_path: Path) -> None:
    server = DevServer(tmp_path, None)
    assert server.launch().wait(240) != 0
    assert "LANGGRAPH_DURABLE_URL is not set" in server.log
