"""The report's overview for the terminal."""

from collections.abc import Iterable

import pandas as pd

from workbench.report.sections import Section, by_figure


def status_lines(sections: Iterable[Section]) -> list[str]:
    """One line per figure and size, below a head: status, failed points, and the findings that did not hold.

    Args:
        sections: as for the page.
    """
    rows = [_row(section) for group in by_figure(sections) for section in group]
    if not rows:
        return ["nothing was run yet; `workbench list` names the figures, `workbench run PAPER/FIGURE` runs one"]
    cells = pd.DataFrame([dict(zip(rows[0], rows[0], strict=True)), *rows])
    left = cells.apply(lambda column: column.str.ljust(int(column.str.len().max())))
    return [line.rstrip() for line in left.to_string(index=False, header=False).splitlines()]


def _row(section: Section) -> dict[str, str]:
    return {
        "figure": section.name,
        "size": section.size + (" (recorded)" if section.recorded else ""),
        "device": section.provenance.get("device") or "–",
        "status": f"{section.symbol} {section.status}",
        "what did not hold": "; ".join(_complaints(section)),
    }


def _complaints(section: Section) -> list[str]:
    lines = []
    if section.is_incomplete and section.points is not None:
        lines.append("{} of {} points".format(*section.points))
    for finding in section.not_held:
        notes = ["seconds"] * finding.timed + ["documented"] * (finding.name in section.deviations)
        lines.append(finding.name + (f" ({', '.join(notes)})" if notes else ""))
    if section.problems:
        lines.append(f"{len(section.problems)} problem{'s' * (len(section.problems) > 1)}")
    return lines
