"""What an artifact store is: five verbs on named objects, blocking, from any thread.

Keys are made by `_core.claims` of hexadecimal digits only. A store is known by its `url`, which
holds no credentials: claims of a database lead to it, also under another configuration, so the
same URL must lead to the same objects later. `open_store` makes a store of what users pass.
"""

from __future__ import annotations

import io
import os
import time
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from langgraph_durable.errors import ConfigurationError

Opener = Callable[[], BinaryIO]
CHUNK = 1 << 20


class Found(NamedTuple):
    """An object: its key, its size and when it was written (seconds, by the store's clock)."""

    key: str
    size: int
    time: float


class ArtifactStore(ABC):
    """A place for objects; subclass it to bring your own."""

    url: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @abstractmethod
    def put(self, key: str, content: bytes | Opener) -> None:
        """Store an object whole or not at all; when this returns, it stays."""

    def create(self, key: str, content: bytes | Opener) -> bool:
        """`put`, unless the object is there; False if another writer was first.

        A store that cannot tell writes the same content over itself, as here.
        """
        self.put(key, content)
        return True

    @abstractmethod
    def open(self, key: str) -> BinaryIO:
        """The content as a stream; raises `KeyError` if there is no such object.

        It may give less than it is asked for, and nothing only at the end.
        """

    @abstractmethod
    def stat(self, key: str) -> Found | None:
        """What is there under this key, if anything."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; it may be gone already."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Found]:
        """All objects whose key begins with `prefix`, which ends in a slash."""

    def unfinished(self, prefix: str) -> Iterator[Found]:
        """What writers that were killed have left under `prefix`, where a store shows it."""
        return iter(())


class MemoryArtifacts(ArtifactStore):
    """Objects in this process; for tests, and for savers in memory.

    Those with equal URLs hold the same objects; one that is `private` has its own.
    """

    def __init__(self, url: str = "memory://", *, private: bool = False) -> None:
        self.url = url
        self._objects: dict[str, tuple[bytes, float]] = (
            {} if private else _memories.setdefault(url, {})
        )

    def put(self, key: str, content: bytes | Opener) -> None:
        data = content if isinstance(content, bytes) else content().read()
        self._objects[key] = data, time.time()

    def open(self, key: str) -> BinaryIO:
        return io.BytesIO(self._objects[key][0])

    def stat(self, key: str) -> Found | None:
        found = self._objects.get(key)
        return None if found is None else Found(key, len(found[0]), found[1])

    def delete(self, key: str) -> None:
        self._objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[Found]:
        for key, (data, when) in list(self._objects.items()):
            if key.startswith(prefix):
                yield Found(key, len(data), when)


_memories: dict[str, dict[str, tuple[bytes, float]]] = {}


def open_store(target: object) -> ArtifactStore:
    """The store that a user names: a store, a URL or a folder. Nothing is created or contacted."""
    from langgraph_durable.artifacts.files import FileArtifacts
    from langgraph_durable.artifacts.objects import SCHEMES, ObjectArtifacts

    if isinstance(target, ArtifactStore):
        return target
    if isinstance(target, os.PathLike):
        return FileArtifacts(Path(target))
    if not isinstance(target, str) or not target:
        raise ConfigurationError(
            f"artifacts is a store, a URL like s3://bucket/prefix, a folder, or None: {target!r}"
        )
    scheme = target.partition(":")[0].lower()
    if "://" not in target and scheme not in ("file", "memory", *SCHEMES):
        return FileArtifacts(target)
    try:
        parts = urllib.parse.urlsplit(target)
    except ValueError as error:
        raise ConfigurationError(f"{target!r} is not a URL: {error}") from error
    if parts.scheme == "memory" and "://" in target:
        return MemoryArtifacts(target)
    if parts.scheme == "file":
        if not parts.netloc and not parts.path.startswith("/"):
            raise ConfigurationError(f"{target!r} is not the URL of a folder: file:///folder")
        if parts.netloc not in ("", "localhost"):
            raise ConfigurationError(f"{target!r} names the host {parts.netloc!r}: file:///folder")
        return FileArtifacts(urllib.parse.unquote(parts.path))
    return ObjectArtifacts(target)
