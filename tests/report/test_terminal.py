"""The report as a table on the terminal."""

from dataclasses import replace

from tests.report.sections import everything, inputs, memory
from workbench.experiment.finding import Finding
from workbench.report.terminal import status_lines


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
    assert status_lines([inputs()])[1].endswith("◐ held in part  faster (seconds); memory (documented)")
    undecided = replace(memory(), findings=(Finding("open", "", False, "", decided=False),))
    assert status_lines([undecided])[1].endswith("? undecided  open (undecided)")


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
