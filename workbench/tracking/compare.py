"""Comparison of runs: one table for the terminal and for notebooks."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from workbench.core.suggestions import unknown
from workbench.tracking.mlflow_fields import cell, flatten, text
from workbench.tracking.record import FINISHED, Run
from workbench.tracking.store import NOTHING, Store

_TAGS = {
    "machine": "device",
    "commit": "commit",
    "dirty": "dirty",
    "code": "code",
}  # a configuration may have its own `device`


def compare(
    store: Store,
    *,
    sweep: str | None = None,
    size: str | None = None,
    where: Mapping[str, str] = NOTHING,
    statuses: Collection[str] = (FINISHED,),
) -> pd.DataFrame:
    """Tabulate the rows of runs with the settings in which the runs differ.

    Args:
        store: store of the runs.
        sweep: "paper/figure"; None for all sweeps.
        size: "smoke", "real" or "paper"; None for all sizes.
        where: required values of settings, by the names of columns or of `attrs["constant"]`; lists as JSON.
        statuses: statuses of the runs to compare; of runs with the same key, size and device only the newest is used.

    Returns:
        One line per row, and one for each run without rows. The columns are the settings (configuration, sweep, size,
        machine, commit) that differ, the columns of the rows, `status`, `error` if there is one, `seconds` of the run,
        `started` and `run_id`. `attrs["constant"]` contains the settings that all runs share,
        `attrs["differing"]` the names of the others.

    Raises:
        ValueError: if `where` names a setting, or a value of one, that no run has.
    """
    found = store.runs(sweep, size=size, statuses=statuses)
    newest = {(run.point.key, run.point.size, run.point.tags.get("device")): run for run in found}
    settings = {key: _settings(run) for key, run in newest.items()}
    _check_names(where, settings.values())
    selected = [
        (run, settings[key])
        for key, run in newest.items()
        if all(settings[key].get(name) == value for name, value in where.items())
    ]
    constant, differing = _split([run_settings for _, run_settings in selected])
    lines = [line for run, run_settings in selected for line in _lines(run, run_settings, differing)]
    table = pd.DataFrame(lines)
    table.attrs["constant"], table.attrs["differing"] = constant, differing
    return table


_MOST_NAMES = 40  # that an error lists


def _settings(run: Run) -> dict[str, str]:
    """Return the settings of a run as text."""
    point = run.point
    tags = {name: point.tags[tag] for name, tag in _TAGS.items() if tag in point.tags}
    config = {name: text(value) for name, value in flatten(point.config).items()}
    return {"sweep": point.sweep, "size": point.size, **tags, **config}


def _check_names(where: Mapping[str, str], settings: Collection[Mapping[str, str]]) -> None:
    known = sorted({name for run_settings in settings for name in run_settings})
    for name, value in where.items() if known else ():
        if name not in known:
            raise ValueError(unknown("setting", name, known, most=_MOST_NAMES))
        values = sorted({run_settings[name] for run_settings in settings if name in run_settings})
        if value not in values:
            raise ValueError(unknown(f"{name} of a finished run", value, values, most=_MOST_NAMES))


def _split(settings: list[dict[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return the settings that all runs share, and the names of the others."""
    names = list(dict.fromkeys(name for run_settings in settings for name in run_settings))
    differing = [name for name in names if len({run_settings.get(name) for run_settings in settings}) > 1]
    return {name: settings[0][name] for name in names if name not in differing}, differing


def _lines(run: Run, settings: Mapping[str, str], differing: Iterable[str]) -> list[dict[str, Any]]:
    values = {**settings, **flatten(run.point.config)}
    cells = {name: cell(values.get(name)) for name in differing}
    started = datetime.fromtimestamp(run.started_at, UTC).isoformat(" ", "seconds")
    error = {} if run.error is None else {"error": run.error}
    outcome = {"status": run.status, **error, "seconds": run.seconds, "started": started, "run_id": run.run_id}
    rows = run.rows or ({},)
    return [{**cells, **row, **{name: v for name, v in outcome.items() if name not in row}} for row in rows]
