"""Recorded tables: results kept in the repository, `experiments/results/<paper>/<figure>/<size>-<device>.csv`.

The device is `cpu` or the name of a GPU; tables of the library's own timings are kept by maker of the processor: what
is fast on one need not be on another.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from workbench.core.errors import CorruptFileError
from workbench.core.yaml_file import YAML_LOADER
from workbench.experiment.attempt import Task
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.grid import rows_of_points, settings, varying
from workbench.experiment.table import table_of
from workbench.files import write_file
from workbench.paths import results_folder, shown_path
from workbench.tracking.record import FINISHED, DatasetInfo, Point, Run

SCHEMA = 1
_NOT_KEPT = ["status", "error", "run_id"]
UNKNOWN = "unknown: it was recorded without digests of its definitions"
GONE = "definitions that are gone"
TIMINGS = "performance/"
"""Folder of the sweeps whose tables are kept by maker of the processor."""

_SECONDS = "seconds"  # in the name of every column that a clock fills
_REPEATS = ("seed", "repetition")
_ROUNDING = 1e-5  # of columns that are kept to six digits
_SHOWN = 4  # changed definitions that a sentence names
_EXACT = [
    "loss"
]  # losses of runs that should be equal differ in the last digits; six digits are enough for other columns


@dataclass(frozen=True)
class Recorded:
    """A table as it was recorded.

    Args:
        file: CSV file, whose comment lines are `about`.
        about: schema, sweep, size, date, digests of the code, device, data sets, versions.
        table: rows of all points, without `error` and `run_id`; every point had finished.
    """

    file: Path
    about: Mapping[str, object]
    table: pd.DataFrame

    @property
    def size(self) -> str:
        """Size of the sweep: "smoke", "real" or "paper"."""
        return str(self.about["size"])

    @property
    def points(self) -> tuple[int, int]:
        """Number of points of the size's grid, as it is now, that have rows here, and of all of its points."""
        places = self._rows_of_points()
        return sum(map(bool, places)), len(places)

    def point_seconds(self) -> list[float]:
        """Seconds of every point of the grid that has rows here; none if the table does not tell."""
        if "point_seconds" not in self.table:
            return []
        return [float(self.table["point_seconds"].iloc[own[0]]) for own in self._rows_of_points() if own]

    def _rows_of_points(self) -> list[list[int]]:
        return load_experiment(str(self.about["sweep"])).rows_of_points(self.table, size=self.size)

    def changed_since(self) -> list[str]:
        """The code that would make the table today and differs from the code that made it.

        Returns:
            Definitions that were edited or added since ("workbench.core.graph.Graph"), sorted; empty if the code is the
            same, wherever it stands. `[GONE]` if definitions were only removed, `[UNKNOWN]` if the table does not have
            their digests.
        """
        code = load_experiment(str(self.about["sweep"])).code()
        if code.digest in (self.about.get("code"), self.confirmed.get("code")):
            return []
        before = self.confirmed.get("definitions") or self.about.get("definitions")
        return code.changed_since(before) or [GONE] if isinstance(before, str) else [UNKNOWN]

    @property
    def confirmed(self) -> Mapping[str, str]:
        """The last time that points were run again and gave the recorded rows: date, points, digests of the code."""
        found: Any = self.about.get("confirmed")
        return found or {}

    def provenance(self) -> str:
        """One sentence on whether the code that made the table, or has given some of its rows, has changed since."""
        changed = self.changed_since()
        if changed == [UNKNOWN]:
            return f"changes of its code since are {UNKNOWN}"
        since = "since it was recorded"
        if (again := self.confirmed) and (changed or self.about.get("code") != again["code"]):
            gave = f"{again['points']} points, run again, gave the recorded rows (seconds aside)"
            since = f"since {again['date']}, when {gave}"
        elif some := self.about.get("earlier"):
            since += f" (some points on {next(filter(None, some)) if isinstance(some, list) else some})"
        if not changed:
            return f"its code is unchanged {since}"
        shown = [".".join(name.split(".")[-2:]) for name in changed[:_SHOWN]]
        more = [f"{len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
        return f"its code has changed {since}: {', '.join(shown + more)}"


def record(runs: list[Run]) -> Path:
    """Write the table of a sweep; returns its file.

    Args:
        runs: of all points of the sweep, every one finished.

    Raises:
        ValueError: no points, unfinished ones, or points of several devices.
    """
    unfinished = [run for run in runs if run.status != FINISHED]
    if unfinished or not runs:
        raise ValueError(
            f"{len(unfinished)} of {len(runs)} points are not finished ({_first_error(unfinished)}); run them first"
        )
    files = {_file(run.point) for run in runs}
    if len(files) > 1:
        raise ValueError(
            f"the points ran on {len(files)} devices, not on one; run them all here, in a store of their own"
        )
    (file,), about = files, _about(runs)
    table = table_of(runs).drop(columns=_NOT_KEPT)
    for column in set(_EXACT) & set(table):
        table[column] = table[column].map(repr, na_action="ignore")
    body = table.to_csv(index=False, float_format="%.6g")
    write_file(file, _head(about) + body)
    return file


def _head(about: Mapping[str, object]) -> str:
    """What a table says about itself, as lines of comment."""
    return "".join(f"# {line}\n" for line in yaml.safe_dump(dict(about), sort_keys=False, width=10_000).splitlines())


def read_recorded(file: Path) -> Recorded:
    """Read a recorded table.

    Raises:
        CorruptFileError: no head in comment lines, or another schema.
    """
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    head = [line[2:] for line in lines if line.startswith("# ")]
    try:
        about = yaml.load("".join(head), YAML_LOADER) or {}
    except yaml.YAMLError:
        about = {}
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise CorruptFileError(f"{shown_path(file)}: its head must say schema: {SCHEMA}; record the table again")
    table = pd.read_csv(StringIO("".join(lines[len(head) :])))
    return Recorded(file, about, table.assign(status=FINISHED))


def recorded(sweep: str) -> list[Recorded]:
    """All recorded tables of an experiment, in order of their files' names."""
    return [read_recorded(file) for file in sorted((results_folder() / sweep).glob("*.csv"))]


def kept_runs(tasks: Sequence[Task]) -> list[Run]:
    """Runs of the points of a sweep that are recorded by the present code, or confirmed by it, on the same data sets.

    Args:
        tasks: points of one sweep and size.
    """
    found: dict[str, Run] = {}
    for table in recorded(tasks[0].point.sweep) if tasks else []:
        same = [task for task in tasks if _made_by(table, task)]
        configured = {name for task in same for name in settings(task.point.config)}
        measured = [name for name in table.table if name not in {*configured, *_NOT_KEPT, "point_seconds"}]
        places = rows_of_points(table.table, [task.config for task in same])
        for number, (task, own) in enumerate(zip(same, places, strict=True)):
            if own:
                found[task.point.key] = _kept_run(table, task, table.table.iloc[own], measured, number)
    return list(found.values())


def _made_by(table: Recorded, task: Task) -> bool:
    codes = (table.about.get("code"), table.confirmed.get("code"))
    return task.point.tags.get("code") in codes and _is_of(table, task)


def _is_of(table: Recorded, task: Task) -> bool:
    """Whether a table is of the device and the data set of a point."""
    point, data = task.point, table.about.get("datasets")
    told = data.get(point.dataset.name, "") if point.dataset and isinstance(data, dict) else ""
    same_data = point.dataset is None or f"sha256 {point.dataset.fingerprint}" in told
    return table.file == _file(point) and same_data


def table_of_points(tasks: Sequence[Task]) -> Recorded:
    """The recorded table that the points of a sweep and size have on their device.

    Raises:
        ValueError: there is none.
    """
    file = _file(tasks[0].point)
    if not file.is_file():
        raise ValueError(f"{shown_path(file)} does not exist: use --record")
    return read_recorded(file)


def to_confirm(table: Recorded, tasks: Sequence[Task], seconds: float) -> list[Task]:
    """The points of a table to run again by the present code: the quickest that have all values of the grid's axes.

    Args:
        table: recorded by an earlier code.
        tasks: all points of its sweep and size.
        seconds: that all may take together, as the table tells; one is chosen in any case.

    Returns:
        Some of the tasks, in their order.

    Raises:
        ValueError: the table is one of timings, its points have no recorded seconds, or are of other data.
    """
    place, axes = shown_path(table.file), varying([task.config for task in tasks])
    if str(table.about["sweep"]).startswith(TIMINGS) or "point_seconds" not in table.table:
        raise ValueError(f"{place} can't be confirmed by rows, since times are never the same: use --record")
    places = rows_of_points(table.table, [task.config for task in tasks])
    took = {
        number: float(table.table["point_seconds"].iloc[own[0]])
        for number, (task, own) in enumerate(zip(tasks, places, strict=True))
        if own and _is_of(table, task)
    }
    if not took:
        raise ValueError(f"{place} has no point of the present grid on this device and these data sets: use --record")
    chosen: list[int] = []
    seen: set[tuple[str, str]] = set()
    for number in sorted(took, key=took.__getitem__):
        config = settings(tasks[number].point.config)
        values = {(axis, str(config.get(axis))) for axis in axes if axis not in _REPEATS}
        if not chosen or (values - seen and took[number] <= seconds):
            chosen.append(number)
            seconds -= took[number]
            seen |= values
    return [tasks[number] for number in sorted(chosen)]


def confirm(table: Recorded, tasks: Sequence[Task], runs: Sequence[Run]) -> list[str]:
    """Compare runs with the rows recorded for their points, and note in the table that they are the same.

    Args:
        table: recorded by an earlier code.
        tasks: points of the table.
        runs: of these points in the same order, by the present code, each finished.

    Returns:
        What differs, a line each, and then nothing is noted. Columns of seconds are not compared; numbers may differ in
        the sixth digit.
    """
    places = rows_of_points(table.table, [task.config for task in tasks])
    found = [line for run, own in zip(runs, places, strict=True) for line in _differences(table.table.iloc[own], run)]
    if read_recorded(table.file).about != table.about:
        found.append(f"{shown_path(table.file)} was recorded anew meanwhile: confirm it again")
    if not found:
        code = load_experiment(str(table.about["sweep"])).code()
        date, points = _date(runs), f"{len(runs)} of {table.points[0]}"
        again = {"date": date, "points": points, "code": code.digest, "definitions": code.short()}
        lines = table.file.read_text(encoding="utf-8").splitlines(keepends=True)
        body = "".join(line for line in lines if not line.startswith("# "))
        write_file(table.file, _head({**table.about, "confirmed": again}) + body)
    return found


def _differences(before: pd.DataFrame, run: Run) -> list[str]:
    """What the rows of a run have otherwise than those recorded of its point."""
    if len(before) != len(run.rows):
        return [f"{run.point.label}: {len(run.rows)} rows, {len(before)} recorded"]
    about = {*settings(run.point.config), *_NOT_KEPT}
    names = [n for n in dict.fromkeys([*before, *(n for row in run.rows for n in row)]) if n not in about]
    return [
        f"{run.point.label}: {name} is {row.get(name)}, {old.get(name)} recorded"
        for row, old in zip(run.rows, before.to_dict("records"), strict=True)
        for name in names
        if _SECONDS not in name and not _is_same(row.get(name), old.get(name))
    ]


def _is_same(now: Any, was: Any) -> bool:
    """Whether a value is the one that was recorded, as CSV keeps it."""
    if pd.isna(now) or pd.isna(was):
        return bool(pd.isna(now) and pd.isna(was))
    try:
        return math.isclose(float(now), float(was), rel_tol=_ROUNDING)
    except ValueError:
        return str(now) == str(was)


def _kept_run(table: Recorded, task: Task, rows: pd.DataFrame, measured: list[str], number: int) -> Run:
    """A point's run with the tags of its table; of a tag with several values, the points have them in turn."""
    shown: Any = rows[measured]
    cells = shown.to_dict("records")
    lines = [{name: value for name, value in row.items() if value == value} for row in cells]
    about = {name: table.about.get(name, "") for name in [*task.point.tags, *table.about.keys() & {"earlier"}]}
    if table.about.get("code") != task.point.tags["code"]:
        again = table.confirmed
        earlier = f"{table.about['date']}, confirmed on {again['date']} by {again['points']} points"
        about |= {"code": task.point.tags["code"], "earlier": earlier}
    tags = {name: str(v[number % len(v)] if isinstance(v, list) and v else v) for name, v in about.items()}
    date = datetime.fromisoformat(str(table.about["date"])).replace(tzinfo=UTC)
    seconds = float(rows["point_seconds"].iloc[0]) if "point_seconds" in rows else None
    point = replace(task.point, tags=tags)
    return Run(point, f"recorded-{point.key[:16]}", FINISHED, tuple(lines), None, date.timestamp(), seconds)


def _file(point: Point) -> Path:
    """Where a point's rows are recorded."""
    model = str(point.tags.get("device", "unknown"))
    device = "cpu" if point.config.get("device") == "cpu" else model
    if device == "cpu" and point.sweep.startswith(TIMINGS):
        device = re.split(r"\W", model)[0]
    return results_folder() / point.sweep / f"{point.size}-{_slug(device)}.csv"


def _about(runs: list[Run]) -> dict[str, object]:
    """The head of a table: tags that all runs share, and lists of values where they differ."""
    names = dict.fromkeys(name for run in reversed(runs) for name in run.point.tags)
    tags = {name: sorted({run.point.tags.get(name, "") for run in runs}) for name in names}
    datasets = {run.point.dataset for run in runs if run.point.dataset is not None}
    datasets = sorted(datasets, key=lambda d: (d.name, d.num_nodes, d.num_edges, d.fingerprint))
    code = load_experiment(runs[0].point.sweep).code()
    return {
        "schema": SCHEMA,
        "sweep": runs[0].point.sweep,
        "size": runs[0].point.size,
        "date": _date(runs),
        **{name: values[0] if len(values) == 1 else values for name, values in tags.items()},
        **({"definitions": code.short()} if tags.get("code") == [code.digest] else {}),
        "datasets": {name: "; ".join(map(_described, same)) for name, same in groupby(datasets, key=lambda d: d.name)},
    }


def _described(data: DatasetInfo) -> str:
    return f"{data.num_nodes:,} nodes, {data.num_edges:,} edges, {data.source}, sha256 {data.fingerprint}"


def _date(runs: Sequence[Run]) -> str:
    return datetime.fromtimestamp(max(run.started_at for run in runs), UTC).date().isoformat()


def _first_error(runs: list[Run]) -> str:
    return runs[0].error or runs[0].status if runs else "no points"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
