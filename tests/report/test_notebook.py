"""The closing cells of notebooks, on the toy experiments."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from IPython.display import Markdown

from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.finding import Finding
from workbench.experiment.recorded import record, recorded
from workbench.report import notebook
from workbench.report.notebook import box_of
from workbench.report.verdicts import verdicts
from workbench.tracking.file_store import FileStore

Shown = list[Any]


@pytest.fixture
def figure(toys: Path) -> Experiment:
    return load_experiment("toys/fig2")  # a view of fig1


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Everything displayed, Markdown as its text."""
    found: Shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda value: found.append(value.data if isinstance(value, Markdown) else value)
    )
    return found


def test_findings_are_a_table_with_verdicts(figure: Experiment, shown: Shown) -> None:
    notebook.findings(figure, pd.DataFrame({"number": [1, 2], "square": [1, 4]}), size="smoke")
    notebook.findings(figure, pd.DataFrame({"number": [1, 2], "square": [4, 1]}), size="smoke")
    assert "| it grows | ✓ held |" in shown[0] and "[1, 4]" in shown[0]
    assert "| it grows | ✗ did not hold |" in shown[1]


def test_a_point_is_shown_as_code_of_the_sweep_with_the_recorded_time(
    figure: Experiment, store: FileStore, shown: Shown
) -> None:
    notebook.point(figure)
    record(figure.runs(size="smoke", store=store))
    notebook.point(figure)
    assert "fig1.py`." in shown[0] and "As recorded" not in shown[0]
    assert shown[0].endswith("```\n") and "```python\ndef run(config" in shown[0]
    assert "As recorded: 3 points of size smoke in 0 s on " in shown[1]


def test_recorded_tables_show_findings_and_provenance_below_the_figure_of_the_result(
    figure: Experiment, store: FileStore, shown: Shown
) -> None:
    record(figure.runs(size="smoke", store=store))
    (kept,) = recorded("toys/fig1")
    notebook.recorded_tables(figure)
    heading, findings = shown
    assert heading.startswith("**smoke**") and kept.provenance() in heading
    assert "| it grows | ✓ held |" in findings


def test_recorded_tables_can_show_the_comparison(figure: Experiment, store: FileStore, shown: Shown) -> None:
    record(figure.runs(size="smoke", store=store))
    notebook.recorded_tables(figure, compare=True)
    assert isinstance(shown[1], pd.DataFrame) and list(shown[1]) == ["paper", "here"]


def test_no_recorded_table(figure: Experiment, shown: Shown) -> None:
    notebook.recorded_tables(figure)
    assert shown == ["No table of `toys/fig1` is recorded."]


def test_logged_runs_are_those_of_the_table(figure: Experiment, store: FileStore, shown: Shown) -> None:
    table = figure.run(size="smoke", store=store)
    figure.run(size="smoke", overrides={"number": [7, 8]}, store=store)
    found = notebook.logged_runs(figure, table, ["number", "square"], store=store)
    assert found.values.tolist() == [[1, 1], [2, 4], [3, 9]]
    (text,) = shown
    assert 'tags.sweep = "toys/fig1"' in text and "MLflow experiment `toys`" in text


def test_the_result_is_a_line_the_figure_and_the_claim(figure: Experiment, store: FileStore, shown: Shown) -> None:
    notebook.result(figure)
    assert shown[0] == "– **Not run** at any size" and len(shown) == 2
    shown.clear()
    record(figure.runs(size="smoke", store=store))
    notebook.result(figure)
    line, drawn, box = shown
    assert line.startswith("✓ **Held** at size smoke, ") and "\n" not in line
    assert list(drawn.data[0].y) == [1, 4, 9] and "**Claim.** The same." in box


def box(experiment: Experiment, *findings: Finding) -> str:
    return box_of(experiment, verdicts([experiment], {experiment.name: findings})[0].sections)


def test_the_box_begins_with_the_claim(toys: Path) -> None:
    assert "The square grows with the number." in box(load_experiment("toys/fig1")).splitlines()[0]


def test_what_held_and_what_did_not_are_told_apart(toys: Path) -> None:
    findings = Finding("one", "it grows", True, "1, 4"), Finding("two", "evenly", False, "3")
    text = box(load_experiment("toys/fig1"), *findings)
    assert "held in part, 1 of 2 statements hold" in text and "it grows" not in text
    assert "- ✗ evenly\n" in text, "a line, without numbers"
    assert "evenly (3)" in text.partition("<details")[2]


def test_the_reason_of_a_deviation_is_behind_a_fold(toys: Path) -> None:
    first, fold, reasons = box(load_experiment("toys/fig1"), Finding("never", "it shrinks", False, "0")).partition(
        "<de"
    )
    assert fold and "it is a toy" in reasons and "it is a toy" not in first


def test_an_undecided_finding_is_neither(toys: Path) -> None:
    text = box(load_experiment("toys/fig1"), Finding("one", "it grows", False, "1 point", decided=False))
    assert "? it grows\n" in text and "0 of 1 statements" in text


def test_sizes_that_were_not_run_are_named(toys: Path) -> None:
    assert "**paper**: not run" in box(load_experiment("toys/fig1"))
