"""A proxy in front of a server: counts the round trips that clients make, and can slow them down.

In a process of its own (`python proxy.py HOST PORT SECONDS` prints the port it listens on) it takes
no time from whoever is measured; in a thread (`counting`) its counter can be read.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"


class Proxy:
    """Carries bytes to and fro. A round trip begins with bytes that follow an answer."""

    def __init__(self, host: str, port: int, delay: float = 0.0) -> None:
        self.target, self.delay = (host, port), delay
        self.trips = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(*self.target)
        answered = [True]

        def asked() -> None:
            if answered[0]:
                answered[0] = False
                self.trips += 1

        def told() -> None:
            answered[0] = True

        there = _carry(reader, back_writer, 0.0, asked)
        back = _carry(back_reader, writer, self.delay, told)
        for task in (asyncio.ensure_future(there), asyncio.ensure_future(back)):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _carry(reader, writer, delay, note) -> None:  # type: ignore[no-untyped-def]
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(1 << 20):
            note()
            if delay:
                loop.call_later(delay, _write, writer, data)
            else:
                _write(writer, data)
    except ConnectionError:
        pass
    finally:
        loop.call_later(delay, writer.close)


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)


@contextmanager
def counting(host: str, port: int) -> Iterator[Proxy]:
    """A proxy without delay, in a thread of this process."""
    proxy, loop, ready = Proxy(host, port), asyncio.new_event_loop(), threading.Event()

    def run() -> None:
        server = loop.run_until_complete(proxy.start())
        ready.set()
        loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def main(host: str, port: int, delay: float) -> None:
    proxy = Proxy(host, port, delay)
    server = await proxy.start()
    print(proxy.port, flush=True)
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until we are left


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
