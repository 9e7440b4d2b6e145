"""Recorded tables: results kept in the repository, `experiments/results/<paper>/<figure>/<size>-<device>.csv`.

The device is `cpu` or the name of a GPU; tables of the library's own timings are kept by maker of the processor: what
is fast on one need not be on another.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from workbench.core.errors import CorruptFileError
from workbench.core.yaml_file import YAML_LOADER
from workbench.experiment.attempt import Task
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.grid import rows_of_points, settings
from workbench.experiment.table import table_of
from workbench.files import write_file
from workbench.paths import results_folder, shown_path
from workbench.tracking.record import FINISHED, Point, Run

SCHEMA = 1
_NOT_KEPT = ["status", "error", "run_id"]
UNKNOWN = "unknown: it was recorded without digests of its definitions"
GONE = "definitions that are gone"
TIMINGS = "performance/"
"""Folder of the sweeps whose tables are kept by maker of the processor."""

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
        missing, total = load_experiment(str(self.about["sweep"])).missing(self.table, size=self.size)
        return total - len(missing), total

    def changed_since(self) -> list[str]:
        """The code that would make the table today and differs from the code that made it.

        Returns:
            Definitions that were edited or added since ("workbench.core.graph.Graph"), sorted; empty if the code is the
            same, wherever it stands. `[GONE]` if definitions were only removed, `[UNKNOWN]` if the table does not have
            their digests.
        """
        code = load_experiment(str(self.about["sweep"])).code()
        if self.about.get("code") == code.digest:
            return []
        before = self.about.get("definitions")
        return code.changed_since(before) or [GONE] if isinstance(before, str) else [UNKNOWN]

    def provenance(self) -> str:
        """One sentence on whether the code that made the table has changed since."""
        changed = self.changed_since()
        if changed == [UNKNOWN]:
            return f"changes of its code since are {UNKNOWN}"
        since = "since it was recorded"
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
    head = "".join(f"# {line}\n" for line in yaml.safe_dump(about, sort_keys=False, width=10_000).splitlines())
    table = table_of(runs).drop(columns=_NOT_KEPT)
    for column in set(_EXACT) & set(table):
        table[column] = table[column].map(repr, na_action="ignore")
    body = table.to_csv(index=False, float_format="%.6g")
    write_file(file, head + body)
    return file


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
    """Runs of the points of a sweep that are recorded, by the present code on the present data sets.

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
    point, data = task.point, table.about.get("datasets")
    told = data.get(point.dataset.name, "") if point.dataset and isinstance(data, dict) else ""
    same_data = point.dataset is None or told.endswith(f"sha256 {point.dataset.fingerprint}")
    return table.file == _file(point) and table.about.get("code") == point.tags.get("code") and same_data


def _kept_run(table: Recorded, task: Task, rows: pd.DataFrame, measured: list[str], number: int) -> Run:
    """A point's run with the tags of its table; of a tag with several values, the points have them in turn."""
    shown: Any = rows[measured]
    cells = shown.to_dict("records")
    lines = [{name: value for name, value in row.items() if value == value} for row in cells]
    about = {name: table.about.get(name, "") for name in task.point.tags}
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
    tags = {name: sorted({run.point.tags.get(name, "") for run in runs}) for name in runs[-1].point.tags}
    datasets = {run.point.dataset for run in runs if run.point.dataset is not None}
    code = load_experiment(runs[0].point.sweep).code()
    return {
        "schema": SCHEMA,
        "sweep": runs[0].point.sweep,
        "size": runs[0].point.size,
        "date": datetime.fromtimestamp(max(run.started_at for run in runs), UTC).date().isoformat(),
        **{name: values[0] if len(values) == 1 else values for name, values in tags.items()},
        **({"definitions": code.short()} if tags.get("code") == [code.digest] else {}),
        "datasets": {
            d.name: f"{d.num_nodes:,} nodes, {d.num_edges:,} edges, {d.source}, sha256 {d.fingerprint}"
            for d in sorted(datasets, key=lambda d: d.name)
        },
    }


def _first_error(runs: list[Run]) -> str:
    return runs[0].error or runs[0].status if runs else "no points"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
