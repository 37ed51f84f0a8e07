"""README.md tells the truth: its programs run and print what it shows, its tables are complete.

The `python` blocks of a section (`## ...`) are one program, run as a user would run it, in an empty
directory. A `text` block right after one of them is what that block prints, on both streams; ids,
bytes and milliseconds may differ. A `console` block is a command and its output.
"""

from __future__ import annotations

import inspect
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import langgraph_durable
from langgraph_durable import SqliteSaver, errors

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
MARK = "---- end of block ----"


class Block(NamedTuple):
    kind: str
    text: str
    section: str


def blocks() -> Iterator[Block]:
    for part in re.split(r"^(?=## )", README, flags=re.MULTILINE):
        section = part.partition("\n")[0].strip("# ")
        for fence in re.finditer(r"^```(\w+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL):
            yield Block(fence[1], fence[2], section)


BLOCKS = list(blocks())
PROGRAM = "# report.py\n"
"""A block that begins so is a file of its own, for the `console` block behind it."""
SECTIONS = dict.fromkeys(
    block.section for block in BLOCKS if block.kind == "python" and PROGRAM not in block.text
)


def masked(output: str) -> str:
    """`output` without what differs from run to run."""
    output = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<id>", output)
    output = re.sub(r"[\d.]+ kB", "<n> kB", output)
    return re.sub(r"(bytes|ms)=[\d.]+", r"\1=<n>", output)


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-u", *command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    assert {block.kind for block in BLOCKS} == {"python", "text", "console"}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_programs_print_what_is_shown(section: str, tmp_path: Path) -> None:
    programs: list[str] = []
    shown: list[str] = []
    for block in (block for block in BLOCKS if block.section == section):
        if block.kind == "python":
            programs.append(block.text)
            shown.append("")
        elif block.kind == "text":
            shown[-1] += block.text
    script = tmp_path / "program.py"
    script.write_text(f"\nprint({MARK!r})\n".join(programs), "utf-8")
    printed = run(str(script), cwd=tmp_path).split(f"{MARK}\n")
    assert [masked(out) for out in printed] == [masked(out) for out in shown]


def test_the_first_program_is_killed_and_goes_on(tmp_path: Path) -> None:
    at = next(n for n, block in enumerate(BLOCKS) if block.text.startswith(PROGRAM))
    (tmp_path / "report.py").write_text(BLOCKS[at].text, "utf-8")
    printed = ""
    for command in re.findall(r"^\$ python (.*)$", BLOCKS[at + 1].text, re.MULTILINE):
        done = subprocess.run(
            [sys.executable, *command.split()],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode in (0, -signal.SIGKILL)
        printed += f"$ python {command}\n{done.stdout}"
    assert printed == BLOCKS[at + 1].text


def test_the_demo_prints_what_is_shown(tmp_path: Path) -> None:
    block = next(block for block in BLOCKS if "langgraph_durable.demo" in block.text)
    command, _, shown = block.text.partition("\n")
    assert command.endswith(".venv/bin/python -m langgraph_durable.demo")
    assert run("-m", "langgraph_durable.demo", cwd=tmp_path) == shown


def test_the_demo_says_what_it_lacks(tmp_path: Path) -> None:
    hide = "import sys, runpy; sys.modules['langgraph.graph'] = None\n"
    code = f"{hide}runpy.run_module('langgraph_durable.demo', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith("pip install langgraph")


def test_the_commands_that_are_named_are_there() -> None:
    commands = [block.text for block in BLOCKS if block.kind == "console"]
    assert all(command.startswith("$ ") for command in commands)
    assert "$ ./test\n" in commands
    for script in (ROOT / "test", ROOT / ".ci" / "run"):
        assert script.stat().st_mode & 0o111, f"{script} cannot be run"
    assert "./test" in (ROOT / ".ci" / "run").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose head begins with `heading`."""
    table = README[README.index(f"| {heading} |") :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_the_table_of_options_is_the_signature() -> None:
    parameters = inspect.signature(SqliteSaver).parameters.values()
    options = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    shown = [
        (name.strip("`"), default.strip("`").replace('"', "'"))
        for name, default, _ in rows("option")
    ]
    assert shown == [(option.name, repr(option.default)) for option in options]


def test_the_table_of_errors_is_the_tree() -> None:
    shown = {name.strip("`"): base.strip("`") for name, base, _ in rows("error")}
    ours = [value for value in vars(errors).values() if inspect.isclass(value)]
    assert {"DurableError", *shown} == {error.__name__ for error in ours}
    for name, base in shown.items():
        bases = {cls.__name__ for cls in getattr(errors, name).__mro__[1:]}
        known = {"ValueError", "TypeError", "StorageError"}
        assert bases & known == ({base} if base else set()), name


def test_links_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("https://"):
            assert (ROOT / target).exists(), target


def test_every_public_name_is_mentioned() -> None:
    missing = [name for name in langgraph_durable.__all__ if f"{name}" not in README]
    assert not missing
