"""Every notebook runs from top to bottom, with no key and no network, and is stored with outputs.

`python tests/test_notebooks.py` runs them all and stores the outputs anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
import servers
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run(file: Path) -> nbformat.NotebookNode:
    os.environ["REDIS_URL"] = servers.shared("valkey").url
    notebook = nbformat.read(file, as_version=4)
    # What is printed may come in pieces, as it happens; it is one output all the same.
    kernel = {"kernel_name": "python3", "startup_timeout": 200, "timeout": 200}
    NotebookClient(notebook, coalesce_streams=True, **kernel).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


VARIES = {
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": "ID",
    r", \d{4}-\d\d-\d\d UTC": "",
    r"(\d{4}-\d\d-\d\d )?\b\d\d:\d\d:\d\d": "WHEN",
    r"\d+:\d\d:\d\d": "TOOK",
    r"\d+(\.\d+)? (ms|s)\b": "TOOK",
    r"\d+(\.\d+)? [kM]?B\b": "BYTES",
    r"\d+\.\d+\.\d+": "VERSION",
    r"[█▏]+": "BAR",
    r" +": " ",
}
"""What differs from run to run, or with the versions of other packages."""


Shown = tuple[str, list[str], list[str]]


def shown(output: nbformat.NotebookNode) -> Shown:
    """The kind of an output, and its lines without what varies; a plot sorts them by time."""
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    for pattern, word in VARIES.items():
        text = re.sub(pattern, word, text)
    return (
        output.output_type,
        sorted(output.get("data", ())),
        sorted(map(str.strip, text.splitlines())),
    )


def outputs(notebook: nbformat.NotebookNode) -> list[list[Shown]]:
    return [list(map(shown, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def test_there_is_a_notebook_for_each_subject() -> None:
    assert [file.name[:2] for file in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_is_stored_with_its_outputs(file: Path) -> None:
    stored = nbformat.read(file, as_version=4)
    assert outputs(run(file)) == outputs(stored)
    text = file.read_text("utf-8")
    assert "text/html" in text
    assert not re.search(r"Traceback|/tmp/|/home/|/root/|/Users/", text)


WATCHING = """
import threading
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph_durable import Timeline
builder = StateGraph(dict)
builder.add_node("work", lambda state: {})
builder.add_edge(START, "work")
graph = builder.compile(checkpointer=InMemorySaver())
thread = {"configurable": {"thread_id": "live"}}
live = Timeline(graph, "live").watch(every=0.01, timeout=200)
runner = threading.Thread(target=graph.invoke, args=({}, thread))
runner.start()
for step in live:
    if step.node == "work":
        break
runner.join()
"""


def test_watching_updates_one_output() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WATCHING)])
    kernel = {"kernel_name": "python3", "startup_timeout": 200, "timeout": 200}
    NotebookClient(notebook, **kernel).execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert "work" in output.data["text/html"]
    assert "3 steps" in output.data["text/plain"]


if __name__ == "__main__":
    for each in NOTEBOOKS:
        nbformat.write(run(each), each)
        print(each.name)
