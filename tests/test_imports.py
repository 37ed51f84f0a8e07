"""Who may import whom. The rooms of the package are described in ARCHITECTURE.md.

A *room* is a sub-package or a module at the top of `langgraph_durable`. `MAY_USE` says which rooms
each one knows; `FOREIGN` keeps drivers, sockets and LangGraph's runtime out of rooms where they
have no business. Both are read off the source, so imports inside functions count too.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import langgraph_durable

ROOT = Path(langgraph_durable.__file__).parent
FACE = "__init__"

MAY_USE: dict[str, set[str]] = {
    "errors": set(),
    "_core": {"errors"},
    "_workers": set(),
    "_sqlite": {"errors", "_core", "_workers"},
    "_redis": {"errors", "_core", "_workers"},
    "addresses": {"errors", "_core"},
    "runs": {"_core", "addresses"},
    "artifacts": {"errors", "_core"},
    "keeping": {"errors", "_core", "addresses", "artifacts"},
    "timeline": {"errors"},
    "policies": {"errors", "_core"},
    "reports": {"_core", "policies"},
    "background": {"errors"},
    "automatic": {"errors", "_core", "background"},
    "retention": {
        "errors",
        "_core",
        "addresses",
        "automatic",
        "background",
        "policies",
        "reports",
    },
    "schema": {"errors", "_core"},
    "upgrades": {"errors", "_core", "addresses", "automatic", "reports", "retention", "schema"},
    "saver": {
        *("errors", "_core", "addresses", "artifacts", "automatic", "keeping", "policies"),
        *("retention", "runs", "schema", "timeline", "upgrades"),
    },
    "moving": {"errors", "_core", "addresses", "artifacts", "saver"},
    "sqlite": {
        *("errors", "_core", "_sqlite", "addresses", "artifacts", "policies", "retention"),
        *("saver", "schema"),
    },
    "redis": {
        *("errors", "_core", "addresses", "_redis", "artifacts", "policies", "saver", "schema"),
    },
    "urls": {"errors", "saver", "sqlite", "redis"},
    FACE: {
        *("errors", "artifacts", "keeping", "moving", "policies", "reports", "schema"),
        *("sqlite", "redis", "urls", "timeline", "upgrades"),
    },
    "demo": {FACE},
    "server": {"errors", "saver", "urls"},
    "testing": {"errors"},
}
"""Besides itself. A backend never knows the saver, the rules never know a backend."""

CONFIGS = "langchain_core.runnables"
DRIVERS = {"sqlite3", "aiosqlite", "redis", "socket", "asyncio", "http", "urllib"}
RUNTIME = {
    f"langgraph.{part}" for part in ("graph", "pregel", "func", "channels", "prebuilt", "types")
}
CODE_FROM_BYTES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "copyreg"}
TEST_TOOLS = {"pytest", "hypothesis", "_pytest"}

KNOWS_CONFIGS = {"addresses", "retention", "runs", "saver", "testing", "upgrades"}
RUNS_GRAPHS = {"demo", "testing", "timeline"}

FOREIGN: list[tuple[set[str], set[str], str]] = [
    (set(MAY_USE), CODE_FROM_BYTES, "stored bytes never become code"),
    (set(MAY_USE) - {"testing"}, TEST_TOOLS, "users do not have the test tools"),
    (set(MAY_USE) - RUNS_GRAPHS, RUNTIME, "a saver works without langgraph itself"),
    (set(MAY_USE) - KNOWS_CONFIGS, {CONFIGS}, "nothing below the saver knows RunnableConfig"),
    ({"_core", "errors"}, DRIVERS, "the rules do no I/O"),
    ({"_sqlite", "sqlite"}, {"redis"}, "a backend knows its own driver only"),
    ({"_redis", "redis"}, {"sqlite3"}, "a backend knows its own driver only"),
    (set(MAY_USE), {"aiosqlite"}, "it is optional: name it for types only"),
]
"""(rooms, modules that they may not import, why)"""


class Import(NamedTuple):
    file: Path
    line: int
    module: str
    """Dotted, as far as it is a module: `from a.b import c` gives `a.b` and `a.b.c`."""
    for_types: bool
    """Under `if TYPE_CHECKING:`, so never carried out."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT.parent)}:{self.line} imports {self.module}"


def room_of(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def imports_of(file: Path) -> Iterator[Import]:
    tree = ast.parse(file.read_text("utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: write imports in full"
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            yield Import(file, node.lineno, name, id(node) in typing_only)


def rooms_used(found: Import) -> set[str]:
    """The room that an import leads to; the package itself when it names no room."""
    package, _, rest = found.module.partition(".")
    if package != "langgraph_durable":
        return set()
    room = rest.partition(".")[0]
    return {room} if room in MAY_USE else {FACE}


def is_within(module: str, forbidden: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in forbidden)


def own_imports(file: Path) -> Iterator[tuple[Import, str]]:
    """Imports of our own rooms. `from langgraph_durable import addresses` is no use of the face."""
    found = [one for one in imports_of(file) if one.module.startswith("langgraph_durable")]
    for one in found:
        longer = any(o.line == one.line and o.module.startswith(one.module + ".") for o in found)
        for room in rooms_used(one):
            if not (longer and room == FACE):
                yield one, room


def test_every_room_has_its_rule() -> None:
    rooms = {room_of(file) for file in files()}
    assert rooms <= set(MAY_USE), f"say in MAY_USE what {rooms - set(MAY_USE)} may import"


@pytest.mark.parametrize("room", MAY_USE)
def test_a_room_uses_only_the_rooms_it_may(room: str) -> None:
    wrong = [
        f"{one}: {room} may use {sorted(MAY_USE[room]) or 'no other room'}, not {used}"
        for file in files()
        if room_of(file) == room
        for one, used in own_imports(file)
        if used not in MAY_USE[room] | {room}
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("rooms", "modules", "why"),
    FOREIGN,
    ids=[f"{why}: no {min(modules)}" for _, modules, why in FOREIGN],
)
def test_a_room_keeps_foreign_modules_out(rooms: set[str], modules: set[str], why: str) -> None:
    wrong = [
        f"{one}: {why}"
        for file in files()
        if room_of(file) in rooms
        for one in imports_of(file)
        if is_within(one.module, modules) and not one.for_types
    ]
    assert not wrong, "\n".join(wrong)


def test_the_rules_are_no_circle() -> None:
    """Rooms can be put in an order in which each uses only those before it."""
    left = dict(MAY_USE)
    while left:
        free = {room for room, uses in left.items() if not uses & set(left)}
        assert free, f"these use one another: {sorted(left)}"
        left = {room: uses for room, uses in left.items() if room not in free}


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


def test_importing_the_package_loads_nothing_it_does_not_need() -> None:
    loaded = loaded_by("import langgraph_durable")
    unwanted = {"langgraph.graph", "langgraph.pregel", "aiosqlite", "redis", "numpy", "pytest"}
    assert not loaded & unwanted
    assert not {name for name in loaded if name.startswith("langgraph_durable.testing")}
    assert not {name for name in loaded if name.startswith("langgraph_durable.timeline")}


def test_control_the_check_sees_what_is_loaded() -> None:
    assert "langgraph.graph" in loaded_by("import langgraph_durable, langgraph.graph")


def test_control_an_import_inside_a_function_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import aiosqlite\n"
        "def f():\n    from langgraph_durable import saver\n    import redis.asyncio\n"
    )
    found = {(one.module, one.for_types) for one in imports_of(file)}
    assert ("aiosqlite", True) in found
    assert ("redis.asyncio", False) in found
    assert {room for _, room in own_imports(file)} == {"saver"}
