"""The table of a sweep: configuration beside rows, one line a row, points in the grid's order."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from workbench.tracking.record import FINISHED, Run


def table_of(runs: Iterable[Run]) -> pd.DataFrame:
    """All rows of runs with the configuration they were made under; a point that failed has one line without values.

    Args:
        runs: of one sweep.

    Returns:
        Columns: configuration (nested keys joined by "."; the data set's name as `dataset`; lists as text), those of
        the rows, `status`, `error`, `point_seconds` and `run_id`.
    """
    return pd.DataFrame([line for run in runs for line in _lines(run)])


def differing(table: pd.DataFrame) -> pd.DataFrame:
    """The table as a person reads it: without columns that are the same in all lines, run ids and empty errors."""
    kept = [c for c in table if c not in ("run_id", "error") and (len(table) < 2 or table[c].nunique(dropna=False) > 1)]
    kept += ["error"] if "error" in table and table["error"].notna().any() else []
    return table[kept]


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as columns.

    >>> flat({"dataset": {"name": "cora", "undirected": None, "features": "degree"}, "fanouts": [10, 25]})
    {'dataset': 'cora', 'dataset.features': 'degree', 'fanouts': '10, 25'}
    """
    columns: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            inner = {f"{key}.{name}": v for name, v in flat(value).items() if v is not None}
            columns |= ({key: inner.pop(f"{key}.name")} if f"{key}.name" in inner else {}) | inner
        else:
            columns[key] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return columns


def _lines(run: Run) -> list[dict[str, Any]]:
    config = flat(run.point.config)
    about = {"status": run.status, "error": run.error, "point_seconds": run.seconds, "run_id": run.run_id}
    rows = run.rows if run.status == FINISHED else ({},)
    return [{**config, **row, **about} for row in rows]
