"""Plots as inline SVG: where the time went, and how the state grew. Colours follow the theme."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING

from langgraph_durable.errors import DurableError
from langgraph_durable.timeline.binary import amount
from langgraph_durable.timeline.summary import time_per_node
from langgraph_durable.timeline.text import folded
from langgraph_durable.timeline.timeline import seconds

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline

MOST = 120
"""Steps whose sizes are read; of longer threads an even sample."""
MOST_BARS = 20
"""Nodes or channels that are drawn."""
FITS = 20
"""Letters of a name that there is room for in any case."""


def sampled(steps: Sequence[Step]) -> list[Step]:
    """All steps, or an even choice with the last one."""
    if len(steps) <= MOST:
        return list(steps)
    return [steps[round(at * (len(steps) - 1) / (MOST - 1))] for at in range(MOST)]


class Plot:
    """Time per node, bytes per step and per channel."""

    def __init__(self, timeline: Timeline) -> None:
        steps = list(timeline)
        self.thread_id = timeline.thread_id
        self.seconds = time_per_node(steps)
        self.sizes = list(_sizes(sampled(steps)))

    @property
    def channels(self) -> dict[str, int]:
        """The bytes of each channel at the last step, most first."""
        last: Mapping[str, int] = self.sizes[-1][1] if self.sizes else {}
        return dict(sorted(last.items(), key=lambda one: -one[1]))

    def __repr__(self) -> str:
        lines = [f"Plot of {self.thread_id!r}"]
        for title, rows in (("time per node", self._times()), ("bytes per channel", self._sums())):
            most = max((value for value, _ in rows.values()), default=0) or 1
            lines.append(f"  {title}")
            for name, (value, label) in rows.items():
                bar = "█" * round(30 * value / most) or "▏"
                lines.append(f"    {folded(name, 24):<24} {label:>9}  {bar}")
        return "\n".join(lines)

    def _times(self) -> dict[str, tuple[float, str]]:
        return {name: (spent, seconds(timedelta(0, spent))) for name, spent in self.seconds.items()}

    def _sums(self) -> dict[str, tuple[float, str]]:
        return {name: (size, amount(size)) for name, size in self.channels.items()}

    def svg(self) -> str:
        """The plots, one below the other; as wide as there is room, with letters of one size."""
        times, sums = (
            _bars("Time per node", self._times()),
            _bars("Bytes per channel", self._sums()),
        )
        parts = [times, self._growth(), sums]
        return f'<div class="lgd-plots">{"".join(parts)}</div>'

    def _growth(self) -> str:
        totals = [(label, sum(sizes.values())) for label, sizes in self.sizes]
        most = max((total for _, total in totals), default=0) or 1
        wide = min(100 / max(len(totals), 1), 6)
        bars = "; ".join(
            f'<rect class="bar" x="{at * wide:.2f}%" y="{126 - 96 * total / most:.1f}" '
            f'width="{wide * 0.9:.2f}%" height="{max(96 * total / most, 0.5):.1f}">'
            f"<title>{escape(label)}: {amount(total)}</title></rect>"
            for at, (label, total) in enumerate(totals)
        )
        axis = (
            '<line class="axis" x1="0" x2="100%" y1="29.5" y2="29.5"/>'
            '<line class="axis" x1="0" x2="100%" y1="126.5" y2="126.5"/>'
        )
        return _plot("Bytes per step", 130, axis + bars, f"up to {amount(most)}")

    def _repr_html_(self) -> str:
        from langgraph_durable.timeline import html

        return html.page(self.svg())


def _sizes(steps: Sequence[Step]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The name and the sizes of every step that can be read."""
    for step in steps:
        with suppress(DurableError):
            yield step.label, step.bytes_by_channel


def _plot(title: str, height: int, body: str, note: str = "") -> str:
    """One plot as an SVG element.

    Text beside its elements is not drawn: it parts the words where a viewer takes the elements out.
    """
    beside = f'<text class="note" x="100%" y="16" text-anchor="end">{escape(note)}</text>'
    return (
        f'<div><svg class="lgd-plot" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{escape(title)}" width="100%" height="{height}">'
        f'<text class="title" x="0" y="16">{escape(title)}</text>: '
        f"{beside + '; ' if note else ''}{body}</svg></div>"
    )


def _bars(title: str, bars: Mapping[str, tuple[float, str]]) -> str:
    """A bar for each name, most first; the many small ones together."""
    most = max((value for value, _ in bars.values()), default=0) or 1
    out = []
    for at, (name, (value, label)) in enumerate(list(bars.items())[:MOST_BARS]):
        y, wide = 26 + at * 22, 55 * value / most
        tip = f"<title>{escape(name)}</title>" if len(name) > FITS else ""
        out.append(
            f'<svg y="{y}" width="29%" height="18"><text y="13">{escape(name[:60])}</text></svg> '
            f'<rect class="bar" x="30%" y="{y}" width="{wide:.2f}%" height="16" rx="3">{tip}</rect>'
            f'<text class="note" x="{31 + wide:.2f}%" y="{y + 13}">{escape(label)}</text>'
        )
    rest = len(bars) - MOST_BARS
    if rest > 0:
        out.append(f'<text class="note" x="0" y="{39 + 22 * MOST_BARS}">… {rest:,} more</text>')
    return _plot(title, 34 + 22 * min(len(bars), MOST_BARS + 1), "; ".join(out))
