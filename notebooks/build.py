"""Makes the notebooks of this folder from their sources, with outputs.

    python notebooks/build.py          # all of them
    python notebooks/build.py 02 11    # two of them

A source is a Python file of cells, in jupytext's percent format. What a run leaves behind that differs from one run to the next
(timings, identifiers) isn't written, so that a notebook that is made again differs where its numbers do.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent

#: Seconds of the processor that a notebook may take: other programs on the machine don't count.
LIMIT_S = 90

#: Seconds after which a cell hangs.
HANGS_S = 600

#: Metadata of every notebook.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

#: What an output holds for a running program alone.
LIVE = "application/vnd.jupyter.widget-view+json"


def sources(numbers: list[str] | None = None) -> list[Path]:
    """The sources in their order; of these numbers, where some are given.

    Raises:
        SystemExit: a number that no notebook has.
    """
    every = sorted((FOLDER / "src").glob("[0-9][0-9]-*.py"))
    if not numbers:
        return every
    chosen = [path for path in every if path.name[:2] in numbers]
    missing = sorted(set(numbers) - {path.name[:2] for path in chosen})
    if missing:
        raise SystemExit(f"no notebook has the number {missing[0]}; there are 01 to {every[-1].name[:2]}")
    return chosen


def made(source: Path) -> Path:
    """The notebook that is made of a source."""
    return FOLDER / f"{source.stem}.ipynb"


def read(source: Path) -> nbformat.NotebookNode:
    """The notebook of a source, not yet run."""
    notebook: nbformat.NotebookNode = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"{source.stem[:2]}-{index:02}"
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in ("tags",) if key in cell.metadata})
    return notebook


def run(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Runs every cell, in this folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
        nbclient.exceptions.CellTimeoutError: a cell hangs.
    """
    # Drivers that look for a screen complain where there is none.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    resources = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(notebook, timeout=HANGS_S, kernel_name="python3", resources=resources, record_timing=False)
    return client.execute()


def tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Leaves away what differs from one run to the next, and what needs a running program."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(LIVE, None)
    return notebook


def main(numbers: list[str]) -> None:
    """Makes the notebooks of these numbers, or all."""
    for source in sources(numbers):
        notebook = tidy(run(read(source)))
        nbformat.validate(notebook)
        nbformat.write(notebook, made(source))
        print(f"{made(source).name}: {made(source).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
