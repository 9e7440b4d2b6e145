"""Every experiment of the repository: valid files, a notebook, recorded tables that say what is documented."""

import pytest

from tests.all_figures import TABLES
from workbench.experiment.config import dataset_of
from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.grid import configs, grids
from workbench.paths import project_root
from workbench.report.generated_docs import BENCHMARKS

SIZES_OF = {
    "performance": ("smoke", "real"),
    "gpu_check": ("smoke", "paper"),
    "cooperative/measured_step": ("smoke", "real"),  # of ranks on a CPU
}


def is_benchmark(name):
    """Benchmarks of the library have no notebook, and no paper's settings."""
    return name.startswith(BENCHMARKS)


def test_there_are_experiments_and_recorded_tables():
    assert {"betty/fig11", "betty/fig12", "betty/fig16", "betty/table6"} <= set(experiment_names())
    assert {name for name, _ in TABLES} >= {"betty/fig11", "betty/fig12", "betty/fig16", "betty/table6"}


ON_PROCESSORS = {f"batchgnn/{name}" for name in ("table4", "tablea3", "tablea4", "equations")}
"""Figures whose ranks train on processors at every size, as BatchGNN does."""


@pytest.mark.parametrize("name", experiment_names())
def test_configurations_of_all_sizes_are_valid(name):
    home = load_experiment(name).sweep
    of_paper = SIZES_OF.get(name.partition("/")[0], ("smoke", "real", "paper"))
    assert tuple(home.spec.sizes) == SIZES_OF.get(name, of_paper)
    for size in home.spec.sizes:
        points = configs(grids(home.spec, size), home.module.Config, name)
        assert len(points) > 1
        on_gpu = size == "paper" and name not in ON_PROCESSORS
        assert all(point.device.startswith("cuda") == on_gpu for point in points)
        if size == "smoke":
            datasets = filter(None, map(dataset_of, points))
            assert all(dataset.name.startswith("synthetic-") for dataset in datasets), "needs no data"


@pytest.mark.parametrize("name", [name for name in experiment_names() if not is_benchmark(name)])
def test_there_is_a_notebook_for_every_figure(name):
    assert (project_root() / "notebooks" / f"{name}.ipynb").exists()


@pytest.mark.parametrize(("name", "table"), TABLES, ids=[f"{name}-{table.file.stem}" for name, table in TABLES])
def test_recorded_tables_are_drawn_and_say_what_is_documented(name, table):
    experiment = load_experiment(name)
    figure = experiment.draw(table.table)
    assert figure.data and all(len(trace.x) for trace in figure.data)
    assert "<sup>" not in (figure.layout.title.text or ""), "a title without markup of its own gets room for its lines"
    shown = [trace.name or "" for trace in figure.data] + [note.text or "" for note in figure.layout.annotations]
    keys = [text for text in shown if "_" in text or "algorithm-1" in text]
    assert is_benchmark(name) or not keys, "names, not keys; benchmarks name functions"
    assert len(experiment.compare(table.table)) > 0
    findings = {finding.name: finding for finding in experiment.check(table.table)}
    documented = experiment.deviations(table.size)
    assert not [f.name for f in findings.values() if f.counts and not f.held and f.name not in documented]
    assert set(documented) <= set(findings)
    others = [other for of, other in TABLES if of == name and other.size == table.size and other.file != table.file]
    lost = {f.name for other in others for f in experiment.check(other.table) if not f.held}  # on another processor
    assert not [n for n in documented if findings[n].held and n not in lost], "documented as not holding, yet it held"
