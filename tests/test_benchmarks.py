"""The benchmark runs, and what is written of it is what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import report

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
RESULTS = json.loads((BENCHMARKS / "results.json").read_text("utf-8"))
QUICK_ONES = ("ours sqlite", "ours redis", "stock sqlite")


def test_the_smallest_run_measures_every_section_and_writes_everything(tmp_path: Path) -> None:
    savers = [word for name in QUICK_ONES for word in ("--saver", name)]
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--tiny", "--out", str(tmp_path)]
    done = subprocess.run([*command, *savers], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [one["name"] for one in found["sections"]] == [
        one["name"] for one in RESULTS["sections"]
    ], "a section was added or renamed: run the benchmark again"
    for section in found["sections"]:
        readings = [name for figure in section["figures"] for name in figure["readings"]]
        assert set(readings) & set(QUICK_ONES), f"{section['name']} measured nothing"
        failed = [figure["failed"] for figure in section["figures"] if figure["failed"]]
        assert all(set(one) == {"stock sqlite"} for one in failed), failed  # it cannot prune
    assert (tmp_path / "RESULTS.md").read_text("utf-8") == report.document(found)
    for name, drawing in report.charts(found).items():
        assert (tmp_path / "charts" / name).read_text("utf-8") == drawing


def test_the_table_of_the_readme_is_that_of_the_results() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme.count(report.START) == readme.count(report.END) == 1
    assert readme == report.with_table(readme, RESULTS), "run benchmarks/run.py --render"


def test_the_report_and_the_charts_are_those_of_the_results() -> None:
    text = (BENCHMARKS / "RESULTS.md").read_text("utf-8")
    assert text == report.document(RESULTS), "run benchmarks/run.py --render"
    drawn = {file.name: file.read_text("utf-8") for file in (BENCHMARKS / "charts").glob("*.svg")}
    assert drawn == report.charts(RESULTS), "run benchmarks/run.py --render"


def test_the_charts_are_well_formed_and_follow_the_theme() -> None:
    for name, drawing in report.charts(RESULTS).items():
        assert ET.fromstring(drawing).tag.endswith("svg"), name
        assert "prefers-color-scheme:dark" in drawing, name


def test_losses_and_missed_promises_are_told() -> None:
    worse = {"median": 2.0, "low": 2.0, "high": 2.0, "cpu": None, "p50": None, "p99": None}
    promise = {"who": "ours sqlite", "text": "≥ 1x", "limit": 1.0, "rival": "stock sqlite"}
    figure = {
        "name": "put",
        "unit": "s",
        "level": "full",
        "note": "",
        "failed": {},
        "readings": {"ours sqlite": worse, "stock sqlite": {**worse, "median": 1.0}},
        "promises": [{**promise, "by": "median"}],
    }
    section = {"name": "calls", "title": "", "about": "", "figures": [figure], "curves": []}
    results = {**RESULTS, "sections": [section]}
    assert "2.00x worse" in report.losses(results)
    assert "**2.00x worse**" in report.table(results)
    assert "0 of 1 hold" in report.promises(results)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.00052, "s", "520 µs"), (2.05e9, "B", "2.05 GB"), (197.4, "/s", "197/s"), (1, "", "1")],
)
def test_numbers_are_shown_with_three_digits(value: float, unit: str, shown: str) -> None:
    assert report.number(value, unit) == shown
