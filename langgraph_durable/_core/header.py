"""A checkpoint's own record: everything but the items.

The body holds, for every channel, its version and form; the versions each node has seen; the
rest of the checkpoint; the metadata; and, where ancestors were removed, capsules (see `lineage`).
Versions repeat a lot (all channels a step touches share one), so each is spelled once and named
by its place in a table. Channel names that have a value are spelled in the refs beside the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import ormsgpack

from langgraph_durable._core import seal
from langgraph_durable._core.authors import Author, KnownWrite
from langgraph_durable._core.forms import Form
from langgraph_durable._core.memory import Entries, Entry
from langgraph_durable._core.records import CheckpointRow
from langgraph_durable._core.refs import CAPSULE, ORIGIN, VALUE, Ref, Refs, unpack_refs

FORMAT = 1
"""The first element of every body. An unknown one is refused, never guessed at."""

Version = str | int | float
NOTHING: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Capsule:
    """What a DeltaChannel needs of ancestors that are gone: where it starts, and each write."""

    seed: Form | None
    writes: tuple[tuple[str, Form, int], ...]
    """(task id, form, how many items) oldest first; the seed's items come before them."""
    seed_items: int = 0


@dataclass(slots=True)
class Header:
    """A checkpoint without its values."""

    entries: Entries
    versions: dict[str, Version]
    seen: dict[str, dict[str, Version]]
    rest: bytes
    """The checkpoint's other keys, serialised."""
    metadata: bytes
    linked: bool = False
    """The parent was there when this was written, so it must be there unless it was removed."""
    capsules: dict[str, tuple[Capsule, Ref]] = field(default_factory=dict)
    continued: bool = False
    """A run went on from here to a checkpoint that was removed since."""
    schema: int | None = None
    """The version of the program's state, where it had a schema."""
    origin: Ref | None = None
    """Where it is noted which program stored this."""
    hand: int | None = None
    """Of the parent's writes only those by this hand count, and the `known`; None: all of them."""
    known: frozenset[tuple[str, int]] = NOTHING
    """(task id, index) of writes that were there when the parent was loaded."""

    def refs(self) -> Refs:
        refs = [entry.ref for entry in self.entries.values()]
        if self.capsules:
            refs += [ref for _, ref in self.capsules.values()]
        if self.origin is not None:
            refs.append(self.origin)
        return tuple(refs)

    @property
    def author(self) -> Author | None:
        """Who made it, if that matters."""
        if self.hand is None:
            return None
        return Author(self.hand, tuple(KnownWrite(*write) for write in self.known))

    def body(self) -> bytes:
        table: dict[Any, int] = {}
        add = table.setdefault
        values = []
        spelled_out = set()
        for channel, (version, form, _) in self.entries.items():
            # 1 and 1.0 are one dict key but two versions, hence the type in the key.
            key = version if type(version) is str else (type(version), version)
            values.append((-1 if version is None else add(key, len(table)), form))
            if self.versions.get(channel) == version:
                spelled_out.add(channel)
        bare = []
        if len(spelled_out) < len(self.versions):
            for channel, version in self.versions.items():
                if channel not in spelled_out:
                    key = version if type(version) is str else (type(version), version)
                    bare.append((seal.name(channel), add(key, len(table))))
        seen = []
        for node, channels in self.seen.items():
            flat: list[str | bytes | int] = []
            for channel, version in channels.items():
                key = version if type(version) is str else (type(version), version)
                flat += (seal.name(channel), add(key, len(table)))
            seen.append((seal.name(node), flat))
        capsules = [
            (capsule.seed, capsule.seed_items, [list(w) for w in capsule.writes])
            for capsule, _ in self.capsules.values()
        ]
        spelled = [_shortened(key) if type(key) is str else _plain(*key) for key in table]
        first = FORMAT, spelled, values, bare, seen
        flags = self.linked | self.continued << 1
        if self.schema is not None:
            flags |= self.schema + 1 << 8
        last: list[Any] = [self.rest, self.metadata, flags, capsules]
        if self.hand is not None:
            last.append([self.hand, *((seal.name(task), idx) for task, idx in sorted(self.known))])
        return seal.pack(ormsgpack.packb([*first, *last]))


def _plain(kind: type, version: Any) -> Any:
    if not issubclass(kind, (str, int, float)):
        raise TypeError(f"{version!r} is no version")
    return version


@lru_cache(maxsize=4096)  # most versions are those of the checkpoint before
def _shortened(version: str) -> str | bytes | tuple[int, int]:
    """LangGraph's usual version, 32 digits and 16 behind a point, as two numbers."""
    if len(version) == 49 and version.isascii() and version[32] == ".":
        major, minor = version[:32], version[33:]
        if major.isdigit() and minor.isdigit() and major < _LARGEST:
            return int(major), int(minor)
    return seal.name(version)


_LARGEST = f"{2**63:032}"


def _lengthened(stored: Any) -> Version:
    if type(stored) is list:
        return _spelled(*stored)
    return seal.unname(stored) if type(stored) is bytes else stored


@lru_cache(maxsize=4096)
def _spelled(major: int, minor: int) -> str:
    return f"{major:032}.{minor:016}"


def read_header(row: CheckpointRow) -> Header:
    """The header of a bare row; raises `Damaged`."""
    refs = unpack_refs(row.refs)
    try:
        raw = ormsgpack.unpackb(seal.unpack(row.body))
        if raw[0] != FORMAT:
            raise seal.Damaged(f"record format {raw[0]!r} is not known to this version")
        _, spelled, values, bare, seen, rest, metadata, flags, capsules, *made_by = raw
        hand, *known = made_by[0] if made_by else (None,)
        table = [_lengthened(version) for version in spelled]
        named = [ref for ref in refs if ref.kind == VALUE]
        origin = refs[-1] if refs and refs[-1].kind == ORIGIN else None
        others = len(refs) - len(named) - (origin is not None)
        entries: dict[str, Entry] = {}
        versions: dict[str, Version] = {}
        for ref, (v, form) in zip(named, values, strict=True):
            version = None
            if v >= 0:
                version = versions[ref.channel] = table[v]
            entries[ref.channel] = Entry(version, form, ref)
        for channel, v in bare:
            versions[seal.unname(channel)] = table[v]
        return Header(
            entries=entries,
            versions=versions,
            seen={seal.unname(node): _seen(flat, table) for node, flat in seen},
            rest=rest,
            metadata=metadata,
            linked=bool(flags & 1),
            capsules=_capsules(refs, capsules) if capsules or others else {},
            continued=bool(flags & 2),
            schema=(flags >> 8) - 1 if flags >> 8 else None,
            origin=origin,
            hand=hand,
            known=frozenset((seal.unname(t), idx) for t, idx in known) if known else NOTHING,
        )
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise seal.Damaged(f"the record cannot be read: {error}") from error


def _seen(flat: list[Any], table: list[Version]) -> dict[str, Version]:
    """The versions that a node has seen."""
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {ch if type(ch) is str else seal.unname(ch): table[v] for ch, v in pairs}


def _capsules(refs: Iterable[Ref], stored: list[Any]) -> dict[str, tuple[Capsule, Ref]]:
    kept = [ref for ref in refs if ref.kind == CAPSULE]
    return {
        ref.channel: (Capsule(seed, tuple((t, f, n) for t, f, n in writes), seed_items), ref)
        for ref, (seed, seed_items, writes) in zip(kept, stored, strict=True)
    }


def split_checkpoint(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a checkpoint when values, versions and its id have their own places."""
    apart = {"channel_values", "channel_versions", "versions_seen", "id"}
    return {key: value for key, value in checkpoint.items() if key not in apart}
