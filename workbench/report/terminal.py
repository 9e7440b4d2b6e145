"""The report as a table on the terminal."""

from collections.abc import Iterable
from itertools import chain

import pandas as pd

from workbench.report.sections import Section, by_figure
from workbench.report.text_table import text_table

_UNCHANGED = "its code is unchanged"  # the beginning of what `Recorded.provenance` returns then


def status_lines(sections: Iterable[Section]) -> list[str]:
    """Lists the status of every figure and size, with the findings that did not hold and the number of problems.

    Args:
        sections: in any order; sections of one figure are grouped.

    Returns:
        A header and one line per section, and the recorded tables whose code has changed since; a hint how to start if
        there are no sections.
    """
    sections = list(chain.from_iterable(by_figure(sections)))
    rows = [_row(section) for section in sections]
    if not rows:
        return ["no runs yet; `workbench list` names the figures, `workbench run PAPER/FIGURE` runs one"]
    changed = _changed_tables(sections)
    return [*text_table(pd.DataFrame(rows)), *(["", *changed] if changed else [])]


def _row(section: Section) -> dict[str, str]:
    return {
        "figure": section.name,
        "size": section.size + (" (recorded)" if section.recorded else ""),
        "device": section.provenance.get("device") or "–",
        "status": f"{section.symbol} {section.status}",
        "details": "; ".join(_details(section)),
    }


def _details(section: Section) -> list[str]:
    lines = []
    if section.is_incomplete and section.points is not None:
        lines.append("{} of {} points".format(*section.points))
    for finding in (*section.not_held, *section.undecided):
        notes = ["seconds"] * finding.timed + ["undecided"] * (not finding.decided)
        notes += ["documented"] * (finding.name in section.deviations)
        lines.append(finding.name + (f" ({', '.join(notes)})" if notes else ""))
    if section.problems:
        lines.append(f"{len(section.problems)} problem{'s' * (len(section.problems) > 1)}")
    return lines


def _changed_tables(sections: Iterable[Section]) -> list[str]:
    """One line per change of the code, with the recorded tables that it concerns."""
    tables: dict[str, list[str]] = {}
    for section in sections:
        code = section.provenance.get("code", _UNCHANGED)
        if section.recorded and not code.startswith(_UNCHANGED):
            tables.setdefault(code, []).append(f"{section.name} {section.size}")
    return [f"recorded table of {', '.join(names)}: {code}" for code, names in tables.items()]
