"""The notebooks can be run from top to bottom, and show what they are stored with.

`python -m tests.notebooks.test_notebooks` runs them and stores what they show.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
OURS = 'class="rule-detector"'
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> nbformat.NotebookNode:
    """Run a notebook in a kernel of its own."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": FOLDER}}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources)
    client.execute(env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if OURS in data.get("text/html", ""):
                # The plain form has addresses and ids, which differ from run to run.
                data.pop("text/plain", None)
    return notebook


def shown(notebook: nbformat.NotebookNode) -> list[list[dict[str, Any]]]:
    """What each cell of code shows."""
    return [
        [dict(output.get("data", {"text": output.get("text")})) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.storm
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook_shows_what_it_is_stored_with(path: Path) -> None:
    stored = shown(nbformat.read(path, as_version=4))
    assert any(stored)
    assert shown(executed(path)) == stored


if __name__ == "__main__":
    for path in NOTEBOOKS:
        notebook = executed(path)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
        sys.stdout.write(f"{path.name} is written\n")
