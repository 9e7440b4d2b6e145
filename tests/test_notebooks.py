"""The text and shared cells of the figures' notebooks against their experiments; nbval tests their outputs."""

import json
import re
from pathlib import Path

import pytest

from workbench.experiment.figure_loader import load_experiment

# JupyterLab keeps checkpoints in hidden folders.
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("[!.]*/*.ipynb"))
NAMES = [f"{file.parent.name}/{file.stem}" for file in NOTEBOOKS]
SHARED_CELLS = (
    "notebook.point(exp)",
    "notebook.findings(exp, table, size=SIZE)",
    "assert not exp.unexplained(table, size=SIZE)",
    "notebook.recorded_tables(exp",
    "notebook.logged_runs(",
)


def cells_of(notebook: Path, kind: str) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=NAMES)
def test_views_are_those_of_the_sweep(notebook: Path) -> None:
    experiment = load_experiment(f"{notebook.parent.name}/{notebook.stem}")
    text = "\n".join(cells_of(notebook, "markdown"))
    (said,) = re.findall(r"[^.]*are views of one sweep", text) or [""]
    views = {name.rpartition("/")[2] for name in experiment.sweep.views} - {notebook.stem}
    for view in views:
        number = re.sub(r"^(fig|table)", "", view)
        assert re.search(rf"\b{number}\b", said, re.IGNORECASE), f"{view} is a view of the sweep too"
    assert bool(said) == bool(views)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=NAMES)
def test_a_notebook_loads_its_figure_and_has_the_cells_of_the_others(notebook: Path) -> None:
    code = cells_of(notebook, "code")
    assert f'exp = wb.load_experiment("{notebook.parent.name}/{notebook.stem}")' in code[0]
    assert code[0].rstrip().endswith("notebook.result(exp)"), "the result comes first"
    assert cells_of(notebook, "markdown")[-1].startswith("## What to take away\n")
    places = [next(i for i, cell in enumerate(code) if cell.startswith(start)) for start in SHARED_CELLS]
    assert places == sorted(places)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=NAMES)
def test_size_and_device_are_parameters_of_papermill(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    (cell,) = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    assert {line.partition(" =")[0] for line in cell["source"]} >= {"SIZE", "DEVICE"}


def test_notebooks_open_clean() -> None:
    """JupyterLab writes kernel and language into a notebook that lacks them, and marks it as changed."""
    found = [json.loads(notebook.read_text(encoding="utf-8"))["metadata"] for notebook in NOTEBOOKS]
    assert all(metadata == found[0] for metadata in found)
    assert found[0]["kernelspec"]["display_name"] == "Python 3 (ipykernel)" and "version" in found[0]["language_info"]
