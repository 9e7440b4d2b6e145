"""Advice as text for a terminal of 80 columns."""

import html
import textwrap
from typing import Any

from workbench.advisor.prices import Priced, Pricer
from workbench.core.units import format_bytes

WIDTH = 80
_ROWS = 12
_LABEL = 30
_STAR = "* changes the samples: each step is another random estimate of the same gradient"


def advice_text(advice: Any, width: int = WIDTH, *, rows: int = _ROWS, more: str = "`advice.table` has all") -> str:
    """The table, best first, and the sentences.

    Args:
        advice: an `Advice`.
        width: columns of the terminal.
        rows: configurations shown.
        more: how to see the others.
    """
    shown = advice.priced[:rows]
    lines = _aligned([_HEAD, *(_cells(one) for one in shown)])
    hidden = len(advice.priced) - len(shown)
    lines += [f"and {hidden} more: {more}"] if hidden else []
    lines += [_STAR] * any(one.configuration.changes_samples for one in shown)
    lines += ["", *textwrap.wrap(_about(advice.pricer), width), ""]
    first, *others = _sentences(advice)
    lines += textwrap.wrap(first, width)
    for reason in others:
        lines += textwrap.wrap(reason, width, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def advice_html(advice: Any) -> str:
    """The same for a notebook, with all configurations.

    Args:
        advice: an `Advice`.
    """
    rows = "".join(_html_row(_cells(one, label=str(one.configuration)), "td", one.why) for one in advice.priced)
    first, *others = map(html.escape, _sentences(advice))
    reasons = "".join(f"<li>{reason}</li>" for reason in others)
    return (
        f"<table><caption>{html.escape(_about(advice.pricer))}</caption><thead>{_html_row(_HEAD, 'th')}</thead>"
        f"<tbody>{rows}</tbody></table><p>{first}</p><ul>{reasons}</ul><p>{_STAR}</p>"
    )


def _html_row(cells: tuple[str, ...], tag: str, hover: str = "") -> str:
    title = f' title="{html.escape(hover)}"' if hover else ""
    return f"<tr{title}>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _about(pricer: Pricer) -> str:
    how = "timed on this machine" if pricer.measured else "modelled"
    budget = f"{format_bytes(pricer.memory_bytes)} of device memory, {format_bytes(pricer.host_bytes)} of host memory"
    return f"{pricer.machine.name or 'machine'}: {budget}; seconds per epoch, {how}."


def _sentences(advice: Any) -> list[str]:
    return advice.sentences() if advice.priced[0].fits else [f"Nothing fits: {advice.priced[0].why}."]


_HEAD = ("configuration", "fits", "peak", "moved", "seconds", "±")


def _cells(one: Priced, label: str = "") -> tuple[str, ...]:
    label = label or textwrap.shorten(str(one.configuration), _LABEL - 2, placeholder="…")
    label += " *" * one.configuration.changes_samples
    if not one.can_be_priced:
        return label, "–", "–", "–", "–", "–"
    seconds, fits = f"{one.epoch_seconds:.3g}", "yes" if one.fits else "no"
    peak, moved = format_bytes(one.peak_bytes), format_bytes(round(one.moved_bytes))
    return label, fits, peak, moved, seconds, f"{one.error:.0%}"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """The first column on the left, all others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in (zip(row, widths, strict=True) for row in rows)
    ]
