"""What the notebooks' texts say of their sweeps, held against the experiments; what their cells give is nbval's."""

import json
import re
from pathlib import Path

import pytest

from workbench.experiment.load import load_experiment

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*/*.ipynb"))


def text_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[f"{file.parent.name}/{file.stem}" for file in NOTEBOOKS])
def test_filters_and_views_are_those_of_the_sweep(notebook: Path) -> None:
    experiment, text = load_experiment(f"{notebook.parent.name}/{notebook.stem}"), text_of(notebook)
    assert re.findall(r'tags\.sweep = "([^"]+)"', text) == [experiment.sweep.name]
    (said,) = re.findall(r"[^.]*are views of one sweep", text) or [""]
    views = {name.rpartition("/")[2] for name in experiment.sweep.views} - {notebook.stem}
    for view in views:
        assert re.search(rf"\b{re.sub(r'^[a-z]+', '', view)}\b", said), f"{view} is a view of the sweep too"
    assert bool(said) == bool(views)
