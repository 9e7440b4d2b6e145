"""Recorded tables: results worth keeping in the repository, `results/<paper>/<figure>/<size>-<device>.csv`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pandas as pd
import yaml

from workbench.core.errors import CorruptFileError
from workbench.experiment.places import relative, results_folder
from workbench.experiment.table import table_of
from workbench.files import write_file
from workbench.tracking.record import FINISHED, Run

SCHEMA = 1
_NOT_KEPT = ["status", "error", "run_id"]
_EXACT = ["loss"]  # runs that should be equal are compared in its last digits; of others six digits are enough


@dataclass(frozen=True)
class Recorded:
    """A table as it was recorded.

    Args:
        file: that holds it.
        about: schema, sweep, size, date, code digest, device, data sets, versions.
        table: without `status`, `error` and `run_id`: all its points were finished.
    """

    file: Path
    about: Mapping[str, object]
    table: pd.DataFrame

    @property
    def size(self) -> str:
        return str(self.about["size"])


def record(runs: list[Run]) -> Path:
    """Write the table of a sweep whose points are all finished.

    Args:
        runs: of all points of a sweep.

    Raises:
        ValueError: no points, or some are not finished.
    """
    unfinished = [run for run in runs if run.status != FINISHED]
    if unfinished or not runs:
        raise ValueError(
            f"{len(unfinished)} of {len(runs)} points are not finished ({_first_error(unfinished)}); none is recorded"
        )
    about = _about(runs)
    device = str(about["device"]) if runs[0].point.config.get("device") != "cpu" else "cpu"
    file = results_folder() / runs[0].point.sweep / f"{about['size']}-{_slug(device)}.csv"
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
        CorruptFileError: no head, or one of another schema.
    """
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    head = [line[2:] for line in lines if line.startswith("# ")]
    try:
        about = yaml.safe_load("".join(head)) or {}
    except yaml.YAMLError:
        about = {}
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise CorruptFileError(f"{relative(file)}: its head must say schema: {SCHEMA}; record the table again")
    table = pd.read_csv(StringIO("".join(lines[len(head) :])))
    return Recorded(file, about, table.assign(status=FINISHED))


def recorded(sweep: str) -> list[Recorded]:
    """All recorded tables of an experiment, in order of their files' names."""
    return [read_recorded(file) for file in sorted((results_folder() / sweep).glob("*.csv"))]


def _about(runs: list[Run]) -> dict[str, object]:
    """The newest run speaks for all where they agree; where they don't, it is said."""
    tags = {name: sorted({run.point.tags.get(name, "") for run in runs}) for name in runs[-1].point.tags}
    datasets = {run.point.dataset for run in runs if run.point.dataset is not None}
    return {
        "schema": SCHEMA,
        "sweep": runs[0].point.sweep,
        "size": runs[0].point.size,
        "date": datetime.fromtimestamp(max(run.started_at for run in runs), UTC).date().isoformat(),
        **{name: values[0] if len(values) == 1 else values for name, values in tags.items()},
        "datasets": {
            d.name: f"{d.num_nodes:,} nodes, {d.num_edges:,} edges, {d.source}, sha256 {d.fingerprint}"
            for d in sorted(datasets, key=lambda d: d.name)
        },
    }


def _first_error(runs: list[Run]) -> str:
    return runs[0].error or runs[0].status if runs else "no points"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
