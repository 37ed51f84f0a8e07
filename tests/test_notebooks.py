"""Every notebook runs from top to bottom, with no key and no network, and is stored with outputs.

`python tests/test_notebooks.py` runs them all and stores the outputs anew.
"""

from __future__ import annotations

import os
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
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


def shapes(notebook: nbformat.NotebookNode) -> list[list[str]]:
    return [
        [output.output_type for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_is_stored_with_its_outputs(file: Path) -> None:
    stored = nbformat.read(file, as_version=4)
    assert shapes(run(file)) == shapes(stored)
    text = file.read_text("utf-8")
    assert "text/html" in text
    assert "Traceback" not in text
    assert "/tmp/" not in text


if __name__ == "__main__":
    for each in NOTEBOOKS:
        nbformat.write(run(each), each)
        print(each.name)
