"""All benchmarks, or some: ours against the stock savers and the floor, on this machine.

    python benchmarks/run.py             everything, under half an hour
    python benchmarks/run.py --quick     fewer and smaller rounds, under two minutes
    python benchmarks/run.py --render    tables and charts again, from results.json

Writes results.json, RESULTS.md and charts/ beside this file, and the table of README.md. Whoever
cannot take part (no driver, no server) is named with the reason; `--group bench` of pyproject.toml
has the drivers, Postgres comes from the system.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import report
from entrants import PEERS, Plan
from hosts import ROOT, Hosts
from measure import FULL, QUICK, TINY, Curve, Figure, Section
from sections import SECTIONS

HERE = Path(__file__).resolve().parent
PACKAGES = (
    "langgraph-durable",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-redis",
    "aiosqlite",
    "hiredis",
    "psycopg",
    "redis",
)
LEVELS = {
    "full": "SQLite synchronous=FULL, Redis appendfsync always, Postgres synchronous_commit=on",
    "normal": "SQLite synchronous=NORMAL, Redis appendfsync everysec, "
    "Postgres synchronous_commit=off",
}


def main() -> None:
    """Run what is asked for, then write it down."""
    options = parse_options()
    if options.render:
        render(HERE, json.loads((HERE / "results.json").read_text("utf-8")), ROOT / "README.md")
        return
    results = run(options)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    whole = options.out.resolve() == HERE and not options.only
    render(options.out, results, ROOT / "README.md" if whole else None)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_const", const=QUICK, dest="pace", default=FULL)
    parser.add_argument("--tiny", action="store_const", const=TINY, dest="pace",
                        help="whether everything runs; the figures mean nothing")  # fmt: skip
    parser.add_argument("--only", action="append", choices=SECTIONS, help="may be repeated")
    parser.add_argument("--saver", action="append", choices=PEERS, help="only these; repeatable")
    parser.add_argument("--render", action="store_true", help="from results.json, measure nothing")
    parser.add_argument("--out", type=Path, default=HERE, help="where the results go")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where the databases go; on tmpfs `full` costs nothing and means nothing",
    )
    return parser.parse_args()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the sections; everything as plain data."""
    began = time.perf_counter()
    sections, missing = [], {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as folder,
        Hosts(Path(folder)) as hosts,
    ):
        for name in options.only or SECTIONS:
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder) as place:
                chosen = tuple(options.saver or ())
                plan = Plan(options.pace, Path(place), hosts, missing, chosen)
                sections.append(measure_section(SECTIONS[name], plan))
                hosts.clear()
        settings = {
            "pace": options.pace.name,
            "levels": LEVELS,
            "redis server": hosts.redis_version(),
        }
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - began),
        "machine": machine(),
        "versions": versions(),
        "settings": settings,
        "missing": missing,
        "sections": sections,
    }


def measure_section(section: Section, plan: Plan) -> dict[str, Any]:
    """One section as plain data, printed as it goes."""
    print(f"\n== {section.title}", flush=True)
    began = time.perf_counter()
    figures, curves = [], []
    for found in section.run(plan):
        if isinstance(found, Curve):
            curves.append(asdict(found))
        elif isinstance(found, Figure):
            figures.append(asdict(found))
            print("\n".join(lines(figures[-1])), flush=True)
    return {
        "name": section.name,
        "title": section.title,
        "about": section.about,
        "seconds": round(time.perf_counter() - began, 1),
        "figures": figures,
        "curves": curves,
    }


def lines(figure: dict[str, Any]) -> Iterator[str]:
    """A figure for the terminal."""
    yield f"{figure['name']}{', ' + figure['level'] if figure['level'] else ''}"
    shown = [
        f"{name} {report.number(reading['median'], figure['unit'])}"
        for name, reading in figure["readings"].items()
    ]
    yield "    " + "   ".join(shown)
    for promise in figure["promises"]:
        yield f"    {report.verdict(figure, promise)}"
    for name, reason in figure["failed"].items():
        yield f"    {name} failed: {reason}"


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    info = Path("/proc/cpuinfo")
    named = [line for line in info.read_text().splitlines() if line.startswith("model name")] \
        if info.exists() else []  # fmt: skip
    return {
        "processor": named[0].partition(":")[2].strip() if named else platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def versions() -> dict[str, str]:
    """Of everything that takes part."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def render(out: Path, results: dict[str, Any], readme: Path | None) -> None:
    """Tables and charts from the results."""
    (out / "RESULTS.md").write_text(report.document(results), "utf-8")
    charts = out / "charts"
    charts.mkdir(exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    for name, drawing in report.charts(results).items():
        (charts / name).write_text(drawing, "utf-8")
    if readme is not None and report.START in readme.read_text("utf-8"):
        readme.write_text(report.with_table(readme.read_text("utf-8"), results), "utf-8")


if __name__ == "__main__":
    main()
