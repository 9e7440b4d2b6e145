"""`workbench list | run | reproduce`: the papers' figures as experiments."""

import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from workbench.cli.command_group import write_error, write_lines
from workbench.cli.options import (
    SIZES,
    figure_argument,
    load_figure,
    load_figures,
    names_argument,
    page_option,
    store_option,
    sweep_options,
)
from workbench.cli.report_commands import report_file, write_report


@click.command("list")
@names_argument
@click.option("--all", "all_columns", is_flag=True, help="All columns: sizes, source, and whose rows a figure shows.")
@store_option
def list_figures(names: tuple[str, ...], all_columns: bool, store: str | None) -> None:
    """List the figures and tables, and how much of them was run."""
    import pandas as pd

    from workbench.report.terminal import fitted_table, terminal_width

    figures, ran = load_figures(names), _points_run(store)
    rows = [
        (f.name, f.spec.title, " ".join(f.sweep.spec.sizes), ran.get(f.sweep.name, "–"), f.spec.source, _home(f))
        for f in figures
    ]
    table = pd.DataFrame(rows, columns=["figure", "title", "sizes", "run", "source", "rows from"])
    shown: Any = table if all_columns else table[["figure", "run", "title"]]
    write_lines(fitted_table(shown, None if all_columns else terminal_width(), more="--all"))


def _home(figure: Any) -> str:
    return figure.home.name if figure.home else ""


def _points_run(store: str | None) -> dict[str, str]:
    """Sweep to its sizes and their numbers of finished points."""
    from workbench.tracking.opening import finished_points
    from workbench.tracking.store import tracking_uri

    counts = sorted(finished_points(tracking_uri(store)).items(), key=lambda item: SIZES.index(item[0][1]))
    sweeps = dict.fromkeys(sweep for (sweep, _), _ in counts)
    return {sweep: ", ".join(f"{size} {count}" for (of, size), count in counts if of == sweep) for sweep in sweeps}


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
@click.option(
    "--confirm",
    "confirm_seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Instead, run the quickest points of the recorded table again that have all values of the grid's axes, as "
    "many as fit. If their rows are those recorded, seconds aside, the table notes it for the present code.",
)
@store_option
def run(
    figure: str,
    assignments: tuple[str, ...],
    record: bool,
    confirm_seconds: float | None,
    store: str | None,
    **how: Any,
) -> None:
    """Run one figure. Points that finished before are not run again."""
    from workbench.cli.reproduction import confirm_table, pending, run_and_describe
    from workbench.experiment.grid import parse_overrides
    from workbench.report.expected_time import announcement, needs
    from workbench.report.terminal import terminal_width
    from workbench.tracking.opening import open_store

    experiment, overrides = load_figure(figure), parse_overrides([*assignments])
    if record and overrides:
        raise ValueError("--record writes the table of the whole grid; omit --set, or use `compare --csv FILE`")
    if confirm_seconds is not None:
        if record or overrides:
            raise ValueError("--confirm compares points with the recorded table; omit --record and --set")
        write_lines(confirm_table(experiment.sweep, open_store(store), seconds=confirm_seconds, **how))
        return
    figures = [experiment] if overrides else load_figures(experiment.sweep.views)
    how |= {"overrides": overrides, "record_table": record, "width": terminal_width()}
    target = open_store(store)
    if how["size"] == "paper":
        for line in needs(experiment, experiment.configs(size="paper", device=how["device"], overrides=overrides)):
            write_error(line)
    if not overrides:
        counts = pending(experiment.sweep, target, size=how["size"], device=how["device"], record_table=record)
        if line := announcement([(experiment.sweep, *counts)], how["size"]):
            write_error(line)
    made = run_and_describe(figures, target, **how)
    write_lines(made.lines)
    if made.failures:
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
    """Run the figures that changed, and write the report.

    Each sweep prints one line; tables go to a folder beside the page. Names restrict this to papers or figures. A
    figure is unchanged if all its points finished, and it was drawn and logged, with the present code, configuration
    and data.
    """
    from workbench.cli.reproduction import Reproduction
    from workbench.report.terminal import terminal_width
    from workbench.tracking.opening import open_store

    figures, target = load_figures(names), open_store(store)
    sweeps = {figure.sweep.name: figure.sweep for figure in figures}
    skipped = {name: reason for name, sweep in sweeps.items() if (reason := _unavailable(sweep, how["size"]))}
    if len(skipped) == len(sweeps):
        raise ValueError("; ".join(f"{name} {reason}" for name, reason in skipped.items()))
    runnable = [name for name in sweeps if name not in skipped]
    views = [[figure for figure in figures if figure.sweep.name == name] for name in runnable]
    tables, first_page = report_file(output).parent / "tables", partial(_first_page, target, output)
    made = Reproduction(target, how.pop("size"), how.pop("device"), tables, first_page, terminal_width())
    made.run(views, run_all=run_all or record, record_table=record, **how)
    lines = [f"{name}: skipped, since it {reason}" for name, reason in skipped.items()]
    write_lines(_closing(made, lines, figures, output))
    if made.failures:
        sys.exit(1)


def _first_page(store: Any, output: Path | None, figures: Sequence[Any]) -> str:
    """Writes a page with the first figures, to look at while the others run; "" if there is a page already."""
    from workbench.experiment.summary import can_draw

    page = report_file(output)
    if page.exists() or not can_draw():
        return ""
    write_report(figures, store, output)
    return f"first picture: {page.as_uri()} (the page has all figures at the end)"


def _closing(made: Any, lines: list[str], figures: list[Any], output: Path | None) -> list[str]:
    """The box at the end: verdicts, sizes that were not run, and where everything is."""
    from workbench.cli.reproduction import box, closing_lines, duration
    from workbench.experiment.summary import can_draw
    from workbench.paths import shown_path
    from workbench.tracking.store import shown_uri

    page, changed = report_file(output), len(made.sections) > len(made.unchanged) or made.failures
    verdicts = closing_lines(made.sections, made.size)
    told = [verdicts[0]] if not changed else verdicts
    not_run = sorted({size for figure in figures for size in figure.sweep.spec.sizes} - {made.size}, reverse=True)
    told += [*lines, f"not run by this: {', '.join(map(_size, not_run))}"] if not_run else lines
    if changed:
        told.append(f"took {duration(made.seconds)}; tables: {shown_path(made.tables)}")
    if not can_draw():
        told.append("no report: plotly is not installed; install it and run `workbench report`")
    elif changed or not page.exists():
        write_report(figures, made.store, output)
        told.append(f"report: {shown_path(page)}")
    else:
        told.append(f"report: {shown_path(page)}, unchanged; `workbench report` writes it again")
    told.append(f"runs: {shown_uri(made.store.location)}")
    told.append("next: open the report; `make lab` for the notebooks, 00_start_here first; `make ui` for the runs")
    return box(told, made.width)


def _size(name: str) -> str:
    return {"paper": "paper (needs a CUDA GPU)", "real": "real (minutes to hours per figure)"}.get(name, name)


def _unavailable(sweep: Any, size: str) -> str:
    """Why a sweep cannot run here at a size; empty if it can."""
    if size not in sweep.spec.sizes:
        return f"has no size {size}; its sizes are {', '.join(sweep.spec.sizes)}"
    missing = sweep.requires is not None and find_spec(sweep.requires) is None
    return f"requires {sweep.requires}, which is not installed" if missing else ""
