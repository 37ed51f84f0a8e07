"""Which program stored a checkpoint: its versions, what the user says of it, and its graph.

The note is one item in the thread's log, shared by everything that the same program stores, so it
costs a few bytes per checkpoint, and is copied, pruned and deleted with the thread.

Asking for the versions takes as long as opening a file, so this program's own note is made when
something is stored, or when a run goes on with a thread, and not by those who only look.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from typing import Any, Literal, NamedTuple

from langgraph_durable._core.serde import ExactSerializer
from langgraph_durable.errors import ConfigurationError, SerializationError

PACKAGES = "langgraph", "langchain-core", "langgraph-durable"
OnChange = Literal["warn", "ignore", "error"]


class Origin(NamedTuple):
    """A note as it is stored, and what it says."""

    raw: bytes
    environment: Mapping[str, Any]
    graph: Mapping[str, Any] | None
    """Channels with their types, and nodes, of a graph that was given to the schema."""


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions of this program's foundations."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = _version(metadata.distribution(package))
        except metadata.PackageNotFoundError:  # a copy of the source, not installed
            continue
    return found


def _version(installed: metadata.Distribution) -> str:
    """Its version, from the one line that says so.

    Asking for it parses all metadata as an e-mail, our README included: 2 to 5 ms for each package,
    as long as opening a file and reading a thread of 100 messages.
    """
    text = "\n" + (installed.read_text("METADATA") or "").partition("\n\n")[0]
    found = text.partition("\nVersion:")[2].partition("\n")[0].strip()
    return found or installed.version


class Note:
    """The note of this program, with what the user gives; see the top of the file.

    What is given is looked at now, so that what is wrong with it is said at once.
    """

    def __init__(
        self, plain: ExactSerializer, given: object, graph: Mapping[str, Any] | None = None
    ) -> None:
        if given is not None and not (
            isinstance(given, Mapping) and all(isinstance(key, str) for key in given)
        ):
            raise ConfigurationError(f"environment is a dict of names and values, not {given!r}")
        self._plain, self._given, self.graph = plain, dict(given or {}), graph
        self._raw: bytes | None = None
        if given or graph is not None:
            self._raw = self._dumped()

    @property
    def environment(self) -> Mapping[str, Any]:
        return {**versions(), **self._given}

    @property
    def raw(self) -> bytes:
        """As it is stored."""
        if self._raw is None:
            self._raw = self._dumped()
        return self._raw

    def _dumped(self) -> bytes:
        try:
            return self._plain.dump_item({"environment": self.environment, "graph": self.graph})
        except SerializationError as error:
            raise ConfigurationError(f"environment cannot be stored: {error}") from error


def read(plain: ExactSerializer, raw: bytes) -> Origin:
    """What a stored note says; what cannot be read says nothing."""
    found = plain.load_item(raw)
    if type(found) is not dict:
        return Origin(raw, {}, None)
    return Origin(raw, found.get("environment") or {}, found.get("graph"))


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another in one environment than in another, as text."""
    names = sorted({*before, *now})
    return [
        f"{name}: {_shown(before, name)} -> {_shown(now, name)}"
        for name in names
        if before.get(name, names) != now.get(name, names)
    ]


def _shown(environment: Mapping[str, Any], name: str) -> str:
    return str(environment[name]) if name in environment else "(none)"


def graph_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another in one graph than in another, as text."""
    old, new = before.get("channels") or {}, now.get("channels") or {}
    was, nodes = set(before.get("nodes") or ()), set(now.get("nodes") or ())
    return [
        *(f"added channel {name!r} ({new[name]})" for name in sorted(new.keys() - old.keys())),
        *(f"removed channel {name!r} ({old[name]})" for name in sorted(old.keys() - new.keys())),
        *(
            f"retyped channel {name!r}: {old[name]} -> {new[name]}"
            for name in sorted(new.keys() & old.keys())
            if old[name] != new[name]
        ),
        *(f"added node {name!r}" for name in sorted(nodes - was)),
        *(f"removed node {name!r}" for name in sorted(was - nodes)),
    ]
