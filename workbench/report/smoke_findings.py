"""Verdicts of the smoke size, `results/<paper>/smoke-findings.csv`: recorded for the documents, without the rows."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from workbench.experiment.experiment import Experiment
from workbench.experiment.finding import Finding
from workbench.files import write_file
from workbench.paths import results_folder

_COLUMNS = ("figure", "finding", "held", "statement", "evidence")
_UNDECIDED = "undecided"  # in the column "held"


def smoke_file(paper: str) -> Path:
    """Returns the file of a paper's smoke verdicts.

    Args:
        paper: name of the paper's folder.
    """
    return results_folder() / paper / "smoke-findings.csv"


def read_smoke_findings(paper: str) -> dict[str, list[Finding]]:
    """Reads the smoke verdicts of a paper.

    Args:
        paper: name of the paper's folder.

    Returns:
        "paper/figure" to its untimed findings; empty if no smoke run is recorded.
    """
    file = smoke_file(paper)
    if not file.exists():
        return {}
    found: dict[str, list[Finding]] = {}
    for row in pd.read_csv(file, keep_default_na=False).to_dict("records"):
        findings = found.setdefault(row["figure"], [])
        if row["finding"]:
            held = str(row["held"])
            about = (row["statement"], held == "True", row["evidence"])
            findings.append(Finding(row["finding"], *about, decided=held != _UNDECIDED))
    return found


def write_smoke_findings(paper: str, findings: Mapping[str, Iterable[Finding]]) -> Path:
    """Writes the smoke verdicts of a paper, without findings on wall-clock time: those vary between runs.

    Args:
        paper: name of the paper's folder.
        findings: "paper/figure" to its findings at the smoke size.

    Returns:
        The file.
    """
    rows = []
    for figure, found in findings.items():
        kept = [one for one in found if not one.timed]
        rows += [(figure, one.name, _held(one), one.statement, one.evidence) for one in kept]
        rows += [] if kept else [(figure, "", "", "", "")]
    file = smoke_file(paper)
    write_file(file, pd.DataFrame(rows, columns=list(_COLUMNS)).to_csv(index=False, lineterminator="\n"))
    return file


def _held(finding: Finding) -> bool | str:
    return finding.held if finding.decided else _UNDECIDED


def run_smoke(experiments: Iterable[Experiment]) -> dict[str, list[Finding]]:
    """Runs figures at the smoke size, as far as the store does not have their points, and checks them.

    Args:
        experiments: the figures.

    Returns:
        "paper/figure" to its findings.
    """
    return {experiment.name: experiment.check(experiment.run(size="smoke")) for experiment in experiments}
