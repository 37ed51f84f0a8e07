"""Connections that fall silent: nobody says goodbye, and nothing comes any more."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator

import pytest
import servers
from servers import HOST, Server, running
from work import is_whole, put, state

from langgraph_durable import RedisSaver
from langgraph_durable.testing.model import at, checkpoint, numbered


class Tunnel:
    """Passes bytes on to a server, until the connections that there are go silent."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: dict[socket.socket, socket.socket] = {}
        self._dead: list[socket.socket] = []
        self._closed = False
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def fall_silent(self) -> None:
        """What is connected now stays so, and nothing passes any more."""
        ends, self._ends = self._ends, {}
        self._dead += ends

    def _work(self) -> None:
        while not self._closed:
            ends = self._ends
            ready, _, _ = select.select([self._listener, *ends], [], [], 0.02)
            for end in ready:
                if end is self._listener:
                    near, _ = self._listener.accept()
                    far = socket.create_connection((HOST, self._server))
                    self._ends |= {near: far, far: near}
                elif end in self._ends:
                    self._pass(end)

    def _pass(self, end: socket.socket) -> None:
        data = end.recv(1 << 16)
        if data:
            self._ends[end].sendall(data)
        else:
            for each in (end, self._ends.pop(end)):
                self._ends.pop(each, None)
                each.close()

    def close(self) -> None:
        self._closed = True
        self._thread.join()
        for each in (self._listener, *self._ends, *self._dead):
            each.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as made:
        yield made


@pytest.fixture
def tunnel() -> Iterator[Tunnel]:
    made = Tunnel(servers.shared().port)
    yield made
    made.close()


def test_a_connection_that_fell_silent_is_given_up_and_the_call_repeated(
    tunnel: Tunnel, tmp_path: object
) -> None:
    url = f"redis://{HOST}:{tunnel.port}/0?socket_timeout=0.3"
    with RedisSaver(url, prefix=servers.prefix_for(tmp_path)) as saver:
        put(saver, "t", 1)
        tunnel.fall_silent()
        put(saver, "t", 2)
        tunnel.fall_silent()
        assert is_whole(saver, "t", 2)


async def test_the_same_async(tunnel: Tunnel, tmp_path: object) -> None:
    url = f"redis://{HOST}:{tunnel.port}/0?socket_timeout=0.3"
    async with RedisSaver(url, prefix=servers.prefix_for(tmp_path)) as saver:
        put(saver, "t", 1)
        tunnel.fall_silent()
        found = await saver.aget_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == state(1)


async def test_while_a_server_hangs_the_loop_ticks_and_callers_may_leave(server: Server) -> None:
    async with RedisSaver(server.url) as saver:
        put(saver, "t", 1)
        server.pause()
        reads = [asyncio.create_task(saver.aget_tuple(at("t"))) for _ in range(3)]
        values = state(2)
        made = checkpoint(numbered(2), values, dict.fromkeys(values, 2))
        new = dict.fromkeys(values, 2)
        write = asyncio.create_task(saver.aput(at("t", numbered(1)), made, {"step": 2}, new))
        for _ in range(50):
            await asyncio.sleep(0.01)
        assert not any(task.done() for task in (*reads, write))
        reads[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await reads[0]
        assert not reads[1].done()
        server.resume()
        assert await write == at("t", numbered(2))
        for read in reads[1:]:
            assert await read is not None
        assert is_whole(saver, "t", 2)
