"""Verdicts as Markdown, on the toy experiments."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from workbench.cli.reproduction import closing_lines, not_held_line
from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.finding import Finding
from workbench.experiment.recorded import record
from workbench.paths import project_root
from workbench.report.generated_docs import BENCHMARKS
from workbench.report.verdicts import (
    details,
    figure_rows,
    paper_row,
    read_smoke_findings,
    run_smoke,
    section_of_findings,
    smoke_file,
    verdicts,
    write_smoke_findings,
)
from workbench.tracking.file_store import FileStore

HELD, LOST = Finding("grows", "it grows", True, "1 < 2"), Finding("never", "it never | does", False, "3 of 4")

OPEN = Finding("open", "it may grow", False, "1 ± 2", decided=False)


@pytest.fixture
def figure(toys: Path) -> Experiment:
    return load_experiment("toys/fig1")


def row(figure: Experiment, *findings: Finding) -> list[str]:
    smoke = {figure.name: findings} if findings else {}
    return [
        cell.strip() for cell in figure_rows(verdicts([figure], smoke), "figures/toys.md").splitlines()[-1].split(" | ")
    ]


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([HELD], "✓ held"),
        ([HELD, LOST], "◐ held in part: 1 does not hold"),
        ([HELD, LOST, replace(LOST, name="nor")], "◐ held in part: 2 do not hold"),
        ([LOST], "✗ did not hold"),
        ([HELD, OPEN], "◐ held in part: 1 undecided"),
        ([LOST, OPEN], "✗ did not hold: 1 does not hold, 1 undecided"),
        ([OPEN], "? undecided"),
        ([], "not run"),
    ],
)
def test_a_row_shows_the_smoke_verdict(figure: Experiment, findings: list[Finding], verdict: str) -> None:
    title, smoke, real, apart, paper = row(figure, *findings)
    assert title == "| [Squares](figures/toys.md#squares)" and smoke == verdict
    assert real == "not run" and paper == "not run |" and apart == "–", "no number at size real is beside the paper's"


def test_details_link_recorded_tables_and_the_notebook(figure: Experiment, store: FileStore) -> None:
    file = record(figure.runs(size="smoke", store=store))
    (one,) = verdicts([figure], {})
    assert f"held, 1 of 1 statements hold. [Rows](../../{file})." in details(one)
    assert "[notebook](../../notebooks/toys/fig1.ipynb)" in details(one)


def test_a_row_shows_how_far_numbers_are_from_the_papers(figure: Experiment) -> None:
    (one,) = verdicts([figure], {})
    section = section_of_findings(one.experiment, "real", [HELD])
    compared = replace(section, comparison=pd.DataFrame({"s, paper": [1.0, 2.0], "s": [0.5, 40.0]}))
    line = figure_rows([replace(one, sections=(compared,))], "toys.md").splitlines()[-1]
    assert " | ✓ held | 0.5 to 20 | " in line


def test_names_of_statements_are_not_shown(figure: Experiment) -> None:
    named = replace(LOST, name="internal-name")
    (one,) = verdicts([figure], {figure.name: [HELD, named]})
    assert "internal-name" not in details(one) + figure_rows([one], "toys.md")


def test_a_paper_counts_its_verdicts(figure: Experiment) -> None:
    view = load_experiment("toys/fig2")
    text = paper_row(verdicts([figure, view], {figure.name: [HELD], view.name: [HELD, LOST]}))
    assert text == f"| {figure.paper} | 2 | 1 held, 1 held in part | 2 not run | 2 not run | – |"


def test_details_give_evidence_and_reason(figure: Experiment) -> None:
    (one,) = verdicts([figure], {figure.name: [HELD, LOST]})
    text = details(one)
    assert text.startswith("## Squares\n\nThe square grows with the number.")
    assert "- ◐ **smoke**: held in part, 1 of 2 statements hold." in text
    folded = text[text.index("<details") :]
    assert folded.startswith('<details markdown="1"><summary>smoke: what does not hold, and why (1)</summary>')
    assert "- *did not hold*: it never \\| does (3 of 4). *Why:* it is a toy" in folded
    assert "it grows" not in text
    (one,) = verdicts([figure], {figure.name: [HELD, OPEN]})
    assert "- *undecided*: it may grow (1 ± 2)." in details(one)


def test_details_compare_recorded_tables(figure: Experiment, store: FileStore) -> None:
    record(figure.runs(size="smoke", store=store))
    (one,) = verdicts([figure], {})
    assert details(one).endswith(
        '<details markdown="1"><summary>smoke: paper vs here, 1 rows, here ÷ paper 0.25, the worst first</summary>\n\n'
        "| paper | here | here ÷ paper |\n|--:|--:|--:|\n| 4 | 1 | 0.250 |\n\n</details>"
    )


def test_what_keeps_a_claim_from_holding_is_told_apart(figure: Experiment, store: FileStore) -> None:
    sized, slow = replace(LOST, name="size", sized=True), replace(LOST, name="slow", timed=True)
    unmeasured = replace(slow, name="unknown", decided=False)
    (one,) = verdicts([figure], {})
    section = section_of_findings(one.experiment, "real", [HELD, LOST, sized, slow, unmeasured])
    shown = replace(one, sections=(section,))
    (line,) = [line for line in figure_rows([shown], "toys.md").splitlines() if "Squares" in line]
    told = "1 does not hold, 1 size differs, 1 time differs, 1 time not measured"
    assert f"◐ held in part: {told}" in line
    assert paper_row([shown]).endswith("| 0 of 1 |")


def test_a_recorded_table_with_fewer_points_than_its_grid_is_incomplete(figure: Experiment, store: FileStore) -> None:
    file = record(figure.runs(size="smoke", store=store))
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    (one,) = verdicts([figure], {})
    assert "◌ incomplete (2 of 3)" in figure_rows([one], "toys.md")
    assert "1 incomplete" in paper_row([one])


@pytest.mark.parametrize("part", ["check", "compare"])
def test_an_incomplete_table_may_lack_what_a_check_needs(
    figure: Experiment, store: FileStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    file = record(figure.runs(size="smoke", store=store))

    def fails(*_: object) -> None:
        raise ValueError("nothing to compare")

    monkeypatch.setattr(Experiment, part, fails)
    with pytest.raises(ValueError, match="nothing to compare"):
        verdicts([figure], {})
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    (one,) = verdicts([figure], {})
    assert "◌ incomplete (2 of 3)" in figure_rows([one], "toys.md")


def test_a_recorded_table_of_another_grid_is_incomplete(figure: Experiment, store: FileStore) -> None:
    record(figure.runs(size="smoke", store=store, overrides={"number": [7]}))
    (one,) = verdicts([figure], {})
    assert "◌ incomplete (0 of 3)" in figure_rows([one], "toys.md")


QUOTED, NOT_A_NUMBER = Finding("a", "a, quoted", True, "1 < 2"), Finding("b", "b", False, "NA")

PAPERS = sorted(file.parent.name for file in (project_root() / "experiments" / "results").glob("*/smoke-findings.csv"))


def test_read_returns_what_was_written_without_seconds_and_sizes(toys: Path) -> None:
    timed, sized = Finding("c", "c", True, "1 s", timed=True), Finding("e", "e", True, "2", sized=True)
    unmeasured = Finding("c", "c", False, "", timed=True, decided=False)
    undecided = Finding("d", "d", False, "1 ± 2", decided=False)
    write_smoke_findings("toys", {"toys/fig1": [QUOTED, timed, NOT_A_NUMBER, undecided], "toys/fig2": [sized]})
    assert read_smoke_findings("toys") == {"toys/fig1": [QUOTED, unmeasured, NOT_A_NUMBER, undecided], "toys/fig2": []}


def test_nothing_is_recorded(toys: Path) -> None:
    assert not smoke_file("toys").exists() and read_smoke_findings("toys") == {}


def test_running_smoke_checks_every_figure(toys: Path, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.experiment.experiment.open_store", lambda: store)
    found = run_smoke(map(load_experiment, experiment_names()))
    assert {name: [finding.held for finding in each] for name, each in found.items()} == {
        "toys/fig1": [True],
        "toys/fig2": [True],
    }


@pytest.mark.parametrize("paper", PAPERS)
def test_recorded_smoke_findings_that_did_not_hold_are_documented(paper: str) -> None:
    found = {load_experiment(name): findings for name, findings in read_smoke_findings(paper).items()}
    missed = {(one.name, f.name) for one, findings in found.items() for f in findings if f.counts and not f.held}
    known = {(one.name, name) for one in found for name in one.deviations("smoke")}
    assert missed <= known, "run `make figures`, or document these deviations"


def test_every_paper_has_recorded_smoke_findings_of_all_its_figures() -> None:
    reproduced = [name for name in experiment_names() if not name.startswith(BENCHMARKS)]
    recorded = [name for paper in PAPERS for name in read_smoke_findings(paper)]
    assert recorded == reproduced, "run `make figures`"


def test_a_statement_without_evidence_has_no_empty_brackets(figure: Experiment) -> None:
    (one,) = verdicts([figure], {figure.name: [HELD, replace(LOST, evidence="")]})
    assert "it never \\| does. *Why:*" in details(one)


def test_numbers_without_a_counterpart_are_not_said_to_be_compared(figure: Experiment) -> None:
    (one,) = verdicts([figure], {})
    section = section_of_findings(one.experiment, "real", [HELD])
    alone = replace(section, comparison=pd.DataFrame({"s": [0.5, 40.0]}))
    assert "<summary>real: numbers here, 2 rows</summary>" in details(replace(one, sections=(alone,)))


def test_at_size_smoke_neither_seconds_nor_sizes_did_not_hold(figure: Experiment) -> None:
    late, small = (replace(LOST, name=name, **{name: True}) for name in ("timed", "sized"))
    for size, not_held, undecided in (("smoke", [LOST], [late.name]), ("real", [LOST, late, small], [])):
        section = section_of_findings(figure, size, [HELD, LOST, late, small])
        assert [one.name for one in section.not_held] == [one.name for one in not_held]
        assert [one.name for one in section.undecided] == undecided
        assert ("differ in seconds" in closing_lines([section], size)[0]) == (size == "real")
        assert "the runs are too few" not in not_held_line(section), "what was not measured needs no more runs"
