"""`workbench compare` and `workbench import`: runs in a store."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.command_group import write_lines
from workbench.cli.options import SIZES, NameChoice, complete_names, load_figure, store_option

_ID = 8  # characters of an id that a person reads

if TYPE_CHECKING:
    import pandas as pd


@click.command()
@click.argument("figure", metavar="[PAPER/FIGURE | NAME]", required=False, shell_complete=complete_names)
@click.option("--size", type=NameChoice(SIZES), help="Only runs of this size.")
@click.option("--where", "settings", metavar="KEY=VALUE", multiple=True, help="Only runs with this (repeatable).")
@click.option("--columns", metavar="A,B,...", help="Only these columns, in this order.")
@click.option("--all", "all_columns", is_flag=True, help="All columns, and all runs if no figure is named.")
@click.option("--csv", metavar="FILE", type=click.Path(path_type=Path), help="Write the table to a file instead.")
@store_option
def compare(
    figure: str | None,
    size: str | None,
    settings: tuple[str, ...],
    columns: str | None,
    all_columns: bool,
    csv: Path | None,
    store: str | None,
) -> None:
    """Compare finished runs, one row each.

    Shows the settings in which they differ and the figure's main measurements, as far as they fit the terminal. The
    name may be one of your own runs (wb.track). Without one it lists the sweeps that have runs. Settings that all runs
    share are printed below the table.
    """
    from workbench.experiment.figure_loader import experiment_names
    from workbench.report.terminal import fitted_table, terminal_width
    from workbench.tracking import compare as comparison
    from workbench.tracking.opening import open_store

    where, target = _parse_settings(settings), open_store(store)
    tracked = figure is not None and figure not in experiment_names() and figure in target.sweeps()
    sweep = load_figure(figure).sweep if figure and not tracked else None
    found = comparison.compare(target, sweep=sweep.name if sweep else figure, size=size, where=where)
    if found.empty:
        filtered = where or size or figure
        return write_lines(["no finished run matches" if filtered else "no finished runs yet; try `workbench run`"])
    if not (figure or settings or columns or all_columns or csv):
        return write_lines(_sweeps(found, terminal_width()))
    if columns:
        found = _select(found, columns.split(","))
    if csv:
        csv.parent.mkdir(parents=True, exist_ok=True)
        found.to_csv(csv, index=False)
        return write_lines([f"{len(found)} rows in {csv}"])
    shown = found if columns or all_columns else _main(found, sweep.spec.columns if sweep else [])
    common = ", ".join(f"{key} {value}" for key, value in _short(found.attrs.get("constant", {})).items())
    table = fitted_table(shown, None if all_columns else terminal_width(), more="--all")
    write_lines([*table, *(["", f"in common: {common}"] if common else [])])


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
    from workbench.tracking.store import shown_uri

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


def _sweeps(found: "pd.DataFrame", width: int | None) -> list[str]:
    """One row per sweep and size: how many runs, how long they took, and when the last one started."""
    from workbench.report.terminal import fitted_table

    keys = [name for name in ("sweep", "size") if name in found]
    runs = found.drop_duplicates("run_id")
    rows = runs.assign(**{name: found.attrs["constant"][name] for name in ("sweep", "size") if name not in keys})
    table = rows.groupby(["sweep", "size"], sort=False).agg(
        runs=("run_id", "size"), seconds=("seconds", "sum"), last=("started", "max")
    )
    table["last"] = table["last"].str[:16]
    hint = "`workbench compare PAPER/FIGURE` shows the runs of one, `--all` those of all"
    return [*fitted_table(table.reset_index(), width), "", hint]


def _main(found: "pd.DataFrame", measured: list[str]) -> "pd.DataFrame":
    """The settings that differ, the main measurements, and the first characters of run ids."""
    hidden = {"status", "started", "run_id", "commit", "dirty", "code", "sweep", "machine"}
    chosen = [name for name in found if name not in hidden]
    if measured:
        differing = found.attrs["differing"]
        chosen = [name for name in chosen if name in differing or name in measured or name == "seconds"]
    return found[chosen].assign(run=found.run_id.str[:_ID])


def _short(settings: "dict[str, str]") -> dict[str, str]:
    """Digests by their first characters; lists of digests are left out."""
    return {
        name: value[:_ID] if name in ("commit", "code") else value
        for name, value in settings.items()
        if value != "null"
    }


def _select(found: "pd.DataFrame", names: list[str]) -> "pd.DataFrame":
    """Columns by name; settings common to all runs become columns again."""
    from workbench.core.suggestions import unknown

    constant = found.attrs["constant"]
    for name in names:
        if name not in found and name not in constant:
            raise ValueError(unknown("column", name, [*found, *constant], most=99))
    return found.assign(**{name: constant[name] for name in names if name not in found}).loc[:, names]
