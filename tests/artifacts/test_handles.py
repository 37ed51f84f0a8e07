"""`Artifact` handles: light, lazy, verified."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backends
import objectstore
import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import StateGraph
from pydantic import BaseModel
from shelves import NOISE, config, objects, put, values

from langgraph_durable import (
    Artifact,
    ArtifactCorrupt,
    ArtifactMissing,
    ConfigurationError,
    FileArtifacts,
    MemoryArtifacts,
    SerializationError,
    SqliteSaver,
)
from langgraph_durable.artifacts import media
from langgraph_durable.artifacts.stores import ArtifactStore


@dataclass
class Report:
    title: str
    file: Artifact


def test_artifacts_survive_at_any_depth(
    backend: backends.Open, store: ArtifactStore, tmp_path: Path
) -> None:
    source = tmp_path / "report.pdf"
    source.write_bytes(NOISE)
    file = Artifact.from_file(source)
    note = Artifact.from_text("hello", name="note.txt")
    state = {
        "bare": file,
        "deep": [{"x": (file, Report("r", note))}],
        "messages": [HumanMessage("see", additional_kwargs={"file": note})],
    }
    with backend(tmp_path, artifacts=store) as saver:
        put(saver, "t", state)
    source.unlink()
    with backend(tmp_path, artifacts=store) as another:
        found = values(another, "t")
        assert found == state
        loaded = found["deep"][0]["x"][0]
        assert (loaded.name, loaded.media_type, loaded.size) == (
            *("report.pdf", "application/pdf"),
            len(NOISE),
        )
        assert loaded.sha256 == file.sha256
        assert loaded.read() == NOISE
        assert asyncio.run(loaded.aread()) == NOISE
        assert loaded.path().read_bytes() == NOISE
        with loaded.open() as stream:
            assert stream.read(10) == NOISE[:10]
            stream.seek(0)
            assert stream.read() == NOISE
        assert found["deep"][0]["x"][1].file.text() == "hello"
        assert len(objects(store, another)) == 2


def test_a_loaded_handle_can_be_stored_elsewhere(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with (
        backend(tmp_path, artifacts=files) as saver,
        SqliteSaver(tmp_path / "other.db") as other,
    ):
        put(saver, "t", {"a": Artifact.from_bytes(NOISE)})
        loaded = values(saver, "t")["a"]
        put(saver, "second", {"b": loaded})
        put(other, "t", {"c": loaded})
        saver.delete_thread("t")
        saver.collect_artifacts(grace=0)
        assert values(saver, "second")["b"].read() == NOISE
        saver.delete_thread("second")
        saver.collect_artifacts(grace=0)
        assert values(other, "t")["c"].read() == NOISE


def test_an_artifact_whose_content_is_gone_cannot_be_stored_again(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        put(saver, "t", {"a": Artifact.from_bytes(NOISE)})
        loaded = values(saver, "t")["a"]
        saver.delete_thread("t")
        saver.collect_artifacts(grace=0)
        with pytest.raises(ArtifactMissing):
            put(saver, "second", {"b": loaded})
        assert saver.get_tuple(config("second")) is None


class Counted(MemoryArtifacts):
    """Notes what is asked of it."""

    def __init__(self) -> None:
        super().__init__("memory://counted", private=True)
        self.asked: list[str] = []

    def open(self, key: str) -> Any:
        self.asked.append("open")
        return super().open(key)

    def stat(self, key: str) -> Any:
        self.asked.append("stat")
        return super().stat(key)


def test_reading_a_thread_asks_nothing_of_its_artifacts(
    backend: backends.Open, tmp_path: Path
) -> None:
    store = Counted()
    files = [Artifact.from_bytes(NOISE + bytes([n]), name=f"{n}.png") for n in range(10)]
    with backend(tmp_path, artifacts=store) as saver:
        put(saver, "t", {"files": files, "bare": files[0]})
    with backend(tmp_path, artifacts=store) as saver:
        store.asked.clear()
        found = values(saver, "t")
        assert [each.checkpoint["channel_values"] for each in saver.list(config("t"))] == [found]
        assert found["files"] == files
        assert found["bare"].size == len(NOISE) + 1
        assert store.asked == []
        assert saver._engine.memory.size < 20_000
        assert found["files"][3].read() == NOISE + bytes([3])
        assert store.asked == ["open"]


def test_long_transfers_are_logged(
    store: ArtifactStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = tmp_path / "long.bin"
    source.write_bytes(NOISE)
    monkeypatch.setattr(media, "TELL", -1.0)
    caplog.set_level("INFO", "langgraph_durable")
    with backends.hasty_sqlite(tmp_path, artifacts=store) as saver:
        put(saver, "t", {"a": Artifact.from_file(source)})
        assert f"storing {source}: 400.0 kB of 400.0 kB" in caplog.text
        values(saver, "t")["a"].path()
        assert re.search(r"reading artifact lgd-\S+ in \S+: 400.0 kB of 400.0 kB", caplog.text)


@pytest.mark.parametrize("what", [Path.unlink, lambda path: path.write_text("another")])
def test_a_stored_artifact_needs_its_file_no_more(
    what: Callable[[Path], Any], backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    source = tmp_path / "report.txt"
    source.write_text("one")
    handle = Artifact.from_file(source)
    with backend(tmp_path, artifacts=files) as saver, SqliteSaver(tmp_path / "b.db") as other:
        put(saver, "t", {"a": handle})
        assert handle.text() == "one"
        what(source)
        assert handle.text() == handle.path().read_text() == "one"
        put(saver, "u", {"a": handle})
        assert values(saver, "u")["a"].text() == "one"
        if not source.exists():
            put(other, "t", {"a": handle})
            assert values(other, "t")["a"].text() == "one"


def test_a_file_that_is_gone_before_it_is_stored_is_named(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    source = tmp_path / "report.txt"
    with backend(tmp_path, artifacts=files) as saver:
        for is_known in (False, True):
            source.write_text("one")
            handle = Artifact.from_file(source)
            assert not is_known or handle.sha256
            source.unlink()
            with pytest.raises(SerializationError, match=r"report.txt.*cannot be read"):
                put(saver, "t", {"a": handle})
            assert saver.get_tuple(config("t")) is None


def test_a_handle_goes_to_other_processes_by_pickle(
    backend: backends.Open, store: ArtifactStore, tmp_path: Path
) -> None:
    if isinstance(store, FileArtifacts):
        store = FileArtifacts(tmp_path / "ü %20&?")
    file = tmp_path / "file.txt"
    file.write_text("in a file")
    with backend(tmp_path, artifacts=store) as saver:
        put(saver, "t", {"stored": Artifact.from_text("stored", name="n")})
        stored = values(saver, "t")["stored"]
        sent = pickle.dumps([stored, Artifact.from_bytes(b"at hand"), Artifact.from_file(file)])
        assert len(pickle.dumps(stored)) < 1000
        read = "import pickle, sys; print([a.text() for a in pickle.load(sys.stdin.buffer)])"
        done = subprocess.run(
            [sys.executable, "-c", read], input=sent, capture_output=True, env=s3_environment()
        )
        assert done.stdout.decode().strip() == "['stored', 'at hand', 'in a file']", done.stderr
        assert pickle.loads(sent)[0] == stored
        put(saver, "again", {"a": pickle.loads(sent)[0]})
        assert values(saver, "again")["a"].read() == b"stored"
        assert len(objects(store, saver)) == 1


def s3_environment() -> dict[str, str]:
    """What another process needs to find the server of these tests."""
    keys = {"AWS_ACCESS_KEY_ID": objectstore.KEY, "AWS_SECRET_ACCESS_KEY": objectstore.SECRET}
    where = {"AWS_ENDPOINT": objectstore.shared().endpoint, "AWS_ALLOW_HTTP": "true"}
    return {**os.environ, **keys, **where, "AWS_REGION": "us-east-1"}


def test_a_handle_in_a_store_that_others_cannot_find_is_not_pickled() -> None:
    with SqliteSaver(":memory:") as saver:
        put(saver, "t", {"a": Artifact.from_text("x")})
        with pytest.raises(ConfigurationError, match="cannot be found by others"):
            pickle.dumps(values(saver, "t")["a"])


@pytest.mark.parametrize("error", [ArtifactMissing, ArtifactCorrupt])
def test_reading_a_spoilt_artifact_names_its_place(
    error: type[Exception], backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        at = put(saver, "t", {"rest": 1, "deep": [{"a": Artifact.from_text("x")}]})
        saver.put_writes(at, [("other", Artifact.from_text("x"))], "task")
        [one] = objects(files, saver)
        loaded = values(saver, "t")["deep"][0]["a"]
        [[_, _, written]] = saver.get_tuple(config("t")).pending_writes
        path = files.folder / one.key
        path.unlink() if error is ArtifactMissing else path.write_bytes(b"y" * 9)
        key, checkpoint = one.key, at["configurable"]["checkpoint_id"]
        for handle, channel in ((loaded, "channel 'deep'"), (written, "to 'other'")):
            for read in (handle.read, handle.open, handle.path):
                with pytest.raises(error) as raised:
                    read()
                for part in ("thread 't'", checkpoint, channel, key, str(files.folder)):
                    assert part in str(raised.value)


def test_a_file_that_changes_while_it_is_stored_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "growing.log"
    source.write_text("one")
    growing = Artifact.from_file(source)
    assert growing.sha256
    source.write_text("two")
    with SqliteSaver(tmp_path / "agent.db") as saver:
        with pytest.raises(SerializationError, match="has changed"):
            put(saver, "t", {"a": growing})
        assert saver.get_tuple(config("t")) is None


class Reversing:
    """A serialiser of the user's, around the saver's own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        tag, data = self.inner.dumps_typed(value)
        return f"{tag}-reversed", data[::-1]

    def loads_typed(self, stored: tuple[str, bytes]) -> Any:
        return self.inner.loads_typed((stored[0].removesuffix("-reversed"), stored[1][::-1]))


def test_a_handle_that_a_serialiser_hides_is_kept_all_the_same(
    backend: backends.Open, files: FileArtifacts, tmp_path: Path
) -> None:
    with backend(tmp_path, artifacts=files) as saver:
        saver.serde = Reversing(saver.serde)
        put(saver, "t", {"a": Artifact.from_bytes(b"x"), "b": [Artifact.from_bytes(NOISE)]})
        saver.collect_artifacts(grace=0)
        assert saver.check_artifacts("t") == []
        found = values(saver, "t")
        assert (found["a"].read(), found["b"][0].read()) == (b"x", NOISE)
        saver.delete_thread("t")
        assert saver.collect_artifacts(grace=0).removed == 2


def test_an_artifact_without_a_store_says_what_to_do(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "agent.db", artifacts=None) as saver:
        with pytest.raises(SerializationError, match=r"channel 'a'\[\"b\"\].*pass artifacts="):
            put(saver, "t", {"a": {"b": Artifact.from_bytes(b"x")}})
        put(saver, "t", {"large": NOISE})
        assert values(saver, "t") == {"large": NOISE}
    assert not (tmp_path / "agent.db-artifacts").exists()


def test_artifacts_show_themselves_and_go_into_messages() -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"0" * 20
    image = Artifact.from_bytes(png, name="<x>.png")
    assert 'src="data:image/png;base64,' in image._repr_mimebundle_()["text/html"]
    assert "<x>" not in image._repr_mimebundle_()["text/html"]
    table = Artifact.from_text("a,b\n1,<b>\n", name="t.csv", media_type="text/csv")
    assert "<td>&lt;b&gt;</td>" in table._repr_mimebundle_()["text/html"]
    assert repr(Artifact.from_bytes(b"12345", name="x.bin")) == (
        "<Artifact x.bin, application/octet-stream, 5 B>"
    )
    assert image.as_content()["type"] == "image"
    message = HumanMessage([{"type": "text", "text": "what is it?"}, image.as_content()])
    assert message.content_blocks[1]["mime_type"] == "image/png"
    assert image.data_url().startswith("data:image/png;base64,")


@pytest.mark.parametrize(
    ("name", "media_type", "kind"),
    [
        ("table.csv", "text/csv", "text"),
        ("table.csv.gz", "application/gzip", "file"),
        ("files.tar.xz", "application/x-xz", "file"),
        ("picture.svgz", "application/gzip", "file"),
        ("Notes.MD", "text/markdown", "text"),
        ("photo.webp", "image/webp", "image"),
        ("table.parquet", "application/vnd.apache.parquet", "file"),
        ("folder.md/plain", "application/octet-stream", "file"),
    ],
)
def test_a_name_tells_the_media_type_on_every_machine(
    name: str, media_type: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mimetypes, "_db", mimetypes.MimeTypes())  # without what the system knows
    artifact = Artifact.from_bytes(b"x", name=name)
    assert artifact.media_type == media_type
    assert artifact.as_content()["type"] == kind


def test_parameters_of_a_media_type_do_not_hide_what_it_is() -> None:
    table = Artifact.from_text("a,b\n1,2", media_type="text/csv; charset=utf-8")
    assert "<th>a</th>" in table._repr_mimebundle_()["text/html"]
    assert media.packing_for(table.media_type) == media.packing_for("text/csv")
    image = Artifact.from_bytes(b"png", media_type="IMAGE/PNG; q=1")
    assert 'src="data:image/png;base64,' in image._repr_mimebundle_()["text/html"]
    assert (image.as_content()["type"], image.as_content()["mime_type"]) == ("image", "image/png")
    assert image.media_type == "IMAGE/PNG; q=1"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Artifact(),
        lambda: Artifact.from_file("/nowhere"),
        lambda: Artifact.from_file("/tmp"),
        lambda: Artifact.from_file(5),
        lambda: Artifact.from_file(b"/tmp/x"),
        lambda: Artifact.from_bytes("text"),
        lambda: Artifact.from_text(b"bytes"),
        lambda: Artifact.from_text("\ud800"),
        lambda: Artifact.from_bytes(b"x", name=5),
        lambda: Artifact.from_bytes(b"x", media_type=""),
    ],
)
def test_what_is_no_artifact_is_refused_at_once(make: Callable[[], Artifact]) -> None:
    with pytest.raises(ConfigurationError):
        make()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("../../etc/passwd", "passwd"),
        ("c:\\folder\\x.txt", "x.txt"),
        ("a\0b", "ab"),
        ("\ud800.txt", "?.txt"),
        ("ü" * 300, "ü" * 100),
        ("..", "artifact"),
        (None, "artifact"),
    ],
)
def test_any_name_makes_a_file_within_its_folder(name: Any, file: str, tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "a.db") as saver:
        put(saver, "t", {"a": Artifact.from_bytes(b"x", name=name)})
        found = values(saver, "t")["a"]
        assert (found.name, found.path().name, found.path().read_bytes()) == (name, file, b"x")


def test_a_local_file_stays_until_the_process_ends(tmp_path: Path) -> None:
    with SqliteSaver(tmp_path / "a.db") as saver:
        put(saver, "t", {"a": Artifact.from_bytes(b"x", name="x.txt")})
        path = values(saver, "t")["a"].path()
        assert path.read_bytes() == b"x"
        assert asyncio.run(values(saver, "t")["a"].apath()) == path
    program = "import langgraph_durable as l; print(l.Artifact.from_bytes(b'x').path(), end='')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not Path(done.stdout.decode()).exists()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"changed")])
def test_who_spoils_a_local_file_spoils_it_for_nobody_else(
    spoil: Callable[[Path], Any], tmp_path: Path
) -> None:
    with SqliteSaver(tmp_path / "a.db") as saver:
        put(saver, "t", {"a": Artifact.from_bytes(NOISE, name="x.txt")})
        handle = values(saver, "t")["a"]
        spoil(handle.path())
        assert handle.path().read_bytes() == NOISE


def test_an_artifact_is_a_field_of_a_model() -> None:
    class State(BaseModel):
        file: Artifact | None = None

    state = State(file=Artifact.from_text("x", name="n"))
    told = {"name": "n", "media_type": "text/plain", "size": 1, "sha256": state.file.sha256}
    assert json.loads(state.model_dump_json())["file"] == told
    assert state.model_dump()["file"] is state.file
    graph = StateGraph(State).add_node("work", lambda state: {}).set_entry_point("work").compile()
    assert "Artifact" in str(graph.get_input_jsonschema())
    with pytest.raises(ValueError, match="Artifact"):
        State(file=b"x")


def test_a_timeline_shows_an_artifact_as_itself(tmp_path: Path) -> None:
    from langgraph_durable.timeline import html

    with SqliteSaver(tmp_path / "a.db") as saver:
        png = b"\x89PNG\r\n\x1a\n" + NOISE[:1000]
        put(saver, "t", {"image": Artifact.from_bytes(png, name="x.png")})
        shown = html.value(values(saver, "t"))
        assert 'src="data:image/png;base64,' in shown
        assert "x.png, image/png" in shown
