"""Markdown tables, read back by a Markdown parser."""

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from workbench.report.markdown import escaped, markdown_table


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
