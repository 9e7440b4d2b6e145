"""What the report is made of: one figure at one size, and what became of its claim."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from workbench.experiment.finding import Finding

if TYPE_CHECKING:
    import pandas as pd

HELD, IN_PART, NOT_HELD = "held", "held in part", "did not hold"
NOT_CHECKED, NOT_RUN, FAILED, INCOMPLETE = "not checked", "not run", "failed", "incomplete"

SYMBOLS = {HELD: "✓", IN_PART: "◐", NOT_HELD: "✗", NOT_CHECKED: "–", INCOMPLETE: "◌", NOT_RUN: "○", FAILED: "!"}
"""A sign for every status, so that colour alone never tells one from another."""

_SIZES = ("smoke", "real", "paper")


@dataclass(frozen=True, eq=False)
class Section:
    """One figure at one size.

    Args:
        name: "paper/figure", as `workbench run` takes it.
        title: for people, "Figure 11 · Peak memory by partitioner and K".
        paper: name and venue.
        claim: what the figure says, in one sentence.
        source: where in the paper.
        size: "smoke", "real" or "paper".
        figure: a plotly Figure; None where nothing could be drawn.
        findings: the claim's parts, held against the rows.
        deviations: name of a finding to the documented reason why it does not hold here.
        comparison: the paper's numbers beside those found here; columns that end in `_bytes` and `_seconds` are shown
            in units for people.
        provenance: device, data, versions, commit, date and the like, by the words shown; "device" also stands in the
            overview, and "modelled" marks values that were simulated, saying how.
        problems: points that failed and parts of the section that could not be made, in words.
        points: how many of the grid's points ended, and how many there are; None: not known.
        recorded: read from a recorded table, not run here.
        notebook: its path, relative to the page.
    """

    name: str
    title: str
    paper: str
    claim: str
    source: str
    size: str
    figure: Any = None
    findings: tuple[Finding, ...] = ()
    deviations: Mapping[str, str] = field(default_factory=dict)
    comparison: "pd.DataFrame | None" = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    points: tuple[int, int] | None = None
    recorded: bool = False
    notebook: str | None = None

    @property
    def status(self) -> str:
        """ "held", "held in part" or "did not hold" where something was checked; with failed points at most "held in
        part". Findings on seconds have no say: they differ with what else the machine does. Otherwise "incomplete" (a
        part of the grid ended, which decides nothing), "failed" (points failed), "not checked" (nothing to hold at this
        size, but on seconds) or "not run"."""
        if self.is_incomplete:
            return INCOMPLETE
        held = [finding.held for finding in self.findings if not finding.timed]
        if held:
            if all(held):
                return IN_PART if self.problems else HELD
            return IN_PART if any(held) else NOT_HELD
        if self.problems:
            return FAILED
        return NOT_RUN if self.figure is None else NOT_CHECKED

    @property
    def is_incomplete(self) -> bool:
        """Whether some points of the grid have not ended."""
        return self.points is not None and 0 < self.points[0] < self.points[1]

    @property
    def symbol(self) -> str:
        """The sign of the status."""
        return SYMBOLS[self.status]

    @property
    def not_held(self) -> tuple[Finding, ...]:
        """The findings that did not hold."""
        return tuple(finding for finding in self.findings if not finding.held)


def by_figure(sections: Iterable[Section]) -> list[list[Section]]:
    """Sections of one figure together, small sizes first, what was run here before what is recorded.

    Papers, and figures within them, keep the order of their first section.

    Args:
        sections: in any order.
    """
    sections = list(sections)
    papers = list(dict.fromkeys(section.paper for section in sections))
    names = list(dict.fromkeys(section.name for section in sections))

    def place(section: Section) -> tuple[int, int, int, bool]:
        size = _SIZES.index(section.size) if section.size in _SIZES else len(_SIZES)
        return papers.index(section.paper), names.index(section.name), size, section.recorded

    ordered = sorted(sections, key=place)
    return [list(group) for _, group in groupby(ordered, key=lambda section: (section.paper, section.name))]
