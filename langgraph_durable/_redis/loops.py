"""Carries requests out on an asyncio client that the user has made, on the loop it belongs to.

The same as `carriers`, one request at a time: here it is redis-py that lets many wait at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis import exceptions as theirs

from langgraph_durable._redis import failures, plain
from langgraph_durable._redis.carriers import Outcome, Settings, explained, pauses, warn
from langgraph_durable._redis.clients import Source
from langgraph_durable._redis.requests import Call, Command, Reply, Request


class LoopCarrier:
    """One asyncio client."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self.source, self.settings = source, settings
        self.client: Any = source.make()

    async def carry_out(self, request: Request) -> Outcome:
        """Replies to a request, or the error that it met; ours, not redis-py's."""
        if self.settings.looks:
            self.settings.looks = False
            await self._look_around()
        outcome: Outcome = []
        for pause in pauses(self.settings.patience):
            if pause:
                await asyncio.sleep(pause)
            try:
                outcome = await self._attempt(request)
            except failures.FAILED as error:
                outcome = error
            is_passing = isinstance(outcome, BaseException) and failures.is_passing(outcome)
            if request.once or not is_passing:
                break
        return explained(outcome, self.source.name, request)

    async def _attempt(self, request: Request) -> Outcome:
        if request.scan is not None:
            return [[key async for key in self.client.scan_iter(match=request.scan, count=1000)]]
        for command in request.index if self.source.is_cluster else ():
            await self.client.execute_command(*command)
        index = [] if self.source.is_cluster else list(request.index)
        if request.call is not None and not self.settings.scripts:
            await self._send(index)
            return await self._transact(request, request.call)
        waited = self.settings.waits(request)
        outcome = await self._ask(request, index, waited, spelled=False)
        if isinstance(outcome, theirs.NoScriptError):
            outcome = await self._ask(request, [], waited, spelled=True)
        if failures.is_denied_script(outcome) and request.call is not None:
            self.settings.scripts = False
            return await self._transact(request, request.call)
        return outcome

    async def _ask(
        self, request: Request, index: list[Command], waited: bool, *, spelled: bool
    ) -> Outcome:
        commands = [*index, *self.settings.commands(request, spelled=spelled)]
        if waited:
            commands.append(self.settings.wait)
        replies = await self._send(commands)
        return self.settings.settle(replies[len(index) :], waited=waited)

    async def _send(self, commands: list[Command]) -> list[Reply]:
        if not commands:
            return []
        if len(commands) == 1:
            try:
                return [await self.client.execute_command(*commands[0])]
            except theirs.ResponseError as error:
                return [error]
        pipe = self.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        replies: list[Reply] = await pipe.execute(raise_on_error=False)
        return replies

    async def _transact(self, request: Request, call: Call) -> Outcome:
        waited = self.settings.waits(request)
        if self.source.is_cluster:
            return [await self._transact_in_cluster(call)]
        pool = self.client.connection_pool
        for _ in range(plain.TRIES):
            connection = await pool.get_connection()
            try:
                done = await self._try(connection, call, waited=waited)
            except BaseException:
                await connection.disconnect()  # it may still watch, and owe answers
                raise
            finally:
                await pool.release(connection)
            if done is not None:
                return self.settings.settle(done, waited=waited)
        raise theirs.TryAgainError("TRYAGAIN others kept changing the thread")

    async def _try(self, connection: Any, call: Call, *, waited: bool) -> list[Reply] | None:
        """One transaction; None if others have changed the thread meanwhile."""

        async def ask(commands: list[Command]) -> list[Reply]:
            await connection.send_packed_command(connection.pack_commands(commands))
            return [await _reply(connection) for _ in commands]

        plain.check(await ask([("WATCH", *call.keys)]))
        twin = plain.twin(call)
        try:
            wanted = next(twin)
            while True:
                wanted = twin.send(plain.check(await ask([wanted]))[0])
        except StopIteration as end:
            answer, commands = end.value
        *_, done = plain.check(await ask(plain.transaction(call, commands)))
        if done is None:
            return None
        plain.check(done)
        return [answer, *(await ask([self.settings.wait]) if waited else ())]

    async def _transact_in_cluster(self, call: Call) -> Reply:
        for _ in range(plain.TRIES):
            async with self.client.pipeline(transaction=True) as pipe:
                await pipe.watch(*call.keys)
                twin, reply = plain.twin(call), None
                try:
                    while True:
                        reply = await pipe.execute_command(*twin.send(reply))
                except StopIteration as end:
                    answer, commands = end.value
                pipe.multi()
                for command in plain.transaction(call, commands)[1:-1]:
                    pipe.execute_command(*command)
                try:
                    await pipe.execute()
                    return answer
                except theirs.WatchError:
                    continue
        raise theirs.TryAgainError("TRYAGAIN others kept changing the thread")

    async def _look_around(self) -> None:
        try:
            warn(self.source.name, await self.client.execute_command("INFO"))
        except failures.FAILED:
            return


async def _reply(connection: Any) -> Reply:
    try:
        return await connection.read_response()
    except theirs.ResponseError as error:
        return error
