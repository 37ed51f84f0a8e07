"""What is written twice around the code agrees: pyproject.toml, uv.lock, CHANGELOG.md."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCK = (ROOT / "uv.lock").read_text("utf-8")
LOCKED = {package["name"]: package for package in tomllib.loads(LOCK)["package"]}


def test_every_dependency_is_locked() -> None:
    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
        *(one for group in PROJECT["dependency-groups"].values() for one in group),
    ]
    names = {re.split(r"[^A-Za-z0-9._-]", one)[0] for one in wanted}
    assert names <= set(LOCKED), "run `uv lock`"


def test_the_lock_names_public_hosts_only() -> None:
    hosts = {urlsplit(url).hostname for url in re.findall(r'"(\w+://[^"]+)"', LOCK)}
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


def test_the_version_is_in_the_changelog_and_in_the_lock() -> None:
    version = PROJECT["project"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest
    assert newest[1] == version == LOCKED["langgraph-durable"]["version"]


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "langgraph_durable" / "py.typed").exists()
