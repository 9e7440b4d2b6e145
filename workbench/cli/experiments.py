"""`workbench list | run | reproduce | compare | report | import`: the papers' figures, run, tracked and shown."""

import argparse
from pathlib import Path
from typing import Any

from workbench.cli import page as pages
from workbench.cli import run as running
from workbench.cli import runs as kept
from workbench.cli.tables import table

_SIZES = ("smoke", "real", "paper")


def add(areas: argparse._SubParsersAction) -> None:
    """Add the commands to those of `workbench`."""
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument(
        "--store", help="tracking URI, or a .jsonl file (default: MLFLOW_TRACKING_URI, else mlflow.db of the project)"
    )
    how = argparse.ArgumentParser(add_help=False)
    how.add_argument("--size", choices=_SIZES, default="smoke", help="how large (default: smoke)")
    how.add_argument("--device", help="cpu, cuda or cuda:N (default: what the size is meant for)")
    how.add_argument("--record", action="store_true", help="write the tables to experiments/results/ as well")
    page = argparse.ArgumentParser(add_help=False)
    page.add_argument("--output", type=Path, help="HTML page to write (default: build/report.html of the project)")

    def command(name: str, run: Any, what: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        added = areas.add_parser(name, parents=list(parents), help=what, description=what[0].upper() + what[1:] + ".")
        added.set_defaults(run=run)
        return added

    command("list", _list, "the figures and tables that can be reproduced, with their sizes")

    one = command("run", running.run, "run one figure; points that were finished before are not run again", how, store)
    one.add_argument("figure", metavar="PAPER/FIGURE")
    one.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another value of the configuration, as YAML; a list for an axis. Of several grids each takes the "
        "values that it offers, and all take a value that none offers (repeatable)",
    )

    every = command(
        "reproduce",
        running.reproduce,
        "run every figure, of all papers or some, and report",
        how,
        store,
        page,
    )
    every.add_argument("papers", nargs="*", metavar="PAPER")

    runs = command("compare", kept.compare, "finished runs side by side, without what all have in common", store)
    runs.add_argument("figure", nargs="?", metavar="PAPER/FIGURE")
    runs.add_argument("--size", choices=_SIZES)
    runs.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="only these runs (repeatable)")
    runs.add_argument("--columns", metavar="A,B,…", help="only these columns, in this order")
    runs.add_argument("--csv", type=Path, metavar="FILE", help="write the table to a file instead")

    report = command(
        "report",
        pages.report,
        "write the HTML page of what ran with this code, and what is recorded",
        store,
        page,
    )
    report.add_argument("papers", nargs="*", metavar="PAPER")

    logged = command("import", kept.log, "log the runs of a .jsonl file, written where MLflow was not installed", store)
    logged.add_argument("file", type=Path)


def _list(_: argparse.Namespace) -> list[str]:
    from workbench.experiment.load import load_experiment
    from workbench.experiment.places import experiment_names

    figures = [load_experiment(name) for name in experiment_names()]
    rows = [
        (f.name, f.spec.title, f.spec.source, " ".join(f.sweep.spec.sizes), f.spec.rows_from or "") for f in figures
    ]
    return table(("figure", "what it shows", "where in the paper", "sizes", "rows from"), rows)
