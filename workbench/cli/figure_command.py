"""`workbench figure`: one figure as a file, for a paper or a slide."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.command_group import write_lines
from workbench.cli.figure_names import load_figure
from workbench.cli.name_choice import NameChoice
from workbench.cli.option_values import FORMATS, SIZES
from workbench.cli.shared_options import figure_argument, store_option
from workbench.error_text import text_of

if TYPE_CHECKING:
    import pandas as pd


@click.command("figure")
@figure_argument
@click.option("--format", "form", type=NameChoice(FORMATS), default="svg", help="csv: its rows; tex: paper and here.")
@click.option("--size", type=NameChoice(SIZES), show_default="the largest with rows", help="Size of the rows.")
@click.option("--width", default=900, help="Width of a picture in pixels; 96 are an inch.")
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
    from workbench.report.latex import latex_table

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
