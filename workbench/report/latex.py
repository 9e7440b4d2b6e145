"""Tables in LaTeX, for papers: `tabular` with the rules of booktabs."""

import re

import pandas as pd

from workbench.report.table_columns import columns

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
    rows = [_row(cells) for cells in zip(*(column.cells for column in shown), strict=True)]
    head = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", _row([column.head for column in shown]), r"\midrule"]
    return "\n".join([*head, *rows, r"\bottomrule", r"\end{tabular}"])


def _row(cells: "list[str] | tuple[str, ...]") -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


def _escaped(text: str) -> str:
    text = "".join(_SPECIAL.get(c) or (f"\\{c}" if c in "&%$#_{}" else c) for c in text)
    for symbol, command in _SYMBOLS.items():
        text = text.replace(symbol, command)
    return re.sub(r"\s+", " ", text)
