"""The table of a sweep: every row with the configuration of its point, in the grid's order."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from workbench.experiment.grid import settings
from workbench.tracking.record import FINISHED, Run


def table_of(runs: Iterable[Run]) -> pd.DataFrame:
    """All rows of some runs with their configuration; a failed point has one row without measurements.

    Returns:
        Columns: the configuration (nested keys joined by "."; the data set's name as `dataset`; lists as JSON), the
        columns of the rows, `status`, `error`, `point_seconds` and `run_id`.
    """
    return pd.DataFrame([line for run in runs for line in _lines(run)])


def to_read(runs: Sequence[Run], columns: Sequence[str] = ()) -> pd.DataFrame:
    """The table for people: configuration that differs between points, measurements, errors.

    Args:
        columns: measurements to show; default: all.
    """
    table = table_of(runs)
    about = ["status", "error", "point_seconds", "run_id"]
    configured = {column for run in runs for column in settings(run.point.config)}
    measured = columns or [c for c in table if c not in configured and c not in about]
    failed = ["status", "error"] if any(run.error for run in runs) else []
    shown = [*(c for c in _differing(table) if c in configured), *(c for c in measured if c in table), *failed]
    return table.loc[:, shown]


def labels(runs: Sequence[Run]) -> list[str]:
    """A short text per run: the configuration that differs between the runs."""
    configs = [settings(run.point.config) for run in runs]
    named = _differing(pd.DataFrame(configs))
    return [", ".join(f"{name} {config[name]}" for name in named if config.get(name) is not None) for config in configs]


def _lines(run: Run) -> list[dict[str, Any]]:
    config = settings(run.point.config)
    about = {"status": run.status, "error": run.error, "point_seconds": run.seconds, "run_id": run.run_id}
    rows = run.rows if run.status == FINISHED else ({},)
    return [{**config, **row, **about} for row in rows]


def _differing(table: pd.DataFrame) -> list[str]:
    """Columns whose values differ between rows; all columns of a single row."""
    return [str(c) for c in table if len(table) < 2 or len(table[c].drop_duplicates()) > 1]
