"""Verdicts as Markdown, on the toy experiments."""

from pathlib import Path

import pytest

from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.finding import Finding
from workbench.experiment.recorded import record
from workbench.report.verdicts import details, figure_rows, paper_row, verdicts
from workbench.tracking.file_store import FileStore

HELD, LOST = Finding("grows", "it grows", True, "1 < 2"), Finding("never", "it never | does", False, "3 of 4")

OPEN = Finding("open", "it may grow", False, "1 ± 2", decided=False)


@pytest.fixture
def figure(toys: Path) -> Experiment:
    return load_experiment("toys/fig1")


def row(figure: Experiment, *findings: Finding) -> list[str]:
    smoke = {figure.name: findings} if findings else {}
    return [cell.strip() for cell in figure_rows(verdicts([figure], smoke)).splitlines()[-1].split(" | ")]


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([HELD], "✓ held"),
        ([HELD, LOST], "◐ held in part: not `never`"),
        ([LOST], "✗ did not hold: not `never`"),
        ([HELD, OPEN], "◐ held in part: undecided `open`"),
        ([LOST, OPEN], "✗ did not hold: not `never`; undecided `open`"),
        ([OPEN], "? undecided"),
        ([], "not run"),
    ],
)
def test_a_row_shows_the_smoke_verdict(figure: Experiment, findings: list[Finding], verdict: str) -> None:
    title, smoke, real, paper, link = row(figure, *findings)
    assert title == "| [Squares](#squares)" and smoke == verdict and real == paper == "not run"
    assert link == "[fig1](../notebooks/toys/fig1.ipynb) |"


def test_a_row_links_recorded_tables(figure: Experiment, store: FileStore) -> None:
    file = record(figure.runs(size="smoke", store=store))
    assert row(figure)[1] == f"✓ [held](../{file})"


def test_a_paper_counts_its_verdicts(figure: Experiment) -> None:
    view = load_experiment("toys/fig2")
    text = paper_row(verdicts([figure, view], {figure.name: [HELD], view.name: [HELD, LOST]}))
    assert text == f"| {figure.paper} | 2 | 1 held, 1 held in part | 2 not run | 2 not run |"


def test_details_give_evidence_and_reason(figure: Experiment) -> None:
    (one,) = verdicts([figure], {figure.name: [HELD, LOST]})
    text = details(one)
    assert text.startswith("### Squares\n\nThe square grows with the number.")
    assert "- **smoke**, did not hold: it never \\| does (3 of 4). *Why:* it is a toy" in text
    assert "it grows" not in text
    (one,) = verdicts([figure], {figure.name: [HELD, OPEN]})
    assert "- **smoke**, undecided: it may grow (1 ± 2)." in details(one)


def test_details_compare_recorded_tables(figure: Experiment, store: FileStore) -> None:
    record(figure.runs(size="smoke", store=store))
    (one,) = verdicts([figure], {})
    assert details(one).endswith("paper vs here:\n\n| paper | here |\n|--:|--:|\n| 4 | 1 |")
