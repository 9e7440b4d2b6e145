"""`Section`: one figure at one size with its findings, the unit of the report."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from workbench.experiment.finding import Finding

if TYPE_CHECKING:
    import pandas as pd

HELD, IN_PART, NOT_HELD = "held", "held in part", "did not hold"
UNDECIDED, NOT_CHECKED, NOT_RUN, FAILED, INCOMPLETE = "undecided", "not checked", "not run", "failed", "incomplete"

SYMBOLS = {HELD: "✓", IN_PART: "◐", NOT_HELD: "✗", UNDECIDED: "?", NOT_CHECKED: "–"}
SYMBOLS |= {INCOMPLETE: "◌", NOT_RUN: "○", FAILED: "!"}
"""A symbol per status, so that colour is never the only difference."""

_SIZES = ("smoke", "real", "paper")


@dataclass(frozen=True, eq=False)
class Section:
    """One figure at one size.

    Args:
        name: "paper/figure", as `workbench run` takes it.
        title: "Figure 11 · Peak memory by partitioner and K".
        paper: name and venue.
        claim: the figure's claim in one sentence.
        source: section and figure number in the paper.
        size: "smoke", "real" or "paper".
        figure: a plotly Figure; None if it could not be drawn.
        findings: the parts of the claim, checked against the rows.
        deviations: finding name to the documented reason why it does not hold at this size.
        comparison: the paper's numbers beside ours; columns that end in `_bytes` or `_seconds` are shown in readable
            units.
        provenance: device, data, versions, commit, date and so on, keyed by their label; "device" also appears in the
            overview, and "modelled" marks simulated values and says how.
        problems: failed points and parts of the section that could not be made, one line each.
        points: (ended, total) number of grid points; None if unknown.
        recorded: the rows come from a recorded table instead of a store.
        notebook: path of the notebook relative to the page.
        runs_link: address of the figure's runs in MLflow's UI.
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
    runs_link: str | None = None

    @property
    def status(self) -> str:
        """The verdict on the claim, or why there is none.

        "held", "held in part" or "did not hold" if findings were checked; at most "held in part" if a finding is
        undecided, and "undecided" if all are. If points failed, nothing can hold without them: "failed" unless a
        finding did not hold. Findings on wall-clock time do not count, because they vary with the machine's load.
        Otherwise "incomplete" (only a part of the grid has ended), "not checked" (no untimed findings at this size) or
        "not run".
        """
        if self.is_incomplete:
            return INCOMPLETE
        held = [finding.held for finding in self.findings if finding.counts]
        if self.problems and all(held):
            return FAILED
        if held:
            if all(held):
                return IN_PART if self.undecided else HELD
            return IN_PART if any(held) else NOT_HELD
        if self.undecided:
            return UNDECIDED
        return NOT_RUN if self.figure is None else NOT_CHECKED

    @property
    def is_incomplete(self) -> bool:
        """Only a part of the grid's points has ended."""
        return self.points is not None and 0 < self.points[0] < self.points[1]

    @property
    def symbol(self) -> str:
        """The symbol of the status."""
        return SYMBOLS[self.status]

    @property
    def not_held(self) -> tuple[Finding, ...]:
        """The findings that did not hold."""
        return tuple(finding for finding in self.findings if not finding.held and finding.decided)

    @property
    def undecided(self) -> tuple[Finding, ...]:
        """The findings on which the runs are too few to tell."""
        return tuple(finding for finding in self.findings if not finding.decided)


def by_figure(sections: Iterable[Section]) -> list[list[Section]]:
    """Groups sections by figure: small sizes first, runs before recorded tables.

    Papers, and figures within them, keep the order of their first section.

    Args:
        sections: in any order.
    """
    sections = list(sections)
    papers = list(dict.fromkeys(section.paper for section in sections))
    names = list(dict.fromkeys(section.name for section in sections))

    def rank(section: Section) -> tuple[int, int, int, bool]:
        size = _SIZES.index(section.size) if section.size in _SIZES else len(_SIZES)
        return papers.index(section.paper), names.index(section.name), size, section.recorded

    ordered = sorted(sections, key=rank)
    return [list(group) for _, group in groupby(ordered, key=lambda section: (section.paper, section.name))]
