"""Number formatting for tables: units in the header, thousands separators, significant digits only."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

NOTHING = "–"
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True)
class Column:
    """A formatted column of a table.

    Args:
        head: header text, with the unit.
        cells: one text per row.
        numeric: the cells are numbers, to be right-aligned.
    """

    head: str
    cells: tuple[str, ...]
    numeric: bool


def columns(table: pd.DataFrame) -> list[Column]:
    """Formats a table's columns as texts; a named index comes first unless a column equals it.

    Args:
        table: columns whose names end in `_bytes` or `_seconds` are shown in the unit that suits their largest value.
    """
    named = any(name is not None for name in table.index.names)
    if named and not any(table.index.equals(pd.Index(column)) for _, column in table.items()):
        table = table.reset_index()
    return [_column(_words(name), list(table.iloc[:, position])) for position, name in enumerate(table.columns)]


def format_number(value: float, decimals: int) -> str:
    """Formats a number with thousands separators; one that would round to 0 keeps two significant digits.

    Args:
        value: the number.
        decimals: digits after the decimal point.

    >>> format_number(1829066, 0), format_number(0.0004, 2)
    ('1,829,066', '0.0004')
    """
    text = f"{value:,.{decimals}f}"
    hidden = value != 0 and not text.strip("-0.")
    return f"{value:.2g}" if hidden else text


def _words(name: Any) -> str:
    return " ".join(str(part) for part in name if str(part)) if isinstance(name, tuple) else str(name)


def _column(name: str, values: Sequence[Any]) -> Column:
    present = [value for value in values if not _missing(value)]
    if not present or not all(_is_number(value) for value in present):
        return Column(_plain(name), tuple(_text(value) for value in values), False)
    scale, head = _unit(name, present)
    shown = [None if _missing(value) else float(value) / scale for value in values]
    decimals = _decimals(value for value in shown if value is not None)
    return Column(head, tuple(NOTHING if v is None else format_number(v, decimals) for v in shown), True)


def _unit(name: str, values: Iterable[float]) -> tuple[float, str]:
    """The divisor of a column and its header."""
    kind = next((kind for kind in ("bytes", "seconds") if re.search(rf"(^|[_ ]){kind}$", name)), None)
    if kind is None:
        return 1, _plain(name)
    units, largest = (_BYTES if kind == "bytes" else _SECONDS), max(abs(value) for value in values)
    scale, unit = next((entry for entry in units if largest >= entry[0]), units[-1 if largest else 0])
    quantity = _plain(name[: -len(kind)])
    return scale, f"{quantity} ({unit})" if quantity else unit


def _plain(name: str) -> str:
    return name.replace("_", " ").strip()


def _decimals(values: Iterable[float]) -> int:
    """0 for integers, otherwise enough for three significant digits of the median."""
    values = [abs(value) for value in values if math.isfinite(value)]
    if all(value == int(value) for value in values):
        return 0
    middle = sorted(value for value in values if value)
    return min(6, max(0, 2 - math.floor(math.log10(middle[len(middle) // 2]))))


def _missing(value: Any) -> bool:
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def _is_number(value: Any) -> bool:
    return pd.api.types.is_number(value) and not pd.api.types.is_bool(value)


def _text(value: Any) -> str:
    if _missing(value):
        return NOTHING
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if not _is_number(value):
        return str(value)
    return format_number(value, _decimals([float(value)]))
