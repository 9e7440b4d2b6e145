"""`workbench list | run | reproduce | compare | report | import`: the papers' figures, run, tracked and shown."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.cli.tables import table

Outcome = tuple[list[str], int]

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

    one = command("run", _run, "run one figure; points that were finished before are not run again", how, store)
    one.add_argument("figure", metavar="PAPER/FIGURE")
    one.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another value of the configuration, as YAML; a list replaces the values of an axis (repeatable)",
    )

    every = command(
        "reproduce", _reproduce, "run every figure, of all papers or some, and write the report", how, store, page
    )
    every.add_argument("papers", nargs="*", metavar="PAPER")

    runs = command("compare", _compare, "finished runs beside each other; what all have in common is left out", store)
    runs.add_argument("figure", nargs="?", metavar="PAPER/FIGURE")
    runs.add_argument("--size", choices=_SIZES)
    runs.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="only these runs (repeatable)")
    runs.add_argument("--columns", metavar="A,B,…", help="only these columns, in this order")
    runs.add_argument("--csv", type=Path, metavar="FILE", help="write the table to a file instead")

    report = command(
        "report", _report, "write the HTML page of what ran with the code as it is, and what is recorded", store, page
    )
    report.add_argument("papers", nargs="*", metavar="PAPER")

    logged = command("import", _import, "log the runs of a .jsonl file, written where MLflow was not installed", store)
    logged.add_argument("file", type=Path)


def _list(_: argparse.Namespace) -> list[str]:
    from workbench.experiment.load import load_experiment
    from workbench.experiment.places import experiment_names

    figures = [load_experiment(name) for name in experiment_names()]
    rows = [
        (f.name, f.spec.title, f.spec.source, " ".join(f.sweep.spec.sizes), f.spec.rows_from or "") for f in figures
    ]
    return table(("figure", "what it shows", "where in the paper", "sizes", "rows from"), rows)


def _run(asked: argparse.Namespace) -> Outcome:
    from workbench.experiment.grid import parse_overrides
    from workbench.experiment.load import load_experiment
    from workbench.tracking.store import open_store

    experiment = load_experiment(asked.figure)
    overrides = parse_overrides(asked.set)
    lines, failed = _run_one(experiment, asked, open_store(asked.store), overrides)
    return lines, int(failed)


def _reproduce(asked: argparse.Namespace) -> Outcome:
    from workbench.report.collect import collect
    from workbench.report.terminal import status_lines
    from workbench.tracking.store import open_store

    figures = _figures(asked.papers)
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
    sections = collect(figures, store, page=_page(asked))
    written = _write(asked, sections)
    return [*status_lines(sections), "", f"report: {written}", f"runs: {store.location}"], int(failed > 0)


def _run_one(
    experiment: Any, asked: argparse.Namespace, store: Any, overrides: dict[str, Any]
) -> tuple[list[str], int]:
    """Run a sweep; its table, findings of all its figures, the slowest points, and how many points failed."""
    from workbench.experiment.recorded import record
    from workbench.experiment.summary import log_summary
    from workbench.experiment.sweep import slowest
    from workbench.experiment.table import labels, table_of, to_read
    from workbench.tracking.record import FINISHED

    runs = experiment.runs(size=asked.size, device=asked.device, overrides=overrides, store=store)
    label = dict(zip((run.run_id for run in runs), labels(runs), strict=True))
    finished, failed = ([run for run in runs if (run.status == FINISHED) is wanted] for wanted in (True, False))
    lines = [*_readable(to_read(runs, experiment.sweep.spec.columns)), ""]
    if finished:
        made = table_of(finished)
        for figure in [experiment] if overrides else _views(experiment):
            lines += [f"{figure.name}: {figure.spec.claim}", *_findings(figure, asked.size, made, bool(overrides)), ""]
            if not overrides:
                log_summary(figure, asked.size, runs, store)
    lines += ["slowest points:", *(f"  {run.seconds:8.2f} s  {label[run.run_id]}" for run in slowest(runs))]
    lines += [f"FAILED {label[run.run_id]}: {run.error}" for run in failed]
    if asked.record:
        lines.append(f"recorded: {record(runs)}")
    return lines, len(failed)


def _findings(figure: Any, size: str, made: Any, partial: bool) -> list[str]:
    """A grid that the caller chose may lack what a check needs."""
    try:
        found = figure.check(made)
    except (ValueError, KeyError, AttributeError) as error:
        if not partial:
            raise
        return [f"  not checked on this grid: {error}"]
    known = figure.deviations(size)
    lines = []
    for finding in found:
        sign = "✓" if finding.held else "✗"
        lines.append(f"  {sign} {finding.statement}{' (timed)' if finding.timed else ''} — {finding.evidence}")
        if not finding.held and finding.name in known:
            lines.append(f"    known: {known[finding.name]}")
    return lines


def _views(sweep: Any) -> list[Any]:
    from workbench.experiment.load import load_experiment

    return [load_experiment(name) for name in sweep.views]


def _compare(asked: argparse.Namespace) -> list[str]:
    from workbench.tracking.compare import compare
    from workbench.tracking.store import open_store

    where = dict(text.partition("=")[::2] for text in asked.where)
    store = open_store(asked.store)
    store.check()
    found = compare(store, sweep=asked.figure and _home(asked.figure), size=asked.size, where=where)
    if asked.columns:
        wanted = asked.columns.split(",")
        if missing := [name for name in wanted if name not in found]:
            raise ValueError(f"there is no column {missing[0]!r}; choose from {', '.join(found)}")
        found = found[wanted]
    if asked.csv:
        found.to_csv(asked.csv, index=False)
        return [f"{len(found)} rows in {asked.csv}"]
    if found.empty:
        return ["no finished runs; `workbench run PAPER/FIGURE` makes some"]
    constant = ", ".join(f"{key} {value}" for key, value in found.attrs.get("constant", {}).items())
    return [*_readable(found), *(["", f"in common: {constant}"] if constant else [])]


def _home(name: str) -> str:
    from workbench.experiment.load import load_experiment

    return load_experiment(name).sweep.name


def _report(asked: argparse.Namespace) -> list[str]:
    from workbench.report.collect import collect
    from workbench.report.terminal import status_lines
    from workbench.tracking.store import open_store

    store = open_store(asked.store)
    store.check()
    sections = collect(_figures(asked.papers), store, page=_page(asked))
    return [*status_lines(sections), "", f"report: {_write(asked, sections)}"]


def _import(asked: argparse.Namespace) -> list[str]:
    from workbench.tracking.file_store import FileStore
    from workbench.tracking.record import FAILED, FINISHED
    from workbench.tracking.store import open_store

    if not asked.file.exists():
        raise FileNotFoundError(f"there is no file {asked.file}; runs are written to one by --store FILE.jsonl")
    store = open_store(asked.store)
    store.check()
    runs = FileStore(asked.file).runs(statuses=(FINISHED, FAILED))
    added = sum(store.add(run) for run in runs)
    return [f"{added} of {len(runs)} runs were new to {store.location}"]


def _figures(papers: Sequence[str]) -> list[Any]:
    from workbench.core.errors import check_choice
    from workbench.experiment.load import load_experiment
    from workbench.experiment.places import experiment_names

    names = experiment_names()
    known = {name.split("/")[0] for name in names}
    for paper in papers:
        check_choice("paper", paper, known)
    return [load_experiment(name) for name in names if not papers or name.split("/")[0] in papers]


def _page(asked: argparse.Namespace) -> Path:
    from workbench.experiment.places import project_root

    return (asked.output or project_root() / "build" / "report.html").resolve()


def _write(asked: argparse.Namespace, sections: Iterable[Any]) -> Path:
    from workbench.experiment.environment import device_name, environment_tags
    from workbench.experiment.places import project_root
    from workbench.report.page import write

    tags = environment_tags(project_root())
    commit = tags["commit"][:12] + (" with changes" if tags["dirty"] == "true" else "")
    versions = ", ".join(f"{key.removeprefix('version.')} {value}" for key, value in tags.items() if "version." in key)
    summary = {"machine": device_name("cpu"), "commit": commit, "versions": f"python {tags['python']}, {versions}"}
    made_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return write(
        _page(asked), list(sections), title="GNN Workbench: the papers' figures", made_at=made_at, summary=summary
    )


def _readable(made: Any) -> list[str]:
    from workbench.core.units import format_bytes

    def in_bytes(value: float) -> str:
        return "" if value != value else format_bytes(int(value))  # not a number where a point failed

    units: Any = {column: in_bytes for column in made if column.endswith("_bytes")}
    return made.to_string(index=False, formatters=units, float_format="{:.4g}".format).splitlines()
