"""Collects the sections of the report from the runs in a store and from recorded tables."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.error_text import line_of
from workbench.experiment.experiment import Experiment
from workbench.experiment.grid import GridRuns
from workbench.experiment.recorded import Recorded, recorded
from workbench.experiment.table import labels, table_of
from workbench.paths import project_root
from workbench.report.sections import Section
from workbench.tracking.links import PORT, runs_view, sweeps_of
from workbench.tracking.record import FAILED, FINISHED, Run
from workbench.tracking.store import Store


def section_of_runs(experiment: Experiment, size: str, grid: GridRuns, *, page: Path | None = None) -> Section:
    """Builds the section of one figure from the runs of its sweep; an incomplete grid gets no verdict.

    Args:
        experiment: the figure.
        size: the size of the runs: "smoke", "real" or "paper".
        grid: the runs; failed ones are listed as problems.
        page: the HTML file, to which the link to the notebook is relative; None: no link.
    """
    runs = grid.runs
    finished = [run for run in runs if run.status == FINISHED]
    problems = [f"{label}: {run.error}" for label, run in zip(labels(runs), runs, strict=True) if run.error]
    provenance = _provenance(grid)
    points = grid.ended, grid.points
    return _section(experiment, size, table_of(finished), page, provenance=provenance, problems=problems, points=points)


def sections_of_recorded(experiment: Experiment, *, page: Path | None = None) -> list[Section]:
    """Builds one section for each recorded table of a figure's sweep.

    Args:
        experiment: the figure.
        page: the HTML file, to which the link to the notebook is relative; None: no link.
    """
    return [
        _section(experiment, table.size, table.table, page, provenance=_of_recorded(table), recorded=True)
        for table in recorded(experiment.sweep.name)
    ]


def collect(experiments: Iterable[Experiment], store: Store, *, page: Path | None = None) -> list[Section]:
    """Collects all figures at all sizes: runs of the present code, recorded tables, and sizes that were not run.

    Args:
        experiments: the figures.
        store: the store of runs.
        page: the HTML file, to which links to notebooks are relative; None: no links.
    """
    found, links = [], sweeps_of(store.location)
    for experiment in experiments:
        sections = [
            section_of_runs(experiment, size, grid, page=page)
            for size in experiment.sweep.spec.sizes
            for grid in experiment.select(_ended(experiment.sweep.name, size, store), size=size)
            if grid.runs
        ]
        sections += sections_of_recorded(experiment, page=page)
        shown = {section.size for section in sections}
        absent = [size for size in experiment.sweep.spec.sizes if size not in shown]
        sections += [_section(experiment, size, pd.DataFrame(), page) for size in absent]
        sweep = experiment.sweep.name
        link = runs_view(PORT, links[sweep], sweep) if sweep in links else None
        found += [replace(section, runs_link=link) for section in sections]
    return found


def _ended(sweep: str, size: str, store: Store) -> list[Run]:
    """Failed runs first: a finished run of the same point supersedes them."""
    return [run for status in (FAILED, FINISHED) for run in store.runs(sweep, size=size, statuses=(status,))]


def _section(
    experiment: Experiment,
    size: str,
    table: pd.DataFrame,
    page: Path | None,
    *,
    provenance: dict[str, str] | None = None,
    problems: Sequence[str] = (),
    points: tuple[int, int] | None = None,
    recorded: bool = False,
) -> Section:
    problems, some_failed = list(problems), bool(problems)
    incomplete = points is not None and points[0] < points[1]

    def attempt(action: str, function: Callable[[pd.DataFrame], Any]) -> Any:
        """Failing is expected if points failed or are missing, otherwise a problem; the page is written in any case."""
        try:
            return function(table) if len(table) else None
        except Exception as error:
            if not (incomplete or some_failed):
                problems.append(f"{action} failed: {line_of(error)}")
            return None

    figure, comparison = attempt("drawing", experiment.draw), attempt("comparing", experiment.compare)
    findings = () if incomplete else tuple(attempt("checking", experiment.check) or ())
    spec = experiment.spec
    return Section(
        name=experiment.name,
        title=spec.title,
        paper=experiment.paper,
        claim=spec.claim,
        source=spec.source,
        size=size,
        figure=figure,
        findings=findings,
        deviations=experiment.deviations(size),
        comparison=comparison,
        provenance={**(provenance or {}), "note": experiment.note(size)},
        problems=tuple(problems),
        points=points,
        recorded=recorded,
        notebook=_notebook(experiment.name, page),
    )


def _provenance(grid: GridRuns) -> dict[str, str]:
    runs = grid.runs
    newest = max(runs, key=lambda run: run.started_at)
    tags = newest.point.tags
    datasets = sorted({run.point.dataset for run in runs if run.point.dataset}, key=lambda d: d.name)
    dirty = " with changes" if tags.get("dirty") == "true" else ""
    return {
        "device": tags.get("device", ""),
        "data": "; ".join(
            f"{d.name} ({d.source}): {d.num_nodes:,} nodes, {d.num_edges:,} edges, sha256 {d.fingerprint[:12]}"
            for d in datasets
        ),
        "date": datetime.fromtimestamp(newest.started_at, UTC).date().isoformat(),
        "commit": tags.get("commit", "")[:12] + dirty,
        "versions": _versions(tags),
        "threads": tags.get("threads", ""),
        "load": tags.get("load", ""),
        "points": f"{grid.ended} of {grid.points} in {sum(run.seconds or 0.0 for run in runs):.1f} s",
    }


def _of_recorded(table: Recorded) -> dict[str, str]:
    about = {key: "; ".join(value) if isinstance(value, list) else value for key, value in table.about.items()}
    datasets: Any = about["datasets"]
    return {
        "device": str(about["device"]),
        "data": "; ".join(f"{name}: {description}" for name, description in datasets.items()),
        "date": str(about["date"]),
        "commit": str(about["commit"])[:12] + (" with changes" if about["dirty"] == "true" else ""),
        "code": table.provenance(),
        "versions": _versions({key: str(value) for key, value in about.items()}),
        "threads": str(about["threads"]),
        "points": f"{len(table.table)} rows",
        "table": str(table.file.relative_to(project_root())) if table.file.is_relative_to(project_root()) else "",
    }


def _versions(tags: dict[str, str] | Any) -> str:
    libraries = {key.removeprefix("version."): value for key, value in tags.items() if key.startswith("version.")}
    return ", ".join(f"{name} {value}" for name, value in {"python": tags.get("python", ""), **libraries}.items())


def _notebook(name: str, page: Path | None) -> str | None:
    file = project_root() / "notebooks" / f"{name}.ipynb"
    return os.path.relpath(file, page.parent) if page is not None and file.exists() else None
