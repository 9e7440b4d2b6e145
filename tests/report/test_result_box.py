"""The result box at the head of a figure's notebook, on the toy experiments."""

from pathlib import Path

from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.finding import Finding
from workbench.report.notebook import result_box


def box(experiment: Experiment, *findings: Finding) -> str:
    return result_box(experiment, {experiment.name: list(findings)})


def test_the_box_begins_with_the_claim(toys: Path) -> None:
    assert "The square grows with the number." in box(load_experiment("toys/fig1")).splitlines()[0]


def test_what_held_and_what_did_not_are_told_apart(toys: Path) -> None:
    findings = Finding("one", "it grows", True, "1, 4"), Finding("two", "evenly", False, "3")
    text = box(load_experiment("toys/fig1"), *findings)
    assert "held in part, 1 of 2 statements" in text and "✗ evenly (3)" in text and "it grows" not in text


def test_the_reason_of_a_deviation_is_given(toys: Path) -> None:
    assert "it is a toy" in box(load_experiment("toys/fig1"), Finding("never", "it shrinks", False, "0"))


def test_an_undecided_finding_is_neither(toys: Path) -> None:
    text = box(load_experiment("toys/fig1"), Finding("one", "it grows", False, "1 point", decided=False))
    assert "? it grows (1 point)" in text and "0 of 1 statements" in text


def test_sizes_that_were_not_run_are_named(toys: Path) -> None:
    assert "**paper**: not run" in box(load_experiment("toys/fig1"))
