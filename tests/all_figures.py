"""All figures and their recorded tables, loaded once for the tests that are parametrized with them."""

from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.recorded import Recorded, recorded

FIGURES = {name: load_experiment(name) for name in experiment_names()}
SWEEPS = [name for name, figure in FIGURES.items() if figure.home is None]
"""The figures that have rows of their own."""

_RECORDED = {name: recorded(name) for name in SWEEPS}

TABLES: list[tuple[str, Recorded]] = [
    (name, kept) for name, figure in FIGURES.items() for kept in _RECORDED[figure.sweep.name]
]
"""Each figure's name with the recorded tables that show it."""
