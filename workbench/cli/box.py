"""A frame around the closing lines of a long command."""

import sys
from collections.abc import Sequence

from workbench.report.terminal_width import wrapped

_ROUND, _ASCII = "╭─╮│╰╯", "+-+|++"
_WIDEST = 100  # columns, where the width of the terminal is unknown or larger


def box(lines: Sequence[str], width: int | None, *, encoding: str | None = None) -> list[str]:
    """Frames lines, wrapped to the terminal.

    Args:
        lines: without line ends.
        width: columns of the terminal; None: unknown.
        encoding: of the output; None: that of stdout. One without box characters gets a frame of "+", "-" and "|".

    >>> print("\\n".join(box(["done"], 40, encoding="ascii")))
    +------+
    | done |
    +------+
    """
    left, across, right, side, low_left, low_right = _corners(encoding or sys.stdout.encoding or "ascii")
    inner = wrapped(lines, min(width or _WIDEST, _WIDEST) - 4)
    longest = max(map(len, inner), default=0)
    framed = [f"{side} {line:<{longest}} {side}" for line in inner]
    rule = across * (longest + 2)
    return [left + rule + right, *framed, low_left + rule + low_right]


def _corners(encoding: str) -> str:
    try:
        _ROUND.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _ROUND
