"""Formatting and parsing of sizes for people; inside the library every size is in bytes."""

import html
from collections.abc import Mapping

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")

_DECIMAL = ("kB", "MB", "GB", "TB")

_BYTES = {unit: 1000**power for power, unit in enumerate(_DECIMAL, 1)} | {
    unit: 1024**power for power, unit in reversed(list(enumerate(_BINARY)))
}


def format_bytes(count: float) -> str:
    """Format a number of bytes with a binary unit.

    >>> format_bytes(1536)
    '1.50 KiB'
    """
    value = float(count)
    for unit in _BINARY[:-1]:
        if abs(round(value, 2)) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} {_BINARY[-1]}"


def parse_bytes(text: str) -> int:
    """Parse a number of bytes.

    Args:
        text: a number with an optional unit: KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB (powers of 1000).

    Raises:
        ValueError: if `text` is not such a number, is negative or is not finite.

    >>> parse_bytes("8GiB") == 8 * 2**30
    True
    >>> parse_bytes("500 MB")
    500000000
    """
    stripped = text.strip()
    unit = next((unit for unit in _BYTES if stripped.endswith(unit)), "")
    try:
        value = float(stripped.removesuffix(unit)) * _BYTES.get(unit, 1)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of bytes; write 8GiB, 500 MB or a plain number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is not a number of bytes; it must be finite and not negative")
    return int(value)


def html_table(caption: str, cells: Mapping[str, object]) -> str:
    """Return a table with a caption and one row per named value.

    Args:
        caption: plain text; it is escaped.
        cells: value by row name; integers get thousands separators.

    >>> html_table("Block", {"edges": 1200})
    '<table><caption>Block</caption><tbody><tr><th>edges</th><td>1,200</td></tr></tbody></table>'
    """
    rows = "".join(
        f"<tr><th>{name}</th><td>{f'{value:,}' if isinstance(value, int) else value}</td></tr>"
        for name, value in cells.items()
    )
    return f"<table><caption>{html.escape(caption)}</caption><tbody>{rows}</tbody></table>"
