"""The status of a section and the order of sections."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.sections import everything, failed, inputs, memory, not_held, not_run
from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.finding import Finding
from workbench.experiment.recorded import record
from workbench.report.sections import SYMBOLS, Section, by_figure, collect, sections_of_recorded, status_lines
from workbench.tracking.file_store import FileStore

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


def status(*findings: Finding, size: str = "real") -> str:
    return replace(memory(), findings=findings, size=size).status


def test_time_can_keep_a_claim_from_holding_but_not_refute_it() -> None:
    fast, slow = replace(GOOD, timed=True), replace(BAD, timed=True)
    unmeasured = replace(slow, decided=False)
    assert status(GOOD, fast) == status(fast) == "held"
    assert status(GOOD, slow) == status(slow, fast) == "time differs"
    assert status(GOOD, unmeasured) == status(unmeasured) == "time not measured"
    assert status(BAD, fast) == "did not hold" and status(GOOD, BAD, slow) == "held in part"
    assert status(GOOD, OPEN, slow) == "held in part"


def test_a_size_that_differs_leaves_the_direction() -> None:
    size = replace(BAD, sized=True)
    assert size.verdict == "size differs" and not size.counts
    assert status(GOOD, size) == "held in part" and status(BAD, size) == "did not hold"


def test_at_the_smoke_size_neither_sizes_nor_seconds_count() -> None:
    size, fast = replace(BAD, sized=True), replace(GOOD, timed=True)
    assert status(GOOD, size, size="smoke") == "held"
    assert status(GOOD, fast, size="smoke") == "time not measured"


@pytest.mark.parametrize(("points", "status"), [((4, 12), "incomplete"), ((12, 12), "held"), (None, "held")])
def test_an_incomplete_grid_has_no_verdict(points: tuple[int, int] | None, status: str) -> None:
    assert replace(memory(), findings=(GOOD,), points=points).status == status


def test_without_findings() -> None:
    assert failed().status == "failed"
    assert not_run().status == "not run"
    assert replace(memory(), findings=()).status == "not checked"
    assert replace(memory(), findings=(), problems=("K = 1: killed",)).status == "failed"


def test_every_status_has_its_own_symbol() -> None:
    assert len(set(SYMBOLS.values())) == len(SYMBOLS) == 11
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


def test_a_recorded_section_says_whether_its_code_has_changed(toys: Path, store: FileStore) -> None:
    figure = load_experiment("toys/fig1")
    record(figure.runs(size="smoke", store=store))
    (section,) = sections_of_recorded(figure)
    assert section.recorded and "unchanged" in section.provenance["code"]
    code = toys / "fig1.py"
    code.write_text(code.read_text().replace("config.number**2", "config.number**3"))
    (section,) = sections_of_recorded(load_experiment("toys/fig1"))
    assert "has changed" in section.provenance["code"] and "fig1.run" in section.provenance["code"]


def test_every_figure_and_size_has_a_section(toys: Path, store: FileStore) -> None:
    figures = [load_experiment(name) for name in experiment_names()]
    figures[0].run(size="smoke", store=store)
    sections = [(section.name, section.size, section.status) for section in collect(figures, store)]
    assert sections == [
        ("toys/fig1", "smoke", "held"),
        ("toys/fig1", "real", "not run"),
        ("toys/fig1", "paper", "not run"),
        ("toys/fig2", "smoke", "held"),
        ("toys/fig2", "real", "not run"),
        ("toys/fig2", "paper", "not run"),
    ]


def test_a_section_is_written_although_its_figure_cannot_be_drawn(toys: Path, store: FileStore) -> None:
    figure = load_experiment("toys/fig1")
    figure.run(size="smoke", store=store)
    code = toys / "fig1.py"
    code.write_text(code.read_text().replace("import plotly.graph_objects as go", "raise ZeroDivisionError('oops')"))
    (section, *_) = collect([load_experiment("toys/fig1")], store)
    assert section.figure is None and section.problems == ("drawing failed: ZeroDivisionError: oops",)
    assert section.status == "failed"


def test_one_line_per_figure_and_size() -> None:
    lines = status_lines(everything())
    assert lines[0].split() == ["figure", "size", "device", "status", "details"]
    assert len(lines) == 1 + len(everything())
    assert lines[1].split() == ["betty/fig11", "smoke", "cpu", "(2", "cores)", "✓", "held"]
    assert lines[5].endswith("! failed        2 problems")


def test_columns_are_aligned_left() -> None:
    lines = status_lines(everything())
    at = lines[0].index("size")
    assert [line[at:].split()[0] for line in lines[1:]] == ["smoke", "real", "smoke", "paper", "paper", "smoke", "real"]


def test_timed_and_documented_findings_are_marked() -> None:
    slow, large = "A micro-batch epoch is faster for K ≥ 4", "Memory at K = 64 is below a twelfth of the batch's"
    told = f"{slow} (seconds); {large} (documented)"
    assert status_lines([inputs()])[1].endswith(f"◐ held in part  {told}"), "the statements' words, not their names"
    undecided = replace(memory(), findings=(Finding("open", "it may fall", False, "", decided=False),))
    assert status_lines([undecided])[1].endswith("? undecided  it may fall (undecided)")


def test_no_line_or_row_is_shortened() -> None:
    lines = status_lines([memory()] * 100 + [inputs()])
    assert len(lines) == 102 and not any("..." in line for line in lines)


def test_without_sections_the_commands_to_start_with_are_named() -> None:
    assert "workbench run" in status_lines([])[0]


def test_recorded_tables_whose_code_has_changed_are_named_by_change() -> None:
    changed, unknown = "its code has changed since it was recorded: workbench.nn", "changes of its code are unknown"
    sentences = {"a/1": changed, "a/2": "its code is unchanged since it was recorded", "b/1": unknown, "b/2": changed}
    sections = [
        replace(memory(), name=name, recorded=True, provenance={"code": sentence})
        for name, sentence in sentences.items()
    ]
    ran_here = replace(memory(), provenance={"code": "1f2e"})
    assert status_lines([*sections, ran_here])[6:] == [
        "",
        f"recorded table of a/1 smoke, b/2 smoke: {changed}",
        f"recorded table of b/1 smoke: {unknown}",
    ]
