"""`Artifact`: a light handle on content that stays in its store until somebody asks for it.

Inside a value a handle is stored as a claim, a name and a media type; the content is uploaded
before the row that claims it. A loaded handle lies on the shelf of the saver it came from, and
reads through it, verifying what it reads. One that was made here keeps its source, and knows its
shelf too as soon as it is stored: the file it was made from may change or go then.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from langgraph_durable._core import claims, seal
from langgraph_durable._core.claims import Claim
from langgraph_durable._core.kinds import ARTIFACT, Pack, Unstorable, Value
from langgraph_durable._core.plans import register
from langgraph_durable.artifacts import media, show
from langgraph_durable.artifacts.stores import CHUNK
from langgraph_durable.errors import (
    ArtifactCorrupt,
    ArtifactMissing,
    ConfigurationError,
    CorruptionError,
    SerializationError,
)

R = TypeVar("R")
IN_MEMORY = 16 << 20
"""Contents up to this size are opened in memory, larger ones in a temporary file."""


class Reader(Protocol):
    def open(self, claim: Claim) -> BinaryIO: ...
    def save(self, claim: Claim, file: BinaryIO) -> None: ...
    def read(self, claim: Claim) -> bytes: ...
    def meet(self, claim: Claim) -> None: ...
    def urls_of(self, claim: Claim) -> tuple[str, ...]: ...
    def look_again(self) -> bool: ...


class Artifact:
    """Content with a name and a media type, kept outside of the state.

    Equal artifacts have equal content, name and media type. An artifact never changes; a file it
    was made from must not change before it is stored.

    Example:
        >>> Artifact.from_bytes(b"hello", media_type="text/plain", name="hello.txt")
        <Artifact hello.txt, text/plain, 5 B>
    """

    __slots__ = (
        *("_claim", "_sha", "_shelf", "_size", "_source", "_where"),
        *("media_type", "name"),
    )

    name: str | None
    media_type: str

    def __init__(self) -> None:
        raise ConfigurationError("make an Artifact with from_file, from_bytes or from_text")

    @classmethod
    def _new(cls, name: object, media_type: object) -> Artifact:
        if name is not None and not isinstance(name, str):
            raise ConfigurationError(f"the name of an artifact is a str, not {name!r}")
        if media_type is None:
            media_type = media.media_type_of(name)
        if not isinstance(media_type, str) or not media_type:
            raise ConfigurationError(f"a media type is like 'image/png', not {media_type!r}")
        made = object.__new__(cls)
        made.name, made.media_type = name, media_type
        made._claim = made._shelf = made._source = made._sha = made._size = None
        made._where = ""
        return made

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, media_type: str | None = None, name: str | None = None
    ) -> Artifact:
        """The content of a file; it is read when the artifact is stored."""
        if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
            raise ConfigurationError(f"from_file takes the path of a file, not {path!r}")
        source = Path(os.path.abspath(path))
        if not source.is_file():
            raise ConfigurationError(f"there is no file {source}")
        made = cls._new(name or source.name, media_type)
        made._source = source
        return made

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        *,
        media_type: str | None = None,
        name: str | None = None,
    ) -> Artifact:
        """Content that is at hand."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ConfigurationError(f"from_bytes takes bytes, not {type(data).__name__}")
        made = cls._new(name, media_type)
        made._source = bytes(data)
        return made

    @classmethod
    def from_text(
        cls, text: str, *, media_type: str = "text/plain", name: str | None = None
    ) -> Artifact:
        """A text, as UTF-8."""
        if not isinstance(text, str):
            raise ConfigurationError(f"from_text takes a str, not {type(text).__name__}")
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"from_text takes what UTF-8 can say: {error}") from error
        return cls.from_bytes(data, media_type=media_type, name=name)

    _claim: Claim | None
    _shelf: Reader | None
    _source: Path | bytes | None
    _sha: bytes | None
    _size: int | None
    _where: str
    """The thread, checkpoint and channel it was loaded from, for errors."""

    # ---- what it is --------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of the content."""
        if self._size is None:
            source = self._source
            self._size = source.stat().st_size if isinstance(source, Path) else len(source or b"")
        return self._size

    @property
    def sha256(self) -> str:
        """The SHA-256 of the content, in hexadecimal."""
        return self._digest().hex()

    def _digest(self) -> bytes:
        if self._sha is None:
            if isinstance(self._source, Path):
                with self._source.open("rb") as file:
                    self._sha = hashlib.file_digest(file, "sha256").digest()
            else:
                self._sha = hashlib.sha256(self._source or b"").digest()
        return self._sha

    def __repr__(self) -> str:
        return f"<Artifact {show.described(self)}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Artifact):
            return NotImplemented
        mine, others = (self.name, self.media_type), (other.name, other.media_type)
        return mine == others and self._digest() == other._digest()

    def __hash__(self) -> int:
        return hash((self.name, self.media_type, self._digest()))

    def __copy__(self) -> Artifact:
        return self

    def __deepcopy__(self, memo: object) -> Artifact:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """For other processes: what is stored goes by its place, bytes at hand by value.

        The place must be one that others can open, with credentials from their environment, and
        the content is there as long as a thread needs it.
        """
        urls: tuple[str, ...] = ()
        if self._claim is not None and not isinstance(self._source, bytes):
            urls = self._reader().urls_of(self._claim)
        state = (self._source, self._claim, self._sha, self._size, self._where)
        return _restored, (self.name, self.media_type, state, urls)

    # ---- reading -----------------------------------------------------------------------------

    def open(self) -> BinaryIO:
        """The content as a file that can be read and sought, verified before you get it.

        Raises:
            ArtifactMissing: it is not in its store.
            ArtifactCorrupt: it is not what was stored.
        """
        if isinstance(self._source, bytes):
            return io.BytesIO(self._source)
        if isinstance(self._source, Path) and (file := self._file(self._source)) is not None:
            return file
        held = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        try:
            self._from_store(lambda shelf, claim: shelf.save(claim, cast("BinaryIO", held)))
            held.seek(0)
        except BaseException:
            held.close()
            raise
        return held  # type: ignore[return-value]

    def read(self) -> bytes:
        """The whole content, verified."""
        if self._source is not None:
            with self.open() as file:
                return file.read()
        return self._from_store(lambda shelf, claim: shelf.read(claim))

    async def aread(self) -> bytes:
        """`read`, off the event loop."""
        return await asyncio.to_thread(self.read)

    async def aopen(self) -> BinaryIO:
        """`open`, off the event loop."""
        return await asyncio.to_thread(self.open)

    def path(self) -> Path:
        """The content as a local file: a copy that stays until this process ends.

        Who asks again gets the same one, unless it was changed.
        """
        known = self._digest(), _file_name(self.name or "")
        kept = _copies.get(known)
        if kept is None or kept[1] != _state(kept[0]):
            folder = tempfile.TemporaryDirectory(prefix="lgd-artifact-")
            path = Path(folder.name) / known[1]
            with self.open() as source, path.open("wb") as file:
                while block := source.read(CHUNK):
                    file.write(block)
            _folders.append(folder)  # not with the handle: the path may outlive it
            kept = _copies[known] = path, _state(path)
        return kept[0]

    async def apath(self) -> Path:
        """`path`, off the event loop."""
        return await asyncio.to_thread(self.path)

    def text(self) -> str:
        """The content as UTF-8 text."""
        return self.read().decode()

    def data_url(self) -> str:
        """The content as a data URL."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.read()).decode()}"

    def as_content(self) -> dict[str, Any]:
        """A content block for a LangChain message: image, audio, video, text or file.

        Example:
            >>> HumanMessage([{"type": "text", "text": "?"}, art.as_content()])   # doctest: +SKIP
        """
        media_type = media.essence(self.media_type)
        kind = media_type.partition("/")[0]
        if kind == "text":
            return {"type": "text", "text": self.text()}
        block = {
            "type": kind if kind in ("image", "audio", "video") else "file",
            "base64": base64.b64encode(self.read()).decode(),
            "mime_type": media_type,
        }
        return (
            block
            if self.name is None or block["type"] != "file"
            else {**block, "filename": self.name}
        )

    def _from_store(self, act: Callable[[Reader, Claim], R]) -> R:
        with self._named():
            shelf, claim = self._reader(), self._known()
            try:
                return act(shelf, claim)
            except ArtifactMissing:
                if not shelf.look_again():
                    raise
                return act(shelf, claim)

    def _reader(self) -> Reader:
        if self._shelf is None:
            raise ArtifactMissing(f"{self!r} was not loaded by a saver, so its store is not known")
        return self._shelf

    def _known(self) -> Claim:
        assert self._claim is not None
        return self._claim

    def _file(self, source: Path) -> BinaryIO | None:
        """The file it was made from; None if it is stored, and the file is not what it was."""
        if self._shelf is None:
            return source.open("rb")
        try:
            file = source.open("rb")
            if hashlib.file_digest(file, "sha256").digest() == self._sha:
                file.seek(0)
                return file
            file.close()
        except OSError:
            pass
        return None

    def upload(self) -> BinaryIO:
        """The content on its way to a store, from where it is at hand."""
        if isinstance(self._source, Path):
            try:
                file = self._file(self._source)
            except OSError as error:
                raise SerializationError(f"{self!r} cannot be read: {error}") from error
            if file is not None:
                return file
        return self._reader().open(self._known())

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors say which thread, checkpoint and channel the handle came from."""
        try:
            yield
        except (ArtifactMissing, ArtifactCorrupt) as error:
            error.args = (f"{self._where}{error}", *error.args[1:])
            raise

    def lie_on(self, shelf: Reader) -> None:
        """It was loaded: the content is found there."""
        self._shelf, self._where = shelf, claims.place()
        shelf.meet(self._known())

    def is_stored(self, shelf: Reader, claim: Claim) -> None:
        """It was stored just now: the content is found there too."""
        if self._claim is None:
            self._shelf, self._claim = shelf, claim

    # ---- pydantic: a field of a state that is a model, and the schema of a graph ---------------

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        told = core_schema.plain_serializer_function_ser_schema(cls._told, when_used="json")
        return core_schema.is_instance_schema(cls, serialization=told)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "object", "title": cls.__name__}

    def _told(self) -> dict[str, Any]:
        """What JSON says of it, without the content."""
        told = {"name": self.name, "media_type": self.media_type, "size": self.size}
        return {**told, "sha256": self.sha256}

    # ---- showing -----------------------------------------------------------------------------

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": show.html(self)}

    def _lgd_html_(self) -> str:
        return show.html(self)


_copies: dict[tuple[bytes, str], tuple[Path, tuple[int, int] | None]] = {}
"""The local files that were asked for, by content and name, and their state when they were made."""
_folders: list[tempfile.TemporaryDirectory[str]] = []


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _file_name(name: str) -> str:
    """The last part of a name, as a file can have it: it may come from anybody."""
    last = os.path.basename(name.replace("\\", "/")).replace("\0", "")
    last = last.encode(errors="replace")[-200:].decode(errors="ignore")
    return "artifact" if last in ("", ".", "..") else last


def _restored(
    name: str | None, media_type: str, state: tuple[Any, ...], urls: tuple[str, ...]
) -> Artifact:
    """A handle that was pickled."""
    from langgraph_durable.artifacts.shelf import Shelf

    made = Artifact._new(name, media_type)
    made._source, made._claim, made._sha, made._size, made._where = state
    if made._claim is not None and urls:
        made._shelf = Shelf.of(made._claim.store, urls)
    else:
        made._claim = None
    return made


# ---- storing -------------------------------------------------------------------------------------


def _take(artifact: Artifact, pack: Pack) -> list[Any]:
    try:
        claim = claims.collect(artifact)
    except OSError as error:
        raise Unstorable(f"{artifact!r} cannot be read: {error}") from error
    if claim is None:
        raise Unstorable("an Artifact is stored in channels only, by a saver")
    return [claim.packed(), artifact.name, artifact.media_type]


def _make(cls: type, inner: list[Any]) -> Artifact:
    packed, name, media_type = inner
    try:
        made = Artifact._new(name, media_type)
        made._claim = claims.unpack(packed)
    except (seal.Damaged, ConfigurationError) as error:
        raise CorruptionError(f"a stored artifact cannot be read: {error}") from error
    made._sha, made._size = made._claim.sha, made._claim.size
    return made


register(Value(ARTIFACT, Artifact, _take, _make))
