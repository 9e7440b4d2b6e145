"""Which claims reproduce at which size, in Markdown: a row per figure, a row per paper, and the reasons."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_spec import SIZES
from workbench.experiment.finding import Finding
from workbench.experiment.recorded import Recorded, recorded
from workbench.files import write_file
from workbench.paths import results_folder, shown_path
from workbench.report.sections import (
    HELD,
    IN_PART,
    NOT_CHECKED,
    NOT_HELD,
    NOT_RUN,
    UNDECIDED,
    Section,
    section_of_findings,
)
from workbench.report.tables import escaped, markdown_table

_ORDER = (HELD, IN_PART, NOT_HELD, UNDECIDED, NOT_CHECKED, NOT_RUN)

_MAX_ROWS, _MAX_COLUMNS = 12, 8  # of a comparison that is short enough for the document


@dataclass(frozen=True, eq=False)
class FigureVerdicts:
    """A figure and its sections: the smoke verdict and every recorded table.

    Args:
        experiment: the figure.
        sections: one for the smoke size if its findings are known, and one per recorded table.
    """

    experiment: Experiment
    sections: tuple[Section, ...]

    def of(self, size: str) -> list[Section]:
        """Returns the sections of one size.

        Args:
            size: "smoke", "real" or "paper".
        """
        return [section for section in self.sections if section.size == size]


def verdicts(experiments: Iterable[Experiment], smoke: Mapping[str, Sequence[Finding]]) -> list[FigureVerdicts]:
    """Collects the verdicts of figures from their recorded tables and smoke findings; runs nothing.

    Args:
        experiments: the figures.
        smoke: "paper/figure" to its findings at the smoke size.
    """
    return [FigureVerdicts(one, _sections(one, smoke.get(one.name))) for one in experiments]


def figure_rows(figures: Iterable[FigureVerdicts]) -> str:
    """Formats one row per figure: its title, linked to its details below, the verdict at every size, and the notebook.

    Args:
        figures: of one paper, in order.
    """
    head = "| figure | smoke | real | paper | notebook |\n|---|---|---|---|---|"
    return "\n".join([head, *map(_figure_row, figures)])


def paper_row(figures: Sequence[FigureVerdicts]) -> str:
    """Formats one row per paper: the number of figures, and how many of them have which verdict at every size.

    Args:
        figures: of one paper.
    """
    cells = [", ".join(f"{count} {status}" for status, count in _counts(figures, size).items()) for size in SIZES]
    return f"| {escaped(figures[0].experiment.paper)} | {len(figures)} | " + " | ".join(cells) + " |"


def details(figure: FigureVerdicts) -> str:
    """Formats a figure's claim, the findings that did not hold or are undecided with reasons, and short comparisons.

    Args:
        figure: its verdicts.
    """
    spec = figure.experiment.spec
    parts = [f"### {spec.title}", f"{escaped(spec.claim)} *({escaped(spec.source)})*"]
    parts += [part for section in figure.sections for part in _section_details(section)]
    return "\n\n".join(parts)


def _sections(experiment: Experiment, smoke: Sequence[Finding] | None) -> tuple[Section, ...]:
    """Without figures, which cost seconds to draw."""
    known = [] if smoke is None else [section_of_findings(experiment, "smoke", smoke)]
    return (*known, *(_recorded_section(experiment, kept) for kept in recorded(experiment.sweep.name)))


def _recorded_section(experiment: Experiment, kept: Recorded) -> Section:
    provenance = {"device": str(kept.about["device"]), "table": shown_path(kept.file)}
    section = section_of_findings(experiment, kept.size, experiment.check(kept.table))
    return replace(section, comparison=experiment.compare(kept.table), recorded=True, provenance=provenance)


def _figure_row(figure: FigureVerdicts) -> str:
    name = figure.experiment.name
    cells = ["; ".join(map(_verdict, figure.of(size))) or NOT_RUN for size in SIZES]
    title = f"[{escaped(figure.experiment.spec.title)}](#{_anchor(figure.experiment.spec.title)})"
    return f"| {title} | " + " | ".join(cells) + f" | [{name.partition('/')[2]}](../notebooks/{name}.ipynb) |"


def _verdict(section: Section) -> str:
    status, table = section.status, section.provenance.get("table")
    missed = ", ".join(f"`{finding.name}`" for finding in section.not_held if not finding.timed)
    unknown = ", ".join(f"`{finding.name}`" for finding in section.undecided)
    linked = f"[{status}](../{table})" if table else status
    notes = [f"not {missed}"] * bool(missed) + [f"undecided {unknown}"] * bool(unknown and status != UNDECIDED)
    return f"{section.symbol} {linked}" + (f": {'; '.join(notes)}" if notes else "")


def _counts(figures: Iterable[FigureVerdicts], size: str) -> dict[str, int]:
    found = Counter(figure.of(size)[0].status if figure.of(size) else NOT_RUN for figure in figures)
    return {status: found[status] for status in _ORDER if found[status]}


def _section_details(section: Section) -> list[str]:
    label = f"**{section.size}**" + (f", {section.provenance['device']}" if section.recorded else "")
    found = (*section.not_held, *section.undecided)
    parts = [f"- {label}, {finding.verdict}: {told(finding, section)}" for finding in found]
    lines = ["\n".join(parts)] if parts else []
    comparison = section.comparison
    if comparison is not None and len(comparison) <= _MAX_ROWS and comparison.shape[1] <= _MAX_COLUMNS:
        lines += [f"{label}, paper vs here:", markdown_table(comparison)]
    return lines


def told(finding: Finding, section: Section) -> str:
    """Formats a part of a claim: its statement, the evidence, and the documented reason why it does not hold.

    Args:
        finding: of the section.
        section: a figure at a size.
    """
    reason = section.deviations.get(finding.name)
    why = f" *Why:* {escaped(reason)}" if reason else ""
    return f"{escaped(finding.statement)} ({escaped(finding.evidence)}).{why}"


def _anchor(title: str) -> str:
    """The anchor that git hosts derive from a heading: lower case, spaces as hyphens, punctuation dropped."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


_COLUMNS = ("figure", "finding", "held", "statement", "evidence")

_UNDECIDED = "undecided"  # in the column "held"


def smoke_file(paper: str) -> Path:
    """Returns the file of a paper's smoke verdicts.

    Args:
        paper: name of the paper's folder.
    """
    return results_folder() / paper / "smoke-findings.csv"


def read_smoke_findings(paper: str) -> dict[str, list[Finding]]:
    """Reads the smoke verdicts of a paper.

    Args:
        paper: name of the paper's folder.

    Returns:
        "paper/figure" to its untimed findings; empty if no smoke run is recorded.
    """
    file = smoke_file(paper)
    if not file.exists():
        return {}
    found: dict[str, list[Finding]] = {}
    for row in pd.read_csv(file, keep_default_na=False).to_dict("records"):
        findings = found.setdefault(row["figure"], [])
        if row["finding"]:
            held = str(row["held"])
            about = (row["statement"], held == "True", row["evidence"])
            findings.append(Finding(row["finding"], *about, decided=held != _UNDECIDED))
    return found


def write_smoke_findings(paper: str, findings: Mapping[str, Iterable[Finding]]) -> Path:
    """Writes the smoke verdicts of a paper, without findings on wall-clock time: those vary between runs.

    Args:
        paper: name of the paper's folder.
        findings: "paper/figure" to its findings at the smoke size.

    Returns:
        The file.
    """
    rows = []
    for figure, found in findings.items():
        kept = [one for one in found if not one.timed]
        rows += [(figure, one.name, _held(one), one.statement, one.evidence) for one in kept]
        rows += [] if kept else [(figure, "", "", "", "")]
    file = smoke_file(paper)
    write_file(file, pd.DataFrame(rows, columns=list(_COLUMNS)).to_csv(index=False, lineterminator="\n"))
    return file


def _held(finding: Finding) -> bool | str:
    return finding.held if finding.decided else _UNDECIDED


def run_smoke(experiments: Iterable[Experiment]) -> dict[str, list[Finding]]:
    """Runs figures at the smoke size, as far as the store does not have their points, and checks them.

    Args:
        experiments: the figures.

    Returns:
        "paper/figure" to its findings.
    """
    return {experiment.name: experiment.check(experiment.run(size="smoke")) for experiment in experiments}
