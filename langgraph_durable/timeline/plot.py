"""Plots as inline SVG: where the time went, and how the state grew. Colours follow the theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from langgraph_durable.timeline.binary import amount

if TYPE_CHECKING:
    from langgraph_durable.timeline.step import Step
    from langgraph_durable.timeline.timeline import Timeline

MOST = 120
"""Steps whose sizes are read; of longer threads an even sample."""
WIDTH = 640


def time_per_node(steps: Sequence[Step]) -> dict[str, float]:
    """Seconds by node, most first."""
    found: dict[str, float] = {}
    for step in steps:
        if step.took is not None:
            found[step.node] = found.get(step.node, 0.0) + step.took.total_seconds()
    return dict(sorted(found.items(), key=lambda one: -one[1]))


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
        self.sizes = [(step.number, step.bytes_by_channel) for step in sampled(steps)]

    @property
    def channels(self) -> dict[str, int]:
        """The bytes of each channel at the last step, most first."""
        last: Mapping[str, int] = self.sizes[-1][1] if self.sizes else {}
        return dict(sorted(last.items(), key=lambda one: -one[1]))

    def __repr__(self) -> str:
        lines = [f"Plot of {self.thread_id!r}"]
        lines += [f"  {node:<24} {spent:8.3f} s" for node, spent in self.seconds.items()]
        lines += [f"  {name:<24} {amount(size):>10}" for name, size in self.channels.items()]
        return "\n".join(lines)

    def svg(self) -> str:
        """The plots, one below the other, as one SVG element."""
        bars = {node: (spent, f"{spent:.3f} s") for node, spent in self.seconds.items()}
        sizes = {name: (float(size), amount(size)) for name, size in self.channels.items()}
        parts = [_bars("Time per node", bars), self._growth(), _bars("Bytes per channel", sizes)]
        out, y = [], 0
        for height, body in parts:
            out.append(f'<g transform="translate(0 {y})">{body}</g>')
            y += height + 18
        return (
            f'<svg class="lgd-plot" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'aria-label="Time and bytes" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}">'
            f"{''.join(out)}</svg>"
        )

    def _growth(self) -> tuple[int, str]:
        totals = [(number, sum(sizes.values())) for number, sizes in self.sizes]
        most = max((total for _, total in totals), default=0) or 1
        wide = min((WIDTH - 8) / max(len(totals), 1), 40)
        bars = "".join(
            f'<rect class="bar" x="{4 + at * wide:.1f}" y="{120 - 90 * total / most:.1f}" '
            f'width="{max(wide - 1, 1):.1f}" height="{90 * total / most:.1f}">'
            f"<title>step {number}: {amount(total)}</title></rect>"
            for at, (number, total) in enumerate(totals)
        )
        note = (
            f'<text class="note" x="{WIDTH - 4}" y="16" text-anchor="end">to {amount(most)}</text>'
        )
        return 124, f'<text class="title" x="4" y="16">Bytes per step</text>{note}{bars}'

    def _repr_html_(self) -> str:
        from langgraph_durable.timeline import html

        return html.page(self.svg())


def _bars(title: str, bars: Mapping[str, tuple[float, str]]) -> tuple[int, str]:
    """A bar for each name; the height it takes, and the SVG."""
    most = max((value for value, _ in bars.values()), default=0) or 1
    out = [f'<text class="title" x="4" y="16">{escape(title)}</text>']
    for at, (name, (value, label)) in enumerate(bars.items()):
        y, wide = 26 + at * 22, 360 * value / most
        long = name if len(name) <= 24 else f"{name[:23]}…"
        out.append(
            f'<text x="4" y="{y + 13}">{escape(long)}</text>'
            f'<rect class="bar" x="180" y="{y}" width="{wide:.1f}" height="16" rx="3">'
            f"<title>{escape(name)}: {escape(label)}</title></rect>"
            f'<text class="note" x="{186 + wide:.1f}" y="{y + 13}">{escape(label)}</text>'
        )
    return 26 + 22 * len(bars), "".join(out)
