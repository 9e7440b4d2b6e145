"""Tables in Markdown and LaTeX: units in the header, thousands separators, significant digits only."""

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


_ALONE = {"bytes": "size", "seconds": "time"}


def _unit(name: str, values: Iterable[float]) -> tuple[float, str]:
    """The divisor of a column and its header."""
    kind = next((kind for kind in ("bytes", "seconds") if re.search(rf"(^|[_ ]){kind}$", name)), None)
    if kind is None:
        return 1, _plain(name)
    units, largest = (_BYTES if kind == "bytes" else _SECONDS), max(abs(value) for value in values)
    scale, unit = next((entry for entry in units if largest >= entry[0]), units[-1 if largest else 0])
    quantity = _plain(name[: -len(kind)])
    return scale, f"{quantity or _ALONE[kind]} ({unit})"


_TERMS = {
    "num": "number of",
    "pes": "PEs",
    "mrr": "MRR",
    "kappa": "κ",
    "tau": "τ",
    "io": "I/O",
    "logical": "logical partitions",
}
_SUFFIXES = {"gb": "GB", "mib": "MiB", "k": "thousands"}


def _plain(name: str) -> str:
    """A column's name in words.

    >>> [_plain(name) for name in ("num_pes", "read_gb", "here K")]
    ['number of PEs', 'read (GB)', 'here K']
    """
    words = [_TERMS.get(word, word) for word in name.replace("_", " ").split()]
    if len(words) > 1 and words[-1] in _SUFFIXES:
        words[-1] = f"({_SUFFIXES[words[-1]]})"
    return " ".join(words)


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
    head = _markdown_row([column.head for column in shown])
    rule = "|" + "|".join("--:" if column.numeric else "---" for column in shown) + "|"
    return "\n".join(
        [head, rule, *(_markdown_row(cells) for cells in zip(*(column.cells for column in shown), strict=True))]
    )


def escaped(text: str) -> str:
    """Returns text for one table cell: on one line, without Markdown's and HTML's special characters in effect.

    Args:
        text: any text.
    """
    return " ".join(re.sub(r"([&<|*$_])", r"\\\1", text).split())


def _markdown_row(cells: "list[str] | tuple[str, ...]") -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SYMBOLS = {"×": r"$\times$", "÷": r"$\div$", "±": r"$\pm$", "−": "$-$", "≤": r"$\le$", "≥": r"$\ge$", "κ": r"$\kappa$"}
_SYMBOLS |= {"→": r"$\to$", "µ": r"$\mu$", "–": "--", "≈": r"$\approx$", "²": "$^2$", "³": "$^3$", "<": "$<$"}
_SYMBOLS |= {">": "$>$"}


def latex_table(table: pd.DataFrame) -> str:
    """Formats a table as LaTeX: numbers in readable units and right-aligned, special characters escaped.

    Args:
        table: columns whose names end in `_bytes` or `_seconds` are shown in the unit that suits their largest value.

    >>> print(latex_table(pd.DataFrame({"method": ["reg_x"], "peak_bytes": [2048]})))
    \\begin{tabular}{lr}
    \\toprule
    method & peak (KiB) \\\\
    \\midrule
    reg\\_x & 2 \\\\
    \\bottomrule
    \\end{tabular}
    """
    shown = columns(table)
    kinds = "".join("r" if column.numeric else "l" for column in shown)
    rows = [_latex_row(cells) for cells in zip(*(column.cells for column in shown), strict=True)]
    head = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", _latex_row([column.head for column in shown]), r"\midrule"]
    return "\n".join([*head, *rows, r"\bottomrule", r"\end{tabular}"])


def _latex_row(cells: "list[str] | tuple[str, ...]") -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    text = "".join(_SPECIAL.get(c) or (f"\\{c}" if c in "&%$#_{}" else c) for c in text)
    for symbol, command in _SYMBOLS.items():
        text = text.replace(symbol, command)
    return re.sub(r"\s+", " ", text)
