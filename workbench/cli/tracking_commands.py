"""`workbench compare` and `workbench import`: runs in a store."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.command_group import write_lines
from workbench.cli.figure_names import complete_names
from workbench.cli.option_values import SIZES
from workbench.cli.shared_options import store_option

if TYPE_CHECKING:
    import pandas as pd


@click.command()
@click.argument("figure", metavar="[PAPER/FIGURE]", required=False, shell_complete=complete_names)
@click.option("--size", type=click.Choice(SIZES), help="Only runs of this size.")
@click.option("--where", "settings", metavar="KEY=VALUE", multiple=True, help="Only runs with this (repeatable).")
@click.option("--columns", metavar="A,B,...", help="Only these columns, in this order.")
@click.option("--csv", metavar="FILE", type=click.Path(path_type=Path), help="Write the table to a file instead.")
@store_option
def compare(
    figure: str | None,
    size: str | None,
    settings: tuple[str, ...],
    columns: str | None,
    csv: Path | None,
    store: str | None,
) -> None:
    """Compare finished runs, one row each.

    Settings that all of them share are printed below the table.
    """
    from workbench.report.text_table import text_table
    from workbench.tracking import compare as comparison
    from workbench.tracking.opening import open_store

    where = _parse_settings(settings)
    found = comparison.compare(open_store(store), sweep=figure and _sweep_of(figure), size=size, where=where)
    if found.empty:
        filtered = where or size or figure
        return write_lines(["no finished run matches" if filtered else "no finished runs yet; try `workbench run`"])
    if columns:
        found = _select(found, columns.split(","))
    if csv:
        found.to_csv(csv, index=False)
        return write_lines([f"{len(found)} rows in {csv}"])
    common = ", ".join(f"{key} {value}" for key, value in found.attrs.get("constant", {}).items())
    write_lines([*text_table(found), *(["", f"in common: {common}"] if common else [])])


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@store_option
def import_runs(file: Path, store: str | None) -> None:
    """Log the runs of a .jsonl file or of a GPU check's folder.

    Machines without MLflow write the file, `make gpu-check` the folder. Runs that the store contains already are
    skipped.
    """
    from workbench.tracking.file_store import FileStore
    from workbench.tracking.opening import open_store
    from workbench.tracking.record import FAILED, FINISHED
    from workbench.tracking.uri import shown_uri

    file = file / "runs.jsonl" if file.is_dir() else file
    if not file.exists():
        raise FileNotFoundError(f"there is no file {file}; `workbench run PAPER/FIGURE --store FILE.jsonl` writes one")
    target = open_store(store)
    target.check()
    runs = FileStore(file).runs(statuses=(FINISHED, FAILED))
    added = sum(target.add(run) for run in runs)
    write_lines([f"{added} of {len(runs)} runs were new to {shown_uri(target.location)}"])


def _parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    for setting in settings:
        if "=" not in setting:
            raise ValueError(f"--where {setting!r}: write KEY=VALUE, such as --where method=reg")
    return {key: value for key, _, value in (setting.partition("=") for setting in settings)}


def _sweep_of(figure: str) -> str:
    from workbench.experiment.figure_loader import load_experiment

    return load_experiment(figure).sweep.name


def _select(found: "pd.DataFrame", names: list[str]) -> "pd.DataFrame":
    """Columns by name; settings common to all runs become columns again."""
    constant = found.attrs["constant"]
    for name in names:
        if name not in found and name not in constant:
            raise ValueError(f"there is no column {name!r}; choose from {', '.join([*found, *constant])}")
    return found.assign(**{name: constant[name] for name in names if name not in found}).loc[:, names]
