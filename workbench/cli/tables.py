"""Tables on a terminal."""

from collections.abc import Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as their longest cell.

    >>> table(("a", "b"), [("1", "long"), ("two", "2")])
    ['a    b', '---  ----', '1    long', 'two  2']
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def readable(made: Any) -> list[str]:
    """Lines of a DataFrame, bytes in units for people."""
    from workbench.core.units import format_bytes

    def in_bytes(value: float) -> str:
        return "" if value != value else format_bytes(int(value))  # not a number where a point failed

    units: Any = {column: in_bytes for column in made if column.endswith("_bytes")}
    return made.to_string(index=False, formatters=units, float_format="{:.4g}".format).splitlines()
