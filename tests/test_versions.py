"""The oldest packages we claim are those that `.ci/versions` installs and README shows."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def pins() -> dict[str, str]:
    sets = runpy.run_path(str(ROOT / ".ci" / "versions"))["SETS"]
    assert [pin.partition("==")[0] for pin in sets["oldest"]] == sets["newest"]
    return dict(pin.split("==") for pin in sets["oldest"])


def test_the_oldest_versions_are_tested() -> None:
    claimed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["redis"]]
    bounds = dict(claim.split(">=") for claim in claimed if ">=" in claim)
    for package, bound in bounds.items():
        assert pins()[package].removesuffix(".0") == bound.removesuffix(".0"), package


def test_the_matrix_shows_the_oldest_versions() -> None:
    table = README[README.index("| package | oldest tested") :].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| (\S+) \| (\S+) \|", table, re.MULTILINE))
    assert shown.pop("Python") == PROJECT["requires-python"].removeprefix(">=")
    assert shown == pins()
