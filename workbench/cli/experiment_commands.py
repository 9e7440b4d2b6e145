"""`workbench list | run | reproduce`: the papers' figures as experiments."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from workbench.cli.command_group import write_error, write_lines
from workbench.cli.figure_names import load_figures
from workbench.cli.report_command import write_report
from workbench.cli.shared_options import figure_argument, names_argument, page_option, store_option, sweep_options


@click.command("list")
def list_figures() -> None:
    """List the figures and tables that can be reproduced."""
    import pandas as pd

    from workbench.report.text_table import text_table

    rows = [
        (f.name, f.spec.title, f.spec.source, " ".join(f.sweep.spec.sizes), f.home.name if f.home else "")
        for f in load_figures([])
    ]
    write_lines(text_table(pd.DataFrame(rows, columns=["figure", "title", "source", "sizes", "rows from"])))


@click.command()
@figure_argument
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a configuration value, written as YAML; a list replaces an axis of the grid. If the size has "
    "several grids, each uses those of the values that it offers, and all use a value that none offers (repeatable).",
)
@sweep_options
@store_option
def run(figure: str, assignments: tuple[str, ...], record: bool, store: str | None, **how: Any) -> None:
    """Run one figure. Points that finished before are not run again."""
    from workbench.cli.sweep_output import run_and_describe
    from workbench.experiment.figure_loader import load_experiment
    from workbench.experiment.grid import parse_overrides
    from workbench.tracking.opening import open_store

    experiment, overrides = load_experiment(figure), parse_overrides([*assignments])
    if record and overrides:
        raise ValueError("--record writes the table of the whole grid; omit --set, or use `compare --csv FILE`")
    figures = [experiment] if overrides else load_figures(experiment.sweep.views)
    lines, failures = run_and_describe(figures, open_store(store), overrides=overrides, record_table=record, **how)
    write_lines(lines)
    if failures:
        sys.exit(1)


@click.command()
@names_argument
@click.option("--all", "run_all", is_flag=True, help="Check, draw and log unchanged figures too; --record implies it.")
@sweep_options
@store_option
@page_option
def reproduce(
    names: tuple[str, ...], run_all: bool, record: bool, store: str | None, output: Path | None, **how: Any
) -> None:
    """Run the figures that changed and write the report.

    Names restrict this to papers or figures. A figure is unchanged if all its points finished, and it was drawn and
    logged, with the present code, configuration and data.
    """
    from workbench.experiment.summary import can_draw
    from workbench.tracking.opening import open_store
    from workbench.tracking.uri import shown_uri

    figures, target = load_figures(names), open_store(store)
    sweeps = {figure.sweep.name: figure.sweep for figure in figures}
    skipped = {name: reason for name, sweep in sweeps.items() if (reason := _unavailable(sweep, how["size"]))}
    if len(skipped) == len(sweeps):
        raise ValueError("; ".join(f"{name} {reason}" for name, reason in skipped.items()))
    if skipped:
        write_lines([f"{name}: skipped, since it {reason}" for name, reason in skipped.items()])
    sweeps = {name: sweep for name, sweep in sweeps.items() if name not in skipped}
    for sweep in sweeps.values():  # report errors before any work
        sweep.configs(size=how["size"], device=how["device"])
    failures = 0
    for number, name in enumerate(sweeps, 1):
        views = [figure for figure in figures if figure.sweep.name == name]
        progress = f"[{number}/{len(sweeps)}] {name}"
        failures += _reproduce(views, target, progress, run_all=run_all or record, record_table=record, **how)
    no_report = ["no report: plotly is not installed; install it and run `workbench report`"]
    write_lines(write_report(figures, target, output) if can_draw() else no_report)
    write_lines([f"runs: {shown_uri(target.location)}"])
    if failures:
        sys.exit(1)


def _unavailable(sweep: Any, size: str) -> str:
    """Why a sweep cannot run here at a size; empty if it can."""
    if size not in sweep.spec.sizes:
        return f"has no size {size}; its sizes are {', '.join(sweep.spec.sizes)}"
    missing = sweep.requires is not None and find_spec(sweep.requires) is None
    return f"requires {sweep.requires}, which is not installed" if missing else ""


def _reproduce(
    figures: list[Any], store: Any, progress: str, *, run_all: bool, size: str, device: str | None, **how: Any
) -> int:
    """Reproduces those of a sweep's figures that changed; returns the number of failures."""
    from workbench.cli.sweep_output import run_and_describe

    changed = []
    for figure in figures:
        if run_all or not figure.is_current(store, size=size, device=device):
            changed.append(figure)
        else:
            write_lines([f"{figure.name}: unchanged"])
    if not changed:
        return 0
    write_error(f"{progress}: {', '.join(figure.name for figure in changed)}")
    lines, failures = run_and_describe(changed, store, size=size, device=device, **how)
    write_lines([*lines, ""])
    return failures
