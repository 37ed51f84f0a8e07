"""What is worth compressing, and how contents are packed and unpacked without trusting them.

A media type decides for an `Artifact`; an offloaded value is tried on a sample. The packing is part
of an object's name, so one content under two rules is two objects, and neither is misread.
"""

from __future__ import annotations

import hashlib
import io
import logging
import mimetypes
import os
import time
from typing import Any, BinaryIO

import zstandard

from langgraph_durable._core.claims import PLAIN, ZSTD, Claim
from langgraph_durable._core.units import shown_bytes
from langgraph_durable.artifacts.stores import CHUNK, Found, Opener
from langgraph_durable.errors import ArtifactCorrupt

logger = logging.getLogger("langgraph_durable")
UNKNOWN = "application/octet-stream"
LEVEL = 1
SAMPLE = 32 << 10
TELL = 5.0
"""Seconds after which a long transfer is logged, and again."""
_COMPRESSIBLE = (
    *("text/", "application/json", "application/x-ndjson", "application/xml", "application/yaml"),
    *("application/javascript", "image/svg", "image/bmp", "image/tiff", "application/sql"),
    *("application/x-npy", "application/vnd.apache.arrow", "application/toml", "audio/wav"),
)
_OFFICE = "application/vnd.openxmlformats-officedocument"
_KNOWN = {
    **dict.fromkeys((".md", ".markdown"), "text/markdown"),
    **dict.fromkeys((".yaml", ".yml"), "application/yaml"),
    **dict.fromkeys((".jsonl", ".ndjson"), "application/x-ndjson"),
    ".toml": "application/toml",
    ".log": "text/plain",
    ".ipynb": "application/x-ipynb+json",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.file",
    ".npy": "application/x-npy",
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
    ".webp": "image/webp",
    ".m4a": "audio/mp4",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".wav": "audio/wav",
}
"""What Python knows of only where the system does: a file is to be the same on every machine."""
_PACKED = {
    "gzip": "application/gzip",
    "bzip2": "application/x-bzip2",
    "xz": "application/x-xz",
    "compress": "application/x-compress",
}


def media_type_of(name: str | os.PathLike[str] | None) -> str:
    """The media type that a file's name tells."""
    if not name:
        return UNKNOWN
    path = os.fspath(name)
    own = _KNOWN.get(os.path.splitext(path)[1].lower())
    if own is not None:
        return own
    found, packed_by = mimetypes.guess_type(path)
    if packed_by is not None:  # what is inside of a .csv.gz is not what it is
        return _PACKED.get(packed_by, UNKNOWN)
    return found or UNKNOWN


def essence(media_type: str) -> str:
    """A media type without its parameters: `text/csv; charset=utf-8` is a table."""
    return media_type.partition(";")[0].strip().lower()


def packing_for(media_type: str) -> int:
    """Whether contents of a type are compressed: a PNG or a PDF would only get larger."""
    kind = essence(media_type)
    compressible = kind.startswith(_COMPRESSIBLE) or kind.endswith(("+json", "+xml"))
    return ZSTD if compressible else PLAIN


def packing_of(raw: bytes) -> int:
    """Whether bytes get smaller, by samples from their begin and their middle."""
    middle = max(SAMPLE, len(raw) // 2)
    sample = raw[:SAMPLE] + raw[middle : middle + SAMPLE]
    small = zstandard.ZstdCompressor(level=LEVEL).compress(sample)
    return ZSTD if len(small) < 0.9 * len(sample) else PLAIN


def packed(content: bytes | Opener, packing: int) -> bytes | Opener:
    """Content as the object holds it."""
    if packing == PLAIN:
        return content
    if isinstance(content, bytes):
        return zstandard.ZstdCompressor(level=LEVEL).compress(content)
    opener = content
    return lambda: zstandard.ZstdCompressor(level=LEVEL).stream_reader(opener())


def length(content: bytes | Opener) -> int:
    """How many bytes a content has."""
    if isinstance(content, bytes):
        return len(content)
    with content() as source:
        return sum(map(len, iter(lambda: source.read(CHUNK), b"")))


class Telling:
    """Logs how far a long transfer is."""

    def __init__(self, what: str, size: int) -> None:
        self._what, self._size, self._done = what, size, 0
        self._told = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._told > TELL:
            self._told = now
            done, size = shown_bytes(self._done), shown_bytes(self._size)
            logger.info("%s: %s of %s", self._what, done, size)


class Checked(io.RawIOBase):
    """The content of an object as a stream that ends in an error if it is not what was stored."""

    def __init__(self, source: BinaryIO, claim: Claim, where: str) -> None:
        self._source, self._claim, self._where = source, claim, where
        self._inner: Any = source
        if claim.packing == ZSTD:
            self._inner = zstandard.ZstdDecompressor().stream_reader(source)
        self._hash, self._size = hashlib.sha256(), 0
        self._telling = Telling(f"reading {where}", claim.size)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """As a file does: less than asked for only at the end, and `size` bytes at most."""
        return super().read(size) or b""

    def readinto(self, buffer: Any) -> int:
        # One byte more than there should be tells that there is too much, however much it is.
        most = min(len(buffer), self._claim.size - self._size + 1)
        try:
            data = self._inner.read(most)
        except zstandard.ZstdError as error:
            raise self._corrupt(str(error)) from error
        self._size += len(data)
        self._telling.add(len(data))
        self._hash.update(data)
        if self._size > self._claim.size:
            raise self._corrupt(f"it is longer than the {self._claim.size} bytes that were stored")
        if not data and self._size < self._claim.size:
            raise self._corrupt(f"it has {self._size} of {self._claim.size} bytes")
        if not data and self._hash.digest() != self._claim.sha:
            raise self._corrupt("its bytes have changed")
        if not data and self._source.read(1):
            raise self._corrupt("there is something behind its end")
        buffer[: len(data)] = data
        return len(data)

    def _corrupt(self, why: str) -> ArtifactCorrupt:
        return ArtifactCorrupt(
            f"{self._where}: {why}. Restore the object from a backup of the store, or store the "
            "same content again."
        )

    def close(self) -> None:
        self._source.close()
        super().close()


def is_plausible(found: Found | None, claim: Claim) -> bool:
    """Whether an object has the size it should have, as far as its claim tells."""
    if claim.packing == PLAIN:
        return found is not None and found.size == claim.size
    return found is not None and found.size > 0


def verify(source: BinaryIO, claim: Claim, where: str, into: BinaryIO | None = None) -> None:
    """Read the content of an object to its end, and copy it on the way."""
    with Checked(source, claim, where) as stream:
        while block := stream.read(CHUNK):
            if into is not None:
                into.write(block)


def _hashed(source: BinaryIO, most: int) -> tuple[bytes, bytes]:
    """What a stream holds, as far as it is wanted, and the SHA-256 of it.

    A file is read at once, a third faster than by pieces. What comes from a network is hashed while
    more of it is on its way, and copied once.
    """
    if not hasattr(source, "blocks"):
        data = source.read(most)
        while len(data) < most and (more := source.read(most - len(data))):
            data += more
        return data, hashlib.sha256(data).digest()
    sha, held = hashlib.sha256(), io.BytesIO()
    for block in source.blocks():
        sha.update(block)
        held.write(block)
        if held.tell() >= most:
            break
    return held.getvalue(), sha.digest()


def read_all(source: BinaryIO, claim: Claim, where: str) -> bytes:
    """The content of an object, verified; memory for no more than what was recorded."""
    if claim.packing == PLAIN:
        with source:
            data, sha = _hashed(source, claim.size + 1)
        if len(data) == claim.size and sha == claim.sha:
            return data
        source = io.BytesIO(data)
    with Checked(source, claim, where) as stream:
        pieces = []
        while block := stream.read(CHUNK):
            pieces.append(block)
        return b"".join(pieces)
