"""Tables on a terminal."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
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


_NARROWEST = 40  # columns; below that a table can't be read

_LEAST_TEXT = 12  # characters that a shortened cell keeps

_GAP = 2  # between columns

_TABLE = "  "  # two spaces inside a line: an aligned one, which is not wrapped


def terminal_width() -> int | None:
    """Returns the columns of the terminal; None if the output goes elsewhere and COLUMNS does not say a width."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def wrapped(lines: Iterable[str], width: int | None) -> list[str]:
    """Wraps long lines at spaces, continued under their first word; tables, which are aligned, stay as they are.

    Args:
        lines: without line ends.
        width: columns; None: unlimited.

    >>> wrapped(["  ✓ it grows with the number"], 20)
    ['  ✓ it grows with', '    the number']
    """
    if width is None:
        return list(lines)
    return [part for line in lines for part in _wrapped(line, width)]


def fitted_table(table: pd.DataFrame, width: int | None, *, more: str = "") -> list[str]:
    """Formats a table for a terminal: long texts are shortened, then the last columns are left out and named below.

    The first column is shortened last, since it has the name that a reader types.

    Args:
        table: any number of rows, as `text_table` takes it.
        width: columns of the terminal; None: unlimited.
        more: the option that shows all columns, for the line about those left out.
    """
    if width is None or _width(lines := text_table(table)) <= width:
        return text_table(table)
    texts = table.map(_shown)
    kept = list(range(table.shape[1]))
    while True:
        chosen = table.iloc[:, kept].copy()
        lines = text_table(_shortened(chosen, texts.iloc[:, kept], width))
        if _width(lines) <= width or len(kept) == 1:
            break
        kept.pop()
    left_out = [str(name) for name in table.columns[len(kept) :]]
    if not left_out:
        return lines
    told = f"{len(left_out)} more columns: {', '.join(left_out)}" + (f"; {more} shows them" if more else "")
    return [*lines, "", *wrapped([told], width)]


def _shortened(table: pd.DataFrame, texts: pd.DataFrame, width: int) -> pd.DataFrame:
    """The table with the longest text columns cut to a common length, so that it fits if that suffices."""
    lines = text_table(table)
    excess = _width(lines) - width
    lengths = {i: texts.iloc[:, i].map(len).max() for i in range(texts.shape[1]) if _is_text(table.iloc[:, i])}
    while excess > 0 and lengths and max(lengths.values()) > _LEAST_TEXT:
        others = {i: length for i, length in lengths.items() if i and length > _LEAST_TEXT}
        longest = max(others or lengths, key=lengths.__getitem__)
        lengths[longest] -= 1
        excess -= 1
    columns = [
        texts.iloc[:, i].map(lambda text, limit=lengths[i]: text if len(text) <= limit else text[: limit - 1] + "…")
        if i in lengths
        else table.iloc[:, i]
        for i in range(table.shape[1])
    ]
    found = pd.concat(columns, axis=1) if columns else table
    found.columns = table.columns
    return found


def _wrapped(line: str, width: int) -> list[str]:
    body = line.lstrip(" ")
    if len(line) <= width or _TABLE in body:
        return [line]
    indent = " " * (len(line) - len(body))
    hanging = indent + (" " * 2 if body[1:2] == " " else "  ")
    return textwrap.wrap(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def _is_text(column: pd.Series) -> bool:
    """Bytes with missing values are not numeric, but `text_table` formats them."""
    return not pd.api.types.is_numeric_dtype(column) and not str(column.name).endswith("_bytes")


def _shown(value: object) -> str:
    if value is None or value is pd.NA or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).rstrip()


def _width(lines: list[str]) -> int:
    return max(map(len, lines), default=0)
