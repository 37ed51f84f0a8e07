"""Object stores behind bad networks, and buckets that are not there.

SeaweedFS makes a bucket that is missing, and is never slow: here small servers say what S3 says.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypedDict

import backends
import objectstore
import pytest
import servers
from langgraph.graph import START, StateGraph
from shelves import NOISE, config, objects, put, values

from langgraph_durable import (
    Artifact,
    ArtifactsUnreachable,
    FileArtifacts,
    StorageError,
    StorageReadOnly,
)
from langgraph_durable.artifacts import objects as object_stores
from langgraph_durable.artifacts import sweeping

BODY, PIECES = os.urandom(200_000), 20


class Answering(BaseHTTPRequestHandler):
    """A server of one kind of answer."""

    def answer(self, code: int, length: int, *headers: tuple[str, str]) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(code)
        self.send_header("Content-Length", str(length))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


class NoBucket(Answering):
    """What S3 says about a bucket that does not exist."""

    def do_GET(self) -> None:
        text = b"<Error><Code>NoSuchBucket</Code><BucketName>lgd</BucketName></Error>"
        self.answer(404, len(text))
        if self.command != "HEAD":
            self.wfile.write(text)

    do_HEAD = do_PUT = do_POST = do_GET


class Forbidden(Answering):
    """Whatever is asked, it may not be."""

    def do_GET(self) -> None:
        self.answer(403, 0)

    do_HEAD = do_PUT = do_POST = do_GET


class HangsUp(Answering):
    """It reads the request, and closes the connection."""

    def do_GET(self) -> None:
        self.close_connection = True

    do_HEAD = do_PUT = do_POST = do_GET


class Slow(Answering):
    """Every piece comes in time, but not the whole."""

    def do_GET(self) -> None:
        when = ("Last-Modified", self.date_time_string()), ("ETag", "x")
        self.answer(200, len(BODY), *when)
        size = len(BODY) // PIECES
        for n in range(PIECES):
            time.sleep(0.25)
            self.wfile.write(BODY[n * size : (n + 1) * size])


class Silent(Answering):
    """It takes what is sent, and never answers."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        time.sleep(20)

    do_HEAD = do_PUT = do_POST = do_GET


@contextmanager
def serving(kind: type[Answering]) -> Iterator[str]:
    server = ThreadingHTTPServer((servers.HOST, 0), kind)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{servers.HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.socket.close()


def store_at(
    endpoint: str, place: str = "s3://lgd/x", **options: Any
) -> object_stores.ObjectArtifacts:
    keys = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
    own = {"endpoint": endpoint, "client_options": {"allow_http": True}, **keys, **options}
    return object_stores.ObjectArtifacts(place, **own)


@pytest.mark.parametrize("size", [400_000, 20_000_000], ids=["whole", "in parts"])
def test_a_bucket_that_is_missing_when_it_is_written_to_is_named(
    backend: backends.Open, size: int, tmp_path: Path
) -> None:
    with serving(NoBucket) as url, backend(tmp_path, artifacts=store_at(url)) as saver:
        with pytest.raises(StorageError, match=r"s3://lgd/x: there is no such bucket"):
            put(saver, "t", {"a": Artifact.from_bytes(os.urandom(size))})
        assert saver.get_tuple(config("t")) is None


def test_a_bucket_that_is_missing_when_it_is_read_or_listed_is_named() -> None:
    with serving(NoBucket) as url:
        store = store_at(url)
        for ask in (lambda: store.open("lgd-x/a/b"), lambda: list(store.list("lgd-x/"))):
            with pytest.raises(StorageError, match=r"s3://lgd/x: there is no such bucket"):
                ask()


ASK: dict[str, Callable[[object_stores.ObjectArtifacts], object]] = {
    "stat": lambda store: store.stat("lgd-x/a/b"),
    "open": lambda store: store.open("lgd-x/a/b"),
    "list": lambda store: list(store.list("lgd-x/")),
    "put": lambda store: store.put("lgd-x/a/b", b"x"),
    "create": lambda store: store.create("lgd-x/a/b", b"x"),
}


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_credentials_that_are_refused_are_told(
    ask: Callable[[object_stores.ObjectArtifacts], object],
) -> None:
    with serving(Forbidden) as url, pytest.raises(StorageReadOnly, match="credentials were ref"):
        ask(store_at(url))


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_numbers_in_a_url_are_not_taken_for_an_answer(
    ask: Callable[[object_stores.ObjectArtifacts], object],
) -> None:
    """Nor are those of how long it took: "in 401.5 µs"."""
    with serving(HangsUp) as url:
        store = store_at(url, place="s3://lgd/401/403/501", retry_config={"max_retries": 0})
        with pytest.raises(ArtifactsUnreachable):
            ask(store)


def test_a_large_object_may_take_long_as_long_as_something_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_stores, "SILENCE", "4s")
    with serving(Slow) as url, store_at(url).open("lgd-x/a/b") as stream:
        assert stream.read() == BODY


def test_a_server_that_falls_silent_is_given_up(
    backend: backends.Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(object_stores, "SILENCE", "1s")
    Silent.asked = 0
    with serving(Silent) as url:
        store = store_at(url, retry_config={"max_retries": 1})
        with backend(tmp_path, artifacts=store) as saver:
            with pytest.raises(ArtifactsUnreachable, match="artifact store s3://lgd/x"):
                put(saver, "t", {"a": NOISE})
            servers.wait_until(lambda: Silent.asked == 2, "a second try")
            assert saver.get_tuple(config("t")) is None
            put(saver, "t", {"a": "small"})


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_run_whose_store_goes_away_goes_on_when_it_is_back(
    backend: backends.Open, durability: Any, tmp_path: Path
) -> None:
    """A proxy between, so that the server need not be started again for every case."""
    server = objectstore.shared()
    gate = Gate(server.port)
    quick = {"max_retries": 0}
    store = server.store(tmp_path.name, endpoint=gate.url, retry_config=quick)
    ran: list[str] = []

    class State(TypedDict, total=False):
        first: bytes
        second: Artifact
        third: bytes

    def first(state: State) -> State:
        ran.append("first")
        return {"first": NOISE}

    def second(state: State) -> State:
        ran.append("second")
        gate.is_open = ran.count("second") > 1
        return {"second": Artifact.from_bytes(NOISE + b"2", name="x")}

    def third(state: State) -> State:
        ran.append("third")
        return {"third": state["second"].read() + b"3"}

    with backend(tmp_path, artifacts=store) as saver:
        built = StateGraph(State).add_sequence([first, second, third]).add_edge(START, "first")
        graph = built.compile(checkpointer=saver)
        with pytest.raises(ArtifactsUnreachable, match="artifact store s3://"):
            graph.invoke({}, config("t"), durability=durability)
        gate.is_open = True
        assert saver.check_artifacts("t") == []
        again: Any = None if durability != "exit" else {}
        found = graph.invoke(again, config("t"), durability=durability)
        assert (found["first"], found["third"]) == (NOISE, NOISE + b"23")
        assert durability != "sync" or ran.count("first") == 1
        saver.collect_artifacts(grace=0)
        assert saver.check_artifacts("t") == []
        assert values(saver, "t")["second"].read() == NOISE + b"2"
        assert len(objects(store, saver)) == 3


class Gate:
    """A way to a server that can be shut: then nobody gets through."""

    def __init__(self, port: int) -> None:
        self.is_open, self._port = True, port
        self._socket = socket.create_server((servers.HOST, 0))
        self.url = f"http://{servers.HOST}:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            client, _ = self._socket.accept()
            if not self.is_open:
                client.close()
                continue
            server = socket.create_connection((servers.HOST, self._port))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while (data := one.recv(65536)) and self.is_open:
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def test_a_collector_that_is_cut_off_leaves_no_marks(
    backend: backends.Open, tmp_path: Path
) -> None:
    store = FileArtifacts(tmp_path / "artifacts")
    with backend(tmp_path, artifacts=store) as saver:
        for n in range(3):
            put(saver, "t", {"a": NOISE + bytes([n])})
        saver.delete_thread("t")
        marked, real = [], store.put

        def breaking(key: str, content: Any) -> None:
            if key.endswith(sweeping.DOOMED):
                marked.append(key)
                if len(marked) == 2:
                    raise ArtifactsUnreachable("cut off")
            real(key, content)

        store.put = breaking  # type: ignore[method-assign]
        with pytest.raises(ArtifactsUnreachable, match="cut off"):
            saver.collect_artifacts(grace=0)
        assert len(objects(store, saver)) == 3
        assert [one for one in store.folder.rglob("*") if one.suffix == sweeping.DOOMED] == []
        put(saver, "t", {"a": NOISE + bytes([1])})
        assert saver.collect_artifacts(grace=0).removed == 2
        assert values(saver, "t") == {"a": NOISE + bytes([1])}


def test_own_options_of_the_client_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    server = objectstore.shared()
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_TIMEOUT", "9s")
    by_environment = server.store("x")._options | {"client_options": None}
    store = object_stores.ObjectArtifacts("s3://lgd/x", **by_environment)
    assert store.stat("lgd-x/a/nothing") is None
    given = store._options["client_options"]
    assert (given["timeout"], given["read_timeout"]) == ("9s", object_stores.SILENCE)
    store = objectstore.shared().store("x", client_options={"timeout": "7s"})
    given = store._options["client_options"]
    assert (given["timeout"], given["read_timeout"]) == ("7s", object_stores.SILENCE)
