"""`Section`: one figure at one size with its verdict, the unit of the report.

Sections are collected from runs and recorded tables; `status_lines` lists them on the terminal.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.error_text import line_of
from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_spec import SIZES
from workbench.experiment.finding import (
    HELD,
    IN_PART,
    NOT_HELD,
    NOT_TRAINED,
    TIME_DIFFERS,
    TIME_NOT_MEASURED,
    UNDECIDED,
    Finding,
    judged,
    status_of,
)
from workbench.experiment.grid import GridRuns
from workbench.experiment.recorded import Recorded, recorded
from workbench.experiment.table import labels, table_of
from workbench.paths import project_root
from workbench.report.terminal import text_table
from workbench.tracking.record import FAILED as RUN_FAILED, FINISHED, Run
from workbench.tracking.store import Store
from workbench.tracking.ui import PORT, runs_view, sweeps_of

NOT_CHECKED, NOT_RUN, FAILED, INCOMPLETE = "not checked", "not run", "failed", "incomplete"

SYMBOLS = {HELD: "✓", IN_PART: "◐", NOT_HELD: "✗", UNDECIDED: "?", NOT_CHECKED: "–"}


SYMBOLS |= {TIME_DIFFERS: "◷", TIME_NOT_MEASURED: "◔"}


SYMBOLS |= {NOT_TRAINED: "∅", INCOMPLETE: "◌", NOT_RUN: "○", FAILED: "!"}
"""A symbol per status, so that colour is never the only difference."""


@dataclass(frozen=True, eq=False)
class Section:
    """One figure at one size.

    Args:
        name: "paper/figure", as `workbench run` takes it.
        title: "Figure 11 · Peak memory by partitioner and K".
        paper: name and venue.
        claim: the figure's claim in one sentence.
        source: section and figure number in the paper.
        size: "smoke", "real" or "paper".
        figure: a plotly Figure; None if it could not be drawn.
        findings: the parts of the claim, checked against the rows.
        deviations: finding name to the documented reason why it does not hold at this size.
        comparison: the paper's numbers beside ours; columns that end in `_bytes` or `_seconds` are shown in readable
            units.
        provenance: device, data, versions, commit, date and so on, keyed by their label; "device" also appears in the
            overview, and "modelled" marks simulated values and says how.
        problems: failed points and parts of the section that could not be made, one line each.
        points: (ended, total) number of grid points; None if unknown.
        recorded: the rows come from a recorded table instead of a store.
        notebook: path of the notebook relative to the page.
        runs_link: address of the figure's runs in MLflow's UI.
    """

    name: str
    title: str
    paper: str
    claim: str
    source: str
    size: str
    figure: Any = None
    findings: tuple[Finding, ...] = ()
    deviations: Mapping[str, str] = field(default_factory=dict)
    comparison: pd.DataFrame | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    points: tuple[int, int] | None = None
    recorded: bool = False
    notebook: str | None = None
    runs_link: str | None = None

    @staticmethod
    def of(experiment: Experiment, size: str, **fields: Any) -> "Section":
        """The section of a figure, with the texts of its specification.

        Args:
            experiment: the figure.
            size: "smoke", "real" or "paper".
            **fields: other fields.
        """
        spec, known = experiment.spec, experiment.deviations(size)
        about = {"paper": experiment.paper, "title": spec.title, "claim": spec.claim, "source": spec.source}
        return Section(name=experiment.name, size=size, deviations=known, **about, **fields)

    @property
    def status(self) -> str:
        """The verdict on the claim, or why there is none.

        "held", "held in part", "did not hold", "undecided", "not trained", "time differs" or "time not measured" if
        findings were checked (`status_of`). If points failed, nothing can hold without them: "failed" unless a finding
        did not hold. Otherwise "incomplete" (only a part of the grid has ended), "not checked" (no findings) or "not
        run".
        """
        if self.is_incomplete:
            return INCOMPLETE
        found = status_of(self.counted)
        if self.problems and not any(f.decided and not f.held and not f.timed for f in self.counted):
            return FAILED
        return found or (NOT_RUN if self.figure is None else NOT_CHECKED)

    @property
    def is_incomplete(self) -> bool:
        """Only a part of the grid's points has ended; a recorded table of another grid has none of its points."""
        ended, total = self.points or (0, 0)
        return ended < total and (ended > 0 or self.recorded)

    @property
    def symbol(self) -> str:
        """The symbol of the status."""
        return SYMBOLS[self.status]

    @property
    def counted(self) -> list[Finding]:
        """The findings that count at its size (`judged`)."""
        return judged(self.findings, self.size)

    @property
    def not_held(self) -> tuple[Finding, ...]:
        """The findings that did not hold."""
        return tuple(finding for finding in self.counted if not finding.held and finding.decided)

    @property
    def sizes(self) -> tuple[Finding, ...]:
        """The findings on sizes of effects that the paper states."""
        return tuple(finding for finding in self.findings if finding.sized)

    @property
    def undecided(self) -> tuple[Finding, ...]:
        """The findings on which the runs are too few to tell, or without measured seconds or trained systems."""
        return tuple(finding for finding in self.counted if not finding.decided)


def by_figure(sections: Iterable[Section]) -> list[list[Section]]:
    """Groups sections by figure: small sizes first, runs before recorded tables.

    Papers, and figures within them, keep the order of their first section.

    Args:
        sections: in any order.
    """
    sections = list(sections)
    papers = list(dict.fromkeys(section.paper for section in sections))
    names = list(dict.fromkeys(section.name for section in sections))

    def rank(section: Section) -> tuple[int, int, int, bool]:
        size = SIZES.index(section.size) if section.size in SIZES else len(SIZES)
        return papers.index(section.paper), names.index(section.name), size, section.recorded

    ordered = sorted(sections, key=rank)
    return [list(group) for _, group in groupby(ordered, key=lambda section: (section.paper, section.name))]


_UNDRAWN = "undrawn"  # in the place of a figure: there are rows, so the section was run


def section_of_findings(
    experiment: Experiment, size: str, findings: Iterable[Finding], *, problems: Iterable[str] = ()
) -> Section:
    """Builds a section that has a verdict, without drawing the figure.

    Args:
        experiment: the figure.
        size: "smoke", "real" or "paper".
        findings: the parts of the claim.
        problems: failed points, one line each.
    """
    return Section.of(experiment, size, findings=tuple(findings), problems=tuple(problems), figure=_UNDRAWN)


def sections_of_recorded(experiment: Experiment, *, page: Path | None = None) -> list[Section]:
    """Builds one section for each recorded table of a figure's sweep.

    Args:
        experiment: the figure.
        page: the HTML file, to which the link to the notebook is relative; None: no link.
    """
    return [
        _section(
            experiment,
            table.size,
            table.table,
            page,
            provenance=_of_recorded(table),
            points=table.points,
            recorded=True,
        )
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
            _section_of_runs(experiment, size, grid, page)
            for size in experiment.sweep.spec.sizes
            for grid in experiment.select(_ended(experiment.sweep.name, size, store), size=size)
            if grid.runs
        ]
        sections += sections_of_recorded(experiment, page=page)
        shown = {section.size for section in sections}
        absent = [size for size in experiment.sweep.spec.sizes if size not in shown]
        sections += [_section(experiment, size, pd.DataFrame(), page) for size in absent]
        sweep = experiment.sweep.name
        link = runs_view(PORT, links[sweep]) if sweep in links else None
        found += [replace(section, runs_link=link) for section in sections]
    return found


def _section_of_runs(experiment: Experiment, size: str, grid: GridRuns, page: Path | None) -> Section:
    """Builds the section of a figure's runs; an incomplete grid gets no verdict, failed runs are problems."""
    runs = grid.runs
    finished = [run for run in runs if run.status == FINISHED]
    problems = [f"{label}: {run.error}" for label, run in zip(labels(runs), runs, strict=True) if run.error]
    about = {"provenance": _provenance(grid), "points": (grid.ended, grid.points)}
    return _section(experiment, size, table_of(finished), page, problems, **about)


def _ended(sweep: str, size: str, store: Store) -> list[Run]:
    """Failed runs first: a finished run of the same point supersedes them."""
    return [run for status in (RUN_FAILED, FINISHED) for run in store.runs(sweep, size=size, statuses=(status,))]


def _section(
    experiment: Experiment, size: str, table: pd.DataFrame, page: Path | None, problems: Iterable[str] = (), **more: Any
) -> Section:
    """Draws, compares and checks the rows; the page is written in any case, also if one of these fails."""
    failed, found = list(problems), Section.of(experiment, size, notebook=_notebook(experiment.name, page), **more)
    expected = found.is_incomplete or bool(failed)  # what needs the missing points fails

    def attempt(action: str, function: Callable[[pd.DataFrame], Any]) -> Any:
        try:
            return function(table) if len(table) else None
        except Exception as error:
            if not expected:
                failed.append(f"{action} failed: {line_of(error)}")
            return None

    figure, comparison = attempt("drawing", experiment.draw), attempt("comparing", experiment.compare)
    findings = () if found.is_incomplete and not found.recorded else tuple(attempt("checking", experiment.check) or ())
    provenance = {**found.provenance, "note": experiment.note(size)}
    about = {"figure": figure, "comparison": comparison, "findings": findings}
    return replace(found, provenance=provenance, problems=tuple(failed), **about)


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
    commits = "; ".join(commit[:12] for commit in str(about["commit"]).split("; "))
    datasets: Any = about["datasets"]
    return {
        "device": str(about["device"]),
        "data": "; ".join(f"{name}: {description}" for name, description in datasets.items()),
        "date": str(about["date"]),
        "commit": commits + (" with changes" if "true" in str(about["dirty"]) else ""),
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


_HOW_TO_START = ["no runs yet; `workbench list` names the figures, `workbench run PAPER/FIGURE` runs one"]

_UNCHANGED = "its code is unchanged"  # the beginning of what `Recorded.provenance` returns then


def summary_lines(sections: Iterable[Section]) -> list[str]:
    """Counts the verdicts per paper and size; names the number of recorded tables whose code has changed since.

    Args:
        sections: in any order; a figure that was run and recorded at a size counts once, as run.

    Returns:
        A heading per paper and one line per size; a hint how to start if there are no sections.
    """
    groups = by_figure(sections)
    if not groups:
        return _HOW_TO_START
    lines: list[str] = []
    for paper, figures in groupby(groups, key=lambda group: group[0].paper):
        kept = [{section.size: section for section in reversed(group)} for group in figures]  # run before recorded
        lines += [f"{paper}: {len(kept)} figure{'s' * (len(kept) != 1)}"]
        for size in SIZES:
            found = Counter(figure[size].status for figure in kept if size in figure)
            told = [f"{symbol} {found[status]} {status}" for status, symbol in SYMBOLS.items() if found[status]]
            lines += [f"  {size}: {', '.join(told)}"] if told else []
    changed = len({section.provenance["table"] for section in chain.from_iterable(groups) if _is_changed(section)})
    if changed:
        lines += ["", f"{changed} recorded table{'s' * (changed > 1)} of older code: --all names the changes"]
    return lines


def status_lines(sections: Iterable[Section]) -> list[str]:
    """Lists the status of every figure and size, with the statements that did not hold and the number of problems.

    Args:
        sections: in any order; sections of one figure are grouped.

    Returns:
        A header and one line per section, and the recorded tables whose code has changed since; a hint how to start if
        there are no sections.
    """
    sections = list(chain.from_iterable(by_figure(sections)))
    rows = [_row(section) for section in sections]
    if not rows:
        return _HOW_TO_START
    changed = _changed_tables(sections)
    return [*text_table(pd.DataFrame(rows)), *(["", *changed] if changed else [])]


def _row(section: Section) -> dict[str, str]:
    return {
        "figure": section.name,
        "size": section.size + (" (recorded)" if section.recorded else ""),
        "device": section.provenance.get("device") or "–",
        "status": f"{section.symbol} {section.status}",
        "details": "; ".join(_details(section)),
    }


def _details(section: Section) -> list[str]:
    lines = []
    if section.is_incomplete and section.points is not None:
        lines.append("{} of {} points".format(*section.points))
    for finding in (*section.not_held, *section.undecided):
        open_as = NOT_TRAINED if not finding.trained else "not measured" if finding.timed else "undecided"
        notes = ["seconds"] * finding.timed + [open_as] * (not finding.decided)
        notes += ["documented"] * (finding.name in section.deviations)
        lines.append(finding.statement.rstrip(".") + (f" ({', '.join(notes)})" if notes else ""))
    if section.problems:
        lines.append(f"{len(section.problems)} problem{'s' * (len(section.problems) > 1)}")
    return lines


def _changed_tables(sections: Iterable[Section]) -> list[str]:
    """One line per change of the code, with the recorded tables that it concerns."""
    tables: dict[str, list[str]] = {}
    for section in sections:
        if _is_changed(section):
            tables.setdefault(section.provenance["code"], []).append(f"{section.name} {section.size}")
    return [f"recorded table of {', '.join(names)}: {code}" for code, names in tables.items()]


def _is_changed(section: Section) -> bool:
    """The rows are recorded, and the code that made them has changed since or is unknown."""
    return section.recorded and not section.provenance.get("code", _UNCHANGED).startswith(_UNCHANGED)
