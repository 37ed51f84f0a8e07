"""Artifacts as users look after them: collect what nothing claims, check, move; in both colours.

Like `retention`, each call is a flow of small steps. What talks to an artifact store is a step
without a transaction, so that it too runs off the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from langgraph_durable import addresses
from langgraph_durable._core import claims
from langgraph_durable._core.claims import Claim
from langgraph_durable._core.records import CheckpointRow, Listing, WriteRow
from langgraph_durable._core.refs import order_of, unpack_refs
from langgraph_durable._core.units import in_seconds, shown_bytes
from langgraph_durable.artifacts import guests, media, places, sweeping
from langgraph_durable.artifacts.shelf import Shelf, in_parallel
from langgraph_durable.artifacts.stores import ArtifactStore, Found, open_store
from langgraph_durable.errors import ArtifactCorrupt, ArtifactMissing, ConfigurationError

if TYPE_CHECKING:
    from langgraph_durable._core.engine import Engine
    from langgraph_durable._core.storage import Storage

T = TypeVar("T")
Do = Callable[..., Awaitable[Any]]
Progress = Callable[[int, int], None]
BATCH = 64
"""Objects between two reports of progress."""
SHORT = 300.0
"""Seconds of grace below which a writer may be slower: claims are read again before objects go."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection has removed, or would remove."""

    removed: int = 0
    bytes: int = 0
    """As they lie in the store, with what writers that were killed have left half-written."""
    kept: int = 0
    """Objects that something claims, or that are too young."""
    dry_run: bool = False

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        what = "artifact" if self.removed == 1 else "artifacts"
        return f"{verb} {self.removed} {what}, {shown_bytes(self.bytes)}; kept {self.kept}"


@dataclass(frozen=True, slots=True)
class ArtifactProblem:
    """An artifact that a thread needs and that is not as it was stored."""

    problem: str
    """ "missing" or "altered"."""
    key: str
    store: str
    """Where it should be."""
    size: int
    channels: tuple[str, ...]
    checkpoints: tuple[str, ...]
    """Ids of the checkpoints that need it, newest first."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has copied."""

    copied: int = 0
    there: int = 0
    """Objects that were there already, whole, from a move that was cut short."""
    bytes: int = 0


class Keeping:
    """The part of a saver that looks after artifacts; mixed into `DurableSaver`."""

    if TYPE_CHECKING:
        _engine: Engine
        _shelf: Shelf

        def _now(self, flow: Callable[[Do], Coroutine[Any, Any, T]]) -> T: ...
        async def _later(self, flow: Callable[[Do], Coroutine[Any, Any, T]]) -> T: ...

    async def _all_claims(self, do: Do) -> set[Claim]:
        return await _claimed(self._engine.storage, partial(do, writes=False))

    # ---- collecting --------------------------------------------------------------------------

    def collect_artifacts(
        self,
        *,
        grace: Any = "1h",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Collected:
        """Remove artifacts that no stored value needs any more.

        Safe beside writers in all processes. A writer may be killed at any moment, as long as
        `grace` is a minute longer than it takes from uploading to having written the row. Below
        five minutes all claims are read again before each step, which takes time in a large store.
        Objects of other databases and other applications in the same store are not touched.

        Args:
            grace: how long an artifact that nothing needs must have been left alone.
            dry_run: only say what would go.
            progress: called with objects looked at and objects removed so far.
        """
        seconds = in_seconds("grace", grace)
        return self._now(lambda do: self._collect(do, seconds, dry_run, progress))

    async def acollect_artifacts(
        self,
        *,
        grace: Any = "1h",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Collected:
        """`collect_artifacts`, off the event loop."""
        seconds = in_seconds("grace", grace)
        return await self._later(lambda do: self._collect(do, seconds, dry_run, progress))

    async def _collect(
        self, do: Do, grace: float, dry_run: bool, progress: Progress | None
    ) -> Collected:
        shelf = self._shelf
        await do(shelf.refresh(self._engine.storage), writes=False)
        own = [
            (id, url) for id, urls in shelf.names.items() for url in urls if not places.is_lent(url)
        ]
        # The time before the claims are read: what is used from now on is younger.
        before = {place: (await do(_clock(shelf, place))) - grace for place in own}
        alive = {claim.key: claim for claim in await self._all_claims(do)}
        total, looked = Collected(dry_run=dry_run), 0
        for place in own:
            now = before[place] + grace
            half = await do(_unfinished(shelf, place, now, grace, dry_run))  # no room needed
            total = replace(total, bytes=total.bytes + half)
            objects = await do(_listed(shelf, place), writes=False)
            swept = await do(_swept(shelf, place, objects, alive))
            if swept is None:
                continue
            for at in range(0, len(objects), BATCH):
                some = objects[at : at + BATCH]
                orphans = await do(
                    _orphans(swept, some, alive, before[place], dry_run), writes=False
                )
                if not dry_run and orphans:
                    again = self._engine.storage if grace < SHORT else None
                    orphans = await do(_sweep(swept, orphans, before[place], again))
                total, looked = _added(total, some, orphans), looked + len(some)
                if progress is not None:
                    progress(looked, total.removed)
        shelf.forget()
        return total

    # ---- checking ----------------------------------------------------------------------------

    def check_artifacts(self, thread_id: str) -> list[ArtifactProblem]:
        """The artifacts of a thread that are missing or altered; every content is read."""
        named = addresses.thread(thread_id)
        return self._now(lambda do: self._check_artifacts(do, named))

    async def acheck_artifacts(self, thread_id: str) -> list[ArtifactProblem]:
        """`check_artifacts`, off the event loop."""
        named = addresses.thread(thread_id)
        return await self._later(lambda do: self._check_artifacts(do, named))

    async def _check_artifacts(self, do: Do, thread_id: str) -> list[ArtifactProblem]:
        storage, shelf = self._engine.storage, self._shelf
        claimed: dict[Claim, set[int]] = {}
        for number, packed in await do(storage.claims_of(thread_id), writes=False):
            claimed.setdefault(claims.unpack(packed), set()).add(number)
        if not claimed:
            return []
        await do(shelf.refresh(storage), writes=False)
        listing = await do(storage.survey(thread_id), writes=False)
        problems = await do(_problems(shelf, list(claimed)), writes=False)
        return [
            _problem(shelf, listing, claim, numbers, *problems[claim])
            for claim, numbers in claimed.items()
            if claim in problems
        ]

    # ---- moving ------------------------------------------------------------------------------

    def move_artifacts(self, to: Any, *, progress: Progress | None = None) -> Moved:
        """Copy all artifacts to another store, verified, and look for them there from now on.

        May be cut short and called again; what is there already is read, and copied again if it is
        broken. What other processes still write to the old place is
        found there; call it once more when they have been restarted with `artifacts=` set to the
        new store. The copies left behind go with the next `collect_artifacts`.

        Args:
            to: a store, a URL or a folder.
            progress: called with artifacts done and how many there are.
        """
        target = open_store(to)
        return self._now(lambda do: self._move(do, target, progress))

    async def amove_artifacts(self, to: Any, *, progress: Progress | None = None) -> Moved:
        """`move_artifacts`, off the event loop."""
        target = open_store(to)
        return await self._later(lambda do: self._move(do, target, progress))

    async def _move(self, do: Do, target: ArtifactStore, progress: Progress | None) -> Moved:
        storage, shelf = self._engine.storage, self._shelf
        if target.url.startswith("memory:private"):
            raise ConfigurationError("move_artifacts needs a store that others can open by its URL")
        await do(shelf.refresh(storage), writes=False)
        shelf.know(target)
        foreign = [id for id, urls in shelf.names.items() if not places.is_own(urls)]
        await do(guests.take_in(shelf, storage, foreign, target))
        wanted = sorted(await self._all_claims(do))
        total = Moved()
        for at in range(0, len(wanted), BATCH):
            some = wanted[at : at + BATCH]
            sizes = await do(_copy(shelf, target, some))
            new = [size for size in sizes if size is not None]
            total = Moved(
                total.copied + len(new), total.there + len(some) - len(new), total.bytes + sum(new)
            )
            if progress is not None:
                progress(at + len(some), len(wanted))
        for id, urls in shelf.names.items():
            if id in foreign:
                continue
            better = (target.url, *(url for url in urls if url != target.url))
            if better != urls:
                await do(storage.enter_store(id, better))
        await do(shelf.refresh(storage), writes=False)
        return total


async def _clock(shelf: Shelf, place: tuple[str, str]) -> float:
    return sweeping.clock(shelf.at(place[1]), place[0])


async def _listed(shelf: Shelf, place: tuple[str, str]) -> list[tuple[Found, list[Found]]]:
    return list(sweeping.objects(shelf.at(place[1]), place[0]))


async def _unfinished(
    shelf: Shelf, place: tuple[str, str], now: float, grace: float, dry_run: bool
) -> int:
    """Remove what killed writers have left; how many bytes that is."""
    store = shelf.at(place[1])
    old = now - max(grace, sweeping.ABANDONED)
    left = [one for one in store.unfinished(claims.folder(place[0])) if one.time <= old]
    if not dry_run:
        in_parallel(lambda one: store.delete(one.key), left)
    return sum(one.size for one in left)


class _Swept(NamedTuple):
    """A place that is swept, and where the objects of its id count."""

    shelf: Shelf
    store: ArtifactStore
    best: ArtifactStore
    """What something claims, and lies elsewhere, is a copy left behind by a move."""

    def needs(self, key: str, alive: dict[str, Claim]) -> bool:
        """Something claims it. A copy left behind goes, if the one that counts is there."""
        if key not in alive or self.store is self.best:
            return key in alive
        return not media.is_plausible(self.best.stat(key), alive[key])


async def _swept(
    shelf: Shelf,
    place: tuple[str, str],
    objects: list[tuple[Found, list[Found]]],
    alive: dict[str, Claim],
) -> _Swept | None:
    """None if this is the best place under another name: nothing in it is a copy left behind."""
    store, best = shelf.at(place[1]), shelf.at(shelf.names[place[0]][0])
    keys = (sweeping.object_of(one.key) for one, _ in objects)
    left = next((key for key in keys if key in alive), None)
    if store is not best and left is not None and sweeping.is_same(store, best, left):
        return None
    return _Swept(shelf, store, best)


async def _orphans(
    swept: _Swept,
    some: list[tuple[Found, list[Found]]],
    alive: dict[str, Claim],
    before: float,
    dry_run: bool,
) -> list[Found]:
    """Those of some objects that nothing claims and nobody has used since `before`."""
    old = [one for one, marks in some if all(each.time <= before for each in (one, *marks))]

    def goes(one: Found) -> bool:
        key = sweeping.object_of(one.key)
        if swept.needs(key, alive):
            return False
        # A copy left behind may be the last that is whole: the other is read before this one goes.
        return dry_run or key not in alive or swept.shelf.is_whole(swept.best, alive[key])

    going = in_parallel(goes, old)
    return [one for one, is_going in zip(old, going, strict=True) if is_going]


async def _sweep(
    swept: _Swept,
    orphans: list[Found],
    before: float,
    again: Storage | None,
) -> list[Found]:
    """Remove orphans, unless they were used or (where claims are read `again`) claimed since."""
    keys = [sweeping.object_of(one.key) for one in orphans]
    dooms = [sweeping.Doom(swept.store, key) for key in keys]
    try:
        in_parallel(sweeping.Doom.put, dooms)
        claimed = set() if again is None else await _claimed(again)
        alive = {claim.key: claim for claim in claimed}

        def act(n: int) -> bool:
            return not swept.needs(keys[n], alive) and dooms[n].carry_out(before)

        gone = in_parallel(act, range(len(keys)))
    finally:
        in_parallel(sweeping.Doom.lift, dooms)
    removed = [one for one, is_gone in zip(orphans, gone, strict=True) if is_gone]
    full = {doom.error: one for doom, one in zip(dooms, orphans, strict=True) if doom.error}
    if full and not removed:
        raise next(iter(full))
    # On a full disk there is room now for the other marks.
    left = await _sweep(swept, list(full.values()), before, again) if full else []
    return removed + left


async def _claimed(storage: Storage, do: Do | None = None) -> set[Claim]:
    """All claims; each page by `do`, or in the step that is under way."""
    found: set[Claim] = set()
    after = None
    while True:
        asked = storage.claims(after)
        page, after = await (asked if do is None else do(asked))
        found.update(map(claims.unpack, page))
        if after is None:
            return found


def _added(total: Collected, some: list[tuple[Found, list[Found]]], gone: list[Found]) -> Collected:
    objects = sum(claims.KEY.fullmatch(one.key) is not None for one, _ in some)
    sizes = [one.size for one in gone if claims.KEY.fullmatch(one.key) is not None]
    return Collected(
        total.removed + len(sizes),
        total.bytes + sum(sizes),
        total.kept + objects - len(sizes),
        total.dry_run,
    )


async def _problems(shelf: Shelf, wanted: list[Claim]) -> dict[Claim, tuple[str, str]]:
    def look(claim: Claim) -> tuple[str, str] | None:
        try:
            shelf.check(claim)
        except ArtifactMissing:
            return "missing", ""
        except ArtifactCorrupt as error:
            return "altered", str(error)
        return None

    found = zip(wanted, in_parallel(look, wanted), strict=True)
    return {claim: problem for claim, problem in found if problem is not None}


def _problem(
    shelf: Shelf, listing: Listing | None, claim: Claim, numbers: set[int], what: str, detail: str
) -> ArtifactProblem:
    channels: set[str] = set()
    ids: set[str] = set()
    rows: list[CheckpointRow | WriteRow] = [*listing.rows, *listing.writes] if listing else []
    for row in rows:
        assert listing is not None
        for ref in unpack_refs(row.refs):
            if numbers.intersection(order_of(ref, listing.spines)):
                channels.add(ref.channel)
                ids.add(row.id)
    store = ", ".join(map(shelf.shown, shelf.names.get(claim.store, ())))
    places = tuple(sorted(channels)), tuple(sorted(ids, reverse=True))
    return ArtifactProblem(what, claim.key, store, claim.size, *places, detail)


async def _copy(shelf: Shelf, target: ArtifactStore, some: list[Claim]) -> list[int | None]:
    """Have these in the target, verified on the way; the sizes of those that were not there."""

    def act(claim: Claim) -> int | None:
        urls = shelf.names.get(claim.store, ())
        place = target if places.is_own(urls) else shelf.at(urls[0])
        if sweeping.renew(place, claim.key) and shelf.is_whole(place, claim):
            return None
        shelf.copy(claim, place)
        return claim.size

    return in_parallel(act, some)
