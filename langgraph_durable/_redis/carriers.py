"""Carries requests out on a sync client, many at once, trying again while trouble may pass.

Requests that wait at the same moment travel in one pipeline, so that fifty callers pay for one
round trip. Every write may be sent twice: scripts recognise their own token, and the commands of
an index do no harm the second time.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from redis import exceptions as theirs

from langgraph_durable._redis import failures, plain
from langgraph_durable._redis.clients import Source
from langgraph_durable._redis.lines import Lines, read_reply
from langgraph_durable._redis.requests import Call, Command, Reply, Request

logger = logging.getLogger("langgraph_durable")

LONGEST_PAUSE = 0.5
_jitter = random.Random()

Outcome = list[Reply] | BaseException


def pauses(patience: float) -> Generator[float, None, None]:
    """Seconds to wait before each attempt, until `patience` is used up.

    None before the first, and none before the second: the usual trouble is a connection that was
    cut while nobody used it.
    """
    end, step = time.monotonic() + patience, 0.0
    yield 0.0
    while time.monotonic() + step < end:
        yield _jitter.uniform(step / 2, step)
        step = min(max(2 * step, 0.01), LONGEST_PAUSE)


class Settings:
    """What all carriers of a saver share."""

    def __init__(self, patience: float, replicas: int, replica_timeout: float) -> None:
        self.patience = patience
        self.replicas = replicas
        self.replica_timeout = replica_timeout
        self.scripts = True
        """False once the server has said that the user may not run any."""
        self.looks = True
        """Whether the server's settings are still to be looked at."""

    def waits(self, request: Request) -> bool:
        """Whether replicas must confirm what a request has done."""
        return request.writes and self.replicas > 0

    @property
    def wait(self) -> Command:
        # Never 0, which to a server is for ever.
        return "WAIT", self.replicas, max(1, int(self.replica_timeout * 1000))

    @staticmethod
    def commands(request: Request, *, spelled: bool = False) -> list[Command]:
        """The commands of a request on the thread's own keys."""
        if request.call is not None:
            return [request.call.command(spelled=spelled)]
        return list(request.commands)

    def settle(self, replies: Sequence[Reply], *, waited: bool) -> Outcome:
        """What the replies say: an error among them, too few replicas, or success."""
        outcome, confirmed = (replies[:-1], replies[-1]) if waited else (replies, self.replicas)
        for reply in outcome:
            if isinstance(reply, BaseException):
                return reply
        if isinstance(confirmed, BaseException):
            return failures.NotReplicated(
                f"the server refuses to wait for replicas ({confirmed}); allow +wait"
            )
        if confirmed < self.replicas:
            return failures.NotReplicated(
                f"{confirmed} of {self.replicas} replicas have confirmed the write within "
                f"{self.replica_timeout} seconds"
            )
        return outcome if isinstance(outcome, list) else list(outcome)


class Carrier:
    """One sync client, shared by all threads."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self.source, self.settings = source, settings
        self._client: Any = None
        self._lines: Lines | None = None
        self._making = threading.Lock()

    @property
    def client(self) -> Any:
        if self._client is None:
            with self._making:
                if self._client is None:
                    client = self.source.make()
                    if self.settings.looks:
                        self.settings.looks = False
                        _look_around(self.source.name, lambda: client.execute_command("INFO"))
                    if not self.source.is_cluster:
                        self._lines = Lines(client.connection_pool, keeps=self.source.is_ours)
                    self._client = client
        return self._client

    def carry_out(self, requests: Sequence[Request]) -> list[Outcome]:
        """Replies to each request, or the error that it met; ours, not redis-py's."""
        outcomes: list[Outcome] = []
        left = list(range(len(requests)))
        for pause in pauses(self.settings.patience):
            if pause:
                time.sleep(pause)
            again = self._attempt([requests[k] for k in left] if outcomes else requests)
            if not outcomes:
                outcomes = again
                if all(type(outcome) is list for outcome in outcomes):
                    return outcomes
            for k, outcome in zip(left, again, strict=True):
                outcomes[k] = outcome
            left = [k for k in left if _is_passing(outcomes[k]) and not requests[k].once]
            if not left:
                break
        return [
            explained(outcome, self.source.name, request)
            for outcome, request in zip(outcomes, requests, strict=True)
        ]

    def _attempt(self, requests: Sequence[Request]) -> list[Outcome]:
        try:
            if any(request.scan for request in requests):
                if len(requests) > 1:  # a scan travels alone, and so does its trouble
                    return [self._attempt([request])[0] for request in requests]
                return [self._scan(requests[0].scan)]
            if not self.settings.scripts and any(request.call for request in requests):
                return self._in_turn(requests)
            if self.source.is_cluster:
                return [self._in_cluster(request) for request in requests]
            return self._together(requests)
        except failures.FAILED as error:
            return [error] * len(requests)

    def _scan(self, pattern: bytes | None) -> Outcome:
        client = self.client
        self._let_go()
        return [list(client.scan_iter(match=pattern, count=1000))]

    def _let_go(self) -> None:
        """What goes past the lines must find their connections in the pool, which may be small."""
        if self._lines is not None:
            self._lines.let_go()

    # ---- one server --------------------------------------------------------------------------

    def _together(self, requests: Sequence[Request], *, spelled: bool = False) -> list[Outcome]:
        """All in one round trip; `spelled` for a server that does not know their scripts."""
        commands: list[Command] = []
        spans: list[tuple[int, int]] = []
        told: set[str] = set()
        for request in requests:
            commands += request.index
            begin, call = len(commands), request.call
            if call is None:
                commands += request.commands
            else:
                commands.append(call.command(spelled=spelled and call.script not in told))
                told.add(call.script)
            spans.append((begin, len(commands)))
        waits = self.settings.waits
        if self.settings.replicas and any(map(waits, requests)):
            commands.append(self.settings.wait)  # for all: each would take its time after the other
        replies = self._send(commands)
        outcomes: list[Outcome] = []
        is_good = True
        for request, (begin, end) in zip(requests, spans, strict=True):
            own, waited = replies[begin:end], waits(request)
            outcome = self.settings.settle([*own, replies[-1]] if waited else own, waited=waited)
            is_good = is_good and type(outcome) is list
            outcomes.append(outcome)
        return outcomes if is_good else self._again(requests, outcomes, spelled=spelled)

    def _again(
        self, requests: Sequence[Request], outcomes: list[Outcome], *, spelled: bool
    ) -> list[Outcome]:
        """What met a server that has no scripts (it was restarted, or flushed), or runs none."""
        denied = [k for k, each in enumerate(outcomes) if failures.is_denied_script(each)]
        if denied:
            self.settings.scripts = False
        unknown = [k for k, each in enumerate(outcomes) if isinstance(each, theirs.NoScriptError)]
        for some, again in ((denied, self._in_turn), (() if spelled else unknown, self._spelled)):
            if some:
                for k, outcome in zip(some, again([requests[k] for k in some]), strict=True):
                    outcomes[k] = outcome
        return outcomes

    def _spelled(self, requests: Sequence[Request]) -> list[Outcome]:
        return self._together(requests, spelled=True)

    def _send(self, commands: Sequence[Command]) -> list[Reply]:
        """All commands in one round trip; errors are replies."""
        client = self.client
        if self._lines is not None:
            return self._lines.send(commands)
        with client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return pipe.execute(raise_on_error=False)  # type: ignore[no-any-return]

    # ---- a cluster ---------------------------------------------------------------------------

    def _in_cluster(self, request: Request) -> Outcome:
        """redis-py finds the node, and follows a thread that moves."""
        try:
            for command in request.index:
                self.client.execute_command(*command)
            if request.call is None:
                return self.settings.settle(self._send(request.commands), waited=False)
            if self.settings.waits(request):
                return self._on_node(request, request.call)
            try:
                return [self.client.execute_command(*request.call.command())]
            except theirs.NoScriptError:
                return [self.client.execute_command(*request.call.command(spelled=True))]
        except failures.FAILED as error:
            if failures.is_denied_script(error):
                self.settings.scripts = False
                return self._alone(request)
            if isinstance(error, theirs.ConnectionError | theirs.TimeoutError):
                self.client.nodes_manager.initialize()
            return error

    def _on_node(self, request: Request, call: Call) -> Outcome:
        """A write and the wait for its replicas must use one connection."""
        node = self.client.get_redis_connection(self.client.get_node_from_key(call.keys.hash))
        for spelled in (False, True):
            with node.pipeline(transaction=False) as pipe:
                pipe.execute_command(*call.command(spelled=spelled))
                pipe.execute_command(*self.settings.wait)
                replies = pipe.execute(raise_on_error=False)
            if not isinstance(replies[0], theirs.NoScriptError):
                break
        if isinstance(replies[0], theirs.MovedError | theirs.AskError):
            return self._moved()
        return self.settings.settle(replies, waited=True)

    # ---- without scripts ---------------------------------------------------------------------

    def _in_turn(self, requests: Sequence[Request]) -> list[Outcome]:
        """One after the other, scripts as transactions."""
        if self.source.is_cluster:
            return [self._alone(request) for request in requests]
        pool = self.client.connection_pool
        self._let_go()
        return self._on(pool, requests)

    def _alone(self, request: Request) -> Outcome:
        """In a cluster, where the indexes are on other nodes than the thread."""
        try:
            for command in request.index:
                self.client.execute_command(*command)
            if request.call is None:
                return self.settings.settle(self._send(request.commands), waited=False)
            [outcome] = self._on(self._pool(request.call), [request])
            is_elsewhere = isinstance(outcome, theirs.MovedError | theirs.AskError)
            return self._moved() if is_elsewhere else outcome
        except failures.FAILED as error:
            return error

    def _on(self, pool: Any, requests: Sequence[Request]) -> list[Outcome]:
        """On one connection, so that its replicas are waited for once."""
        connection = pool.get_connection()
        try:
            outcomes = [self._by_itself(connection, request) for request in requests]
            waiting = [request for request in requests if self.settings.waits(request)]
            confirmed = _ask(connection, [self.settings.wait]) if waiting else []
        except BaseException:
            connection.disconnect()  # it may still watch, and owe answers
            raise
        finally:
            pool.release(connection)
        return [
            self.settings.settle([*outcome, *confirmed], waited=True)
            if isinstance(outcome, list) and self.settings.waits(request)
            else outcome
            for request, outcome in zip(requests, outcomes, strict=True)
        ]

    def _by_itself(self, connection: Any, request: Request) -> Outcome:
        try:
            if not self.source.is_cluster:
                plain.check(_ask(connection, request.index))
            if request.call is None:
                return plain.check(_ask(connection, request.commands))
            return [self._transact(connection, request.call)]
        except theirs.ResponseError as error:  # all is answered, so others can go on
            _ask(connection, [("UNWATCH",)])
            return error

    def _transact(self, connection: Any, call: Call) -> Reply:
        for _ in range(plain.TRIES):
            done = _try(connection, call)
            if done is not None:
                return done
        raise theirs.TryAgainError("TRYAGAIN others kept changing the thread")

    def _pool(self, call: Call) -> Any:
        """The connections to the server that has the thread."""
        client = self.client.get_redis_connection(self.client.get_node_from_key(call.keys.hash))
        return client.connection_pool

    def _moved(self) -> theirs.RedisError:
        self.client.nodes_manager.initialize()
        return theirs.TryAgainError("TRYAGAIN the thread has moved to another node")

    def close(self) -> None:
        client, self._client = self._client, None
        self._let_go()
        if client is not None and self.source.is_ours:
            client.close()

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._making = threading.Lock()
        if self.source.is_ours:
            self._client = self._lines = None


def _ask(connection: Any, commands: Sequence[Command]) -> list[Reply]:
    """The replies to commands on one connection; errors are replies."""
    if not commands:
        return []
    connection.send_packed_command(connection.pack_commands(commands))
    return [read_reply(connection) for _ in commands]


def _try(connection: Any, call: Call) -> Reply:
    """One transaction: its answer, or None if others have changed the thread meanwhile."""
    plain.check(_ask(connection, [("WATCH", *call.keys)]))
    twin = plain.twin(call)
    try:
        wanted = next(twin)
        while True:
            wanted = twin.send(plain.check(_ask(connection, [wanted]))[0])
    except StopIteration as end:
        answer, commands = end.value
    *_, done = plain.check(_ask(connection, plain.transaction(call, commands)))
    if done is None:
        return None
    plain.check(done)
    return answer


def _is_passing(outcome: Outcome) -> bool:
    return isinstance(outcome, BaseException) and failures.is_passing(outcome)


def explained(outcome: Outcome, server: str, request: Request) -> Outcome:
    if not isinstance(outcome, BaseException):
        return outcome
    ours = failures.explained(outcome, server, request.about, writes=request.writes)
    if ours is not outcome:
        ours.__cause__ = outcome
    return ours


def _look_around(server: str, info: Callable[[], Any]) -> None:
    """Warn of settings under which data can go missing, if the server lets us ask."""
    try:
        warn(server, info())
    except failures.FAILED:
        return


def warn(server: str, info: Any) -> None:
    """One warning for each setting of a server that can lose what is stored."""
    nodes = [info] if "redis_version" in info else list(info.values())
    policies = {str(node.get("maxmemory_policy", "noeviction")) for node in nodes}
    for policy in sorted(policies - {"noeviction"}):
        logger.warning(
            "%s: maxmemory-policy is %s, so the server may drop stored threads when memory is "
            "short; set it to noeviction",
            server,
            policy,
        )
    if any(not int(node.get("aof_enabled", 1)) for node in nodes):
        logger.warning(
            "%s: appendonly is off, so what was stored since the last snapshot, or all of it, is "
            "gone when the server stops; set appendonly yes",
            server,
        )
