"""`workbench run` and `workbench reproduce`: sweeps, run and told."""

import argparse
import sys
from typing import Any

from workbench.cli import page
from workbench.cli.tables import readable

Outcome = tuple[list[str], int]
"""Lines to show, and the exit status."""


def run(asked: argparse.Namespace) -> Outcome:
    """Run one figure."""
    from workbench.experiment.grid import parse_overrides
    from workbench.experiment.load import load_experiment
    from workbench.tracking.store import open_store

    experiment = load_experiment(asked.figure)
    overrides = parse_overrides(asked.set)
    if asked.record and overrides:
        raise ValueError("--record keeps the table of the whole grid; leave out --set, or use `compare --csv FILE`")
    lines, failed = _run_one(experiment, asked, open_store(asked.store), overrides)
    return lines, int(failed > 0)  # a status is a number modulo 256


def reproduce(asked: argparse.Namespace) -> Outcome:
    """Run every figure and write the report."""
    from workbench.experiment.summary import can_draw
    from workbench.report.collect import collect
    from workbench.report.terminal import status_lines
    from workbench.tracking.store import open_store, shown_uri

    figures = page.figures_of(asked.papers)
    sweeps = {figure.sweep.name: figure.sweep for figure in figures}
    for sweep in sweeps.values():  # before any work
        sweep.configs(size=asked.size, device=asked.device)
    store = open_store(asked.store)
    failed = 0
    for number, sweep in enumerate(sweeps.values(), 1):
        sys.stderr.write(f"[{number}/{len(sweeps)}] {sweep.name}: {', '.join(sweep.views)}\n")
        lines, failures = _run_one(sweep, asked, store, {})
        failed += failures
        sys.stdout.write("\n".join([*lines, "", ""]))
        sys.stdout.flush()
    if not can_draw():
        return ["no report: plotly is not installed here", f"runs: {shown_uri(store.location)}"], int(failed > 0)
    sections = collect(figures, store, page=page.place(asked))
    written = page.write(asked, sections)
    return [*status_lines(sections), "", f"report: {written}", f"runs: {shown_uri(store.location)}"], int(failed > 0)


def _run_one(
    experiment: Any, asked: argparse.Namespace, store: Any, overrides: dict[str, Any]
) -> tuple[list[str], int]:
    """Run a sweep; its table, findings of all its figures, the slowest points, and how many problems there were."""
    from workbench.experiment.recorded import record
    from workbench.experiment.sweep import slowest
    from workbench.experiment.table import labels, table_of, to_read
    from workbench.tracking.record import FINISHED

    runs = experiment.runs(size=asked.size, device=asked.device, overrides=overrides, store=store, progress=True)
    label = dict(zip((run.run_id for run in runs), labels(runs), strict=True))
    unlogged: list[str] = []
    finished, failed = ([run for run in runs if (run.status == FINISHED) is wanted] for wanted in (True, False))
    lines = [*readable(to_read(runs, experiment.sweep.spec.columns)), ""]
    if finished:
        made, partial = table_of(finished), bool(overrides or failed)
        figures = [experiment] if overrides else _views(experiment)
        chosen = " (on the points you chose: no verdict on the figure)" if overrides else ""
        for figure in figures:
            lines += [f"{figure.name}: {figure.spec.claim}{chosen}", *_findings(figure, asked.size, made, partial), ""]
        unlogged = [] if partial else _log_summaries(figures, asked.size, runs, store)
    lines += ["slowest points:", *(f"  {run.seconds:8.2f} s  {label[run.run_id]}" for run in slowest(runs))]
    lines += [f"FAILED {label[run.run_id]}: {run.error}" for run in failed]
    if asked.record:
        lines.append("not recorded: some points failed" if failed else f"recorded: {record(runs)}")
    return lines + unlogged, len(failed) + len(unlogged)


def _log_summaries(figures: list[Any], size: str, runs: list[Any], store: Any) -> list[str]:
    """The points are stored: a store that fails now must not keep their table from being shown."""
    from workbench.experiment.summary import log_summary
    from workbench.tracking.store import StoreError

    try:
        for figure in figures:
            log_summary(figure, size, runs, store)
    except StoreError as error:
        return [f"FAILED to log the figures: {error}"]
    return []


def _findings(figure: Any, size: str, made: Any, partial: bool) -> list[str]:
    """A grid that the caller chose, or of which points failed, may lack what a check needs."""
    try:
        found = figure.check(made)
    except (ValueError, KeyError, AttributeError) as error:
        if not partial:
            raise
        return [f"  not checked on this grid: {error}"]
    known = figure.deviations(size)
    lines = []
    for finding in found:
        timed = f" ({finding.verdict})" if finding.timed else ""
        lines.append(f"  {finding.symbol} {finding.statement}{timed} — {finding.evidence}")
        if not finding.held and finding.name in known:
            lines.append(f"    known: {known[finding.name]}")
    return lines


def _views(sweep: Any) -> list[Any]:
    from workbench.experiment.load import load_experiment

    return [load_experiment(name) for name in sweep.views]
