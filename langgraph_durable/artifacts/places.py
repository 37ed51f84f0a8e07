"""Where the objects of a store's id lie, as a database notes it.

    <url>               a store; its objects under this id are the database's own
    guest-<digits>:<url>  a folder in a store, for contents that came from another database
    lent:<url>          a place of another database: read, never written to, never swept

Threads that come from another database bring their claims as they are, with the other's id. Under
that id the other one sweeps, and so may a third one that has taken in the same threads; so what
comes in gets a folder that only this database knows of, whatever bucket they all share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from langgraph_durable.artifacts.files import FileArtifacts
from langgraph_durable.artifacts.stores import ArtifactStore, Found, Opener, open_store
from langgraph_durable.errors import ConfigurationError, StorageReadOnly

_LENT = "lent:"
_GUEST = re.compile(r"guest-([0-9a-f]{16}):(.+)", re.DOTALL)


def guest(token: str, url: str) -> str:
    return f"guest-{token}:{url}"


def lent(url: str) -> str:
    return _LENT + url


def is_lent(url: str) -> bool:
    return url.startswith(_LENT)


def is_own(urls: Iterable[str]) -> bool:
    """Whether an id with these places is the database's own."""
    return any(not is_lent(url) and _GUEST.fullmatch(url) is None for url in urls)


def token_of(urls: Iterable[str]) -> str | None:
    """The folder that an id of another database has been given already."""
    found = (_GUEST.fullmatch(url) for url in urls if not is_lent(url))
    return next((match[1] for match in found if match is not None), None)


def open_place(url: str, at: Callable[[str], ArtifactStore]) -> ArtifactStore:
    """The store at a place; `at` gives those that are within it."""
    if is_lent(url):
        return Lent(at(url.removeprefix(_LENT)))
    if (match := _GUEST.fullmatch(url)) is not None:
        return Guest(match[1], at(match[2]))
    try:
        return open_store(url)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"artifacts of this database are in {url}, and this saver has no such store: add it, "
            f"artifacts=[..., store] ({error})"
        ) from error


def shown_to_others(store: ArtifactStore) -> str:
    """The URL by which another database finds what is in a store."""
    if isinstance(store, Lent):
        return shown_to_others(store.inner)
    if isinstance(store, Guest):
        return guest(store.token, shown_to_others(store.inner))
    if isinstance(store, FileArtifacts):  # also the one that is noted as `beside:`
        return store.folder.as_uri()
    if store.url.startswith("memory:private"):
        raise ConfigurationError(
            "the artifacts of a saver in memory cannot be found by others: include them"
        )
    return store.url


class Guest(ArtifactStore):
    """A folder in another store."""

    def __init__(self, token: str, inner: ArtifactStore) -> None:
        self.url = guest(token, inner.url)
        self.token, self.inner = token, inner
        self._folder = f"lgd-guest-{token}/"

    def put(self, key: str, content: bytes | Opener) -> None:
        self.inner.put(self._folder + key, content)

    def create(self, key: str, content: bytes | Opener) -> bool:
        return self.inner.create(self._folder + key, content)

    def open(self, key: str) -> BinaryIO:
        return self.inner.open(self._folder + key)

    def stat(self, key: str) -> Found | None:
        found = self.inner.stat(self._folder + key)
        return None if found is None else found._replace(key=key)

    def delete(self, key: str) -> None:
        self.inner.delete(self._folder + key)

    def list(self, prefix: str) -> Iterator[Found]:
        for found in self.inner.list(self._folder + prefix):
            yield found._replace(key=found.key.removeprefix(self._folder))

    def unfinished(self, prefix: str) -> Iterator[Found]:
        for found in self.inner.unfinished(self._folder + prefix):
            yield found._replace(key=found.key.removeprefix(self._folder))


class Lent(ArtifactStore):
    """A store of another database, to read from."""

    def __init__(self, inner: ArtifactStore) -> None:
        self.url = lent(inner.url)
        self.inner = inner

    def put(self, key: str, content: bytes | Opener) -> None:
        raise StorageReadOnly(f"artifact store {self.inner.url}: it belongs to another database")

    def open(self, key: str) -> BinaryIO:
        return self.inner.open(key)

    def stat(self, key: str) -> Found | None:
        return self.inner.stat(key)

    def delete(self, key: str) -> None:
        raise StorageReadOnly(f"artifact store {self.inner.url}: it belongs to another database")

    def list(self, prefix: str) -> Iterator[Found]:
        return self.inner.list(prefix)
