"""Runs a sweep and describes it on the terminal: rows, claims, slowest and failed points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.error_text import text_of
from workbench.experiment.attempt import finished_runs
from workbench.experiment.experiment import Experiment
from workbench.experiment.finding import Finding
from workbench.experiment.recorded import record
from workbench.experiment.summary import log_summary
from workbench.experiment.sweep import Progress, slowest
from workbench.experiment.table import labels, table_of, to_read
from workbench.report.sections import Section
from workbench.report.terminal_width import fitted_table
from workbench.report.verdicts import section_of_findings
from workbench.tracking.record import FINISHED, Run
from workbench.tracking.store import NOTHING, Store, StoreError


@dataclass(frozen=True, eq=False)
class Described:
    """A sweep that was run.

    Args:
        lines: to print.
        sections: the figures' verdicts; empty if the whole grid was not run.
        failures: number of failed points, and 1 if the figures could not be logged.
    """

    lines: list[str]
    sections: list[Section]
    failures: int


def run_and_describe(
    figures: Sequence[Experiment],
    store: Store,
    *,
    size: str,
    overrides: Mapping[str, Any] = NOTHING,
    record_table: bool = False,
    width: int | None = None,
    progress: Progress = True,
    **how: Any,
) -> Described:
    """Runs the points of a sweep that are not finished; checks and logs figures and, on request, records the table.

    Args:
        figures: one or more that show the rows of the sweep.
        store: contains the runs.
        size: "smoke", "real" or "paper".
        overrides: configuration key to value; if given, nothing is logged.
        record_table: write the table to experiments/results/ unless a point failed.
        width: columns of the terminal; None: unlimited.
        progress: as `Experiment.runs` takes it.
        **how: other options of `Experiment.runs`.
    """
    sweep = figures[0].sweep
    runs = sweep.runs(size=size, overrides=overrides, store=store, progress=progress, **how)
    failed = [run for run in runs if run.status != FINISHED]
    names = dict(zip((run.run_id for run in runs), labels(runs), strict=True))
    complete = not (overrides or failed)
    lines, sections = [*fitted_table(to_read(runs, sweep.spec.columns), width, more="workbench compare --all"), ""], []
    for figure in figures if len(failed) < len(runs) else []:
        note = _without_verdict(overrides, len(failed), len(runs))
        found = check(figure, runs, complete)
        lines += [f"{figure.name}: {figure.spec.claim}{note}", *_findings(figure, size, found), ""]
        if not overrides and isinstance(found, list):
            sections.append(section_of_findings(figure, size, found, problems=[run.error or "" for run in failed]))
    not_logged = _log(figures, size, runs, store) if complete else []
    lines += ["slowest points:", *(f"  {run.seconds:8.2f} s: {names[run.run_id]}" for run in slowest(runs))]
    lines += [f"FAILED {names[run.run_id]}: {run.error}" for run in failed]
    if record_table:
        lines.append("not recorded: some points failed" if failed else f"recorded: {record(runs)}")
    return Described(lines + not_logged, sections, len(failed) + len(not_logged))


def pending(sweep: Experiment, store: Store, *, size: str, device: str | None) -> tuple[int, int]:
    """Counts the points of a sweep that have no finished run, and all of them.

    Args:
        sweep: with points of its own.
        store: contains the runs.
        size: "smoke", "real" or "paper".
        device: None: the size's.
    """
    tasks = sweep.tasks(size=size, device=device)
    return len(tasks) - len(finished_runs(tasks, store)), len(tasks)


def check(figure: Experiment, runs: Sequence[Run], complete: bool) -> list[Finding] | str:
    """The findings of a figure; or why there are none: an incomplete grid may lack the rows that a check compares.

    Args:
        figure: to check.
        runs: of its sweep; failed ones are skipped.
        complete: the whole grid has finished, so that an error is one.
    """
    try:
        return figure.check(table_of(run for run in runs if run.status == FINISHED))
    except (ValueError, KeyError, AttributeError) as error:
        if complete:
            raise
        return f"not checked on this part of the grid: {text_of(error)}"


def _without_verdict(overrides: Mapping[str, Any], failed: int, points: int) -> str:
    """Why findings are no verdict on the figure; "" if they are."""
    if overrides:
        return " (on the points you chose: no verdict on the figure)"
    return f" ({failed} of {points} points failed: no verdict on the figure)" if failed else ""


def _findings(figure: Experiment, size: str, found: list[Finding] | str) -> list[str]:
    """One line per part of the claim."""
    if isinstance(found, str):
        return [f"  {found}"]
    known, lines = figure.deviations(size), []
    for finding in found:
        timed = f" ({finding.verdict})" if finding.timed else ""
        lines.append(f"  {finding.symbol} {finding.statement}{timed} — {finding.evidence}")
        if not finding.held and finding.name in known:
            lines.append(f"    known: {known[finding.name]}")
    return lines


def _log(figures: Sequence[Experiment], size: str, runs: list[Run], store: Store) -> list[str]:
    """The points are stored already, so their table is shown even if the store fails now."""
    try:
        for figure in figures:
            log_summary(figure, size, runs, store)
    except StoreError as error:
        return [f"FAILED to log the figures: {error}"]
    return []
