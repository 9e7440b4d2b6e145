"""A figure is current if running, drawing and logging it would add nothing to the store."""

import shutil

import pytest

from workbench.experiment import closure
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.point_dataset import describe_dataset
from workbench.experiment.summary import log_summary

FIGURES = ("toys/fig1", "toys/fig2")


@pytest.fixture
def logged(toys, store):
    """The store, with all points of both figures and their summaries."""
    (toys / "fig2.py").write_text((toys / "fig2.py").read_text().replace("go.Scatter", "go.Bar"))
    runs = load_experiment("toys/fig1").runs(store=store)
    for name in FIGURES:
        log_summary(load_experiment(name), "smoke", runs, store)
    return store


def current(store, **given):
    return [load_experiment(name).is_current(store, **given) for name in FIGURES]


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_figure_without_findings_has_a_summary(toys, store):
    edit(toys / "fig1.py", "return [Finding(", "return [] and [Finding(")
    runs = load_experiment("toys/fig1").runs(store=store)
    log_summary(load_experiment("toys/fig1"), "smoke", runs, store)
    assert load_experiment("toys/fig1").is_current(store)


def test_a_figure_is_current_once_its_points_are_finished_and_its_summary_is_logged(toys, store, calls):
    assert current(store) == [False, False] and calls() == []
    runs = load_experiment("toys/fig1").runs(store=store)
    assert current(store) == [False, False]
    log_summary(load_experiment("toys/fig2"), "smoke", runs, store)
    assert current(store) == [False, True] and len(calls()) == 3


def test_a_larger_grid_another_size_or_a_failed_point_is_not_current(toys, logged):
    assert current(logged) == [True, True]
    assert not load_experiment("toys/fig1").is_current(logged, size="real")
    edit(toys / "fig1.yaml", "[1, 2, 3]", "[1, 2, 3, 4]")
    assert current(logged) == [False, False]
    edit(toys / "fig1.yaml", "offset: 0", "offset: 4")
    load_experiment("toys/fig1").runs(store=logged)
    assert current(logged) == [False, False]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("fig1.py", "it grows", "it rises", [False, True]),
        ("fig2.py", "go.Bar", "go.Scatter", [True, False]),
        ("fig1.yaml", "claim: The square grows", "claim: It falls", [False, True]),
        ("fig2.yaml", "title: Squares again", "title: Other squares", [True, False]),
        ("fig1.py", "**2 +", "**3 +", [False, False]),
        ("fig1.py", "import pandas as pd", "import pandas as pd  # a comment", [True, True]),
        ("fig1.yaml", "title: Squares", "# a comment\ntitle: Squares", [True, True]),
    ],
)
def test_only_figures_whose_code_or_texts_changed_are_not_current(toys, logged, file, old, new, expected):
    edit(toys / file, old, new)
    assert current(logged) == expected


def test_an_edit_of_the_library_counts_for_the_figures_that_use_it(toys, logged, monkeypatch, tmp_path):
    edit(
        toys / "fig2.py", "    return go", "    from workbench.plots import lines as own\n\n    return own.lines and go"
    )
    log_summary(load_experiment("toys/fig2"), "smoke", load_experiment("toys/fig1").runs(store=logged), logged)
    assert current(logged) == [True, True]
    library = shutil.copytree(closure._LIBRARY, tmp_path / "workbench", ignore=shutil.ignore_patterns("__pycache__"))
    edit(library / "plots" / "lines.py", "    *,\n    x: str,", "    *,\n    edited=None,\n    x: str,")
    monkeypatch.setattr(closure, "_LIBRARY", library)
    assert current(logged) == [True, False]


def test_data_sets_are_loaded_once(toys, logged, monkeypatch):
    import workbench.datasets.load as loading

    loads, own = [], loading.load_dataset
    monkeypatch.setattr(loading, "load_dataset", lambda *args, **given: (loads.append(given), own(*args, **given))[1])
    describe_dataset.cache_clear()
    assert current(logged) == current(logged) == [True, True]
    assert len(loads) == 1
