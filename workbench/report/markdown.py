"""Markdown tables, for notebooks and generated documents."""

import re

import pandas as pd

from workbench.report.table_columns import columns


def markdown_table(table: pd.DataFrame) -> str:
    """Formats a table as Markdown: numbers in readable units and right-aligned, special characters escaped.

    Args:
        table: columns whose names end in `_bytes` or `_seconds` are shown in the unit that suits their largest value.

    >>> print(markdown_table(pd.DataFrame({"method": ["a|b"], "peak_bytes": [2048]})))
    | method | peak (KiB) |
    |---|--:|
    | a\\|b | 2 |
    """
    shown = columns(table)
    head = _row([column.head for column in shown])
    rule = "|" + "|".join("--:" if column.numeric else "---" for column in shown) + "|"
    return "\n".join([head, rule, *(_row(cells) for cells in zip(*(column.cells for column in shown), strict=True))])


def escaped(text: str) -> str:
    """Returns text for one table cell: on one line, without Markdown's and HTML's special characters in effect.

    Args:
        text: any text.
    """
    return " ".join(re.sub(r"([&<|*$_])", r"\\\1", text).split())


def _row(cells: "list[str] | tuple[str, ...]") -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"
