"""Threads in one file: exported, imported on either backend, refused where it is damaged."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import backends
import histories
import pytest
import shelves
from forks import import_path
from histories import contents, graph, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver as StockSaver
from langgraph.types import Command

from langgraph_durable import (
    ConfigurationError,
    DamagedArchive,
    KeepLast,
    SqliteSaver,
    StorageFull,
    aexport_threads,
    aimport_threads,
    export_threads,
    import_threads,
)
from langgraph_durable.moving import format

Act = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def export(request: pytest.FixtureRequest) -> Act:
    if request.param == "sync":
        return export_threads
    return lambda *args, **more: asyncio.run(aexport_threads(*args, **more))


@pytest.fixture(params=["sync", "async"])
def bring(request: pytest.FixtureRequest) -> Act:
    """`import_threads` in either colour."""
    if request.param == "sync":
        return import_threads
    return lambda *args, **more: asyncio.run(aimport_threads(*args, **more))


@pytest.fixture
def open_saver(tmp_path: Path) -> Iterator[Act]:
    with ExitStack() as opened:

        def open_one(kind: str, name: str) -> Any:
            place = tmp_path / name
            place.mkdir(exist_ok=True)
            return opened.enter_context(backends.ALL[kind](place))

        yield open_one


@pytest.fixture(params=["sqlite", "valkey", "scriptless"])
def source(request: pytest.FixtureRequest, open_saver: Act) -> Any:
    return open_saver(request.param, "source")


@pytest.fixture(params=["sqlite", "valkey", "scriptless"])
def target(request: pytest.FixtureRequest, open_saver: Act) -> Any:
    return open_saver(request.param, "target")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "threads.lgd"


@pytest.fixture
def filled(open_saver: Act) -> Any:
    """A saver with three threads; one of them has a pruned DeltaChannel and a tag."""
    saver = open_saver("sqlite", "source")
    fill(saver)
    return saver


def fill(saver: Any) -> None:
    histories.run(saver, "t", turns=1)
    histories.run(saver, "lone \ud800 surrogate", turns=0)
    histories.run_deltas(saver, "deltas", turns=8)
    saver.prune(["deltas"], strategy=KeepLast(1))
    saver.tag(thread("deltas"), "good")


def test_threads_come_back_exactly_on_either_backend(
    source: Any, target: Any, file: Path, export: Act, bring: Act
) -> None:
    fill(source)
    before = contents(source)
    exported = export(source, file)
    assert (exported.threads, exported.checkpoints) == (3, len(before))
    assert exported.bytes == file.stat().st_size
    report = bring(target, file)
    assert sorted(report.imported) == sorted({key[0] for key in before})
    assert contents(target) == before
    deltas = [histories.delta_graph(s).get_state(thread("deltas")).values for s in (source, target)]
    assert deltas[0] == deltas[1]
    assert target.stats().items == source.stats().items
    state = graph(target).invoke(Command(resume="yes"), thread("t"))
    assert state["log"][-1] == "told yes"


def test_an_import_done_twice_changes_nothing(target: Any, filled: Any, file: Path) -> None:
    export_threads(filled, file)
    import_threads(target, file)
    again = import_threads(target, file)
    assert (again.imported, again.replaced, len(again.skipped)) == ((), (), 3)


def test_single_threads_are_exported_and_imported(
    filled: Any, target: Any, file: Path, export: Act, bring: Act
) -> None:
    export(filled, file, ["t", "deltas"])
    bring(target, file, ["t"])
    assert contents(target) == contents(filled, "t")
    with pytest.raises(ConfigurationError, match="'nobody'"):
        bring(target, file, ["t", "nobody"])
    with pytest.raises(ConfigurationError, match="no thread 'nobody'"):
        export(filled, file, ["nobody"])
    assert bring(target, file).imported == ("deltas",)
    assert not file.with_name("threads.lgd.part").exists()


def test_a_thread_that_is_there_is_refused_left_or_replaced(
    filled: Any, target: Any, file: Path, bring: Act
) -> None:
    export_threads(filled, file)
    histories.run(target, "t", turns=0)
    mine = contents(target)
    with pytest.raises(ConfigurationError, match="threads 't' exist already"):
        bring(target, file)
    assert contents(target) == mine
    report = bring(target, file, on_existing="skip")
    assert report.skipped == ("t",)
    assert contents(target, "t") == mine
    report = bring(target, file, on_existing="replace")
    assert report.replaced == ("t",)
    assert contents(target) == contents(filled)
    assert graph(target).invoke(Command(resume="yes"), thread("t"))["log"][-1] == "told yes"


def test_a_file_cut_off_at_any_byte_is_refused_before_anything_is_written(
    open_saver: Act, target: Any, file: Path, long: bool
) -> None:
    source = open_saver("sqlite", "source")
    histories.run_deltas(source, "deltas", turns=1)
    export_threads(source, file)
    whole = file.read_bytes()
    for length in range(0, len(whole), 1 if long else 7):
        file.write_bytes(whole[:length])
        with pytest.raises(DamagedArchive, match=r"threads\.lgd"):
            import_threads(target, file)
    assert contents(target) == {}


def test_a_changed_byte_anywhere_is_refused_with_its_place(
    filled: Any, target: Any, file: Path, long: bool
) -> None:
    export_threads(filled, file)
    whole, dice = file.read_bytes(), random.Random(9)
    begins = [len(format.MAGIC)]
    for block in cut(whole):
        begins.append(begins[-1] + len(block))
    for _ in range(2000 if long else 60):
        at = dice.randrange(len(whole))
        altered = bytearray(whole)
        altered[at] ^= 1 << dice.randrange(8)
        file.write_bytes(altered)
        with pytest.raises(DamagedArchive) as caught:
            import_threads(target, file)
        if at >= len(format.MAGIC):
            block = max(begin for begin in begins if begin <= at)
            assert f"at byte {block:,}" in str(caught.value)
    assert contents(target) == {}


def test_blocks_that_were_moved_left_out_or_added_are_refused(
    filled: Any, target: Any, file: Path
) -> None:
    export_threads(filled, file)
    blocks = cut(file.read_bytes())
    for changed in (
        [blocks[0], *reversed(blocks[1:])],
        [*blocks[:3], *blocks[4:]],
        [*blocks, blocks[-1]],
        [*blocks[:4], blocks[3], *blocks[4:]],
        blocks[:-1],
    ):
        file.write_bytes(format.MAGIC + b"".join(changed))
        with pytest.raises(DamagedArchive):
            import_threads(target, file)
    assert contents(target) == {}


def cut(whole: bytes) -> list[bytes]:
    """The blocks of an archive, as its description says."""
    blocks, at = [], len(format.MAGIC)
    while at < len(whole):
        end = at + 21 + int.from_bytes(whole[at + 1 : at + 5], "big")
        blocks.append(whole[at:end])
        at = end
    assert [block[:1] for block in blocks][:2] == [b"A", b"T"]
    assert blocks[-1][:1] == b"Z"
    return blocks


def test_an_archive_of_a_newer_format_says_so(
    target: Any, filled: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(format, "FORMAT", 7)
        export_threads(filled, file)
    with pytest.raises(DamagedArchive, match=r"has format 7, and .* reads format 1: upgrade"):
        import_threads(target, file)


def test_archives_are_compressed_and_grow_with_what_is_new(open_saver: Act, tmp_path: Path) -> None:
    sizes = []
    for turns in (10, 20):
        saver = open_saver("sqlite", f"{turns} turns")
        histories.run(saver, "t", turns)
        sizes.append(export_threads(saver, tmp_path / "threads.lgd").bytes)
        assert sizes[-1] < saver.stats().bytes
    assert sizes[1] < 2.4 * sizes[0]


def test_a_file_of_the_stock_saver_can_be_exported_at_once(tmp_path: Path, file: Path) -> None:
    with StockSaver.from_conn_string(str(tmp_path / "old.db")) as stock:
        histories.run(stock, "t")
        before = contents(stock)
    with SqliteSaver(tmp_path / "old.db") as old, SqliteSaver(tmp_path / "new.db") as new:
        export_threads(old, file)
        import_threads(new, file)
        assert contents(new) == before


def test_two_exports_to_one_file_at_once_each_make_a_whole_one(
    filled: Any, target: Any, file: Path
) -> None:
    beside: list[Any] = []

    def progress(*_: int) -> None:
        if not beside:
            beside.append(export_threads(filled, file))

    assert export_threads(filled, file, progress=progress) == beside[0]
    assert len(import_threads(target, file).imported) == 3
    assert list(file.parent.glob("threads.lgd*")) == [file]


def test_a_full_disk_is_told_and_leaves_the_file_that_was_there(
    export: Act, open_saver: Act, file: Path
) -> None:
    saver = open_saver("sqlite", "source")
    histories.run(saver, "t", turns=0)
    export(saver, file)
    before = file.read_bytes()
    shelves.put(saver, "u", {"a": shelves.NOISE})
    with shelves.full_disk(), pytest.raises(StorageFull, match=r"threads\.lgd: .*no room"):
        export(saver, file)
    assert file.read_bytes() == before
    assert list(file.parent.glob("threads.lgd*")) == [file]


def test_wrong_arguments_are_told(filled: Any, file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="copy_store"):
        export_threads(InMemorySaver(), file)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot be read"):
        import_threads(filled, file)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        export_threads(filled, tmp_path / "no folder" / "threads.lgd")
    export_threads(filled, file)
    with pytest.raises(ConfigurationError, match="on_existing"):
        import_threads(filled, file, on_existing="merge")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="threads is a list"):
        import_threads(filled, file, "t")


IMPORT = """
import sys
from langgraph_durable import SqliteSaver, import_threads
import histories
with SqliteSaver(sys.argv[2]) as saver:
    print("begin", flush=True)
    import_threads(saver, sys.argv[1])
"""


def test_an_import_killed_at_any_instant_is_done_again(
    open_saver: Act, file: Path, tmp_path: Path, long: bool
) -> None:
    source, dice = open_saver("sqlite", "source"), random.Random(9)
    for n in range(12):
        histories.run(source, f"t{n}", turns=1)
    export_threads(source, file)
    before, path = contents(source), tmp_path / "target.db"
    command = [sys.executable, "-c", IMPORT, str(file), str(path)]
    environment = {"PYTHONPATH": import_path(), "PATH": ""}
    for _ in range(60 if long else 3):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begin\n"
            time.sleep(dice.random() * 0.08)
            child.send_signal(signal.SIGKILL)
        with SqliteSaver(path) as target:
            found = contents(target)
        whole = {key for key in before if key[0] in {place[0] for place in found}}
        assert set(found) == whole  # a thread is there whole, or not at all
    with SqliteSaver(path) as target:
        import_threads(target, file)
        assert contents(target) == before
