"""Tables as lines of text."""

import pandas as pd
import pytest

from workbench.report.text_table import text_table


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
