"""Tables as lines of text."""

import pandas as pd
import pytest

from workbench.report.terminal import fitted_table, terminal_width, text_table, wrapped


def test_text_is_aligned_left_and_numbers_right() -> None:
    table = pd.DataFrame({"name": ["a", "longer"], "number": [1, 200], "note": ["x", "y"]})
    assert text_table(table) == ["name    number  note", "a            1  x", "longer     200  y"]


def test_bytes_have_units_and_floats_four_digits() -> None:
    table = pd.DataFrame({"peak_bytes": [2**31, 1536], "ratio": [1 / 3, 20000.0]})
    assert [line.split() for line in text_table(table)] == [
        ["peak_bytes", "ratio"],
        ["2.00", "GiB", "0.3333"],
        ["1.50", "KiB", "2e+04"],
    ]


def test_missing_text_and_missing_bytes_are_blank_but_nan_is_a_value() -> None:
    table = pd.DataFrame({"peak_bytes": [None, 4.0], "error": [None, "OOM"], "loss": [float("nan"), 0.5]})
    assert [line.split() for line in text_table(table)[1:]] == [["nan"], ["4", "B", "OOM", "0.5"]]


def test_a_column_of_text_and_floats_is_formatted_value_by_value() -> None:
    assert text_table(pd.DataFrame({"x": ["all", 1 / 3, None, 2]}, dtype=object)) == ["x", "all", "0.3333", "", "2"]


def test_without_a_header() -> None:
    assert text_table(pd.DataFrame([("nodes", "6"), ("train / val", "2 / 1")]), header=False) == [
        "nodes        6",
        "train / val  2 / 1",
    ]


def test_two_columns_of_one_name_keep_their_own_cells() -> None:
    assert text_table(pd.DataFrame([("a", "b")], columns=["", ""])) == ["", "a  b"]


@pytest.mark.parametrize("columns", [[], ["a"]])
def test_a_table_without_rows_is_its_header(columns: list[str]) -> None:
    assert text_table(pd.DataFrame(columns=columns)) == ([" ".join(columns)] if columns else [])


WIDE = pd.DataFrame(
    {
        "method": ["reg", "metis"],
        "dataset": ["synthetic-products with a long name", "cora"],
        "num_parts": [8, 16],
        "peak_bytes": [2**21, 2**30],
        "evidence": ["from 12 to 13, which is a long sentence about what was found", "short"],
    }
)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_longer_than_the_terminal(width):
    lines = fitted_table(WIDE, width, more="--all")
    assert max(map(len, lines)) <= width
    assert lines[0].split()[0] == "method" and lines[2].startswith("metis")


def test_texts_are_shortened_before_columns_are_left_out():
    lines = fitted_table(WIDE, 80)
    assert "evidence" in lines[0] and "…" in lines[1] and "1.00 GiB" in lines[2] and "more columns" not in lines[-1]


def test_columns_that_do_not_fit_are_named_with_the_option_that_shows_them():
    lines = fitted_table(WIDE, 40, more="--all")
    told = " ".join(" ".join(lines).split())
    assert told.endswith("2 more columns: peak_bytes, evidence; --all shows them")


def test_a_pipe_gets_everything(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width() is None and max(map(len, fitted_table(WIDE, None))) > 120
    monkeypatch.setenv("COLUMNS", "80")
    assert terminal_width() == 80


def test_long_lines_are_wrapped_below_their_first_word_and_paths_stay_whole():
    path = "/" + "x" * 60
    assert wrapped(["  ✓ it grows with the number", "a  b  c " * 9, f"report: {path}"], 40) == [
        "  ✓ it grows with the number",
        "a  b  c " * 9,
        "report:",
        f"  {path}",
    ]
    assert wrapped(["  ✓ it grows with the number of parts"], 24) == ["  ✓ it grows with the", "    number of parts"]


@pytest.mark.parametrize("missing", [[None, None], [None, 2**20]])
def test_missing_bytes_stay_empty(missing):
    table = pd.DataFrame(
        {"model": ["sage", "gat"], "reserved_bytes": pd.Series(missing, dtype=object), "text": "x" * 90}
    )
    lines = fitted_table(table, 60)
    assert max(map(len, lines)) <= 60 and lines[0].split() == ["model", "reserved_bytes", "text"]
    assert ("1.00 MiB" in lines[2]) == (missing[1] is not None) and "None" not in " ".join(lines)


def test_two_columns_of_one_name():
    table = pd.DataFrame([("a" * 50, "b" * 50)], columns=["", ""])
    assert max(map(len, fitted_table(table, 60))) <= 60


def test_the_first_column_is_shortened_last():
    table = pd.DataFrame([("paper/" + "figure" * 4, "a title of many words " * 3)], columns=["figure", "title"])
    assert fitted_table(table, 60)[1].startswith("paper/figurefigurefigurefigure  a title")
