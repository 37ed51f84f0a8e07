"""Results as people read them: RESULTS.md, the table of README.md, and which charts there are.

Everything is made from the plain data of results.json, so that it can be made again and checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import charts as draw

Json = Mapping[str, Any]
START, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"
ORDER = (
    "ours sqlite",
    "stock sqlite",
    "stock postgres",
    "ours redis",
    "official redis",
    "memory",
    "bare sqlite",
    "bare redis",
    "serialise",
    "reference",
)
RIVALS = {"ours sqlite": "stock sqlite", "ours redis": "official redis"}
TITLES = {
    "ours sqlite": "ours, SQLite",
    "stock sqlite": "stock SQLite",
    "stock postgres": "stock Postgres",
    "ours redis": "ours, Redis",
    "official redis": "official Redis",
    "memory": "InMemorySaver",
}
SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "B": ((1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")),
    "/s": ((1.0, "/s"),),
    "x": ((1.0, "x"),),
    "": ((1.0, ""),),
}


def number(value: float, unit: str) -> str:
    """Three digits in the scale that suits them: `0.52 ms`, `2.05 GB`."""
    if unit == "s" and value <= 0:
        return "≈ 0"  # a difference of two times that is smaller than their spread
    scale, suffix = next(
        (one for one in SCALES[unit] if abs(value) >= one[0]),
        SCALES[unit][-1],
    )
    scaled = value / scale
    if unit in ("", "B") and scale == 1.0:
        return f"{scaled:,.0f}{suffix}"
    digits = 0 if abs(scaled) >= 100 else 1 if abs(scaled) >= 10 else 2
    return f"{scaled:,.{digits}f}{suffix}"


def tick(value: float, unit: str) -> str:
    """A round number of an axis."""
    shown = number(value, unit)
    head, space, suffix = shown.partition(" ")
    return f"{head.rstrip('0').rstrip('.') if '.' in head else head}{space}{suffix}"


def times_better(figure: Json, who: str, rival: str, by: str = "median") -> float | None:
    """How many times better `who` is than `rival`; below 1 it is worse. None if unknown."""
    readings = figure["readings"]
    if who not in readings or rival not in readings:
        return None
    ours, theirs = readings[who][by], readings[rival][by]
    if ours is None or theirs is None or theirs <= 0:
        return None
    if ours <= 0:
        return float("inf")
    return float(ours / theirs if figure["unit"] == "/s" else theirs / ours)


def is_kept(figure: Json, promise: Json) -> bool | None:
    """Whether a promise holds; None if somebody it speaks of is missing."""
    reading = figure["readings"].get(promise["who"])
    if reading is None:
        return None
    if promise["rival"] is None:
        value = reading[promise["by"]]
        return bool(
            value >= promise["limit"] if figure["unit"] == "/s" else value <= promise["limit"]
        )
    ratio = times_better(figure, promise["who"], promise["rival"], promise["by"])
    return None if ratio is None else ratio >= promise["limit"]


def verdict(figure: Json, promise: Json) -> str:
    """A promise and what became of it."""
    kept = is_kept(figure, promise)
    word = {True: "kept", False: "MISSED", None: "not known"}[kept]
    found = ""
    if kept is not None and promise["rival"] is None:
        found = number(figure["readings"][promise["who"]][promise["by"]], figure["unit"])
    elif kept is not None:
        ratio = times_better(figure, promise["who"], promise["rival"], promise["by"])
        found = f"{ratio:.2f}x" if ratio is not None else ""
    return f"{word}: {promise['who']} {promise['text']}: {found}"


# ---- RESULTS.md ------------------------------------------------------------------------------


def document(results: Json) -> str:
    """The whole report."""
    parts = [
        "# Results",
        introduction(results),
        "## The short table",
        table(results),
        "## Where we lose",
        losses(results),
        "## Promises",
        promises(results),
    ]
    for section in results["sections"]:
        parts.append(f"## {section['title']}")
        if section["about"]:
            parts.append(section["about"])
        for name in chart_names(section):
            parts.append(f"![{name}](charts/{name})")
        if section["figures"]:
            parts.append(section_table(section["figures"]))
        parts += [f"{figure['name']}: {figure['note']}." for figure in noted(section)]
        parts += list(failures(section))
    return "\n\n".join(parts) + "\n"


SPREAD = (
    "Medians of interleaved rounds, with quartiles in brackets; *CPU* is the processor time of the "
    "client process for one call, which hardly depends on what else the machine does."
)


def introduction(results: Json) -> str:
    """Where the figures come from."""
    machine, settings = results["machine"], results["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    made = (
        f"Made by `benchmarks/run.py` ({settings['pace']}) on {results['made'][:10]} in "
        f"{results['seconds'] / 60:.0f} minutes: {machine['processor']}, {machine['cores']} cores, "
        f"Python {machine['python']}, SQLite {machine['sqlite']}, {settings['redis server']}; "
        f"{versions}."
    )
    lines = [
        made,
        SPREAD,
        *(f"*{level}* is {means}." for level, means in settings["levels"].items()),
    ]
    if settings["pace"] != "full":
        lines.append(f"**A {settings['pace']} run: small sizes, few rounds.**")
    lines += [f"Not available: {name}: {reason}" for name, reason in results["missing"].items()]
    return "\n\n".join(lines)


def each_figure(results: Json) -> Iterator[tuple[str, Json]]:
    """Every figure, with a name that says its section too."""
    for section in results["sections"]:
        for figure in section["figures"]:
            yield f"{section['title']}: {full_name(figure)}", figure


def full_name(figure: Json) -> str:
    return f"{figure['name']}, {figure['level']}" if figure["level"] else str(figure["name"])


def losses(results: Json) -> str:
    """Every figure in which one of ours is worse than the stock saver of its kind."""
    found = []
    for named, figure in each_figure(results):
        for who, rival in RIVALS.items():
            ratio = times_better(figure, who, rival)
            if ratio is not None and ratio < 0.98:
                ours, theirs = (figure["readings"][name] for name in (who, rival))
                found.append(
                    f"- {named}: {who} {number(ours['median'], figure['unit'])}, "
                    f"{rival} {number(theirs['median'], figure['unit'])} ({1 / ratio:.2f}x worse)"
                )
    return "\n".join(found) or "Nowhere, against the stock saver of the same kind."


def promises(results: Json) -> str:
    """What was promised, and whether it holds."""
    judged = [
        f"- {named}: {verdict(figure, promise)}"
        for named, figure in each_figure(results)
        for promise in figure["promises"]
    ]
    missed = sum(": MISSED:" in line for line in judged)
    return "\n".join([f"{len(judged) - missed} of {len(judged)} hold.", "", *judged])


def section_table(figures: Sequence[Json]) -> str:
    """A row for each figure, a column for everybody who is in one of them."""
    names = [name for name in ORDER if any(name in figure["readings"] for figure in figures)]
    rows = [["", *names], ["---"] * (len(names) + 1)]
    for figure in figures:
        rows.append([full_name(figure), *(cell(figure, name) for name in names)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell(figure: Json, name: str) -> str:
    """A reading with its spread, tail and processor time, as far as they are known."""
    reading, unit = figure["readings"].get(name), figure["unit"]
    if reading is None:
        return "failed" if name in figure["failed"] else ""
    parts = [f"**{number(reading['median'], unit)}**"]
    if reading["low"] != reading["high"]:
        parts.append(f"({number(reading['low'], unit)}..{number(reading['high'], unit)})")
    if reading["p99"] is not None:
        parts.append(f"p50 {number(reading['p50'], 's')} p99 {number(reading['p99'], 's')}")
    if reading["cpu"] is not None:
        parts.append(f"CPU {number(reading['cpu'], 's')}")
    return " ".join(parts)


def noted(section: Json) -> Iterator[Json]:
    return (figure for figure in section["figures"] if figure["note"])


def failures(section: Json) -> Iterator[str]:
    for figure in section["figures"]:
        for name, reason in figure["failed"].items():
            yield f"{full_name(figure)}: {name} failed: `{reason}`"


# ---- the table of README.md --------------------------------------------------------------------

Row = tuple[str, str, str, str]
ROWS: tuple[Row, ...] = (
    ("chat", "chat: stored at", "", "stored after {last} messages of chat"),
    ("chat", "chat: own time a turn at", "full", "saver's own time per chat turn, at {last}"),
    (
        "subgraph",
        "sub-graph: bytes a turn at the end",
        "",
        "bytes per turn over new text, sub-graph",
    ),
    ("files", "files: bytes a turn at the end", "", "bytes per turn over new text, 200 files"),
    ("large", "5 MB unchanged", "full", "5 MB value that stays: stored, over its size"),
    ("calls", "put", "full", "`put`, survives a power cut"),
    ("calls", "put", "normal", "`put`, survives `kill -9`"),
    ("calls", "get_tuple", "normal", "`get_tuple`, 100 messages"),
    ("calls", "list of all 50", "normal", "`list` of 50 checkpoints"),
    ("calls", "aput, 32 at once", "full", "`aput`, 32 threads, survives a power cut"),
    ("calls", "aget_tuple, 32 at once", "normal", "`aget_tuple`, 32 threads"),
    ("tiny", "put", "normal", "`put` of one integer"),
    ("processes", "put, 4 processes", "full", "`put`, 4 processes"),
    ("fan-out", "own cost of 100 Send tasks", "normal", "saver's own time, 100 `Send` tasks"),
    ("cold", "open and read", "normal", "open and read in a new process, {what}"),
    ("removing", "delete_thread", "full", "`delete_thread` of {what}"),
    ("stall", "stall, aput of one more", "normal", "event loop stands still, {what}"),
    ("memory", "memory of the process", "normal", "memory of the process, {what}"),
)
COLUMNS = ORDER[:6]


def find(results: Json, section: str, name: str, level: str) -> Json | None:
    """The last figure of that name: names may go on after a space or a colon."""
    found = None
    for one in results["sections"]:
        if one["name"] != section:
            continue
        for figure in one["figures"]:
            exact = figure["name"] == name
            longer = " " in name and figure["name"].startswith(name)
            if (exact or (longer and not found_exactly(found, name))) and figure["level"] == level:
                if "time a turn" in figure["name"] and "time a turn" not in name:
                    continue
                found = figure
    return found


def found_exactly(found: Json | None, name: str) -> bool:
    return found is not None and found["name"] == name


def table(results: Json) -> str:
    """The short table: one row for each of `ROWS` that was measured."""
    head = ["", *(TITLES[name] for name in COLUMNS), "SQLite: ours/stock", "Redis: ours/official"]
    rows = [head, ["---"] * len(head)]
    for section, name, level, label in ROWS:
        figure = find(results, section, name, level)
        if figure is not None:
            rows.append([labelled(label, figure), *values(figure), *ratios(figure)])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", legend(results)])


def labelled(label: str, figure: Json) -> str:
    """The label with what the figure's own name says of its size."""
    last = figure["name"].rpartition(" at ")[2].removesuffix(" messages")
    what = figure["name"].partition(", ")[2] or figure["name"].partition(" of ")[2]
    return label.format(last=last, what=what)


def values(figure: Json) -> Iterator[str]:
    for name in COLUMNS:
        reading = figure["readings"].get(name)
        if reading is None:
            yield "fails" if name in figure["failed"] else "–"
        else:
            yield number(reading["median"], figure["unit"])


def ratios(figure: Json) -> Iterator[str]:
    for who, rival in RIVALS.items():
        ratio = times_better(figure, who, rival)
        if ratio is None:
            yield "–"
        elif ratio >= 0.98:
            yield f"{number(ratio, 'x')} better"
        else:
            yield f"**{number(1 / ratio, 'x')} worse**"


def legend(results: Json) -> str:
    """One line that says how the figures were made."""
    machine, pace = results["machine"], results["settings"]["pace"]
    return (
        f"Medians of a {pace} run of `benchmarks/run.py` on {results['made'][:10]}, "
        f"{machine['cores']} cores, all savers in turn at equal durability; spread, tails, "
        "processor time and the rest are in [RESULTS.md](benchmarks/RESULTS.md)."
    )


def with_table(readme: str, results: Json) -> str:
    """README.md with the table between its marks."""
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table(results)}\n{END}{after}"


# ---- charts ------------------------------------------------------------------------------------

CHARTS: dict[str, tuple[str, str]] = {
    "chat: stored bytes": ("growth.svg", "What a conversation takes to store"),
    "chat: bytes a turn": ("bytes-per-turn.svg", "What one more turn takes to store"),
    "chat: time a turn": ("turn-time.svg", "How long a turn takes, LangGraph's own time included"),
    "chat: saver's own time a turn": ("own-time.svg", "How long the saver takes in a turn"),
    "chat: saver's own CPU time a turn": ("own-cpu.svg", "Processor time of the saver in a turn"),
    "sub-graph: stored bytes": ("subgraph.svg", "The conversation handed to a sub-graph each turn"),
    "files: stored bytes": ("files.svg", "200 files in the state, one changes per turn"),
}
NOTE = "two messages of 600 bytes a turn, durability full; both axes are logarithmic"
NOTES = {"files: stored bytes": "files of 2,000 bytes; both axes are logarithmic"}
CALLS = (("put", "full"), ("put", "normal"), ("get_tuple", "normal"), ("aput", "normal"))


def chart_names(section: Json) -> list[str]:
    names = [CHARTS[curve["name"]][0] for curve in section["curves"] if curve["name"] in CHARTS]
    return [*names, "calls.svg"] if section["name"] == "calls" else names


def charts(results: Json) -> dict[str, str]:
    """Every chart by the name of its file."""
    found = {}
    for section in results["sections"]:
        for curve in section["curves"]:
            if curve["name"] in CHARTS:
                file, title = CHARTS[curve["name"]]
                show: Callable[[float], str] = partial(tick, unit=curve["unit"])
                note = NOTES.get(curve["name"], NOTE)
                found[file] = draw.growth(title, note, curve["x"], curve["series"], show)
        if section["name"] == "calls":
            found["calls.svg"] = calls_chart(results)
    return found


def calls_chart(results: Json) -> str:
    groups = {}
    for name, level in CALLS:
        figure = find(results, "calls", name, level)
        if figure is not None:
            groups[f"{name}, {level}"] = {
                who: figure["readings"][who]["median"]
                for who in COLUMNS
                if who in figure["readings"]
            }
    note = "ten channels with 100 messages, one channel changes; shorter is better, log scale"
    return draw.bars("One call", note, groups, partial(tick, unit="s"))
