"""The overview for the terminal."""

from tests.report.sections import everything, inputs, memory
from workbench.report.terminal import status_lines


def test_one_line_per_figure_and_size() -> None:
    lines = status_lines(everything())
    assert lines[0].split() == ["figure", "size", "device", "status", "what", "did", "not", "hold"]
    assert len(lines) == 1 + len(everything())
    assert lines[1].split() == ["betty/fig11", "smoke", "cpu", "(2", "cores)", "✓", "held"]
    assert lines[5].endswith("! failed       2 problems")


def test_columns_are_aligned_on_the_left() -> None:
    lines = status_lines(everything())
    at = lines[0].index("size")
    assert [line[at:].split()[0] for line in lines[1:]] == ["smoke", "real", "smoke", "paper", "paper", "smoke", "real"]


def test_timed_and_documented_ones_are_told_apart() -> None:
    assert status_lines([inputs()])[1].endswith("◐ held in part faster (seconds); memory (documented)")


def test_nothing_is_cut_off() -> None:
    lines = status_lines([memory()] * 100 + [inputs()])
    assert len(lines) == 102 and not any("..." in line for line in lines)


def test_nothing_was_run() -> None:
    assert "workbench run" in status_lines([])[0]
