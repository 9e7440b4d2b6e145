"""`workbench report`, which also ends `workbench reproduce`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from workbench.cli.command_group import write_lines
from workbench.cli.figure_names import load_figures
from workbench.cli.shared_options import names_argument, page_option, store_option


@click.command()
@names_argument
@store_option
@page_option
def report(names: tuple[str, ...], store: str | None, output: Path | None) -> None:
    """Write the HTML report without running anything.

    It shows the runs made by the current code, and all recorded tables.
    """
    from workbench.tracking.opening import open_store

    figures = load_figures(names)
    write_lines(write_report(figures, open_store(store), output))


def write_report(figures: Sequence[Any], store: Any, output: Path | None) -> list[str]:
    """Writes the page; returns the status of every figure and size, and the page's path, as lines.

    Args:
        figures: experiments.
        store: contains their runs.
        output: HTML file; None: build/report.html of the project.
    """
    from workbench.report import page
    from workbench.report.collect import collect
    from workbench.report.terminal import status_lines

    file = report_file(output)
    sections = collect(figures, store, page=file)
    made_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page.write(file, sections, title="GNN Workbench: the papers' figures", made_at=made_at, summary=_environment())
    return [*status_lines(sections), "", f"report: {file}"]


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
