"""Artifacts in an object store: S3, Google Cloud Storage, Azure, through obstore."""

from __future__ import annotations

import io
import os
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from langgraph_durable.artifacts.stores import CHUNK, ArtifactStore, Found, Opener
from langgraph_durable.errors import (
    ArtifactsUnreachable,
    ConfigurationError,
    StorageError,
    StorageReadOnly,
)

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
PART = 8 << 20
"""Larger contents are sent in parts of this size, some at once."""
TOGETHER = 4
"""So many: 48 MB of memory, and a network of 300 kB a second is fast enough for `SILENCE`."""
SILENCE = "2min"
"""After so long without an answer a request is tried again, for about as long once more.

obstore counts 30 seconds for a whole object by default: large ones would never be read.
"""
LONGEST = "1day"
_REFUSED = ("PermissionDeniedError", "UnauthenticatedError")
_CLIENT_OPTIONS = (
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "read_timeout", "timeout"),
    *("proxy_url", "proxy_ca_certificate", "proxy_excludes", "pool_idle_timeout", "user_agent"),
    *("http1_only", "http2_only", "randomize_addresses"),
)
_ODD = re.compile(r"[\\\x00-\x1f\x7f]")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_STATUS = "status(?: code)?:? "
"""Before the number in what obstore says; times and URLs have numbers, too."""
_REFUSED_TO_LIST = re.compile(f"{_STATUS}40[13]|AccessDenied")
_UNCONDITIONAL = re.compile(f"NotSupportedError|NotImplemented|{_STATUS}501")


class _Unconditional(Exception):
    """This store has no conditional writes."""


_first_used: dict[str, int] = {}
"""The process that obstore's threads belong to."""


class ObjectArtifacts(ArtifactStore):
    """A bucket, or a prefix in one.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
        options: what obstore's `from_url` takes: keys, `region`, `endpoint`, `client_options`,
            `retry_config`. By default credentials come from the environment. They are not stored,
            so a saver that is to read this store under another `artifacts=` needs them there.

    A process must not be forked after the first use: the child gets a `StorageError`.

    Example:
        >>> ObjectArtifacts("s3://agents/artifacts", region="eu-central-1")   # doctest: +SKIP
    """

    def __init__(self, url: str, **options: Any) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.netloc or parts.query or parts.fragment:
            raise ConfigurationError(
                f"{url!r}: an artifact store is s3://bucket/prefix, gs://, az://, file:// or memory://"
            )
        if "@" in parts.netloc and parts.scheme in ("s3", "gs"):
            raise ConfigurationError("credentials do not belong into the URL: pass them as options")
        prefix = parts.path.strip("/")
        # Stores have no place for such keys, or list them under another name.
        if _ODD.search(url) or {"", ".", ".."} & set(prefix.split("/") if prefix else ()):
            raise ConfigurationError(f"{url!r}: such a prefix does not name one place: use another")
        self.url = url.rstrip("/")
        client = {"read_timeout": SILENCE, "timeout": LONGEST}
        client.update(options.get("client_options") or _client_environment(parts.scheme))
        self._options = {**options, "client_options": client}
        self._made: Any = None
        self._can_create = True

    @property
    def _store(self) -> Any:
        # The threads of obstore do not come along into a fork: a call would wait for ever.
        if _first_used.setdefault("pid", os.getpid()) != os.getpid():
            raise StorageError(
                f"{self.url}: this process was forked from one that had used an object store "
                "already, and obstore does not survive that. Fork before the first use, or spawn."
            )
        if self._made is None:
            try:
                from obstore.store import from_url
            except ImportError as error:
                raise ConfigurationError(
                    f"{self.url} needs obstore: pip install 'langgraph-durable[s3]'"
                ) from error
            try:
                self._made = from_url(self.url, **self._options)
            except Exception as error:
                raise ConfigurationError(f"{self.url}: {error}") from error
        return self._made

    def put(self, key: str, content: bytes | Opener) -> None:
        self._send(key, content, "overwrite")

    def create(self, key: str, content: bytes | Opener) -> bool:
        if not self._can_create:
            return super().create(key, content)
        try:
            self._send(key, content, "create")
        except FileExistsError:
            return False
        except _Unconditional:
            self._can_create = False
            return super().create(key, content)
        return True

    def _send(self, key: str, content: bytes | Opener, mode: str) -> None:
        import obstore

        with io.BytesIO(content) if isinstance(content, bytes) else content() as source:
            whole = isinstance(content, bytes)
            first = content if isinstance(content, bytes) else _filled(source)
            parts, large = _Parts(source, first), len(first) > PART
            body: Any = iter(parts) if large and not whole else first
            # An upload in parts has no condition: it writes the same content over itself.
            options: Any = {"mode": mode}
            if large:
                options = {"chunk_size": PART, "max_concurrency": TOGETHER}
            try:
                obstore.put(self._store, key, body, use_multipart=large, **options)
            except Exception as error:
                if mode == "create" and type(error).__name__ == "AlreadyExistsError":
                    raise FileExistsError(key) from error
                if mode == "create" and _UNCONDITIONAL.search(f"{type(error).__name__} {error}"):
                    raise _Unconditional from error
                raise parts.error or self._explained(error) from error

    def open(self, key: str) -> BinaryIO:
        import obstore

        try:
            stream = obstore.get(self._store, key).stream(min_chunk_size=CHUNK)
        except FileNotFoundError as error:
            self._check_bucket(error)
            raise KeyError(key) from error
        except Exception as error:
            raise self._explained(error) from error
        return cast("BinaryIO", _Stream(self, iter(stream)))

    def stat(self, key: str) -> Found | None:
        import obstore

        try:
            found = obstore.head(self._store, key)
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None
        except Exception as error:
            raise self._explained(error) from error
        return Found(key, found["size"], found["last_modified"].timestamp())

    def delete(self, key: str) -> None:
        import obstore

        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            pass
        except Exception as error:
            raise self._explained(error) from error

    def list(self, prefix: str) -> Iterator[Found]:
        import obstore

        try:
            for page in obstore.list(self._store, prefix=prefix):
                for one in page:
                    yield Found(one["path"], one["size"], one["last_modified"].timestamp())
        except FileNotFoundError as error:
            self._check_bucket(error)
        except Exception as error:
            raise self._explained(error) from error

    def _check_bucket(self, error: Exception) -> None:
        if _NO_BUCKET.search(str(error)):
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> StorageError:
        if isinstance(error, StorageError):
            return error
        where, text = f"artifact store {self.url}", str(error)
        if type(error).__name__ in _REFUSED or _REFUSED_TO_LIST.search(text):
            return StorageReadOnly(f"{where}: the credentials were refused ({_short(text)})")
        if isinstance(error, FileNotFoundError) or _NO_BUCKET.search(text):
            return StorageError(f"{where}: there is no such bucket ({_short(text)})")
        return ArtifactsUnreachable(f"{where}: it does not answer as it should ({_short(text)})")


def _client_environment(scheme: str) -> dict[str, str]:
    """The options of a client that the environment names; obstore reads none beside others."""
    start = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_"}.get(scheme, "AZURE_")
    found = {name: os.environ.get(start + name.upper()) for name in _CLIENT_OPTIONS}
    return {name: value for name, value in found.items() if value is not None}


def _filled(source: BinaryIO) -> bytes:
    """The begin of a stream: all of it, unless it is worth sending in parts."""
    data = b""
    while len(data) <= PART and (block := source.read(PART)):
        data += block
    return data


class _Parts:
    """A stream as parts; keeps the error that reading it has met, which obstore does not."""

    def __init__(self, source: BinaryIO, first: bytes) -> None:
        self._source, self._first = source, first
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield self._first
            while block := self._source.read(PART):
                yield block
        except Exception as error:
            self.error = error
            raise


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "..."


class _Stream(io.RawIOBase):
    """Chunks as they come from the network; `read` gives as much as there is of one."""

    def __init__(self, store: ObjectArtifacts, chunks: Iterator[Any]) -> None:
        self._store, self._chunks = store, chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def blocks(self) -> Iterator[memoryview]:
        """What is left, without a copy of it."""
        while block := self._left or self._next():
            self._left = memoryview(b"")
            yield block

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(self.blocks())
        block = self._left or self._next()
        self._left = block[size:]
        return bytes(block[:size])

    def _next(self) -> memoryview:
        try:
            return memoryview(next(self._chunks, b""))
        except Exception as error:
            raise self._store._explained(error) from error
