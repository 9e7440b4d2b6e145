"""Advice as text for a terminal of 80 columns."""

import textwrap
from typing import Any

from workbench.advisor.prices import Priced
from workbench.core.units import format_bytes

WIDTH = 80
_ROWS = 12
_LABEL = 30


def advice_text(advice: Any, width: int = WIDTH) -> str:
    """The table, best first, and the sentences.

    Args:
        advice: an `Advice`.
        width: columns of the terminal.
    """
    shown = advice.priced[:_ROWS]
    lines = _aligned([_HEAD, *(_cells(one) for one in shown)])
    hidden = len(advice.priced) - len(shown)
    lines += [f"and {hidden} more: `advice.table` has all"] if hidden else []
    lines += ["* changes the samples: each step is another random estimate of the same gradient"] * any(
        one.configuration.changes_samples for one in shown
    )
    pricer = advice.pricer
    how = "timed on this machine" if pricer.measured else "modelled"
    budget = f"{format_bytes(pricer.memory_bytes)} of device memory, {format_bytes(pricer.host_bytes)} of host memory"
    lines += ["", *textwrap.wrap(f"{pricer.machine.name or 'machine'}: {budget}; seconds per epoch, {how}.", width), ""]
    if advice.priced[0].fits:
        first, *others = advice.sentences()
        lines += textwrap.wrap(first, width)
        for reason in others:
            lines += textwrap.wrap(reason, width, initial_indent="- ", subsequent_indent="  ")
    else:
        lines += textwrap.wrap(f"Nothing fits: {advice.priced[0].why}.", width)
    return "\n".join(lines)


_HEAD = ("configuration", "fits", "peak", "moved", "seconds", "±")


def _cells(one: Priced) -> tuple[str, ...]:
    c = one.configuration
    label = textwrap.shorten(f"{c}{' *' if c.changes_samples else ''}", _LABEL, placeholder="…")
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
