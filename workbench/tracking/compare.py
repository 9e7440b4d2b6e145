"""Runs side by side: one table for the terminal and for notebooks."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from workbench.tracking.mirror import cell, flatten, text
from workbench.tracking.record import FINISHED, Run
from workbench.tracking.store import NOTHING, Store

_TAGS = {
    "machine": "device",
    "commit": "commit",
    "dirty": "dirty",
    "code": "code",
}  # a configuration has a `device` of its own


def compare(
    store: Store,
    *,
    sweep: str | None = None,
    size: str | None = None,
    where: Mapping[str, str] = NOTHING,
    statuses: Collection[str] = (FINISHED,),
) -> pd.DataFrame:
    """Rows of runs, beside what tells the runs apart.

    Args:
        store: that keeps them.
        sweep: "paper/figure"; None: all.
        size: "smoke", "real" or "paper"; None: all.
        where: settings that runs must have, by the names of the table's or of `attrs["constant"]`; lists as JSON.
        statuses: that count; of runs with the same key, the newest counts.

    Returns:
        A line for every row, and one for a run without rows. Columns: the settings (configuration, sweep, size,
        machine, commit) that differ, those of the rows, `status`, `error` if there is one, `seconds` of the run,
        `started` and `run_id`. What is the same for all stands in `attrs["constant"]`.

    Raises:
        ValueError: `where` names a setting that no run has.
    """
    newest = {run.point.key: run for run in store.runs(sweep, size=size, statuses=statuses)}
    settings = {key: _settings(run) for key, run in newest.items()}
    _check_names(where, settings.values())
    chosen = [
        (run, settings[key])
        for key, run in newest.items()
        if all(settings[key].get(name) == value for name, value in where.items())
    ]
    constant, differing = _split([found for _, found in chosen])
    table = pd.DataFrame([line for run, found in chosen for line in _lines(run, found, differing)])
    table.attrs["constant"] = constant
    return table


def _settings(run: Run) -> dict[str, str]:
    """What a run was made with, as text."""
    point = run.point
    tags = {name: point.tags[tag] for name, tag in _TAGS.items() if tag in point.tags}
    config = {name: text(value) for name, value in flatten(point.config).items()}
    return {"sweep": point.sweep, "size": point.size, **tags, **config}


def _check_names(where: Mapping[str, str], settings: Collection[Mapping[str, str]]) -> None:
    known = sorted({name for found in settings for name in found})
    unknown = [name for name in where if name not in known]
    if unknown and known:
        raise ValueError(f"no run has a setting {unknown[0]!r}; choose from {', '.join(known)}")


def _split(settings: list[dict[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Settings that all share, and names of the others."""
    names = list(dict.fromkeys(name for found in settings for name in found))
    differing = [name for name in names if len({found.get(name) for found in settings}) > 1]
    return {name: settings[0][name] for name in names if name not in differing}, differing


def _lines(run: Run, settings: Mapping[str, str], differing: Iterable[str]) -> list[dict[str, Any]]:
    values = {**settings, **flatten(run.point.config)}
    shown = {name: cell(values.get(name)) for name in differing}
    started = datetime.fromtimestamp(run.started_at, UTC).isoformat(" ", "seconds")
    error = {} if run.error is None else {"error": run.error}
    about = {"status": run.status, **error, "seconds": run.seconds, "started": started, "run_id": run.run_id}
    return [{**shown, **row, **{name: v for name, v in about.items() if name not in row}} for row in run.rows or ({},)]
