"""The status of a section and the order of sections."""

from dataclasses import replace

import pytest

from tests.report.sections import everything, failed, inputs, memory, not_held, not_run
from workbench.experiment.finding import Finding
from workbench.report.sections import SYMBOLS, Section, by_figure

GOOD, BAD = (Finding(name, "statement", name == "good", "evidence") for name in ("good", "bad"))

OPEN = replace(BAD, decided=False)


@pytest.mark.parametrize(
    ("findings", "status", "after_failures"),
    [
        ((GOOD, GOOD), "held", "failed"),
        ((GOOD, BAD), "held in part", "held in part"),
        ((BAD, BAD), "did not hold", "did not hold"),
        ((GOOD, OPEN), "held in part", "failed"),
        ((BAD, OPEN), "did not hold", "did not hold"),
        ((OPEN, OPEN), "undecided", "failed"),
    ],
)
def test_findings_decide(findings: tuple, status: str, after_failures: str) -> None:
    assert replace(memory(), findings=findings, problems=()).status == status
    assert replace(memory(), findings=findings, problems=("a point failed",)).status == after_failures


def test_timed_findings_do_not_count() -> None:
    slow = replace(BAD, timed=True)
    assert replace(memory(), findings=(GOOD, slow)).status == "held"
    assert replace(memory(), findings=(BAD, replace(GOOD, timed=True))).status == "did not hold"
    assert replace(memory(), findings=(slow,)).status == "not checked"


@pytest.mark.parametrize(("points", "status"), [((4, 12), "incomplete"), ((12, 12), "held"), (None, "held")])
def test_an_incomplete_grid_has_no_verdict(points: tuple[int, int] | None, status: str) -> None:
    assert replace(memory(), findings=(GOOD,), points=points).status == status


def test_without_findings() -> None:
    assert failed().status == "failed"
    assert not_run().status == "not run"
    assert replace(memory(), findings=()).status == "not checked"
    assert replace(memory(), findings=(), problems=("K = 1: killed",)).status == "failed"


def test_every_status_has_its_own_symbol() -> None:
    assert len(set(SYMBOLS.values())) == len(SYMBOLS) == 8
    assert not_held().symbol == SYMBOLS["did not hold"]


def test_findings_that_did_not_hold() -> None:
    assert [finding.name for finding in inputs().not_held] == ["faster", "memory"]


def names(groups: list[list[Section]]) -> list[list[tuple[str, str]]]:
    return [[(section.name, section.size) for section in group] for group in groups]


def test_sections_are_grouped_by_paper_and_figure() -> None:
    assert names(by_figure(everything())) == [
        [("betty/fig11", "smoke"), ("betty/fig11", "real")],
        [("betty/table6", "smoke"), ("betty/table6", "paper")],
        [("betty/fig16", "paper")],
        [("batchgnn/fig5", "smoke"), ("batchgnn/fig5", "real")],
    ]


def test_runs_come_before_recorded_tables() -> None:
    recorded = replace(memory(), recorded=True)
    assert [section.recorded for section in by_figure([recorded, memory()])[0]] == [False, True]
    assert by_figure([]) == []
