"""`workbench report`, and the page at the end of `workbench reproduce`."""

import argparse
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def report(asked: argparse.Namespace) -> list[str]:
    """Write the page of what ran with the code as it is, and of what is recorded."""
    from workbench.report.collect import collect
    from workbench.report.terminal import status_lines
    from workbench.tracking.store import open_store

    sections = collect(figures_of(asked.papers), open_store(asked.store), page=place(asked))
    return [*status_lines(sections), "", f"report: {write(asked, sections)}"]


def write(asked: argparse.Namespace, sections: Iterable[Any]) -> Path:
    """Write the page, with what it was made on."""
    from workbench.experiment.environment import device_name, environment_tags
    from workbench.experiment.places import project_root
    from workbench.report import page

    tags = environment_tags(project_root())
    commit = tags["commit"][:12] + (" with changes" if tags["dirty"] == "true" else "")
    versions = ", ".join(f"{key.removeprefix('version.')} {value}" for key, value in tags.items() if "version." in key)
    summary = {"machine": device_name("cpu"), "commit": commit, "versions": f"python {tags['python']}, {versions}"}
    made_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return page.write(
        place(asked), list(sections), title="GNN Workbench: the papers' figures", made_at=made_at, summary=summary
    )


def figures_of(papers: Sequence[str]) -> list[Any]:
    """Experiments of these papers, or of all.

    Raises:
        ValueError: an unknown paper.
    """
    from workbench.core.errors import check_choice
    from workbench.experiment.load import load_experiment
    from workbench.experiment.places import experiment_names

    names = experiment_names()
    known = {name.split("/")[0] for name in names}
    for paper in papers:
        check_choice("paper", paper, known)
    return [load_experiment(name) for name in names if not papers or name.split("/")[0] in papers]


def place(asked: argparse.Namespace) -> Path:
    """File that the page is written to."""
    from workbench.experiment.places import project_root

    return (asked.output or project_root() / "build" / "report.html").resolve()
