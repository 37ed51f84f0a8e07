"""Where connections come from: a path, a connection of the user's, an aiosqlite connection.

All three answer the same three calls, from any thread: `read` and `write` run a function of a
connection and return what it returns, `close` lets go. `write` is never called by two threads at
once (`database` sees to that); `read` may be, also during a `write`. Around a fork, `pause` keeps
SQLite still (a lock of its own that is held at that moment would be held for ever in the child);
then the parent calls `resume` and the child `abandon`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
import urllib.parse
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from langgraph_durable._sqlite import schema
from langgraph_durable._sqlite.failures import path_of
from langgraph_durable.errors import ConfigurationError, StorageError

if TYPE_CHECKING:
    import aiosqlite

T = TypeVar("T")
Act = Callable[[sqlite3.Connection], T]

READERS = 8
"""Idle reading connections kept open; more are opened when as many reads run at once."""
PAUSE = 5.0
"""Seconds that a fork waits at most for SQLite to be still."""


class Connections(Protocol):
    name: str
    exclusive: bool
    """Nobody else uses the same connection."""

    def read(self, act: Act[T]) -> T: ...
    def write(self, act: Act[T]) -> T: ...
    def close(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abandon(self) -> None:
        """In a forked child: forget everything, close nothing."""


class Settings:
    """What every connection is set to."""

    def __init__(self, synchronous: str, busy_timeout: float) -> None:
        self.synchronous = synchronous
        self.busy_timeout = busy_timeout


def _in_one_moment(conn: sqlite3.Connection, act: Act[T]) -> T:
    """Read in a transaction: everything inside sees one moment."""
    try:
        conn.execute("BEGIN")
        return act(conn)
    finally:
        schema.rollback(conn)


class Gate:
    """Lets any number of readers through until it is shut; shutting waits for them, for a while."""

    def __init__(self) -> None:
        self._entrance = threading.Lock()
        self._inside: dict[int, bool] = {}
        """By thread, so that what an interrupt leaves here goes with that thread's next read."""

    def __enter__(self) -> None:
        with self._entrance:
            self._inside[threading.get_ident()] = True

    def __exit__(self, *error: object) -> None:
        self._inside.pop(threading.get_ident(), None)

    def shut(self) -> None:
        self._entrance.acquire()
        end = time.monotonic() + PAUSE
        while self._inside and time.monotonic() < end:
            time.sleep(0.0005)

    def open(self) -> None:
        self._entrance.release()


class FileConnections:
    """A file of our own: one connection to write, as many to read as are in use at once."""

    def __init__(self, path: str, settings: Settings) -> None:
        self.name, self.exclusive = path, True
        self._uri = path.startswith("file:")
        self._settings = settings
        self._opening = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._is_store = False
        self._file: tuple[int, int] | None = None
        self._closed = False
        self._gate = Gate()

    def read(self, act: Act[T]) -> T:
        with self._gate:
            try:
                conn = self._readers.pop()
            except IndexError:
                conn = self._connect()
            try:
                return _in_one_moment(conn, act)
            finally:
                # One that an interrupt has left inside a transaction is of no use to anybody.
                usable = not conn.in_transaction and not self._closed
                if usable and len(self._readers) < READERS:
                    self._readers.append(conn)
                else:
                    conn.close()

    def write(self, act: Act[T]) -> T:
        if self._writer is None:
            conn = self._connect()
            # `database` waits for the write lock itself, in shorter steps than SQLite does.
            conn.execute("PRAGMA busy_timeout = 0")
            self._writer = conn
        self._check_file()
        return act(self._writer)

    def _check_file(self) -> None:
        if self._identity() != self._file:
            raise StorageError(
                f"{self.name}: the file was deleted or replaced since it was opened; what is "
                "written now would be lost. Open the saver anew."
            )

    def _identity(self) -> tuple[int, int] | None:
        """Which file the path leads to now; a URI is taken at its word."""
        if self._uri:
            return None
        try:
            found = os.stat(self.name)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _connect(self) -> sqlite3.Connection:
        """A new connection; the first one makes the file a store, if it is none."""
        if self._is_store:  # or SQLite would make another file
            self._check_file()
        had_log = self._is_store or os.path.exists(f"{self.name}-wal")
        conn = sqlite3.connect(
            self.name, isolation_level=None, check_same_thread=False, uri=self._uri
        )
        try:
            schema.configure(conn, self._settings.synchronous, self._settings.busy_timeout)
            if not self._is_store:
                with self._opening:
                    schema.create(conn, self._settings.busy_timeout)
                if not had_log and not self._uri:
                    schema.check_length(conn, self.name)
                self._file, self._is_store = self._identity(), True
        except BaseException:
            conn.close()
            raise
        return conn

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._readers.pop().close()
        if self._writer is not None:
            self._writer.close()

    def pause(self) -> None:
        self._gate.shut()

    def resume(self) -> None:
        self._gate.open()

    def abandon(self) -> None:
        # Closing an inherited connection could disturb the parent's locks, so it is kept for ever.
        _abandoned.extend(self._readers)
        _abandoned.append(self._writer)
        self._opening, self._gate = threading.Lock(), Gate()
        self._writer, self._readers = None, []


_abandoned: list[Any] = []


class _Turn:
    """The lock of a connection, for all savers on it: a transaction has it to itself."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


# By id, because connections take no weak references; whoever holds a turn holds its connection.
_turns: weakref.WeakValueDictionary[int, _Turn] = weakref.WeakValueDictionary()


class OneConnection:
    """A single connection for everything: the user's own, or a database in memory."""

    def __init__(self, conn: sqlite3.Connection, settings: Settings, *, own: bool) -> None:
        self.name, self.exclusive = ":memory:" if own else f"{conn!r}", own
        self._conn = conn
        self._settings = settings
        self._own = own
        self._ready = False
        self._turn = _turns.setdefault(id(conn), _Turn())
        self._orphan = False
        self._paused = False

    def read(self, act: Act[T]) -> T:
        return self._alone(lambda conn: _in_one_moment(conn, act))

    def write(self, act: Act[T]) -> T:
        return self._alone(act)

    def _alone(self, act: Act[T]) -> T:
        if self._orphan:
            raise StorageError(
                f"{self.name}: a connection does not survive a fork; open the saver by path, or "
                "make it in the child process"
            )
        with self._turn.lock, _as_we_need_it(self._conn):
            if not self._ready:
                prepare_given(self._conn, self._settings)
                self._ready = True
            return act(self._conn)

    def close(self) -> None:
        if self._own:
            with self._turn.lock:
                self._conn.close()

    def pause(self) -> None:
        self._paused = self._turn.lock.acquire(timeout=PAUSE)

    def resume(self) -> None:
        if self._paused:
            self._turn.lock.release()

    def abandon(self) -> None:
        _abandoned.append(self._conn)
        self._turn, self._orphan = _Turn(), True


def prepare_given(conn: sqlite3.Connection, settings: Settings) -> None:
    """Make the database of a connection that somebody else opened a store."""
    schema.configure(conn, settings.synchronous, settings.busy_timeout)
    schema.create(conn, settings.busy_timeout)


@contextlib.contextmanager
def _as_we_need_it(conn: sqlite3.Connection) -> Iterator[None]:
    """Put the user's factories aside, and refuse to become part of the user's transaction."""
    if conn.in_transaction:
        _check_autocommit(conn)
        raise StorageError(
            f"{conn!r} is in a transaction of yours: commit it first, or give the saver a "
            "connection of its own (what it acknowledges must not depend on your commit)"
        )
    factories = conn.row_factory, conn.text_factory
    conn.row_factory, conn.text_factory = None, str
    try:
        yield
    finally:
        conn.row_factory, conn.text_factory = factories


class AioConnection:
    """An aiosqlite connection: a whole transaction is one hop to its thread.

    aiosqlite offers no public way to run a function on its thread, so this uses `_execute`; a
    test keeps watch on it.
    """

    def __init__(self, conn: aiosqlite.Connection, settings: Settings) -> None:
        self.name, self.exclusive = f"{conn!r}", False
        self._conn = conn
        self._settings = settings
        self._ready = False
        self._runners = threading.local()

    def read(self, act: Act[T]) -> T:
        return self._there(lambda conn: _in_one_moment(conn, act))

    def write(self, act: Act[T]) -> T:
        return self._there(act)

    def _there(self, act: Act[T]) -> T:
        def alone() -> T:
            conn = self._conn._connection
            assert conn is not None
            with _as_we_need_it(conn):
                if not self._ready:
                    prepare_given(conn, self._settings)
                    self._ready = True
                return act(conn)

        async def hop() -> T:
            if not self._conn._thread.ident:  # made by `aiosqlite.connect`, not awaited so far
                await self._conn
            execute: Callable[[Callable[[], T]], Awaitable[T]] = self._conn._execute
            return await execute(alone)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run(hop)
        # A sync call on a running loop: another thread waits in its place.
        return _on_another_thread(lambda: self._run(hop))

    def _run(self, hop: Callable[[], Coroutine[Any, Any, T]]) -> T:
        runner: asyncio.Runner | None = getattr(self._runners, "runner", None)
        if runner is None:
            runner = self._runners.runner = asyncio.Runner()
        try:
            return runner.run(hop())
        except ValueError as error:
            if "no active connection" in str(error) or "onnection closed" in str(error):
                raise StorageError(f"{self.name}: the connection is closed") from error
            raise

    def close(self) -> None:
        """The connection is the user's to close."""

    def pause(self) -> None:
        """Its thread is not ours to stop."""

    def resume(self) -> None:
        """Nothing was paused."""

    def abandon(self) -> None:
        self._conn, self.name = None, f"{self.name} (before the fork)"  # type: ignore[assignment]


def _on_another_thread(act: Callable[[], T]) -> T:
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.extend((act(), None))
        except BaseException as error:
            ended.extend((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    value, error = ended
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]


def connections_to(target: object, settings: Settings) -> Connections:
    """The connections for what the user passed, or `ConfigurationError`. Opens no file."""
    if isinstance(target, sqlite3.Connection):
        _check_given(target)
        return OneConnection(target, settings, own=False)
    if type(target).__module__.partition(".")[0] == "aiosqlite" and hasattr(target, "_execute"):
        return AioConnection(target, settings)  # type: ignore[arg-type]
    if not isinstance(target, (str, os.PathLike)):
        raise ConfigurationError(
            "SqliteSaver takes a path, ':memory:', a sqlite3.Connection or an "
            f"aiosqlite.Connection, not {target!r}"
        )
    path = os.fsdecode(target)
    if not path or "\0" in path:
        raise ConfigurationError(f"{path!r} is not the path of a file")
    if path == ":memory:" or _names_memory(path):
        conn = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, uri=path.startswith("file:")
        )
        return OneConnection(conn, settings, own=True)
    if not path_of(path):
        raise ConfigurationError(f"{path!r} names no file")
    return FileConnections(_absolute(path), settings)


def _names_memory(path: str) -> bool:
    if not path.startswith("file:"):
        return False
    parts = urllib.parse.urlsplit(path)
    return parts.path == ":memory:" or "memory" in urllib.parse.parse_qs(parts.query).get(
        "mode", []
    )


def _absolute(path: str) -> str:
    """The same file wherever the process goes: connections are opened as they are needed."""
    if not path.startswith("file:"):
        return os.path.abspath(path)
    parts = urllib.parse.urlsplit(path)
    if parts.netloc or parts.path.startswith("/"):
        return path
    folder = urllib.parse.quote(os.getcwd())
    return urllib.parse.urlunsplit(parts._replace(path=f"{folder}/{parts.path}"))


def _check_autocommit(conn: sqlite3.Connection) -> None:
    """Since Python 3.12 a connection can be in a transaction of its user's all the time."""
    if getattr(conn, "autocommit", None) is False:
        raise ConfigurationError(
            f"{conn!r} was made with autocommit=False, so it always is in a transaction of yours: "
            "pass the path, or connect without it (what is acknowledged must be committed)"
        )


def _check_given(conn: sqlite3.Connection) -> None:
    """LangGraph saves from threads of its own, so a connection bound to one thread is no use."""
    try:
        _on_another_thread(lambda: conn.execute("SELECT 1").close())
    except sqlite3.ProgrammingError as error:
        if "thread" not in str(error):
            raise ConfigurationError(f"the connection cannot be used: {error}") from error
        raise ConfigurationError(
            "the connection may only be used in the thread that made it, but graphs save from "
            "other threads too: pass the path, or connect with check_same_thread=False"
        ) from error
    _check_autocommit(conn)
