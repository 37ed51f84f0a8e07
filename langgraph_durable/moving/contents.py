"""The artifacts of threads on their way: into an archive, out of one, from saver to saver.

Contents are in the target's store, or known to be readable, before the row that claims them is
written; so whatever is cut short leaves nothing dangling. `artifacts.guests` tells where they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from langgraph_durable._core import claims, seal
from langgraph_durable._core.claims import PLAIN, Claim
from langgraph_durable._core.dumps import Dump
from langgraph_durable.artifacts import guests, media, places
from langgraph_durable.artifacts.shelf import Shelf
from langgraph_durable.errors import ArtifactCorrupt, ArtifactMissing, ConfigurationError
from langgraph_durable.moving.colours import Colour
from langgraph_durable.moving.format import Content, Reader, Writer
from langgraph_durable.saver import DurableSaver

# ---- out of a saver ------------------------------------------------------------------------------


async def include(colour: Colour, saver: DurableSaver, writer: Writer, dump: Dump) -> None:
    """Append what a thread claims, and the archive does not have yet."""
    new = [claim for claim in claimed_by(dump) if not writer.has(claim)]
    await know(colour, saver, new)
    for claim in new:
        await colour.aside(_include, saver._shelf, writer, claim, dump.thread_id)


def _include(shelf: Shelf, writer: Writer, claim: Claim, thread_id: str) -> None:
    if not writer.has(claim):  # two claims may name one content
        with _about(thread_id), shelf.open(claim) as content:
            writer.include(claim, content)


async def refer(colour: Colour, saver: DurableSaver, writer: Writer, dump: Dump) -> None:
    """Append where a thread's artifacts are."""
    claimed = claimed_by(dump)
    if not claimed:
        return
    await know(colour, saver, claimed)
    shelf = saver._shelf
    if lost := await colour.aside(guests.lacking, shelf, claimed):
        raise _lost(dump.thread_id, lost[0], shelf.names.get(lost[0].store, ()))
    ids = {claim.store for claim in claimed}
    stores = {
        id: [places.shown_to_others(store) for store in shelf.stores_of(id)] for id in sorted(ids)
    }
    await colour.aside(writer.refer, stores)


def claimed_by(dump: Dump) -> list[Claim]:
    """What has to be in an artifact store, each once."""
    try:
        return sorted({claims.unpack(packed) for _, packed in dump.claims})
    except seal.Damaged as error:
        raise seal.damaged(f"thread {dump.thread_id!r}", error) from error


async def know(colour: Colour, saver: DurableSaver, claimed: list[Claim]) -> None:
    """Read the names of stores again, if one of these is not known."""
    for id in {claim.store for claim in claimed}:
        if id not in saver._shelf.names:
            work = saver._shelf.refresh(saver._engine.storage, id)
            await colour.do(saver, work)


# ---- into a saver --------------------------------------------------------------------------------


class Archived:
    """The artifacts of an archive that was read through, as a saver gets them."""

    def __init__(self, colour: Colour, saver: DurableSaver, path: str) -> None:
        self._colour, self._saver, self._path = colour, saver, path
        self._contents: dict[bytes, int] = {}

    async def check(self, reader: Reader, dump: Dump) -> None:
        """Whether a thread could be brought; nothing is written."""
        if not dump.claims:
            return
        self._contents = reader.contents
        if reader.includes:
            check_target(self._saver, dump.thread_id)
            return
        claimed = claimed_by(dump)
        await self._colour.do(self._saver, self._saver._shelf.refresh(self._saver._engine.storage))
        await self._colour.aside(self._strangers, reader, dump.thread_id, claimed)

    def _strangers(self, reader: Reader, thread_id: str, claimed: list[Claim]) -> list[Claim]:
        """The claims that can be read only where the archive says; an error if there are others."""
        shelf = self._saver._shelf
        strange = guests.lacking(shelf, claimed)
        if lost := guests.lacking_at(shelf, strange, reader.stores):
            known = shelf.names.get(lost[0].store, ())
            raise _lost(thread_id, lost[0], (*known, *reader.stores.get(lost[0].store, ())))
        return strange

    async def bring(self, reader: Reader, dump: Dump) -> None:
        """Have the artifacts of a thread where its claims will lead."""
        if not dump.claims:
            return
        if reader.includes:
            await bring(self._colour, self._saver, dump, self._open)
            return
        saver, claimed = self._saver, claimed_by(dump)
        find = self._colour.aside(self._strangers, reader, dump.thread_id, claimed)
        strange = {claim.store for claim in await find}
        lenders = {id: urls for id, urls in reader.stores.items() if id in strange}
        work = guests.borrow(saver._shelf, saver._engine.storage, lenders)
        await self._colour.do(saver, work, writes=True)

    def _open(self, claim: Claim) -> BinaryIO:
        file = open(self._path, "rb")  # noqa: SIM115  the content closes it
        content = Content(file, self._path, self._contents[claim.sha], claim.size)
        plain = claim._replace(packing=PLAIN)
        return cast("BinaryIO", media.Checked(cast("BinaryIO", content), plain, self._path))


async def bring(
    colour: Colour, saver: DurableSaver, dump: Dump, opener: Callable[[Claim], BinaryIO]
) -> None:
    """Have what a thread claims in the store of a saver, before the thread is there."""
    claimed, shelf = claimed_by(dump), saver._shelf
    work = guests.settle(shelf, saver._engine.storage, {claim.store for claim in claimed})
    await colour.do(saver, work, writes=True)
    await colour.aside(_receive, shelf, claimed, opener, dump.thread_id)


def _receive(
    shelf: Shelf, claimed: list[Claim], opener: Callable[[Claim], BinaryIO], thread_id: str
) -> None:
    with _about(thread_id):
        guests.receive(shelf, claimed, opener)


def check_target(saver: DurableSaver, thread_id: str) -> None:
    if not saver._shelf.writes:
        raise ConfigurationError(
            f"thread {thread_id!r} has artifacts, and the target has no store to put them into: "
            "open it with artifacts=. Nothing was written."
        )


@contextmanager
def _about(thread_id: str) -> Iterator[None]:
    try:
        yield
    except (ArtifactMissing, ArtifactCorrupt) as error:
        raise type(error)(f"thread {thread_id!r}: {error}") from error


def _lost(thread_id: str, claim: Claim, urls: tuple[str, ...]) -> ArtifactMissing:
    where = ", ".join(urls) or "any store that is known"
    return ArtifactMissing(
        f"thread {thread_id!r}: the artifact {claim.key} is not in {where}. Nothing of the thread "
        'was written. Name its store with artifacts=[...], or export with artifacts="include".'
    )
