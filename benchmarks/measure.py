"""Measure and judge: interleaved samples, their medians, the figures made of them, and the table.

A scenario hands `interleave` one zero-argument function per saver, each of which returns a number
(seconds, bytes or a rate); it wraps the answers in `Figure`s; `foundation.py` prints those.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

Unit = Literal["s", "B", "/s", "x"]
Samples = dict[str, list[float]]
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Reading:
    """The median of several rounds and their quartiles (the extremes of fewer than four)."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Reading:
        """Summarise the rounds of one saver."""
        rounds = sorted(values)
        if len(rounds) < 4:
            return cls(statistics.median(rounds), rounds[0], rounds[-1])
        low, middle, high = statistics.quantiles(rounds, n=4, method="inclusive")
        return cls(middle, low, high)

    def show(self, unit: Unit) -> str:
        """The median with its quartiles, or the bare number when every round agreed."""
        middle = show_number(self.median, unit)
        if self.low == self.high:
            return middle
        return f"{middle} ({show_number(self.low, unit)}..{show_number(self.high, unit)})"


@dataclass(frozen=True, slots=True)
class Target:
    """A promise of the issue: `ratio` must reach the limit, or `ours` must stay within it.

    A target of `nothing` judges nothing: the line is there to be read beside its neighbours.
    """

    text: str
    of: Literal["ratio", "ours", "nothing"]
    limit: float


INFORMATION = Target("(for information)", "nothing", 0)


def times_better(limit: float, text: str) -> Target:
    """Ours must be at least `limit` times better than the rival (1/1.3: at most 1.3x worse)."""
    return Target(text, "ratio", limit)


def at_most(limit: float, text: str) -> Target:
    """Our own number must not exceed `limit`, whatever the rival does."""
    return Target(text, "ours", limit)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: a promise, what was measured for it, and whether it is kept."""

    name: str
    unit: Unit
    target: Target
    ours: Reading | None
    rival_name: str = ""
    rival: Reading | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better ours is than the rival; below 1 it is worse."""
        if self.ours is None or self.rival is None:
            return None
        ours, rival = self.ours.median, self.rival.median
        if self.unit == "/s":
            return ours / rival
        return rival / ours if ours > 0 else math.inf

    @property
    def verdict(self) -> str:
        """`ok`, `MISSED`, `-` if nothing is promised, `skipped` if ours could not be imported."""
        if self.ours is None:
            return "skipped"
        if self.target.of == "nothing":
            return "-"
        if self.target.of == "ours":
            return "ok" if self.ours.median <= self.target.limit else "MISSED"
        ratio = self.ratio
        return "ok" if ratio is not None and ratio >= self.target.limit else "MISSED"

    def as_json(self) -> dict[str, Any]:
        """The figure as plain data, for `--json`."""
        return {
            "name": self.name,
            "unit": self.unit,
            "target": self.target.text,
            "ours": reading_json(self.ours),
            "rival_name": self.rival_name,
            "rival": reading_json(self.rival),
            "ratio": self.ratio,
            "verdict": self.verdict,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """How thorough this run is, where its files go, and whether our saver takes part."""

    quick: bool
    directory: Path
    ours: bool

    def pick(self, quick: Number, full: Number) -> Number:
        """One number for `--quick`, another for a full run."""
        return quick if self.quick else full

    def entrants(self, *names: str) -> tuple[str, ...]:
        """The named savers, without ours when it cannot be imported."""
        return tuple(name for name in names if name != "ours" or self.ours)

    def folder(self, name: str) -> Path:
        """An empty directory of its own for one saver, so that its size is that saver's size."""
        path = self.directory / name
        path.mkdir(parents=True)
        return path


def interleave(samplers: Mapping[str, Callable[[], float]], rounds: int) -> Samples:
    """Sample every saver once a round, in turn, so that a slow minute hurts all of them alike.

    The first round warms up and is thrown away; the order is reversed every other round. Garbage
    is collected between samples, so that no saver pays for another's, and what was alive before
    (LangGraph's modules, the prepared states) is kept out of the collections inside them.
    """
    samples: Samples = {name: [] for name in samplers}
    gc.collect()
    gc.freeze()
    try:
        for number in range(rounds + 1):
            for name in list(samplers)[:: 1 if number % 2 else -1]:
                gc.collect()
                value = samplers[name]()
                if number:
                    samples[name].append(value)
    finally:
        gc.unfreeze()
    return samples


def compare(
    name: str, unit: Unit, samples: Samples, rival: str, target: Target, note: str = ""
) -> Figure:
    """Make a figure of what `interleave` returned: ours against one rival."""
    ours = Reading.of(samples["ours"]) if samples.get("ours") else None
    return Figure(name, unit, target, ours, rival, Reading.of(samples[rival]), note)


def above(samples: Samples, base: str) -> Samples:
    """What each saver took more than `base` in the same round: its own cost."""
    return {
        name: [value - floor for value, floor in zip(values, samples[base], strict=True)]
        for name, values in samples.items()
        if name != base
    }


def reading_json(reading: Reading | None) -> dict[str, float] | None:
    """A reading as plain data."""
    if reading is None:
        return None
    return {"median": reading.median, "low": reading.low, "high": reading.high}


SCALES: dict[Unit, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "/s": ((1.0, "/s"),),
    "x": ((1.0, "x"),),
}


def show_number(value: float, unit: Unit) -> str:
    """A number of three or four digits in the scale that suits it: `0.52 ms`, `2.05 GB`."""
    scale, suffix = next(
        ((scale, suffix) for scale, suffix in SCALES[unit] if abs(value) >= scale),
        SCALES[unit][-1],
    )
    scaled = value / scale
    digits = 0 if abs(scaled) >= 100 else 1 if abs(scaled) >= 10 else 2
    return f"{scaled:,.{digits}f}{'' if unit in ('/s', 'x') else ' '}{suffix}"


COLUMNS = (("figure", 50), ("target", 27), ("ours", 33), ("rival", 42), ("ratio", 8), ("", 7))


def table_head() -> str:
    """The two lines above the table."""
    names = "  ".join(title.ljust(width) for title, width in COLUMNS)
    return f"{names}\n{'  '.join('-' * width for _, width in COLUMNS)}"


def table_row(figure: Figure) -> str:
    """One figure as a line of the table, and its note below it."""
    rival = "-"
    if figure.rival is not None:
        rival = f"{figure.rival_name} {figure.rival.show(figure.unit)}"
    cells = (
        figure.name,
        figure.target.text,
        "-" if figure.ours is None else figure.ours.show(figure.unit),
        rival,
        "-" if figure.ratio is None else show_number(figure.ratio, "x"),
        figure.verdict,
    )
    line = "  ".join(
        cell.ljust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)
    ).rstrip()
    return f"{line}\n    {figure.note}" if figure.note else line
