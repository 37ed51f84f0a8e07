"""The ladder of a program's state: its versions, and the steps between them.

A `StateSchema` builds it, `evolution` climbs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph_durable._core.edits import StateEdit

Step = Callable[[StateEdit], object]
LARGEST = 1 << 40
VERSION = "schema_version"
"""The metadata key that shows the version a checkpoint was stored under."""


def parted(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Metadata that was shown, as it is stored, and the version that it tells."""
    version = metadata.get(VERSION)
    if type(version) is not int or not 0 <= version < LARGEST:
        return dict(metadata), None
    return {key: value for key, value in metadata.items() if key != VERSION}, version


@dataclass(slots=True)
class Steps:
    """The steps between versions."""

    version: int
    unversioned: int = 0
    """What data without a version counts as."""
    up: dict[int, Step] = field(default_factory=dict)
    down: dict[int, Step] = field(default_factory=dict)
    """Each by the version it leads to."""
    triggers: dict[str, Sequence[str]] = field(default_factory=dict)
    """What wakes the nodes of the program's graph, where it is known."""

    def way(self, stored: int) -> list[int]:
        """The versions from a stored one to today's, or to the first that no step leads to."""
        found = [stored]
        for to, step in self.between(stored):
            found.append(to)
            if step is None:  # whoever takes dates for versions is millions of them away
                break
        return found

    def between(self, stored: int) -> Iterator[tuple[int, Step | None]]:
        """The versions on the way from `stored`, each with the step that leads to it."""
        if stored <= self.version:
            for to in range(stored + 1, self.version + 1):
                # Version 1 is the first one: without a step of its own it is what came before.
                yield to, self.up.get(to) or (_nothing if to == 1 else None)
        else:
            for to in range(stored - 1, self.version - 1, -1):
                yield to, self.down.get(to)

    def ends(self) -> tuple[int, int]:
        """The oldest and the newest version from which there is a way."""
        oldest = self.version
        while oldest in self.up or oldest == 1:
            oldest -= 1
        return oldest, self.version + len(self.down)


def _nothing(state: StateEdit) -> None:
    """The step to the first version."""
