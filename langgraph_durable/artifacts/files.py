"""Artifacts as files: written under a temporary name, synced, renamed, and the folder synced.

After `put` returns a power cut takes nothing back. A file is as private as the folder, and the one
beside a database as the database was when the folder was made. On a disk that is full to the last
byte a link takes the place of a collector's mark, so that it can make room. Names come from hashes;
a file that something else has put into the folder is never opened, listed or removed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from langgraph_durable.artifacts.stores import CHUNK, ArtifactStore, Found, Opener
from langgraph_durable.errors import (
    ArtifactsUnreachable,
    ConfigurationError,
    StorageError,
    StorageFull,
    StorageReadOnly,
)

BESIDE = "beside:"
"""The URL of the folder beside a database, wherever both are moved to."""
_TEMPORARY = re.compile(r"/\.lgd-\w+\.tmp$")
_LINK, _SMALL = "lgd:", 20
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What a file system without room says."""
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


class FileArtifacts(ArtifactStore):
    """A folder of artifacts; made when the first one is stored.

    Example:
        >>> SqliteSaver("agent.db", artifacts=FileArtifacts("/data/artifacts"))   # doctest: +SKIP
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        url: str | None = None,
        like: str | os.PathLike[str] | None = None,
    ) -> None:
        text = os.fspath(folder)
        if not text or "\0" in text:
            raise ConfigurationError(f"{folder!r} is not the path of a folder")
        self.folder = Path(os.path.abspath(text))
        self.url = url or self.folder.as_uri()
        self._like = like

    def put(self, key: str, content: bytes | Opener) -> None:
        path = self.folder / key
        temporary = None
        try:
            self._make(path.parent)
            handle, temporary = tempfile.mkstemp(".tmp", ".lgd-", path.parent)
            with open(handle, "wb", buffering=0) as file:
                _permit(temporary, os.stat(self.folder).st_mode & 0o666)
                _write(file, content)
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync(path.parent)
        except OSError as error:
            if error.errno not in FULL or not _linked(path, content):
                raise self._explained(error) from error
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        new = [above for above in (folder, *folder.parents) if not above.is_dir()]
        folder.mkdir(parents=True, exist_ok=True)
        if self.folder in new and self._like is not None and os.path.exists(self._like):
            mode = os.stat(self._like).st_mode & 0o666
            _permit(self.folder, mode | (mode & 0o444) >> 2)  # who reads it may enter
        for each in new:
            if self.folder in each.parents:
                _permit(each, stat.S_IMODE(os.stat(self.folder).st_mode))
            _sync(each.parent)  # a new folder is an entry of the one above

    def open(self, key: str) -> BinaryIO:
        try:
            return open(self.folder / key, "rb")
        except FileNotFoundError as error:
            small = _link(self.folder / key)
            if small is None:
                raise KeyError(key) from error
            return io.BytesIO(small)
        except OSError as error:
            raise self._explained(error) from error

    def stat(self, key: str) -> Found | None:
        try:
            found = os.stat(self.folder / key)
        except FileNotFoundError:
            if _link(self.folder / key) is None:
                return None
            found = os.lstat(self.folder / key)
        except OSError as error:
            raise self._explained(error) from error
        return Found(key, found.st_size, found.st_mtime)

    def delete(self, key: str) -> None:
        try:
            os.unlink(self.folder / key)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._explained(error) from error

    def list(self, prefix: str) -> Iterator[Found]:
        return (one for one in self._entries(prefix) if not _TEMPORARY.search(one.key))

    def unfinished(self, prefix: str) -> Iterator[Found]:
        return (one for one in self._entries(prefix) if _TEMPORARY.search(one.key))

    def _entries(self, prefix: str) -> Iterator[Found]:
        root = self.folder / prefix
        if not root.is_dir():
            return
        for shelf in sorted(os.scandir(root), key=lambda entry: entry.name):
            if shelf.is_dir(follow_symlinks=False):
                for entry in os.scandir(shelf.path):
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        key = f"{prefix}{shelf.name}/{entry.name}"
                        yield Found(key, found.st_size, found.st_mtime)

    def _explained(self, error: OSError) -> StorageError:
        where = f"artifact store {self.folder}"
        if error.errno in FULL:
            return StorageFull(f"{where}: there is no room left ({error}). Nothing was written.")
        if error.errno in _READ_ONLY:
            return StorageReadOnly(f"{where}: this process may not use it ({error})")
        return ArtifactsUnreachable(f"{where}: {error}")


def _linked(path: Path, content: bytes | Opener) -> bool:
    """Store a few bytes on a full disk: in the name that a link leads to, which takes no room.

    So a collector can leave its marks there, and make room.
    """
    if not isinstance(content, bytes) or not 0 < len(content) <= _SMALL:
        return False
    temporary = path.with_name(f".lgd-{secrets.token_hex(8)}.tmp")
    try:
        os.symlink(_LINK + content.hex(), temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except (OSError, NotImplementedError):
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True


def _link(path: Path) -> bytes | None:
    """What `_linked` has stored."""
    try:
        target = os.readlink(path)
        return bytes.fromhex(target.removeprefix(_LINK)) if target.startswith(_LINK) else None
    except (OSError, ValueError):
        return None


def _write(file: BinaryIO, content: bytes | Opener) -> None:
    if isinstance(content, bytes):
        view = memoryview(content)
        while view:
            view = view[file.write(view) :]
        return
    with content() as source:
        while block := source.read(CHUNK):
            _write(file, block)


def _permit(path: str | Path, mode: int) -> None:
    with contextlib.suppress(OSError):  # not every file system has modes
        os.chmod(path, mode)


def _sync(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows has no handles of folders
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
