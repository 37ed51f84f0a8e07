"""Stored bytes that changed behind our back: always a typed error, never a different state.

The harness knows no schema. It reads the tables from `sqlite_master`, tells by comparing stores
which rows came with a thread, spoils cells through a plain sqlite3 connection, and looks at all
that a fresh saver gives of the thread. An `Outcome` counts what it saw:

    same       exactly what was written (the damage touched nothing that is read)
    detected   a CorruptionError that names the thread
    refused    another DurableError: the file, not the thread, is out of order
    absent     the thread is not there at all
    silent     anything else: a different state without an error, or a foreign exception
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import random
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import victim
from victim import Saver, thread

from langgraph_durable.errors import CorruptionError, DurableError

TABLES = {"durable": "lgd_%", "stock": "%"}


# -- looking --------------------------------------------------------------------------------------


def make_thread(saver: Saver, name: str) -> None:
    """A small thread: two checkpoints, pending writes, and a sub-graph's namespace."""
    config = thread(name)
    for step in range(2):
        config = victim.put(saver, config, step)
        saver.put_writes(config, victim.writes(step, 2), f"task-{step}")
    victim.put(saver, thread(name, ns="inner:1"), 0)


def look(saver: Saver, name: str) -> Any:
    """All that can be read of a thread: the newest state, each listed one, each by its id."""
    newest = victim.plain(saver.get_tuple(thread(name)))
    listed = [victim.plain(found) for found in saver.list({"configurable": {"thread_id": name}})]
    by_id = [victim.plain(saver.get_tuple({"configurable": each["config"]})) for each in listed]
    inner = victim.plain(saver.get_tuple(thread(name, ns="inner:1")))
    history = saver.get_delta_channel_history(config=thread(name), channels=["messages"])
    return newest, listed, by_id, inner, history


def outcome(kind: str, path: Path, name: str, truth: Any) -> str:
    """What a fresh saver makes of the file; see the top of this file."""
    saver = None
    try:
        saver = victim.open_store(kind, path)
        seen = look(saver, name)
    except CorruptionError as error:
        return "detected" if repr(name) in str(error) else f"silent: unnamed {error!r}"
    except DurableError:
        return "refused"
    except Exception as error:
        return f"silent: {type(error).__name__}"
    finally:
        if saver is not None:
            with contextlib.suppress(Exception):
                victim.close_store(saver)
    if seen == truth:
        return "same"
    return "absent" if seen[0] is None and not seen[1] else "silent: a different state"


# -- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One row of one table, found again by its key."""

    table: str
    key: tuple[tuple[str, Any], ...]
    cells: tuple[tuple[str, Any], ...]

    @property
    def where(self) -> str:
        return " AND ".join(f'"{name}" IS ?' for name, _ in self.key)

    def set(self, db: sqlite3.Connection, column: str, value: Any, text: bool = False) -> None:
        """Change one cell; bytes that are no UTF-8 can be stored as text all the same."""
        new = "CAST(? AS TEXT)" if text else "?"
        sql = f'UPDATE "{self.table}" SET "{column}" = {new} WHERE {self.where}'
        db.execute(sql, (value, *(key for _, key in self.key)))

    def names(self, name: str) -> bool:
        """Whether this row is where the thread's name is written."""
        return any(name == value for _, value in self.cells)


def rows(path: Path, pattern: str) -> set[Row]:
    """Every row of the store's tables."""
    found = set()
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE ?"
            " AND name NOT LIKE 'sqlite_%'",
            (pattern,),
        ).fetchall()
        for (table,) in tables:
            columns = db.execute(f'PRAGMA table_info("{table}")').fetchall()
            names = [column[1] for column in columns]
            keys = [column[1] for column in columns if column[5]] or names
            for values in db.execute(f'SELECT * FROM "{table}"'):
                cells = dict(zip(names, values, strict=True))
                key = tuple((name, cells[name]) for name in keys)
                found.add(Row(table, key, tuple(cells.items())))
    return found


@dataclass
class Store:
    """A store of two threads, what they hold, and which rows came with each."""

    kind: str
    path: Path
    truth: dict[str, Any]
    own: dict[str, list[Row]]
    shared: list[Row]

    @contextlib.contextmanager
    def spoilt(self) -> Iterator[sqlite3.Connection]:
        """A connection to spoil the file with; afterwards the file is as it was."""
        for tail in ("-wal", "-shm"):
            Path(f"{self.path}{tail}").unlink(missing_ok=True)
        whole = self.path.read_bytes()
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("PRAGMA synchronous = OFF")
        try:
            yield db
        finally:
            db.close()
            for tail in ("-wal", "-shm"):
                Path(f"{self.path}{tail}").unlink(missing_ok=True)
            self.path.write_bytes(whole)

    def only_name(self, row: Row) -> bool:
        """Whether the thread's name is in this row only, so that without it none can be missed."""
        return [each for each in self.own["spoilt"] if each.names("spoilt")] == [row]

    def outcome(self, name: str) -> str:
        """What a fresh saver makes of that thread now."""
        return outcome(self.kind, self.path, name, self.truth[name])


def build(kind: str, path: Path) -> Store:
    """Make the store in three steps, so that each row shows by whom it came."""
    saver = victim.open_store(kind, path)
    saver.setup()
    empty = rows(path, TABLES[kind])
    make_thread(saver, "spoilt")
    with_one = rows(path, TABLES[kind])
    make_thread(saver, "bystander")
    with_two = rows(path, TABLES[kind])
    truth = {name: look(saver, name) for name in ("spoilt", "bystander")}
    victim.close_store(saver)
    own = {"spoilt": (with_one - empty) & with_two, "bystander": with_two - with_one}
    ordered = {name: sorted(mine, key=repr) for name, mine in own.items()}
    return Store(kind, path, truth, ordered, sorted(with_two & empty, key=repr))


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Store:
    made = build(kind, tmp_path / "agent.db")
    assert made.outcome("spoilt") == made.outcome("bystander") == "same"
    return made


Count = collections.Counter[str]


def silent(count: Count) -> dict[str, int]:
    """The outcomes that must never be."""
    return {what: times for what, times in count.items() if what.startswith("silent")}


# -- flipped bits ---------------------------------------------------------------------------------


def flips(value: Any, thorough: bool, dice: random.Random) -> Iterator[Any]:
    """The value with each of its bits flipped; when not thorough, one bit of each byte."""
    if isinstance(value, int):
        for bit in range(63):
            yield value ^ (1 << bit)
        return
    raw = value.encode() if isinstance(value, str) else value
    for place in range(len(raw)):
        for bit in range(8) if thorough else (dice.randrange(8),):
            spoilt = bytearray(raw)
            spoilt[place] ^= 1 << bit
            yield bytes(spoilt)


def flip_cells(
    store: Store, types: tuple[type, ...], thorough: bool, dice: random.Random
) -> tuple[Count, Count]:
    """Flip bits in the cells of one thread; what became of it, and of the other thread."""
    spoilt: Count = collections.Counter()
    bystander: Count = collections.Counter()
    with store.spoilt() as db:
        for row in store.own["spoilt"]:
            for column, value in row.cells:
                if not isinstance(value, types) or isinstance(value, bool):
                    continue
                for n, changed in enumerate(flips(value, thorough, dice)):
                    with _changed(db, row, column, value, changed) as done:
                        if not done:
                            continue
                        seen = store.outcome("spoilt")
                        if seen == "absent" and (value != "spoilt" or not store.only_name(row)):
                            seen = "silent: the thread vanished"
                        if seen.startswith("silent"):
                            print(row.table, column, repr(value), "->", repr(changed), seen)
                        spoilt[seen] += 1
                        if n % 20 == 0:
                            bystander[store.outcome("bystander")] += 1
    return spoilt, bystander


@contextlib.contextmanager
def _changed(db: sqlite3.Connection, row: Row, column: str, old: Any, new: Any) -> Iterator[bool]:
    """Change a cell for a while; False if SQLite itself refuses such a value there."""
    is_text = isinstance(old, str)
    try:
        row.set(db, column, new, text=is_text)
    except sqlite3.IntegrityError:
        yield False
        return
    yield True
    keys = tuple((name, new if name == column else value) for name, value in row.key)
    moved = Row(row.table, keys, row.cells)
    if is_text and column in dict(row.key):
        where = " AND ".join(
            f'"{name}" IS CAST(? AS TEXT)' if name == column else f'"{name}" IS ?'
            for name, _ in keys
        )
        db.execute(
            f'UPDATE "{row.table}" SET "{column}" = ? WHERE {where}',
            (old, *(value for _, value in keys)),
        )
    else:
        moved.set(db, column, old)
    assert db.total_changes


def test_every_flipped_bit_of_a_stored_checkpoint_is_detected(
    store: Store, long: bool, dice: random.Random
) -> None:
    spoilt, bystander = flip_cells(store, (bytes,), True, dice)
    print(dict(spoilt))
    assert silent(spoilt) == {}
    assert set(spoilt) == {"detected"}
    assert set(bystander) == {"same"}


def test_a_flipped_bit_in_a_key_or_number_is_never_a_different_state(
    store: Store, long: bool, dice: random.Random
) -> None:
    spoilt, bystander = flip_cells(store, (str, int), long, dice)
    print(dict(spoilt))
    assert silent(spoilt) == {}
    assert spoilt["detected"]
    assert set(bystander) == {"same"}


def test_control_flipped_bits_load_silently_with_the_stock_saver(
    tmp_path: Path, dice: random.Random
) -> None:
    spoilt, _ = flip_cells(build("stock", tmp_path / "stock.db"), (bytes,), False, dice)
    assert silent(spoilt)


# -- rows that are gone, cut or elsewhere ---------------------------------------------------------


def test_a_deleted_row_is_detected(store: Store) -> None:
    seen: dict[str, str] = {}
    for row in store.own["spoilt"]:
        with store.spoilt() as db:
            db.execute(
                f'DELETE FROM "{row.table}" WHERE {row.where}', [value for _, value in row.key]
            )
            what = store.outcome("spoilt")
            if what == "absent" and not store.only_name(row):
                what = "silent: the thread vanished"
            seen[f"{row.table} {row.key}"] = what
            assert store.outcome("bystander") == "same"
    assert {row: what for row, what in seen.items() if what not in ("detected", "absent")} == {}


def test_a_table_emptied_of_one_thread_is_detected(store: Store) -> None:
    for table in sorted({row.table for row in store.own["spoilt"]}):
        mine = [row for row in store.own["spoilt"] if row.table == table]
        with store.spoilt() as db:
            for row in mine:
                db.execute(f'DELETE FROM "{table}" WHERE {row.where}', [v for _, v in row.key])
            allowed = {"detected"}
            if any(row.names("spoilt") for row in mine):
                allowed.add("absent")
            assert store.outcome("spoilt") in allowed, table
            assert store.outcome("bystander") == "same", table


def test_a_damaged_thread_does_not_hide_the_others_from_a_list_of_all(store: Store) -> None:
    with store.spoilt() as db:
        db.execute("DELETE FROM lgd_writes WHERE tid = (SELECT min(tid) FROM lgd_threads)")
        saver = victim.open_store(store.kind, store.path)
        listed = {found.config["configurable"]["thread_id"] for found in saver.list(None)}
        victim.close_store(saver)
    assert "bystander" in listed


def test_a_timeline_shows_the_checkpoint_whose_writes_are_missing(store: Store) -> None:
    with store.spoilt() as db:
        db.execute("DELETE FROM lgd_writes WHERE tid = (SELECT min(tid) FROM lgd_threads)")
        saver = victim.open_store(store.kind, store.path)
        steps = saver.timeline("spoilt")
        assert [step.header.damage is None for step in steps] == [False] * len(steps)
        assert len(steps) == 2
        victim.close_store(saver)


def _swap(db: sqlite3.Connection, one: Row, two: Row, columns: list[str]) -> bool:
    """Exchange the contents of two rows, but not their keys; False if they are alike."""
    left, right = dict(one.cells), dict(two.cells)
    differing = [name for name in columns if left[name] != right[name]]
    try:
        for name in differing:
            one.set(db, name, right[name])
            two.set(db, name, left[name])
    except sqlite3.IntegrityError:
        return False
    return bool(differing)


def _contents(row: Row) -> list[str]:
    keys = dict(row.key)
    return [name for name, _ in row.cells if name not in keys]


@pytest.mark.parametrize("other", ["spoilt", "bystander"], ids=["one thread", "two threads"])
def test_swapped_rows_are_detected(
    other: str, store: Store, long: bool, dice: random.Random
) -> None:
    pairs = [
        (one, two)
        for one, two in itertools.product(store.own["spoilt"], store.own[other])
        if one.table == two.table and one != two
    ]
    dice.shuffle(pairs)
    swapped = 0
    for one, two in pairs if long else pairs[:150]:
        for columns in {tuple(_contents(one)), *((name,) for name in _contents(one))}:
            with store.spoilt() as db:
                if not _swap(db, one, two, list(columns)):
                    continue
                seen = {store.outcome("spoilt"), store.outcome(other)}
                assert not any(what.startswith("silent") for what in seen), (one, two, columns)
                assert seen <= {"same", "detected"}, (one, two, columns)
                swapped += "detected" in seen
    assert swapped


def test_a_blob_that_is_cut_lengthened_or_emptied_is_detected(
    store: Store, long: bool, dice: random.Random
) -> None:
    count: Count = collections.Counter()
    with store.spoilt() as db:
        for row in store.own["spoilt"]:
            for column, value in row.cells:
                if not isinstance(value, bytes):
                    continue
                some = min(6, len(value))
                cuts = range(len(value)) if long else dice.sample(range(len(value)), some)
                changes = [value[:cut] for cut in cuts]
                for changed in [*changes, b"", value + b"\0", value * 2, b"\0" * len(value), None]:
                    if changed == value:
                        continue
                    with _changed(db, row, column, value, changed) as done:
                        if done:
                            count[store.outcome("spoilt")] += 1
    assert set(count) == {"detected"}


# -- the file -------------------------------------------------------------------------------------


def _outcomes_of_file(store: Store, path: Path) -> list[str]:
    return [outcome(store.kind, path, name, truth) for name, truth in sorted(store.truth.items())]


def _pieces(size: int, count: int, dice: random.Random) -> list[int]:
    """Lengths to cut a file of `size` bytes to: around each page, and anywhere."""
    pages = range(4096, size, 4096)
    near = [cut for page in pages for cut in (page - 1, page, page + 1) if cut < size]
    picked = dice.sample(near, min(len(near), count // 2))
    return sorted({1, 15, 16, 99, 100, 511, 512, *picked, *dice.sample(range(size), count // 2)})


def test_a_file_cut_at_any_length_is_refused(
    store: Store, tmp_path: Path, long: bool, dice: random.Random
) -> None:
    whole = store.path.read_bytes()
    for length in _pieces(len(whole), 1000 if long else 60, dice):
        if length < 2:  # SQLite takes a file of one byte for an empty one: a new store
            continue
        cut = tmp_path / f"cut-{length}.db"
        cut.write_bytes(whole[:length])
        seen = _outcomes_of_file(store, cut)
        assert set(seen) <= {"same", "detected", "refused"}, length
        assert seen != ["same", "same"], length


def _flip_bytes_of_file(
    store: Store, folder: Path, count: int, dice: random.Random
) -> tuple[Count, list[tuple[int, list[str]]]]:
    """Change single bytes of the file; how often what was seen, and where it was silent."""
    whole = store.path.read_bytes()
    seen: Count = collections.Counter()
    bad = []
    for n in range(count):
        spoilt = bytearray(whole)
        place = dice.randrange(len(whole))
        spoilt[place] ^= 1 << dice.randrange(8)
        path = folder / f"flip-{n}.db"
        path.write_bytes(spoilt)
        whats = _outcomes_of_file(store, path)
        seen.update(whats)
        if not set(whats) <= {"same", "detected", "refused"}:
            bad.append((place, whats))
        for tail in ("", "-wal", "-shm"):
            Path(f"{path}{tail}").unlink(missing_ok=True)
    return seen, bad


def test_a_byte_changed_anywhere_in_the_file_is_never_a_different_state(
    store: Store, tmp_path: Path, long: bool, dice: random.Random
) -> None:
    seen, bad = _flip_bytes_of_file(store, tmp_path, 10_000 if long else 200, dice)
    print(dict(seen))
    assert bad == []
    assert seen["detected"]


def test_control_a_byte_changed_in_a_stock_file_loads_silently(
    tmp_path: Path, dice: random.Random
) -> None:
    stock = build("stock", tmp_path / "stock.db")
    _, bad = _flip_bytes_of_file(stock, tmp_path, 200, dice)
    assert any("silent: a different state" in whats for _, whats in bad)


def test_a_cut_write_ahead_log_gives_an_earlier_whole_state(
    kind: str, tmp_path: Path, long: bool, dice: random.Random
) -> None:
    path = tmp_path / "agent.db"
    saver = victim.open_store(kind, path)
    moments = [None, look(saver, "t")]
    config = thread("t")
    for step in range(3):
        config = victim.put(saver, config, step)
        moments.append(look(saver, "t"))
        saver.put_writes(config, victim.writes(step), f"task-{step}")
        moments.append(look(saver, "t"))
    folder = tmp_path / "copy"
    folder.mkdir()
    copy, log = folder / "agent.db", folder / "agent.db-wal"
    shutil.copy(path, copy)
    whole = Path(f"{path}-wal").read_bytes()
    victim.close_store(saver)
    base = copy.read_bytes()
    met = []
    for length in _pieces(len(whole), 400 if long else 60, dice):
        Path(f"{copy}-shm").unlink(missing_ok=True)
        copy.write_bytes(base)
        log.write_bytes(whole[:length])
        again = victim.open_store(kind, copy)
        try:
            seen = look(again, "t")
        except DurableError:
            continue
        finally:
            victim.close_store(again)
        assert seen in moments, length
        met.append(moments.index(seen))
    assert met == sorted(met)
    assert len(set(met)) > 2


# -- one thread's trouble is not another's --------------------------------------------------------


def test_other_threads_are_listed_written_and_deleted_beside_a_spoilt_one(store: Store) -> None:
    blobs = [
        (row, column, value)
        for row in store.own["spoilt"]
        for column, value in row.cells
        if isinstance(value, bytes)
    ]
    with store.spoilt() as db:
        for row, column, value in blobs:
            row.set(db, column, bytes(255 - byte for byte in value))
        saver = victim.open_store(store.kind, store.path)
        with pytest.raises(CorruptionError, match="'spoilt'"):
            list(saver.list(thread("spoilt")))
        assert look(saver, "bystander") == store.truth["bystander"]
        victim.fill(saver, "new")
        saver.copy_thread("bystander", "copy")
        saver.prune(["bystander"])
        saver.delete_thread("bystander")
        assert len(list(saver.list(thread("new")))) == 3
        assert len(list(saver.list(thread("copy")))) == 2
        victim.close_store(saver)


def test_a_spoilt_thread_can_be_deleted_and_begun_again(store: Store) -> None:
    with store.spoilt() as db:
        for row in store.own["spoilt"]:
            for column, value in row.cells:
                if isinstance(value, bytes):
                    row.set(db, column, value[:-1] + bytes([value[-1] ^ 1]) if value else b"x")
        saver = victim.open_store(store.kind, store.path)
        saver.delete_thread("spoilt")
        assert saver.get_tuple(thread("spoilt")) is None
        victim.fill(saver, "spoilt")
        assert all(map(victim.whole, saver.list(thread("spoilt"))))
        victim.close_store(saver)


def test_a_warm_saver_gives_the_true_state_or_an_error_when_rows_are_spoilt_under_it(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "agent.db"
    saver = victim.open_store(kind, path)
    saver.setup()
    empty = rows(path, TABLES[kind])
    make_thread(saver, "spoilt")
    truth = look(saver, "spoilt")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for row in sorted(rows(path, TABLES[kind]) - empty, key=repr):
            for column, value in row.cells:
                if not isinstance(value, bytes) or not value:
                    continue
                row.set(db, column, value[:-1] + bytes([value[-1] ^ 1]))
                with contextlib.suppress(CorruptionError):
                    assert look(saver, "spoilt") == truth
                row.set(db, column, value)
    assert look(saver, "spoilt") == truth
    victim.close_store(saver)
