"""Runs a sweep and describes it on the terminal: rows, claims, slowest and failed points."""

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.experiment.experiment import Experiment
from workbench.experiment.recorded import record
from workbench.experiment.summary import log_summary
from workbench.experiment.sweep import slowest
from workbench.experiment.table import labels, table_of, to_read
from workbench.report.text_table import text_table
from workbench.tracking.record import FINISHED, Run
from workbench.tracking.store import NOTHING, Store, StoreError


def run_and_describe(
    figures: Sequence[Experiment],
    store: Store,
    *,
    size: str,
    overrides: Mapping[str, Any] = NOTHING,
    record_table: bool = False,
    **how: Any,
) -> tuple[list[str], int]:
    """Runs the points of a sweep that are not finished; checks and logs figures and, on request, records the table.

    Args:
        figures: one or more that show the rows of the sweep.
        store: contains the runs.
        size: "smoke", "real" or "paper".
        overrides: configuration key to value; if given, nothing is logged.
        record_table: write the table to experiments/results/ unless a point failed.
        **how: other options of `Experiment.runs`.

    Returns:
        Lines to print, and the number of failures: points, and 1 if the figures could not be logged.
    """
    sweep = figures[0].sweep
    runs = sweep.runs(size=size, overrides=overrides, store=store, progress=True, **how)
    failed = [run for run in runs if run.status != FINISHED]
    names = dict(zip((run.run_id for run in runs), labels(runs), strict=True))
    complete = not (overrides or failed)
    lines = [*text_table(to_read(runs, sweep.spec.columns)), ""]
    for figure in figures if len(failed) < len(runs) else []:
        note = " (on the points you chose: no verdict on the figure)" if overrides else ""
        lines += [f"{figure.name}: {figure.spec.claim}{note}", *_findings(figure, size, runs, complete), ""]
    not_logged = _log(figures, size, runs, store) if complete else []
    lines += ["slowest points:", *(f"  {run.seconds:8.2f} s  {names[run.run_id]}" for run in slowest(runs))]
    lines += [f"FAILED {names[run.run_id]}: {run.error}" for run in failed]
    if record_table:
        lines.append("not recorded: some points failed" if failed else f"recorded: {record(runs)}")
    return lines + not_logged, len(failed) + len(not_logged)


def _findings(figure: Experiment, size: str, runs: list[Run], complete: bool) -> list[str]:
    """One line per part of the claim; an incomplete grid may lack the rows that a check compares."""
    try:
        found = figure.check(table_of(run for run in runs if run.status == FINISHED))
    except (ValueError, KeyError, AttributeError) as error:
        if complete:
            raise
        return [f"  not checked on this part of the grid: {error}"]
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
