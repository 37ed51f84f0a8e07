"""Whole threads in one file: `export_threads`, `import_threads`, and their async forms.

Rows and items travel as they are, so a thread comes back exactly, on either backend: ids, heads,
forks, tags, pending writes with their paths, and what a prune has left of a DeltaChannel. `format`
describes the file. An export is written under another name and gets its own when it is whole. An
import reads the file to its end before it writes anything; then each thread is made in one step,
so that an import that was cut short is simply done again. `contents` brings artifacts, before
the thread that claims them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Literal, NamedTuple

from langgraph_durable import addresses
from langgraph_durable._core import seal
from langgraph_durable._core.dumps import Dump, packed, unpacked
from langgraph_durable._core.units import in_bytes
from langgraph_durable.artifacts.files import FULL
from langgraph_durable.errors import ConfigurationError, StorageFull
from langgraph_durable.moving.colours import LATER, NOW, Colour, finish
from langgraph_durable.moving.contents import Archived, include, refer
from langgraph_durable.moving.format import Artifacts, Reader, Writer
from langgraph_durable.moving.sides import thread_names
from langgraph_durable.saver import DurableSaver

Path = str | os.PathLike[str]
Progress = Callable[[int, int], None]
"""Called after each thread with the numbers of threads and checkpoints so far."""
OnExisting = Literal["error", "skip", "replace"]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an archive holds."""

    threads: int = 0
    checkpoints: int = 0
    bytes: int = 0
    """Of the file."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was done with the threads of an archive."""

    imported: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """They were there already."""
    checkpoints: int = 0
    """Of the threads that were imported or replaced."""


def export_threads(
    saver: DurableSaver,
    path: Path,
    threads: Sequence[str] | None = None,
    *,
    artifacts: Artifacts = "include",
    progress: Progress | None = None,
) -> ExportReport:
    """Write threads to one file; each as it is at one moment, while others may go on writing.

    Args:
        saver: one of ours; from another one, `copy_store` to one of ours first.
        path: the file. One that is there is replaced when the new one is whole.
        threads: which ones; None for all.
        artifacts: "include" what lies in artifact stores, each content once; or only say where it
            lies, by "reference". Then whoever imports the file reads it there, so it must stay
            there: keep these threads in this saver as long.
        progress: called after each thread with the numbers of threads and checkpoints so far.

    Raises:
        ConfigurationError: a thread does not exist, or an argument is wrong.
        ArtifactMissing, ArtifactCorrupt: an artifact is not as it was stored. No file is made.

    Example:
        >>> export_threads(saver, "threads.lgd")   # doctest: +SKIP
    """
    return finish(_export(NOW, _checked(saver), path, threads, artifacts, progress))


async def aexport_threads(
    saver: DurableSaver,
    path: Path,
    threads: Sequence[str] | None = None,
    *,
    artifacts: Artifacts = "include",
    progress: Progress | None = None,
) -> ExportReport:
    """`export_threads`, off the event loop."""
    return await _export(LATER, _checked(saver), path, threads, artifacts, progress)


async def _export(
    colour: Colour,
    saver: DurableSaver,
    path: Path,
    threads: Sequence[str] | None,
    artifacts: Artifacts,
    progress: Progress | None,
) -> ExportReport:
    if artifacts not in ("include", "reference"):
        raise ConfigurationError(f'artifacts is "include" or "reference", not {artifacts!r}')
    named = None if threads is None else addresses.several("threads", threads)
    storage = saver._engine.storage
    target = os.fspath(path)
    unfinished = f"{target}.{secrets.token_hex(4)}.part"  # another export may be under way
    checkpoints = 0
    try:
        with _writing(target):
            with await colour.aside(_create, unfinished) as file:
                writer = Writer(file, artifacts)
                async for thread_id in thread_names(colour, saver, named):
                    dump = await colour.do(saver, storage.dump(thread_id))
                    if dump is None:
                        if threads is not None:
                            raise ConfigurationError(f"there is no thread {thread_id!r} to export")
                        continue  # deleted meanwhile
                    add_artifacts = include if artifacts == "include" else refer
                    await add_artifacts(colour, saver, writer, dump)
                    await colour.aside(_add, writer, dump)
                    checkpoints += len(dump.rows)
                    if progress is not None:
                        progress(writer.threads, checkpoints)
                await colour.aside(_seal_off, writer, file)
            await colour.aside(os.replace, unfinished, target)
    except BaseException:
        if os.path.exists(unfinished):
            os.remove(unfinished)
        raise
    return ExportReport(writer.threads, checkpoints, writer.size)


def _create(path: str) -> BinaryIO:
    return open(path, "xb")


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StorageFull(
                f"{path}: there is no room left ({error}). No file was made."
            ) from error
        raise ConfigurationError(f"{path} cannot be written: {error}") from error


def _add(writer: Writer, dump: Dump) -> None:
    try:
        writer.add(unpacked(dump))
    except seal.Damaged as error:
        raise seal.damaged(f"thread {dump.thread_id!r}", error) from error


def _seal_off(writer: Writer, file: BinaryIO) -> None:
    writer.end()
    file.flush()
    os.fsync(file.fileno())


def import_threads(
    saver: DurableSaver,
    path: Path,
    threads: Sequence[str] | None = None,
    *,
    on_existing: OnExisting = "error",
    max_bytes: int | str = "2 GiB",
    progress: Progress | None = None,
) -> ImportReport:
    """Bring the threads of a file back, exactly as they were, on either backend.

    A thread that is there already and equal to the one in the file is skipped, whatever
    `on_existing` says: an import that was cut short can be done again.

    Args:
        saver: one of ours.
        path: what `export_threads` has written.
        threads: which ones; None for all.
        on_existing: what to do with a thread that is there and differs: refuse the whole import
            ("error"), leave it ("skip"), or put the one of the file in its place ("replace").
        max_bytes: what a thread may unpack to. A thread is held in memory whole, and a small file
            can be made to unpack to any size.
        progress: called after each thread with the numbers of threads and checkpoints so far.

    Raises:
        DamagedArchive: the file is cut off or altered; the message says where. Nothing was written.
        ConfigurationError: a thread is there already, or is not in the file, or is larger than
            `max_bytes`, or the file holds artifacts and the saver has no store for them; nothing
            was written.
        ArtifactMissing: an artifact that the file refers to cannot be found; nothing was written.
    """
    return finish(_import(NOW, _checked(saver), path, threads, on_existing, max_bytes, progress))


async def aimport_threads(
    saver: DurableSaver,
    path: Path,
    threads: Sequence[str] | None = None,
    *,
    on_existing: OnExisting = "error",
    max_bytes: int | str = "2 GiB",
    progress: Progress | None = None,
) -> ImportReport:
    """`import_threads`, off the event loop."""
    return await _import(LATER, _checked(saver), path, threads, on_existing, max_bytes, progress)


class _File(NamedTuple):
    """A file to read, and what a thread of it may unpack to."""

    path: str
    most: int


async def _import(
    colour: Colour,
    saver: DurableSaver,
    path: Path,
    threads: Sequence[str] | None,
    on_existing: OnExisting,
    max_bytes: int | str,
    progress: Progress | None,
) -> ImportReport:
    if on_existing not in ("error", "skip", "replace"):
        raise ConfigurationError(
            f'on_existing is "error", "skip" or "replace", not {on_existing!r}'
        )
    named = None if threads is None else set(addresses.several("threads", threads))
    file = _File(os.fspath(path), in_bytes("max_bytes", max_bytes))
    archived = Archived(colour, saver, file.path)
    await _look_through(colour, saver, file, named, archived, strict=on_existing == "error")
    done: dict[str, list[str]] = {"imported": [], "replaced": [], "skipped": []}
    checkpoints = count = 0
    async for reader, dump in _dumps(colour, file, named, without_contents=True):
        what = await _bring(colour, saver, dump, on_existing, archived, reader)
        done[what].append(dump.thread_id)
        count += 1
        checkpoints += len(dump.rows) if what != "skipped" else 0
        if progress is not None:
            progress(count, checkpoints)
    return ImportReport(**{k: tuple(v) for k, v in done.items()}, checkpoints=checkpoints)


async def _look_through(
    colour: Colour,
    saver: DurableSaver,
    file: _File,
    named: set[str] | None,
    archived: Archived,
    *,
    strict: bool,
) -> None:
    """Verify the whole file, and that nothing stands in the way, before anything is written."""
    found: set[str] = set()
    in_the_way: list[str] = []
    async for reader, dump in _dumps(colour, file, named):
        if dump.thread_id in found:
            raise ConfigurationError(f"{file.path}: thread {dump.thread_id!r} is in it twice")
        found.add(dump.thread_id)
        await archived.check(reader, dump)
        if strict and await _is_there(colour, saver, dump) is False:
            in_the_way.append(dump.thread_id)
    if named is not None and named - found:
        raise ConfigurationError(f"{file.path}: {_some(sorted(named - found))} are not in it")
    if in_the_way:
        raise ConfigurationError(
            f"{_some(in_the_way)} exist already and differ from those in {file.path}: pass "
            'on_existing="skip" or "replace". Nothing was written.'
        )


def _some(threads: Sequence[str]) -> str:
    shown = ", ".join(map(repr, threads[:5]))
    return f"threads {shown}" + (f" and {len(threads) - 5} more" if len(threads) > 5 else "")


async def _is_there(colour: Colour, saver: DurableSaver, dump: Dump) -> bool | None:
    """Whether the saver has this very thread: None if it has none of that name, else if equal."""
    stored = await colour.do(saver, saver._engine.storage.dump(dump.thread_id))
    return None if stored is None else await colour.aside(unpacked, stored) == dump


async def _bring(
    colour: Colour,
    saver: DurableSaver,
    dump: Dump,
    on_existing: OnExisting,
    archived: Archived,
    reader: Reader,
) -> Literal["imported", "replaced", "skipped"]:
    storage = saver._engine.storage
    if dump.claims:
        if on_existing == "skip" and await _is_there(colour, saver, dump) is False:
            return "skipped"
        # Also for a thread that is there already: it may have come by reference.
        await archived.bring(reader, dump)
    ready = await colour.aside(packed, dump)
    if await colour.do(saver, storage.restore(ready), writes=True):
        return "imported"
    if on_existing == "skip" or await _is_there(colour, saver, dump):
        return "skipped"
    if on_existing == "error":
        raise ConfigurationError(f"thread {dump.thread_id!r} came into being meanwhile")
    await colour.do(saver, storage.replace(ready), writes=True)
    saver._engine.memory.forget(dump.thread_id)
    return "replaced"


async def _dumps(
    colour: Colour,
    archive: _File,
    named: Collection[str] | None,
    *,
    without_contents: bool = False,
) -> AsyncIterator[tuple[Reader, Dump]]:
    """The threads of a file; all of it is verified, whichever are asked for."""
    file = await colour.aside(_open, archive.path)
    with file:
        make = partial(Reader, file, *archive, without_contents=without_contents)
        reader = await colour.aside(make)
        found: Iterator[Dump] = reader.threads()
        while (dump := await colour.aside(next, found, None)) is not None:
            if named is None or dump.thread_id in named:
                yield reader, dump


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def _checked(saver: Any) -> DurableSaver:
    if not isinstance(saver, DurableSaver):
        raise ConfigurationError(
            f"an archive is made of, and read into, a SqliteSaver or a RedisSaver, not "
            f"{type(saver).__name__}: use copy_store to get from one to the other"
        )
    return saver
