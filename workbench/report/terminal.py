"""Text for terminals: tables that fit the width, and wrapped lines."""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype

from workbench.core.units import format_bytes
from workbench.error_text import truncated

_NARROWEST = 40  # columns; below that a table can't be read
_LEAST_TEXT = 12  # characters that a shortened cell keeps
_GAP = "  "  # between columns; a line that has one inside is aligned, and is not wrapped


def text_table(table: pd.DataFrame, *, header: bool = True) -> list[str]:
    """Formats a table as aligned lines: text on the left, numbers on the right, no line shortened.

    Args:
        table: any number of rows; columns that end in `_bytes` are shown in binary units, floats with four digits.
        header: start with a line of the column names.

    >>> text_table(pd.DataFrame({"method": ["reg", "metis"], "peak_bytes": [2048, 1048576]}))
    ['method  peak_bytes', 'reg       2.00 KiB', 'metis     1.00 MiB']
    """
    return _lines(_columns(table), header)


def fitted_table(table: pd.DataFrame, width: int | None, *, more: str = "") -> list[str]:
    """Formats a table for a terminal: long texts are shortened, then the last columns are left out and named below.

    The first column is shortened last, since it has the name that a reader types.

    Args:
        table: any number of rows, as `text_table` takes it.
        width: columns of the terminal; None: unlimited.
        more: the option that shows all columns, for the line about those left out.
    """
    columns = kept = _columns(table)
    lines = _lines(columns)
    if width is None or _width(lines) <= width:
        return lines
    while _width(lines := _lines(_shortened(kept, width))) > width and len(kept) > 1:
        kept = kept[:-1]
    if len(kept) == len(columns):
        return lines
    left_out = [column.name for column in columns[len(kept) :]]
    told = f"{len(left_out)} more columns: {', '.join(left_out)}" + (f"; {more} shows them" if more else "")
    return [*lines, "", *wrapped([told], width)]


class _Column(NamedTuple):
    """Formatted cells; numbers are aligned on the right, texts may be shortened."""

    name: str
    cells: list[str]
    is_number: bool
    is_text: bool


def _columns(table: pd.DataFrame) -> list[_Column]:
    found = []
    for name, cells in table.items():
        is_number, is_bytes = is_numeric_dtype(cells), str(name).endswith("_bytes")  # missing bytes are no numbers
        texts = [*map(_formatter(is_bytes, is_float_dtype(cells)), cells)]
        found.append(_Column(str(name), texts, is_number, not is_number and not is_bytes))
    return found


def _formatter(is_bytes: bool, is_float: bool) -> Callable[[Any], str]:
    if is_bytes:
        return lambda value: "" if pd.isna(value) else format_bytes(int(value))
    return "{:.4g}".format if is_float else _text  # nan stays visible: a diverged loss is a result


def _text(value: Any) -> str:
    if value is None or value is pd.NA or value != value:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).rstrip()


def _lines(columns: Sequence[_Column], header: bool = True) -> list[str]:
    padded = []
    for column in columns:
        texts = [column.name, *column.cells] if header else column.cells
        width = max(map(len, texts), default=0)
        padded.append([text.rjust(width) if column.is_number else text.ljust(width) for text in texts])
    return [_GAP.join(line).rstrip() for line in zip(*padded, strict=True)]


def _shortened(columns: Sequence[_Column], width: int) -> list[_Column]:
    """The columns with the longest texts cut to a common length, so that all fit if that suffices."""
    limits = {i: max(map(len, column.cells), default=0) for i, column in enumerate(columns) if column.is_text}
    for _ in range(_width(_lines(columns)) - width):
        long = [i for i, limit in limits.items() if limit > _LEAST_TEXT]
        if long:
            limits[max([i for i in long if i] or long, key=limits.__getitem__)] -= 1
    return [
        column._replace(cells=[truncated(text, limits[i]) for text in column.cells]) if i in limits else column
        for i, column in enumerate(columns)
    ]


def _width(lines: Sequence[str]) -> int:
    return max(map(len, lines), default=0)


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


def _wrapped(line: str, width: int) -> list[str]:
    body = line.lstrip(" ")
    if len(line) <= width or _GAP in body:
        return [line]
    indent = " " * (len(line) - len(body))
    hanging = indent + (" " * 2 if body[1:2] == " " else "  ")
    return textwrap.wrap(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
