"""Number formatting for tables."""

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from workbench.report.tables import columns, escaped, format_number, latex_table, markdown_table


def column(name: str, values: list) -> tuple[str, list[str]]:
    (made,) = columns(pd.DataFrame({name: values}))
    return made.head, list(made.cells)


@pytest.mark.parametrize(
    ("name", "values", "head", "cells"),
    [
        ("peak_bytes", [3 * 2**30, 2**29], "peak (GiB)", ["3.00", "0.50"]),
        ("here_peak_bytes", [2**20, 5 * 2**20], "here peak (MiB)", ["1", "5"]),
        ("bytes", [512, 1023], "size (B)", ["512", "1,023"]),
        ("paper epoch_seconds", [0.49, 2.55], "paper epoch (s)", ["0.49", "2.55"]),
        ("step_seconds", [0.0123, 0.0045], "step (ms)", ["12.3", "4.5"]),
        ("step_seconds", [0.0, 0.0], "step (s)", ["0", "0"]),
        ("seconds", [1.5, 2.5], "time (s)", ["1.50", "2.50"]),
        ("num_pes", [2, 4], "number of PEs", ["2", "4"]),
        ("rows_mib", [2, 4], "rows (MiB)", ["2", "4"]),
        ("bytes_ratio", [1.5, 2.25], "bytes ratio", ["1.50", "2.25"]),
        ("total_inputs", [1829066, 27988444], "total inputs", ["1,829,066", "27,988,444"]),
        ("total_inputs", [1829066, float("nan")], "total inputs", ["1,829,066", "–"]),
        ("ratio", [1.0, 15.3, 4.28], "ratio", ["1.00", "15.30", "4.28"]),
        ("loss", [0.001234, 250.0, 312.0], "loss", ["0.0012", "250", "312"]),
        ("change", [-0.00001, -0.5, 1.25], "change", ["-1e-05", "-0.500", "1.250"]),
        ("method", ["reg", None], "method", ["reg", "–"]),
        ("better", [True, False], "better", ["yes", "no"]),
        ("mixed", ["reg", 12345], "mixed", ["reg", "12,345"]),
        ("empty", [None, None], "empty", ["–", "–"]),
    ],
)
def test_columns(name: str, values: list, head: str, cells: list[str]) -> None:
    assert column(name, values) == (head, cells)


def test_infinite_values_are_formatted() -> None:
    assert column("ratio", [float("inf"), 1.5])[1] == ["inf", "1.50"]
    assert column("peak_bytes", [float("inf"), 1.5])[1][0] == "inf"


def test_only_numbers_are_right_aligned() -> None:
    table = pd.DataFrame({"K": [1, 2], "method": ["reg", "metis"]})
    assert [made.numeric for made in columns(table)] == [True, False]


def test_a_named_index_becomes_a_column() -> None:
    table = pd.DataFrame({"K": [1, 2], "inputs": [3, 4]})
    assert [made.head for made in columns(table.set_index("K"))] == ["K", "inputs"]
    assert [made.head for made in columns(table)] == ["K", "inputs"]
    assert [made.head for made in columns(table.set_index("K", drop=False).rename_axis("num_parts"))] == ["K", "inputs"]


def test_multi_level_headers_are_joined() -> None:
    table = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("K", ""), ("paper", "peak_bytes")]))
    assert [made.head for made in columns(table)] == ["K", "paper peak (B)"]


def test_an_empty_table() -> None:
    assert [made.cells for made in columns(pd.DataFrame({"K": []}))] == [()]


def test_format_number_rounds() -> None:
    assert format_number(1234.567, 1) == "1,234.6"
    assert format_number(0, 2) == "0.00"


def test_header_rule_and_rows() -> None:
    table = pd.DataFrame({"method": ["reg", "metis"], "peak_bytes": [2**20, 3 * 2**20]})
    assert markdown_table(table).splitlines() == [
        "| method | peak (MiB) |",
        "|---|--:|",
        "| reg | 1 |",
        "| metis | 3 |",
    ]


@pytest.mark.parametrize("text", ["a|b", "1 < 2 & 3", "*x* and _y_ for $z$", "two\nlines"])
def test_special_characters_have_no_effect(text: str) -> None:
    mistune = pytest.importorskip("mistune")  # a dependency of nbconvert
    html = mistune.create_markdown(plugins=["table"])(markdown_table(pd.DataFrame({"a": [text], "b": ["end"]})))
    shown = [cell.get_text() for cell in BeautifulSoup(str(html), "html.parser").select("td")]
    assert shown == [" ".join(text.split()), "end"] and "<em>" not in str(html)


def test_a_cell_is_one_line() -> None:
    assert escaped("two\n  lines") == "two lines"


def test_a_table_without_rows_has_a_header() -> None:
    assert markdown_table(pd.DataFrame({"K": []})).splitlines() == ["| K |", "|---|"]


def test_special_characters_and_symbols() -> None:
    text = latex_table(pd.DataFrame({"a & b": [r"50 % of x_1 \ {y} ~ </script>"], "parts ÷ batch": ["2 × 3 ± 1"]}))
    assert r"a \& b & parts $\div$ batch \\" in text
    assert r"50 \% of x\_1 \textbackslash{} \{y\} \textasciitilde{} $<$/script$>$ & 2 $\times$ 3 $\pm$ 1 \\" in text


def test_numbers_are_right_aligned_with_their_unit_in_the_head() -> None:
    text = latex_table(pd.DataFrame({"K": [1, 16], "peak_bytes": [2**30, 2**29]}))
    assert text.startswith(r"\begin{tabular}{rr}") and r"K & peak (GiB) \\" in text and r"16 & 0.50 \\" in text
