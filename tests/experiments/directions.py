"""What a figure's own check finds, without the sizes and times that its YAML file states."""

from typing import Any

import pandas as pd

from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.finding import Finding


def directions(name: str, table: pd.DataFrame) -> list[Finding]:
    """The findings of `check` on a table.

    Args:
        name: "paper/figure".
        table: rows of its sweep.
    """
    experiment: Any = load_experiment(name)
    return experiment.module.check(table, experiment.reported)
