"""A store that cannot be had: each cause has its own error, and nothing is lost by any of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import victim
from forks import ForkServer
from victim import thread

from langgraph_durable.errors import (
    DurableError,
    NotAStore,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
)


@pytest.fixture
def open_store(kind: str) -> Iterator[Callable[..., Any]]:
    """Open stores that are closed when the test ends."""
    opened = []

    def open_(path: Path | str, **options: Any) -> Any:
        opened.append(victim.open_store(kind, path, **options))
        return opened[-1]

    yield open_
    for saver in opened:
        with contextlib.suppress(DurableError):
            victim.close_store(saver)


def use(saver: Any) -> None:
    victim.fill(saver, "t")
    assert all(map(victim.whole, saver.list(thread("t"))))


# -- not a store ----------------------------------------------------------------------------------


def _text(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)


def _short_text(path: Path) -> None:
    path.write_text("Dear diary")


def _noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 64)


@pytest.mark.parametrize("make", [_text, _short_text, _noise])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    make: Callable[[Path], None], tmp_path: Path, open_store: Any
) -> None:
    path = tmp_path / "diary.txt"
    make(path)
    before = path.read_bytes()
    for call in (
        lambda: open_store(path).get_tuple(thread("t")),
        lambda: victim.put(open_store(path), thread("t"), 0),
        lambda: asyncio.run(victim.aput(open_store(path), thread("t"), 0)),
    ):
        with pytest.raises(NotAStore, match=r"diary\.txt"):
            call()
    assert path.read_bytes() == before


def test_an_empty_file_is_a_new_store(tmp_path: Path, open_store: Any) -> None:
    path = tmp_path / "agent.db"
    path.touch()
    use(open_store(path))


def test_a_directory_is_refused(tmp_path: Path, open_store: Any) -> None:
    with pytest.raises(StorageError, match=f"{tmp_path.name}.*it is a folder"):
        victim.put(open_store(tmp_path), thread("t"), 0)


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path, open_store: Any) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file is not a folder"):
        victim.put(open_store(tmp_path / "file" / "agent.db"), thread("t"), 0)


def test_a_uri_that_must_not_make_a_file_says_that_there_is_none(
    tmp_path: Path, open_store: Any
) -> None:
    for mode in ("ro", "rw"):
        with pytest.raises(StorageError, match="there is no such file"):
            open_store(f"file:{tmp_path}/none.db?mode={mode}").get_tuple(thread("t"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "restore",
    [
        lambda db, path: db.execute("VACUUM INTO ?", (str(path),)),
        lambda db, path: _made_of("\n".join(db.iterdump()), path),
    ],
    ids=["VACUUM INTO", "dump"],
)
def test_a_store_restored_from_a_backup_is_put_back_into_wal_mode(
    restore: Callable[[sqlite3.Connection, Path], Any], tmp_path: Path, open_store: Any
) -> None:
    """Or a long list would block all writers."""
    saver = open_store(tmp_path / "agent.db")
    use(saver)
    restored = tmp_path / "restored.db"
    with contextlib.closing(sqlite3.connect(tmp_path / "agent.db")) as db:
        restore(db, restored)
    again = open_store(restored)
    assert list(again.list(None)) == list(saver.list(None))
    with contextlib.closing(sqlite3.connect(restored)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def _made_of(statements: str, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(statements)


def test_a_store_that_cannot_be_put_into_wal_mode_works_as_it_is(
    tmp_path: Path, open_store: Any
) -> None:
    path = tmp_path / "agent.db"
    saver = open_store(path)
    use(saver)
    victim.close_store(saver)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM lgd_items").fetchone()
        assert len(list(open_store(path, busy_timeout=0.1).list(thread("t")))) == 3


def test_a_missing_folder_is_named_in_the_error_and_not_made(
    tmp_path: Path, open_store: Any
) -> None:
    with pytest.raises(StorageError, match="missing"):
        victim.put(open_store(tmp_path / "missing" / "agent.db"), thread("t"), 0)
    assert not (tmp_path / "missing").exists()


def test_a_folder_made_after_a_failed_open_lets_the_same_saver_work(
    tmp_path: Path, open_store: Any
) -> None:
    saver = open_store(tmp_path / "later" / "agent.db")
    with pytest.raises(StorageError):
        victim.put(saver, thread("t"), 0)
    (tmp_path / "later").mkdir()
    use(saver)


def test_the_store_lives_beside_the_tables_of_another_application(
    tmp_path: Path, open_store: Any
) -> None:
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, thread_id TEXT)")
        shop.execute("INSERT INTO orders VALUES (1, 't')")
        shop.execute("PRAGMA application_id = 77")
        shop.execute("PRAGMA user_version = 12")
        shop.commit()
    use(open_store(path))
    open_store(path).delete_thread("t")
    with contextlib.closing(sqlite3.connect(path)) as shop:
        assert shop.execute("SELECT * FROM orders").fetchall() == [(1, "t")]
        assert shop.execute("PRAGMA application_id").fetchone() == (77,)
        assert shop.execute("PRAGMA user_version").fetchone() == (12,)


def test_a_store_of_a_newer_format_is_refused_and_left_as_it_is(
    tmp_path: Path, open_store: Any
) -> None:
    path = tmp_path / "agent.db"
    saver = open_store(path)
    use(saver)
    victim.close_store(saver)
    changed = _raise_format_version(path)
    before = path.read_bytes()
    with pytest.raises(NotAStore, match=r"(?i)newer|version|format"):
        open_store(path).get_tuple(thread("t"))
    with pytest.raises(NotAStore, match=r"(?i)newer|version|format"):
        victim.put(open_store(path), thread("t"), 9)
    assert path.read_bytes() == before, changed


def _raise_format_version(path: Path) -> str:
    """Write a format number from the future wherever this store keeps its own."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name.startswith("lgd_")
        ]
        for table in tables:
            columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
            for name in ("format", "version", "format_version"):
                if name in columns and len(columns) <= 4:
                    db.execute(f'UPDATE "{table}" SET "{name}" = 999')
                    db.commit()
                    return f"{table}.{name}"
            if columns[1:] == ["value"]:
                db.execute(
                    f'UPDATE "{table}" SET value = 999 WHERE "{columns[0]}" LIKE \'%format%\''
                    f" OR \"{columns[0]}\" LIKE '%version%'"
                )
                if db.total_changes:
                    db.commit()
                    return f"{table}.value"
        db.execute("PRAGMA user_version = 999")
        return "user_version"


# -- read-only ------------------------------------------------------------------------------------


def test_a_read_only_store_can_be_read_and_says_so_when_written(
    tmp_path: Path, open_store: Any
) -> None:
    path = tmp_path / "agent.db"
    use(open_store(path))
    saver = open_store(f"file:{path}?mode=ro")
    assert len(list(saver.list(thread("t")))) == 3
    assert saver.get_tuple(thread("t")) is not None
    for call in (
        lambda: victim.put(saver, thread("t"), 3),
        lambda: saver.put_writes(saver.get_tuple(thread("t")).config, [("a", 1)], "task"),
        lambda: saver.delete_thread("t"),
        lambda: asyncio.run(victim.aput(saver, thread("t"), 3)),
    ):
        with pytest.raises(StorageReadOnly):
            call()
    assert len(list(saver.list(thread("t")))) == 3


@contextlib.contextmanager
def _without_rights() -> Iterator[None]:
    """As nobody, if we are root: no mode of a file keeps root from writing."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.mark.parametrize("mode", [0o555, 0o777], ids=["folder too", "file alone"])
def test_a_write_protected_file_can_be_read_and_says_so_when_written(
    mode: int, open_store: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's are for their owner alone
        path = Path(folder) / "agent.db"
        saver = open_store(path)
        use(saver)
        victim.close_store(saver)
        path.chmod(0o444)
        os.chmod(folder, mode)
        with _without_rights():
            with pytest.raises(PermissionError):
                path.open("ab")
            if mode == 0o555:  # SQLite keeps files beside a database, also to read it
                with pytest.raises(StorageReadOnly, match=r"\?immutable=1"):
                    open_store(path).get_tuple(thread("t"))
            again = open_store(path if mode == 0o777 else f"file:{path}?immutable=1")
            assert len(list(again.list(thread("t")))) == 3
            with pytest.raises(StorageReadOnly):
                victim.put(again, thread("t"), 3)
            with pytest.raises(StorageReadOnly):
                asyncio.run(victim.aput(again, thread("t"), 3))
            victim.close_store(again)
        os.chmod(folder, 0o755)
        assert len(list(open_store(path).list(thread("t")))) == 3


def test_a_file_that_may_not_be_read_says_so(open_store: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        saver = open_store(path)
        use(saver)
        victim.close_store(saver)
        path.chmod(0)
        os.chmod(folder, 0o755)
        with _without_rights(), pytest.raises(StorageError, match=r"agent\.db.*may not read"):
            open_store(path).get_tuple(thread("t"))


# -- no room --------------------------------------------------------------------------------------


class Room:
    """A place for a store that can be made small, and larger again."""

    def __init__(
        self,
        path: Path | sqlite3.Connection,
        enlarge: Callable[[], object],
        error: type[StorageError] = StorageFull,
    ) -> None:
        self.path, self.enlarge, self.error = path, enlarge, error


def _mount(folder: Path, *options: str) -> bool:
    command = ["mount", *options, "-t", "tmpfs", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _can_mount() -> bool:
    """Root can, outside of most containers."""
    with tempfile.TemporaryDirectory() as folder:
        return _mount(Path(folder), "-osize=4k") and not subprocess.call(["umount", "-l", folder])


@pytest.fixture(params=["page limit", "file limit", *(["small disk"] if _can_mount() else [])])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Room]:
    """A disk of 600 kB, files of at most as much, or a database that may have no more pages."""
    if request.param == "small disk":
        assert _mount(tmp_path, "-osize=600k")
        yield Room(tmp_path / "a.db", lambda: _mount(tmp_path, "-oremount,size=20m"))
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    elif request.param == "file limit":
        before = resource.getrlimit(resource.RLIMIT_FSIZE)

        def limit(size: int) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

        limit(600_000)
        yield Room(tmp_path / "a.db", lambda: limit(before[0]), StorageError)
        limit(before[0])
    else:
        connection = sqlite3.connect(tmp_path / "a.db", check_same_thread=False)
        connection.execute("PRAGMA max_page_count = 100")
        more = "PRAGMA max_page_count = 1000000"
        yield Room(connection, lambda: connection.execute(more))
        connection.close()


def _open_room(kind: str, room: Room) -> Any:
    if isinstance(room.path, Path):
        return victim.open_store(kind, room.path)
    return (victim.SqliteSaver if kind == "durable" else victim.StockSaver)(room.path)


def _blob(step: int) -> bytes:
    """30 kB that no compression makes smaller."""
    return os.urandom(30_000 - step)


@pytest.mark.parametrize("verb", ["put", "put_writes"])
def test_a_full_disk_is_an_error_that_loses_nothing_and_passes(
    verb: str, kind: str, room: Room
) -> None:
    saver = _open_room(kind, room)
    stored: list[tuple[Any, bytes]] = []

    def store(step: int) -> None:
        config, value = stored[-1][0] if stored else thread("t"), _blob(step)
        made = victim.checkpoint(step, {"blob": value})
        if verb == "put" or not stored:
            told = saver.put(config, made, victim.metadata(step), made["channel_versions"])
        else:
            saver.put_writes(config, [("small", step), ("blob", value)], f"task-{step:03}")
            told = config
        stored.append((told, value))

    def check() -> None:
        if verb == "put":
            for config, value in stored:
                assert saver.get_tuple(config).checkpoint["channel_values"] == {"blob": value}
            assert len(list(saver.list(thread("t")))) == len(stored)
            return
        kept = saver.get_tuple(stored[0][0]).pending_writes
        assert [value for _, name, value in kept if name == "blob"] == [v for _, v in stored[1:]]
        assert len(kept) == 2 * (len(stored) - 1)

    for step in range(60):
        try:
            store(step)
        except room.error:
            break
    else:
        pytest.fail("60 x 30 kB fit into 600 kB")
    assert len(stored) > 2
    check()
    with pytest.raises(room.error):
        for step in range(60, 70):
            store(step)
    check()
    room.enlarge()
    for step in range(70, 80):
        store(step)
    check()
    victim.close_store(saver)


def test_a_run_that_met_a_full_disk_goes_on_when_there_is_room(kind: str, room: Room) -> None:
    saver = _open_room(kind, room)
    graph = victim.builder().compile(checkpointer=saver)
    config = thread("t")
    graph.invoke(victim.turn_input(1), config, durability="sync")
    with pytest.raises(room.error):
        for step in range(60):
            made = victim.checkpoint(step, {"blob": _blob(step)})
            saver.put(thread("filler"), made, victim.metadata(step), made["channel_versions"])
    with pytest.raises(room.error):
        for turn in range(2, 200):
            graph.invoke(victim.turn_input(turn), config, durability="sync")
    room.enlarge()
    if graph.get_state(config).tasks:
        graph.invoke(None, config, durability="sync")
    if graph.get_state(config).values["turn"] < turn:
        graph.invoke(victim.turn_input(turn), config, durability="sync")
    assert graph.get_state(config).values == victim.state_after(turn)
    victim.close_store(saver)


# -- locked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_lock_held_for_too_long_is_an_error_after_busy_timeout_and_passes(
    how: str, colour: str, tmp_path: Path, open_store: Any, victims: ForkServer
) -> None:
    path = tmp_path / "agent.db"
    saver = open_store(path, busy_timeout=0.4)
    use(saver)
    holder = victims.start("hold_lock", path=str(path), how=how, seconds=60)
    holder.until("held")
    began = time.monotonic()
    with pytest.raises(StorageBusy):
        if colour == "sync":
            victim.put(saver, thread("t"), 3)
        else:
            asyncio.run(victim.aput(saver, thread("t"), 3))
    assert 0.3 <= time.monotonic() - began < 20
    assert len(list(saver.list(thread("t")))) == 3
    holder.kill_after(0)
    victim.put(saver, thread("t"), 3)
    assert len(list(saver.list(thread("t")))) == 4


def test_a_lock_on_a_file_that_is_not_a_store_yet_is_waited_for(
    tmp_path: Path, open_store: Any, victims: ForkServer
) -> None:
    path = tmp_path / "new.db"
    holder = victims.start("hold_lock", path=str(path), how="EXCLUSIVE", seconds=60)
    holder.until("held")
    saver = open_store(path, busy_timeout=0.3)
    with pytest.raises(StorageBusy):
        victim.put(saver, thread("t"), 0)
    holder.kill_after(0)
    use(saver)


def test_a_lock_released_in_time_is_only_waited_for(
    tmp_path: Path, open_store: Any, victims: ForkServer
) -> None:
    path = tmp_path / "agent.db"
    saver = open_store(path)
    use(saver)
    holder = victims.start("hold_lock", path=str(path), how="IMMEDIATE", seconds=0.4)
    holder.until("held")
    victim.put(saver, thread("t"), 3)
    assert [line["what"] for line in holder.end()][-2:] == ["released", "ended"]
    assert len(list(saver.list(thread("t")))) == 4


# -- closed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
@pytest.mark.parametrize("how", ["close", "aclose", "with", "async with"])
def test_a_closed_saver_says_that_it_is_closed(
    how: str, used: bool, tmp_path: Path, open_store: Any
) -> None:
    saver = open_store(tmp_path / "agent.db")

    async def leave_async() -> None:
        async with saver:
            if used:
                await victim.aput(saver, thread("t"), 0)

    if used:
        victim.put(saver, thread("t"), 0)
    if how == "close":
        saver.close()
    elif how == "aclose":
        asyncio.run(saver.aclose())
    elif how == "with":
        with saver:
            pass
    else:
        asyncio.run(leave_async())

    async def alist() -> None:
        async for _ in saver.alist(None):
            pass

    for call in (
        lambda: saver.get_tuple(thread("t")),
        lambda: victim.put(saver, thread("t"), 1),
        lambda: list(saver.list(None)),
        lambda: saver.delete_thread("t"),
        lambda: asyncio.run(saver.aget_tuple(thread("t"))),
        lambda: asyncio.run(victim.aput(saver, thread("t"), 1)),
        lambda: asyncio.run(alist()),
    ):
        with pytest.raises(DurableError, match="closed"):
            call()
    saver.close()
    asyncio.run(saver.aclose())
