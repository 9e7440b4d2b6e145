"""HTML tables that show records in notebooks."""

import html
from collections.abc import Mapping


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
