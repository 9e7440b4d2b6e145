"""Sections of experiments: from runs in a store, and from recorded tables."""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.experiment.experiment import Experiment
from workbench.experiment.places import project_root
from workbench.experiment.recorded import Recorded, recorded
from workbench.experiment.table import labels, table_of
from workbench.report.sections import Section
from workbench.tracking.record import FAILED, FINISHED, Run
from workbench.tracking.store import Store


def section_of_runs(experiment: Experiment, size: str, runs: Sequence[Run], *, page: Path | None = None) -> Section:
    """One figure from the runs of its sweep.

    Args:
        experiment: the figure.
        size: that the runs are of.
        runs: of all points; failed ones become problems.
        page: file that links to the notebook.
    """
    finished = [run for run in runs if run.status == FINISHED]
    problems = tuple(f"{what}: {run.error}" for what, run in zip(labels(runs), runs, strict=True) if run.error)
    return _section(experiment, size, table_of(finished), page, provenance=_provenance(runs), problems=problems)


def sections_of_recorded(experiment: Experiment, *, page: Path | None = None) -> list[Section]:
    """A section for each recorded table of a figure's sweep."""
    return [
        _section(experiment, table.size, table.table, page, provenance=_of_recorded(table), recorded=True)
        for table in recorded(experiment.sweep.name)
    ]


def collect(experiments: Iterable[Experiment], store: Store, *, page: Path | None = None) -> list[Section]:
    """All figures at all sizes that ran with the code as it is now, and what is recorded; at least one section each.

    Args:
        experiments: the figures.
        store: that keeps runs.
        page: file that links to the notebooks.
    """
    found = []
    for experiment in experiments:
        sections = [
            section_of_runs(experiment, size, runs, page=page)
            for size in experiment.sweep.spec.sizes
            for runs in experiment.select(_ended(experiment.sweep.name, size, store), size=size)
            if runs
        ]
        sections += sections_of_recorded(experiment, page=page)
        found += sections or [_section(experiment, next(iter(experiment.sweep.spec.sizes)), pd.DataFrame(), page)]
    return found


def _ended(sweep: str, size: str, store: Store) -> list[Run]:
    """Failed runs first: where a point was finished too, that counts."""
    return [run for status in (FAILED, FINISHED) for run in store.runs(sweep, size=size, statuses=(status,))]


def _section(
    experiment: Experiment,
    size: str,
    table: pd.DataFrame,
    page: Path | None,
    *,
    provenance: dict[str, str] | None = None,
    problems: tuple[str, ...] = (),
    recorded: bool = False,
) -> Section:
    def part(of: Callable[[pd.DataFrame], Any]) -> Any:
        """A part may need points that failed."""
        try:
            return of(table) if len(table) else None
        except (ValueError, KeyError, AttributeError):
            if not problems:
                raise
            return None

    spec = experiment.spec
    return Section(
        name=experiment.name,
        title=spec.title,
        paper=spec.paper,
        claim=spec.claim,
        source=spec.source,
        size=size,
        figure=part(experiment.draw),
        findings=tuple(part(experiment.check) or ()),
        deviations=experiment.deviations(size),
        comparison=part(experiment.compare),
        provenance={**(provenance or {}), "note": experiment.note(size)},
        problems=problems,
        recorded=recorded,
        notebook=_notebook(experiment.name, page),
    )


def _provenance(runs: Sequence[Run]) -> dict[str, str]:
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
        "points": f"{len(runs)} in {sum(run.seconds or 0.0 for run in runs):.1f} s",
    }


def _of_recorded(table: Recorded) -> dict[str, str]:
    about = {key: "; ".join(value) if isinstance(value, list) else value for key, value in table.about.items()}
    datasets: Any = about["datasets"]
    return {
        "device": str(about["device"]),
        "data": "; ".join(f"{name}: {what}" for name, what in datasets.items()),
        "date": str(about["date"]),
        "commit": str(about["commit"])[:12] + (" with changes" if about["dirty"] == "true" else ""),
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
