"""The runs of one grid, picked out of a store's runs without loading a data set."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from workbench.experiment.config import PointConfig
from workbench.experiment.grid import resolved
from workbench.experiment.point_dataset import alternatives
from workbench.tracking.record import Run


class GridRuns(NamedTuple):
    """Runs of one grid on one device.

    Args:
        runs: of its points, in order; two data sets may share the run of the one that replaces both.
        ended: number of points that have a run.
        points: number of points of the grid.
    """

    runs: list[Run]
    ended: int
    points: int


def runs_of_grid(runs: Iterable[Run], grid: Sequence[PointConfig]) -> GridRuns:
    """Of some runs, those of a grid's points, in the grid's order; the last run of a point counts.

    Args:
        runs: made by the present code.
        grid: validated configurations of its points.
    """
    newest = {_as_text(run.point.config): run for run in runs}
    points = [[_as_text(resolved(either)) for either in alternatives(config)] for config in grid]
    return GridRuns(
        [newest[key] for key in dict.fromkeys(chain.from_iterable(points)) if key in newest],
        sum(any(key in newest for key in either) for either in points),
        len(points),
    )


def _as_text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)
