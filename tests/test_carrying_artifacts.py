"""Artifacts travel with their threads: in archives, by reference, from saver to saver."""

from __future__ import annotations

import asyncio
import os
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
import objectstore
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_durable import (
    Artifact,
    ArtifactCorrupt,
    ArtifactMissing,
    ConfigurationError,
    DamagedArchive,
    FileArtifacts,
    SqliteSaver,
    acopy_store,
    aexport_threads,
    aimport_threads,
    copy_store,
    export_threads,
    import_threads,
)
from langgraph_durable.artifacts import places
from langgraph_durable.saver import DurableSaver

Act = Callable[..., Any]
TEXT = "a long tool result " * 2_000
NOISE = random.Random(4).randbytes(3 << 20)
SCAN = random.Random(5).randbytes(50_000)
THREADS = ["one", "two"]


@pytest.fixture(params=["sync", "async"])
def acts(request: pytest.FixtureRequest) -> tuple[Act, Act, Act]:
    """Export, import and copy, in either colour."""
    if request.param == "sync":
        return export_threads, import_threads, copy_store
    some = aexport_threads, aimport_threads, acopy_store

    def finished(act: Act) -> Act:
        return lambda *args, **more: asyncio.run(act(*args, **more))

    return finished(some[0]), finished(some[1]), finished(some[2])


@pytest.fixture
def open_saver(tmp_path: Path) -> Iterator[Act]:
    with ExitStack() as opened:

        def open_one(kind: str, name: str, **options: Any) -> Any:
            place = tmp_path / name
            place.mkdir(exist_ok=True)
            options = {"offload_above": 4096, "artifacts": place / "files", **options}
            return opened.enter_context(backends.ALL[kind](place, **options))

        yield open_one


@pytest.fixture(params=["sqlite", "valkey"])
def source(request: pytest.FixtureRequest, open_saver: Act) -> Any:
    return filled(open_saver(request.param, "source"))


@pytest.fixture(params=["sqlite", "valkey", "scriptless"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "threads.lgd"


def config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def put(saver: Any, thread: str, values: dict[str, Any]) -> Any:
    versions = dict.fromkeys(values, f"{1:032}.0")
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    return saver.put(config(thread), checkpoint, {"step": 1}, versions)


def filled(saver: Any) -> Any:
    """Two threads that share a large value; handles by themselves, and inside a large one."""
    scan = Artifact.from_bytes(SCAN, media_type="image/png", name="scan.png")
    note = Artifact.from_text("a note\n" * 500, name="note.txt")
    for thread in THREADS:
        own = {"text": [TEXT, thread, ""], "scan": scan, "empty": Artifact.from_bytes(b"")}
        inside = [{"page": thread * 3000, "deep": [note]}]
        at = put(saver, thread, {**own, "noise": NOISE, "inside": inside})
        saver.put_writes(at, [("later", [thread * 5000, scan])], "task")
    return saver


def read(saver: Any, thread: str) -> Any:
    """Everything of a thread, with the contents of its handles."""
    found = saver.get_tuple(config(thread))
    assert found is not None
    values = found.checkpoint["channel_values"]
    handles = [values["scan"], values["empty"], values["inside"][0]["deep"][0]]
    handles.append(found.pending_writes[0][2][1])
    return found.config, found.checkpoint, found.pending_writes, [one.read() for one in handles]


def everything(saver: Any) -> list[Any]:
    return [read(saver, thread) for thread in THREADS]


def lying_in(folder: Path) -> list[Path]:
    """The objects in a folder, without marks."""
    names = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in names if len(path.name.removesuffix(".zst")) == 64]


def folder_of(saver: DurableSaver) -> Path:
    target = saver._shelf.target
    assert isinstance(target, FileArtifacts)
    return target.folder


def largest(saver: DurableSaver) -> Path:
    """What both threads need."""
    return max(lying_in(folder_of(saver)), key=lambda path: path.stat().st_size)


def lose_all(saver: DurableSaver) -> None:
    for path in lying_in(folder_of(saver)):
        path.unlink()


# ---- included --------------------------------------------------------------------------------


def test_artifacts_come_along_and_the_original_is_needed_no_more(
    acts: tuple[Act, Act, Act], source: Any, kind: str, open_saver: Act, file: Path
) -> None:
    export, bring, _ = acts
    before = everything(source)
    report = export(source, file)
    # What two threads share is in the file once, and a text is small there.
    assert report.bytes < len(NOISE) + len(SCAN) + 20_000
    lose_all(source)
    target = open_saver(kind, "target")
    assert bring(target, file).imported == ("one", "two")
    assert everything(target) == before
    assert all(target.check_artifacts(thread) == [] for thread in THREADS)
    assert bring(target, file).skipped == ("one", "two")


def test_what_was_imported_goes_on_is_copied_and_collected_like_any_other(
    source: Any, kind: str, open_saver: Act, file: Path
) -> None:
    export_threads(source, file)
    target = open_saver(kind, "target")
    import_threads(target, file)
    before = everything(target)
    assert target.collect_artifacts(grace=0).removed == 0
    target.copy_thread("one", "three")
    scan = target.get_tuple(config("one")).checkpoint["channel_values"]["scan"]
    put(target, "four", {"scan": scan, "own": SCAN + b"!"})
    target.delete_thread("one")
    target.collect_artifacts(grace=0)
    assert read(target, "two") == before[1]
    assert read(target, "three")[3] == before[0][3]
    assert target.get_tuple(config("four")).checkpoint["channel_values"]["scan"].read() == SCAN
    for thread in ("two", "three", "four"):
        target.delete_thread(thread)
    target.collect_artifacts(grace=0)
    assert lying_in(folder_of(target)) == []
    # All of it can be brought again, also where the ids are known by now.
    import_threads(target, file)
    assert everything(target) == before


def test_databases_in_one_store_never_sweep_each_others_copies(
    open_saver: Act, kind: str, file: Path, tmp_path: Path
) -> None:
    shared = {"artifacts": tmp_path / "shared"}
    source = filled(open_saver("sqlite", "source", **shared))
    export_threads(source, file)
    before = everything(source)
    targets = [open_saver(kind, f"target {n}", **shared) for n in range(2)]
    for target in targets:
        import_threads(target, file)
    for saver in (source, targets[0]):
        for thread in THREADS:
            saver.delete_thread(thread)
        assert saver.collect_artifacts(grace=0).removed > 0
        assert everything(targets[1]) == before
    assert targets[1].collect_artifacts(grace=0).removed == 0
    import_threads(source, file)  # its own ids, back in their own place
    assert everything(source) == before


def test_a_thread_that_is_replaced_gets_its_artifacts(
    source: Any, kind: str, open_saver: Act, file: Path
) -> None:
    export_threads(source, file)
    target = open_saver(kind, "target")
    put(target, "one", {"other": SCAN})
    with pytest.raises(ConfigurationError, match="'one'"):
        import_threads(target, file)
    assert import_threads(target, file, on_existing="skip").imported == ("two",)
    assert import_threads(target, file, on_existing="replace").replaced == ("one",)
    assert everything(target) == everything(source)


def test_imported_artifacts_are_moved_with_the_others(
    source: Any, kind: str, open_saver: Act, file: Path, tmp_path: Path
) -> None:
    export_threads(source, file)
    target = open_saver(kind, "target")
    import_threads(target, file)
    put(target, "own", {"a": SCAN})
    moved = target.move_artifacts(tmp_path / "elsewhere")
    assert moved.copied == len(lying_in(tmp_path / "elsewhere"))
    target.collect_artifacts(grace=0)
    assert lying_in(folder_of(target)) == []
    assert everything(target) == everything(source)


@pytest.mark.parametrize("mode", ["include", "reference"])
def test_a_missing_artifact_stops_the_export(
    acts: tuple[Act, Act, Act], source: Any, file: Path, mode: str
) -> None:
    file.write_bytes(b"the last one")
    largest(source).unlink()
    with pytest.raises(ArtifactMissing, match=r"thread 'one'.*lgd-"):
        acts[0](source, file, artifacts=mode)
    assert file.read_bytes() == b"the last one"


def test_an_altered_artifact_stops_the_export_and_the_copy(
    acts: tuple[Act, Act, Act], source: Any, open_saver: Act, file: Path
) -> None:
    path = largest(source)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactCorrupt, match=r"thread 'one'.*lgd-"):
        acts[0](source, file)
    assert not file.exists()
    target = open_saver("sqlite", "target")
    with pytest.raises(ArtifactCorrupt, match=r"thread 'one'.*lgd-"):
        acts[2](source, target)
    assert target.get_tuple(config("one")) is None


def test_a_damaged_archive_is_refused_before_anything_is_written(
    open_saver: Act, file: Path, tmp_path: Path
) -> None:
    export_threads(filled(open_saver("sqlite", "source")), file)
    whole, dice, bad = file.read_bytes(), random.Random(3), tmp_path / "bad.lgd"
    target = open_saver("sqlite", "target")
    for _ in range(15):
        bad.write_bytes(whole[: dice.randrange(len(whole))])
        with pytest.raises(DamagedArchive):
            import_threads(target, bad)
        at = dice.randrange(len(whole))
        bad.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DamagedArchive):
            import_threads(target, bad)
    assert list(target.list(None)) == []
    assert not folder_of(target).exists()


@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
def test_a_target_without_a_store_is_told_before_anything_is_written(
    acts: tuple[Act, Act, Act], open_saver: Act, kind: str, file: Path
) -> None:
    source = open_saver("sqlite", "source")
    put(source, "a", {"small": 1})
    filled(source)
    acts[0](source, file)
    target = open_saver(kind, "target", artifacts=None)
    with pytest.raises(ConfigurationError, match=r"'one'.*artifacts="):
        acts[1](target, file)
    assert list(target.list(None)) == []
    assert acts[1](target, file, ["a"]).imported == ("a",)


def test_wrong_arguments_are_told(open_saver: Act, file: Path) -> None:
    with pytest.raises(ConfigurationError, match="artifacts is"):
        export_threads(open_saver("sqlite", "source"), file, artifacts="all")  # type: ignore[arg-type]
    assert not file.exists()


IMPORT = """
import os, signal, sys
from langgraph_durable import FileArtifacts, SqliteSaver, import_threads
file, path, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
put = FileArtifacts.put
def dying(self, key, content):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, key, content)
FileArtifacts.put = dying
with SqliteSaver(path) as saver:
    print("begin", flush=True)
    import_threads(saver, file)
"""


def test_an_import_killed_at_any_instant_leaves_nothing_dangling(
    open_saver: Act, file: Path, tmp_path: Path, long: bool
) -> None:
    source, dice = filled(open_saver("sqlite", "source")), random.Random(9)
    names = [*THREADS, *(f"t{n}" for n in range(12))]
    for thread in names[2:]:
        put(source, thread, {"own": dice.randbytes(200_000)})
    export_threads(source, file)
    path = tmp_path / "target.db"
    # At an upload, the later ones after others have been renewed; or, for long, at any time.
    for kill_at in [1, 4, 9, 15, *[0] * 40 * long]:
        command = [sys.executable, "-c", IMPORT, str(file), str(path), str(kill_at)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begin\n"
            if kill_at == 0:
                time.sleep(dice.random() * 0.15)
                child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL or kill_at == 0
        with SqliteSaver(path) as target:
            assert all(target.check_artifacts(thread) == [] for thread in names)
    with SqliteSaver(path) as target:
        import_threads(target, file)
        assert everything(target) == everything(source)
        target.collect_artifacts(grace=0)
        assert everything(target) == everything(source)
        assert len(lying_in(Path(f"{path}-artifacts"))) == len(lying_in(folder_of(source)))


@pytest.mark.parametrize("kind", ["sqlite", "valkey"])
def test_buckets_are_left_and_entered(open_saver: Act, kind: str, file: Path) -> None:
    shared = {"artifacts": objectstore.shared().store(file.parent.name)}
    source, target = open_saver("sqlite", "source", **shared), open_saver(kind, "target", **shared)
    before = everything(filled(source))
    export_threads(source, file)
    import_threads(target, file)
    for thread in THREADS:
        source.delete_thread(thread)
    assert source.collect_artifacts(grace=0).removed > 0
    assert target.collect_artifacts(grace=0).removed == 0
    assert everything(target) == before


# ---- by reference ----------------------------------------------------------------------------


def test_by_reference_contents_stay_where_they_are(
    acts: tuple[Act, Act, Act], source: Any, kind: str, open_saver: Act, file: Path
) -> None:
    export, bring, _ = acts
    assert export(source, file, artifacts="reference").bytes < 20_000
    target = open_saver(kind, "target")
    bring(target, file)
    assert everything(target) == everything(source)
    lying = sorted(folder_of(source).rglob("*"))
    target.copy_thread("one", "three")
    for thread in (*THREADS, "three"):
        target.delete_thread(thread)
    target.collect_artifacts(grace=0)
    assert sorted(folder_of(source).rglob("*")) == lying  # nothing written, nothing removed
    assert bring(target, file).imported == ("one", "two")


def test_the_default_folder_is_found_by_reference_and_then_taken_in(
    tmp_path: Path, file: Path
) -> None:
    with SqliteSaver(tmp_path / "a.db", offload_above=4096) as source:
        before = everything(filled(source))
        export_threads(source, file, artifacts="reference")
    with SqliteSaver(tmp_path / "b.db", offload_above=4096) as target:
        import_threads(target, file)
        assert everything(target) == before
        target.move_artifacts(tmp_path / "own")
        for path in lying_in(tmp_path / "a.db-artifacts"):
            path.unlink()
        assert everything(target) == before
        target.collect_artifacts(grace=0)
        assert everything(target) == before


def test_a_thread_that_came_by_reference_gets_its_own_artifacts_from_a_whole_file(
    acts: tuple[Act, Act, Act], source: Any, kind: str, open_saver: Act, file: Path
) -> None:
    export, bring, copy = acts
    target, before = open_saver(kind, "target"), everything(source)
    export(source, file, artifacts="reference")
    bring(target, file)
    another = open_saver(kind, "another")
    bring(another, file)
    export(source, file)
    assert bring(target, file).skipped == ("one", "two")
    assert copy(source, another).skipped == 2
    lose_all(source)
    assert everything(target) == everything(another) == before


def test_a_reference_that_leads_nowhere_is_refused_by_thread_and_key(
    acts: tuple[Act, Act, Act], source: Any, kind: str, open_saver: Act, file: Path
) -> None:
    acts[0](source, file, artifacts="reference")
    largest(source).unlink()
    target = open_saver(kind, "target")
    with pytest.raises(ArtifactMissing, match=r"thread 'one': the artifact lgd-\w{16}/"):
        acts[1](target, file)
    assert list(target.list(None)) == []


def test_artifacts_of_a_saver_in_memory_are_included_only(file: Path) -> None:
    with SqliteSaver(":memory:", offload_above=4096) as source, SqliteSaver(":memory:") as target:
        filled(source)
        with pytest.raises(ConfigurationError, match="include"):
            export_threads(source, file, artifacts="reference")
        export_threads(source, file)
        import_threads(target, file)
        assert everything(target) == everything(source)


# ---- from saver to saver ---------------------------------------------------------------------


def test_a_copied_store_needs_the_original_no_more(
    acts: tuple[Act, Act, Act], source: Any, kind: str, open_saver: Act
) -> None:
    target, before = open_saver(kind, "target"), everything(source)
    assert acts[2](source, target).threads == 2
    assert acts[2](source, target).skipped == 2
    lose_all(source)
    assert everything(target) == before
    assert target.collect_artifacts(grace=0).removed == 0


def test_large_threads_and_targets_without_a_store_get_the_values(
    acts: tuple[Act, Act, Act], open_saver: Act, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = filled(open_saver("sqlite", "source"))
    before = everything(source)
    put(source, "plain", {"text": TEXT})
    inline = open_saver(kind, "inline", artifacts=None)
    acts[2](source, inline, ["plain"])
    assert inline.get_tuple(config("plain")).checkpoint["channel_values"] == {"text": TEXT}
    monkeypatch.setattr("langgraph_durable.moving.copying.WHOLE", 0)
    target = open_saver(kind, "target")
    acts[2](source, target, THREADS)
    lose_all(source)
    assert everything(target) == before


def test_a_handle_read_from_one_saver_and_put_into_another_is_uploaded_there(
    source: Any, kind: str, open_saver: Act
) -> None:
    scan = source.get_tuple(config("one")).checkpoint["channel_values"]["scan"]
    target = open_saver(kind, "target")
    put(target, "t", {"scan": scan})
    copy_store(source, target, ["two"])
    put(target, "u", {"scan": scan})
    lose_all(source)
    for thread in ("t", "u"):
        found = target.get_tuple(config(thread)).checkpoint["channel_values"]["scan"]
        assert found.read() == SCAN


def test_savers_of_others_get_large_values_and_refuse_handles(
    acts: tuple[Act, Act, Act], source: Any, kind: str, open_saver: Act
) -> None:
    put(source, "plain", {"text": TEXT})
    theirs, target = InMemorySaver(), open_saver(kind, "target")
    acts[2](source, theirs, ["plain"])
    acts[2](theirs, target)
    with pytest.raises(TypeError, match="Artifact"):
        acts[2](source, theirs, ["one"])
    lose_all(source)
    assert target.get_tuple(config("plain")).checkpoint["channel_values"] == {"text": TEXT}
    assert len(lying_in(folder_of(target))) == 1


# ---- places ----------------------------------------------------------------------------------


def test_places_are_told_apart(tmp_path: Path) -> None:
    inner = FileArtifacts(tmp_path)
    url = places.guest("0" * 16, inner.url)
    guest = places.open_place(url, lambda _: inner)
    guest.put("lgd-x/0/a", b"1")
    assert [found.key for found in guest.list("lgd-x/")] == ["lgd-x/0/a"]
    assert guest.url == url
    assert places.shown_to_others(places.Lent(guest)) == url
    assert places.is_own([inner.url])
    assert not places.is_own([url, places.lent(inner.url)])
    assert places.token_of([places.lent(url), url]) == "0" * 16
    assert os.listdir(tmp_path) == ["lgd-guest-" + "0" * 16]
