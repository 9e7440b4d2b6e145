"""Tables on a terminal."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype

from workbench.core.units import format_bytes


def text_table(table: pd.DataFrame, *, header: bool = True) -> list[str]:
    """Formats a table as aligned lines: text on the left, numbers on the right, no line shortened.

    Args:
        table: any number of rows; columns that end in `_bytes` are shown in binary units, floats with four digits.
        header: start with a line of the column names.

    >>> text_table(pd.DataFrame({"method": ["reg", "metis"], "peak_bytes": [2048, 1048576]}))
    ['method  peak_bytes', 'reg       2.00 KiB', 'metis     1.00 MiB']
    """
    columns = [_column(name, cells, header) for name, cells in table.items()]
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _column(name: object, cells: pd.Series, header: bool) -> list[str]:
    """Cells of equal width."""
    texts = [*([str(name)] if header else []), *map(_formatter(str(name), cells), cells)]
    width = max(map(len, texts), default=0)
    return [text.rjust(width) if is_numeric_dtype(cells) else text.ljust(width) for text in texts]


def _formatter(name: str, cells: pd.Series) -> Callable[[Any], str]:
    if name.endswith("_bytes"):
        return lambda value: "" if pd.isna(value) else format_bytes(int(value))
    return "{:.4g}".format if is_float_dtype(cells) else _text  # nan stays visible: a diverged loss is a result


def _text(value: object) -> str:
    if value is None or value is pd.NA or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
