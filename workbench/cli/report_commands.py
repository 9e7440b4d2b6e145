"""`workbench report`, which also ends `workbench reproduce`, and `workbench figure`: one figure as a file."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.command_group import write_lines
from workbench.cli.options import (
    FORMATS,
    SIZES,
    NameChoice,
    figure_argument,
    load_figure,
    load_figures,
    names_argument,
    page_option,
    store_option,
)
from workbench.error_text import text_of

if TYPE_CHECKING:
    import pandas as pd


@click.command()
@names_argument
@store_option
@page_option
@click.option("--all", "every", is_flag=True, help="List every figure and size, and the changes of older code.")
def report(names: tuple[str, ...], store: str | None, output: Path | None, every: bool) -> None:
    """Write the HTML report without running anything.

    It shows the runs made by the current code, and all recorded tables. The terminal counts verdicts per paper.
    """
    from workbench.tracking.opening import open_store

    figures = load_figures(names)
    write_lines(write_report(figures, open_store(store), output, every=every))


def write_report(figures: Sequence[Any], store: Any, output: Path | None, *, every: bool = False) -> list[str]:
    """Writes the page; returns the verdicts and the page's path, as lines.

    Args:
        figures: experiments.
        store: contains their runs.
        output: HTML file; None: build/report.html of the project.
        every: a line per figure and size instead of their number per paper.
    """
    from workbench.report import page
    from workbench.report.sections import collect, status_lines, summary_lines
    from workbench.report.terminal import terminal_width, wrapped

    file = report_file(output)
    sections = collect(figures, store, page=file)
    made_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page.write(file, sections, title="GNN Workbench: the papers' figures", made_at=made_at, summary=_environment())
    lines = status_lines(sections) if every else wrapped(summary_lines(sections), terminal_width())
    return [*lines, "", f"report: {file}"]


def report_file(output: Path | None) -> Path:
    """The page's file.

    Args:
        output: as given; None: build/report.html of the project.
    """
    from workbench.paths import project_root

    return (output or project_root() / "build" / "report.html").resolve()


def _environment() -> dict[str, str]:
    from workbench.experiment.environment import device_name, environment_tags
    from workbench.paths import project_root

    tags = environment_tags(project_root())
    commit = tags["commit"][:12] + (" with changes" if tags["dirty"] == "true" else "")
    versions = ", ".join(f"{key.removeprefix('version.')} {value}" for key, value in tags.items() if "version." in key)
    return {"machine": device_name("cpu"), "commit": commit, "versions": f"python {tags['python']}, {versions}"}


@click.command("figure")
@figure_argument
@click.option("--format", "form", type=NameChoice(FORMATS), default="svg", help="csv: its rows; tex: paper and here.")
@click.option("--size", type=NameChoice(SIZES), show_default="the largest with rows", help="Size of the rows.")
@click.option("--width", type=click.IntRange(min=1), default=900, help="Width of a picture in pixels; 96 are an inch.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    show_default="build/figures/PAPER-FIGURE-SIZE.FORMAT",
    help="File to write.",
)
@store_option
def export_figure(figure: str, form: str, size: str | None, width: int, output: Path | None, store: str | None) -> None:
    """Write one figure to a file, without running anything.

    Its rows are those that the present code ran, else a recorded table. Pictures need chromium.
    """
    from workbench.files import write_file
    from workbench.paths import project_root, shown_path

    experiment = load_figure(figure)
    size, table, origin = _rows(experiment, size, store)
    name = f"{experiment.name.replace('/', '-')}-{size}.{form}"
    file = output or project_root() / "build" / "figures" / name
    content = _content(experiment, table, form, width)
    write_file(file, content if isinstance(content, bytes) else content + "\n" * (not content.endswith("\n")))
    write_lines([f"{experiment.name} at {size} ({origin}): {shown_path(file.absolute())}"])


def _rows(experiment: Any, size: str | None, store: str | None) -> "tuple[str, pd.DataFrame, str]":
    """Size, rows and origin: complete runs of the present code, else a recorded table, of the largest size."""
    from workbench.experiment.recorded import recorded

    kept = {one.size: one for one in recorded(experiment.sweep.name)}
    for each in [size] if size else [name for name in reversed(SIZES) if name in experiment.sweep.spec.sizes]:
        if (table := _run_here(experiment, each, store)) is not None:
            return each, table, "run here"
        if each in kept:
            return each, kept[each].table, f"recorded {kept[each].about['date']}"
    asked, at = (f" at {size}", f" --size {size}") if size else ("", "")
    raise ValueError(f"{experiment.name} has no rows{asked}; run it first: `workbench run {experiment.name}{at}`")


def _run_here(experiment: Any, size: str, store: str | None) -> "pd.DataFrame | None":
    from workbench.experiment.table import table_of
    from workbench.tracking.opening import open_store
    from workbench.tracking.record import FINISHED

    runs = open_store(store).runs(experiment.sweep.name, size=size, statuses=(FINISHED,))
    complete = [grid.runs for grid in experiment.select(runs, size=size) if grid.runs and grid.ended == grid.points]
    return table_of(complete[0]) if complete else None


def _content(experiment: Any, table: "pd.DataFrame", form: str, width: int) -> str | bytes:
    from workbench.report.tables import latex_table

    if form == "csv":
        return experiment.shown(table).drop(columns=["status", "error"], errors="ignore").to_csv(index=False)
    if form == "tex":
        return latex_table(experiment.compare(table))
    drawn = experiment.draw(table)
    try:
        return drawn.to_image(format=form, width=width, height=drawn.layout.height or 440)
    except Exception as error:  # kaleido has errors of its own, and those of the browser that it starts
        reason = " ".join(text_of(error, 200).split())
        raise RuntimeError(
            f"no picture ({reason}): --format {form} needs kaleido and chromium (on Debian: apt install chromium); "
            "--format csv and tex do not, and the report saves SVG and PDF in a browser"
        ) from None
