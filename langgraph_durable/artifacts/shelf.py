"""The artifact stores of one saver: which one is written to, and where old claims lead.

A database gives every store it uses an id of its own and notes under which URLs its objects are
found (`Storage.stores`). The id is part of every key, so several databases can share a bucket:
each sees, and sweeps, its own objects only. Uploads happen before the row; an object that is there
already is *renewed* (see `sweeping`), so that a collector in another process leaves it alone, and
its size is compared: a writer that holds the content writes a broken object anew. Of the right size
it is trusted, for reading it would cost more than sharing it saves, unless this saver has seen it
broken (`doubt`).
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar, cast

from langgraph_durable._core.claims import PLAIN, Claim
from langgraph_durable._core.kinds import Unstorable
from langgraph_durable._core.offload import UnknownStore, Upload
from langgraph_durable._core.storage import Storage
from langgraph_durable._core.units import shown_bytes
from langgraph_durable.artifacts import media, places, sweeping
from langgraph_durable.artifacts.files import BESIDE, FileArtifacts
from langgraph_durable.artifacts.handle import Artifact
from langgraph_durable.artifacts.stores import ArtifactStore, Found, open_store
from langgraph_durable.errors import (
    ArtifactCorrupt,
    ArtifactMissing,
    ConfigurationError,
    DurableError,
    SerializationError,
)

T = TypeVar("T")
R = TypeVar("R")

OFFLOAD_ABOVE = 256 << 10
Artifacts = ArtifactStore | str | os.PathLike[str] | Sequence[Any] | None
PARALLEL = 8
FRESH = 60.0
"""Seconds for which what this saver has uploaded or renewed counts as just used."""
MOST_FRESH = 100_000


class Shelf:
    """See the top of the file."""

    def __init__(
        self,
        target: ArtifactStore | None,
        others: Iterable[ArtifactStore] = (),
        *,
        above: int = OFFLOAD_ABOVE,
        placeholder: bool = False,
    ) -> None:
        self.target = target
        self.writes = target is not None
        self.above: float = above if target is not None else math.inf
        self.store = ""
        self.is_ready = self.is_entered = self.is_behind = False
        self._placeholder = placeholder
        self._by_url = {store.url: store for store in (*others, *((target,) if target else ()))}
        self._names: dict[str, tuple[str, ...]] = {}
        self._fresh: dict[Claim, float] = {}
        self._broken: set[Claim] = set()
        self._missed: dict[Claim, int] = {}
        self._readings = 0
        self.has_news = False
        self.ask: Callable[[], bool] | None = None
        """Does a `refresh` as a call of its own; the saver knows how."""

    @classmethod
    def of(cls, store: str, urls: tuple[str, ...]) -> Shelf:
        """One that only reads, what is found under these URLs."""
        made = cls(None)
        made._names[store] = urls
        return made

    # ---- names -------------------------------------------------------------------------------

    async def prepare(self, storage: Storage) -> None:
        """Find the id of the store that is written to; a new one if it was never used."""
        await self.refresh(storage)
        target = self.target
        if target is not None and not self.is_ready:
            own = sorted(id for id, urls in self._names.items() if urls[:1] == (target.url,))
            self.is_entered = bool(own)
            self.store = own[0] if own else secrets.token_hex(8)
            self._names.setdefault(self.store, (target.url,))
            self.is_ready = True

    async def enter(self, storage: Storage) -> None:
        """Note the id in the database, before the first object is there."""
        assert self.target is not None
        await storage.enter_store(self.store, (self.target.url,))
        self.is_entered = True

    async def refresh(self, storage: Storage, unknown: str | None = None) -> bool:
        """Read the names again, and whether they have changed; what is unknown then is nowhere."""
        found = await storage.stores()
        if unknown is not None:
            found.setdefault(unknown, ())
        is_news = any(self._names.get(id) != urls for id, urls in found.items())
        self._names.update(found)
        self.is_behind = False
        self._readings += 1
        if is_news or len(self._missed) > MOST_FRESH:
            self._missed.clear()
        return is_news

    def look_again(self) -> bool:
        """What is missing may have been moved by another process: whether to look again."""
        try:
            return self.ask is not None and self.ask()
        except DurableError:  # closed, or not for sync calls
            return False

    def stores_of(self, store: str) -> list[ArtifactStore]:
        """Where the objects of a store are found, the best place first."""
        urls = self._names.get(store)
        if urls is None:
            raise UnknownStore(store)
        return [self.at(url) for url in urls]

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return dict(self._names)

    def urls_of(self, claim: Claim) -> tuple[str, ...]:
        """The URLs by which other processes find the content of a claim."""
        return tuple(places.shown_to_others(store) for store in self.stores_of(claim.store))

    def know(self, store: ArtifactStore) -> None:
        """Use this very store for its URL."""
        self._by_url[store.url] = store

    def at(self, url: str) -> ArtifactStore:
        found = self._by_url.get(url)
        if found is None:
            if url.startswith((BESIDE, "memory:private")):
                raise ArtifactMissing(
                    f"the artifacts of this database are in the folder beside its file ({url}), "
                    "which this saver does not know: open it by its path"
                )
            found = self._by_url[url] = places.open_place(url, self.at)
        return found

    # ---- writing -----------------------------------------------------------------------------

    def claim_on(self, raw: bytes, sha: bytes) -> Claim:
        return Claim(self.store, sha, len(raw), media.packing_of(raw))

    def claim_for(self, handle: Artifact) -> Claim:
        """The claim of a handle: its own if this database has given it, else a new one."""
        own = handle._claim
        if own is not None and (self._keeps(own.store) or handle._shelf is self):
            return own
        if not self.writes:
            raise Unstorable("an Artifact needs a saver with an artifact store: pass artifacts=")
        packing = media.packing_for(handle.media_type)
        return Claim(self.store, handle._digest(), handle.size, packing)

    def _keeps(self, store: str) -> bool:
        """Whether this database has the objects of a store, not only the loan of them."""
        urls = self._names.get(store)
        return urls is not None and not (urls and all(map(places.is_lent, urls)))

    def keep(self, uploads: Sequence[Upload]) -> None:
        """Have all of these in their stores, several at once."""
        now = time.monotonic()
        fresh: list[Upload] = []
        old: list[Upload] = []
        for each in uploads:
            is_fresh = now - self._fresh.get(each.claim, -FRESH) < FRESH
            (fresh if is_fresh else old).append(each)
        in_parallel(self._keep, old)
        self.confirm(fresh)  # a collector may have a shorter grace
        if len(self._fresh) > MOST_FRESH:
            self._fresh.clear()

    def renew(self, claims: Iterable[Claim]) -> None:
        """Keep these from being collected for now, as far as they are there."""

        def one(claim: Claim) -> None:
            any(_renewed(store, claim.key) for store in self.stores_of(claim.store))

        in_parallel(one, list(claims))

    def confirm(self, uploads: Sequence[Upload]) -> None:
        """Have again what a collector has taken; after the rows it is the last that could."""

        def one(upload: Upload) -> None:
            key = upload.claim.key
            _, found_in = self._places(upload.claim)
            if not any(_stays(store, key) for store in found_in):
                self._keep(upload)

        in_parallel(one, uploads)

    def _places(self, claim: Claim) -> tuple[list[ArtifactStore], list[ArtifactStore]]:
        """The stores that are written to for a claim, and those where its object counts."""
        stores = self.stores_of(claim.store)
        mine = [store for store in stores if not isinstance(store, places.Lent)]
        return mine, mine or stores

    def _keep(self, upload: Upload) -> None:
        claim = upload.claim
        mine, found_in = self._places(claim)
        began, is_tried = time.monotonic(), False
        while not any(self._is_there(store, upload) for store in found_in):
            content = _content(upload)
            if content is None or not mine:
                raise self._missing(claim)
            write = mine[0].put if is_tried else mine[0].create
            if write(claim.key, media.packed(content, claim.packing)) is not False:
                self._broken.discard(claim)
                break
            is_tried = True  # another writer was first, or what is there is broken
        self._fresh[claim] = began
        if isinstance(upload.content, Artifact):
            upload.content.is_stored(self, claim)

    def _is_there(self, store: ArtifactStore, upload: Upload) -> bool:
        """Whether an object is in a store, renewed, and whole as far as it is cheap to know."""
        claim = upload.claim
        found = _renewed(store, claim.key)
        if found is None:
            return False
        if claim not in self._broken and _fits(found, upload):
            return True
        if self.is_whole(store, claim):
            self._broken.discard(claim)
            return True
        return False

    def is_whole(self, store: ArtifactStore, claim: Claim) -> bool:
        """Whether the object of a claim is in a store as it should be; it is read."""
        try:
            media.verify(store.open(claim.key), claim, self._where(store, claim))
        except (KeyError, ArtifactCorrupt):
            return False
        return True

    def doubt(self, claim: Claim) -> None:
        """Its object was found missing or altered: who stores the content again looks closely."""
        if claim not in self._broken:
            self._broken.add(claim)
            self._fresh.pop(claim, None)
            self.has_news = True

    def broken(self) -> list[Claim]:
        """Whose objects were found missing or altered, and can be written anew."""
        return [claim for claim in list(self._broken) if self._places(claim)[0]]

    def forget(self) -> None:
        """What was used lately may be gone: a collector was here."""
        self._fresh.clear()

    # ---- reading -----------------------------------------------------------------------------

    def meet(self, claim: Claim) -> None:
        """A handle was loaded; its store may have been entered since the names were read."""
        if claim.store not in self._names:
            self.is_behind = True

    def fetch(self, claims: Sequence[Claim]) -> list[bytes | None]:
        """The contents; None for one that is missing, where a placeholder is wanted.

        Another process may have moved it, so it is missing once the names were read again.
        """
        for claim in claims:
            self.stores_of(claim.store)
        found = in_parallel(self._fetch, claims)
        lost = [claim for claim, data in zip(claims, found, strict=True) if data is None]
        now = self._readings
        for store in [each.store for each in lost if self._missed.setdefault(each, now) == now]:
            raise UnknownStore(store)
        if lost and not self._placeholder:
            raise self._missing(lost[0])
        return found

    def _fetch(self, claim: Claim) -> bytes | None:
        try:
            return self.read(claim)
        except ArtifactMissing:
            return None

    def read(self, claim: Claim) -> bytes:
        return self._first(
            claim,
            lambda store: media.read_all(store.open(claim.key), claim, self._where(store, claim)),
        )

    def open(self, claim: Claim) -> BinaryIO:
        return self._first(claim, lambda store: self._checked(store, claim))

    def _checked(self, store: ArtifactStore, claim: Claim) -> BinaryIO:
        where = self._where(store, claim)
        return cast("BinaryIO", media.Checked(store.open(claim.key), claim, where))

    def save(self, claim: Claim, file: BinaryIO) -> None:
        """Write the content to a file."""

        def copy(store: ArtifactStore) -> None:
            file.seek(0)
            file.truncate()
            media.verify(store.open(claim.key), claim, self._where(store, claim), file)

        self._first(claim, copy)

    def copy(self, claim: Claim, place: ArtifactStore) -> None:
        """Write the object into another store."""

        def act(store: ArtifactStore) -> None:
            source = self._checked(store, claim)
            place.put(claim.key, media.packed(lambda: source, claim.packing))

        self._first(claim, act)

    def check(self, claim: Claim) -> None:
        """Read the content; raises what is wrong with it."""
        self._first(
            claim,
            lambda store: media.verify(store.open(claim.key), claim, self._where(store, claim)),
        )

    def _first(self, claim: Claim, act: Callable[[ArtifactStore], R]) -> R:
        """From the first store that has it whole."""
        corrupt: ArtifactCorrupt | None = None
        for store in self.stores_of(claim.store):
            try:
                return act(store)
            except KeyError:
                continue
            except ArtifactCorrupt as error:
                corrupt = corrupt or error
        self.doubt(claim)
        raise corrupt or self._missing(claim)

    def shown(self, url: str) -> str:
        """A place as people know it."""
        beside = self._by_url.get(BESIDE)
        if not url.endswith(BESIDE) or not isinstance(beside, FileArtifacts):
            return url
        return url.removesuffix(BESIDE) + beside.folder.as_uri()

    def _where(self, store: ArtifactStore, claim: Claim) -> str:
        return f"artifact {claim.key} in {self.shown(store.url)}"

    def _missing(self, claim: Claim) -> ArtifactMissing:
        urls = ", ".join(map(self.shown, self._names.get(claim.store, ())))
        urls = urls or "a store that is not known any more"
        return ArtifactMissing(
            f"the artifact {claim.key} ({shown_bytes(claim.size)}) is not in {urls}. Bring the "
            "object back from a backup, store the same content again, or open the saver with "
            'on_missing_artifact="placeholder" to look at the rest.'
        )


def _renewed(store: ArtifactStore, key: str) -> Found | None:
    if isinstance(store, places.Lent):  # its owner keeps it, or does not
        return store.stat(key)
    return sweeping.renew(store, key)


def _stays(store: ArtifactStore, key: str) -> bool:
    if isinstance(store, places.Lent):
        return store.stat(key) is not None
    return sweeping.stays(store, key) is not None


def _fits(found: Found, upload: Upload) -> bool:
    """Whether an object has the size it should have.

    What is compressed does not tell, so it is packed again; another release of zstd may make
    another size of it. What was stored already is at hand nowhere but in the store.
    """
    content, claim = upload.content, upload.claim
    is_at_hand = not isinstance(content, Artifact) or content._shelf is None
    if claim.packing == PLAIN or not found.size or not is_at_hand:
        return media.is_plausible(found, claim)
    return found.size == media.length(media.packed(_content(upload), claim.packing))


def in_parallel(act: Callable[[T], R], some: Sequence[T]) -> list[R]:
    if len(some) < 2:
        return [act(each) for each in some]
    with ThreadPoolExecutor(min(PARALLEL, len(some))) as pool:
        return list(pool.map(act, some))


def _content(upload: Upload) -> Any:
    content = upload.content
    if not isinstance(content, Artifact):
        return content
    handle = content
    source = handle._source
    if isinstance(source, bytes) or (source is None and handle._shelf is None):
        return source
    return lambda: _Same(handle.upload(), upload.claim, source or handle)


class _Same:
    """A file on its way to the store: it must still be what was hashed; long ones are logged."""

    def __init__(self, file: BinaryIO, claim: Claim, path: Any) -> None:
        self._file, self._claim, self._path = file, claim, path
        self._hash = hashlib.sha256()
        self._telling = media.Telling(f"storing {path}", claim.size)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        self._telling.add(len(data))
        if (not data or size < 0) and self._hash.digest() != self._claim.sha:
            raise SerializationError(f"{self._path} has changed while it was being stored")
        return data

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> _Same:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def shelf_for(
    artifacts: object,
    default: ArtifactStore | None,
    *,
    offload_above: int,
    on_missing_artifact: object,
) -> Shelf:
    """The shelf that the options of a saver ask for; "default" is the backend's own store."""
    if on_missing_artifact not in ("raise", "placeholder"):
        raise ConfigurationError(
            f'on_missing_artifact is "raise" or "placeholder", not {on_missing_artifact!r}'
        )
    several = list(artifacts) if isinstance(artifacts, (list, tuple)) else [artifacts]
    if not several:
        raise ConfigurationError("artifacts is a store, a list of stores, or None")
    stores = [default if each == "default" else each for each in several]
    opened = [None if each is None else open_store(each) for each in stores]
    if None in opened[1:]:
        raise ConfigurationError("artifacts: only the first store of a list may be None")
    others = [store for store in (*opened[1:], default) if store is not None]
    return Shelf(
        opened[0],
        others,
        above=offload_above,
        placeholder=on_missing_artifact == "placeholder",
    )
