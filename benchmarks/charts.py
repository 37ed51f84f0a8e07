"""Charts as SVG text: growth curves and bars on logarithmic axes, without a plotting library.

A chart brings its own background and follows the reader's light or dark theme. Names stand at the
ends of their lines, pushed apart where they would touch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
Show = Callable[[float], str]
WIDTH, HEIGHT = 760, 430
LEFT, RIGHT, TOP, BOTTOM = 70, 186, 58, 52
ROW = 15

STYLE = """
svg{--fg:#1f2328;--dim:#626a73;--line:#e1e5ea;--bg:#ffffff;
--ours-sqlite:#1d5fd0;--ours-redis:#c8322b;--stock-sqlite:#0b8a83;--stock-postgres:#7a4fc4;
--official-redis:#c07000;--memory:#626a73;--reference:#9aa4af;
font:12px system-ui,-apple-system,"Segoe UI",sans-serif}
@media (prefers-color-scheme:dark){svg{--fg:#e4e8ed;--dim:#9aa4af;--line:#2e353d;--bg:#16191d;
--ours-sqlite:#6ea8ff;--ours-redis:#ff7d74;--stock-sqlite:#3fc6bd;--stock-postgres:#b795ff;
--official-redis:#f0ae45;--memory:#9aa4af;--reference:#69727c}}
.bg{fill:var(--bg)}text{fill:var(--fg)}.dim{fill:var(--dim)}.title{font-size:15px;font-weight:600}
.grid{stroke:var(--line);stroke-width:1}.end{font-weight:600}
polyline{fill:none;stroke-width:1.8;stroke-dasharray:5 4}.ours{stroke-width:3;stroke-dasharray:none}
"""


class Log:
    """A logarithmic axis from data to pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values), max(values)
        if high / low < 1.5:
            low, high = low / 1.5, high * 1.5
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten; with 2 and 5 between them where the axis is short."""
        steps = (1, 2, 5) if self.high / self.low < 100 else (1,)
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        every = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [tick for tick in every if self.low * 0.999 <= tick <= self.high * 1.001]


def colour(name: str) -> str:
    """The colour of an entrant, by theme."""
    return f"var(--{name.replace(' ', '-')})"


def frame(title: str, note: str, height: int, body: str) -> str:
    """A whole picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title)}"><style>{STYLE}</style>'
        f'<rect class="bg" width="{WIDTH}" height="{height}" rx="8"/>'
        f'<text class="title" x="20" y="28">{escape(title)}</text>'
        f'<text class="dim" x="20" y="46">{escape(note)}</text>{body}</svg>\n'
    )


def growth(title: str, note: str, x: str, series: Mapping[str, Points], show: Show) -> str:
    """Lines on two logarithmic axes."""
    drawn = {
        name: [(a, b) for a, b in points if a > 0 and b > 0] for name, points in series.items()
    }
    drawn = {name: points for name, points in drawn.items() if points}
    every = [point for points in drawn.values() for point in points]
    across = Log([a for a, _ in every], LEFT, WIDTH - RIGHT)
    heights = [b for _, b in every]
    up = Log([min(heights) / 1.3, *heights], HEIGHT - BOTTOM, TOP + 14)
    marks = sorted({a for a, _ in every})
    parts = [_grid(up, show), _marks(across, marks, x)]
    for name, points in sorted(drawn.items(), key=lambda one: one[0].startswith("ours")):
        parts.append(_line(name, points, across, up, show))
    ends = {name: up.at(points[-1][1]) for name, points in drawn.items()}
    for name, y in spread(ends).items():
        label = f"{name} {show(drawn[name][-1][1])}"
        parts.append(
            f'<text class="end" x="{WIDTH - RIGHT + 10}" y="{y + 4:.1f}" '
            f'style="fill:{colour(name)}">{escape(label)}</text>'
        )
    return frame(title, note, HEIGHT, "".join(parts))


def _grid(up: Log, show: Show) -> str:
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up.at(t):.1f}" '
        f'y2="{up.at(t):.1f}"/><text class="dim" x="{LEFT - 8}" y="{up.at(t) + 4:.1f}" '
        f'text-anchor="end">{escape(show(t))}</text>'
        for t in up.ticks()
    )


def _marks(across: Log, marks: Sequence[float], x: str) -> str:
    base, out, last = HEIGHT - BOTTOM, [], -math.inf
    for mark in marks:
        at = across.at(mark)
        out.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{base}" y2="{base + 5}"/>')
        if at - last > 36:
            out.append(
                f'<text class="dim" x="{at:.1f}" y="{base + 20}" text-anchor="middle">'
                f"{mark:,.0f}</text>"
            )
            last = at
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text x="{middle}" y="{base + 40}" text-anchor="middle">{escape(x)}</text>')
    return "".join(out)


def _line(name: str, points: Points, across: Log, up: Log, show: Show) -> str:
    at = " ".join(f"{across.at(a):.1f},{up.at(b):.1f}" for a, b in points)
    kind = ' class="ours"' if name.startswith("ours") else ""
    dots = "".join(
        f'<circle cx="{across.at(a):.1f}" cy="{up.at(b):.1f}" r="3" fill="{colour(name)}">'
        f"<title>{escape(name)}, {a:,.0f}: {escape(show(b))}</title></circle>"
        for a, b in points
    )
    return f'<polyline{kind} style="stroke:{colour(name)}" points="{at}"/>{dots}'


def spread(wanted: Mapping[str, float]) -> dict[str, float]:
    """Heights near the wanted ones, each a row apart from the next."""
    placed: dict[str, float] = {}
    last = -math.inf
    for name, y in sorted(wanted.items(), key=lambda one: one[1]):
        last = placed[name] = max(y, last + ROW)
    most = max(placed.values(), default=0.0) - (HEIGHT - BOTTOM)
    if most > 0:
        placed = {name: y - most for name, y in placed.items()}
    return placed


def bars(title: str, note: str, groups: Mapping[str, Mapping[str, float]], show: Show) -> str:
    """Groups of horizontal bars on one logarithmic axis."""
    every = [value for group in groups.values() for value in group.values() if value > 0]
    along = Log([min(every) / 1.6, max(every)], 210, WIDTH - 90)
    parts, y = [], 66
    for what, group in groups.items():
        parts.append(f'<text class="end" x="20" y="{y + 10}">{escape(what)}</text>')
        y += 18
        for name, value in group.items():
            if value <= 0:
                continue
            end = along.at(value)
            parts.append(
                f'<text class="dim" x="202" y="{y + 10}" text-anchor="end">{escape(name)}</text>'
                f'<rect x="210" y="{y}" width="{end - 210:.1f}" height="11" rx="2" '
                f'fill="{colour(name)}"/>'
                f'<text class="dim" x="{end + 6:.1f}" y="{y + 10}">{escape(show(value))}</text>'
            )
            y += ROW
        y += 8
    return frame(title, note, y + 10, "".join(parts))
