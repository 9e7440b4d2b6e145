"""Which claims reproduce at which size, in Markdown: a row per figure, a row per paper, and the reasons."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from workbench.experiment.distance import with_ratios
from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_spec import SIZES
from workbench.experiment.finding import Finding, judged
from workbench.experiment.recorded import Recorded, recorded
from workbench.files import write_file
from workbench.paths import results_folder, shown_path
from workbench.report.sections import (
    HELD,
    IN_PART,
    INCOMPLETE,
    NOT_CHECKED,
    NOT_HELD,
    NOT_RUN,
    NOT_TRAINED,
    TIME_DIFFERS,
    TIME_NOT_MEASURED,
    UNDECIDED,
    Section,
    section_of_findings,
)
from workbench.report.tables import escaped, markdown_table

_ORDER = (HELD, TIME_DIFFERS, TIME_NOT_MEASURED, IN_PART, NOT_HELD, UNDECIDED, NOT_TRAINED)
_ORDER += (INCOMPLETE, NOT_CHECKED, NOT_RUN)


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
    """Formats one row per paper: the number of figures, how many of them have which verdict at every size, and how many
    of the sizes of effects that the paper states are met at size real.

    Args:
        figures: of one paper.
    """
    cells = [", ".join(f"{count} {status}" for status, count in _counts(figures, size).items()) for size in SIZES]
    sizes = [finding.held for figure in figures for section in figure.of("real") for finding in section.sizes]
    met = f"{sum(sizes)} of {len(sizes)}" if sizes else "–"
    return f"| {escaped(figures[0].experiment.paper)} | {len(figures)} | " + " | ".join(cells) + f" | {met} |"


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
    return replace(
        section, comparison=experiment.compare(kept.table), recorded=True, provenance=provenance, points=kept.points
    )


def _figure_row(figure: FigureVerdicts) -> str:
    name = figure.experiment.name
    cells = ["; ".join(map(_verdict, figure.of(size))) or NOT_RUN for size in SIZES]
    title = f"[{escaped(figure.experiment.spec.title)}](#{_anchor(figure.experiment.spec.title)})"
    return f"| {title} | " + " | ".join(cells) + f" | [{name.partition('/')[2]}](../notebooks/{name}.ipynb) |"


def _verdict(section: Section) -> str:
    status, table = section.status, section.provenance.get("table")
    if section.is_incomplete and section.points:
        status = "{} ({} of {})".format(status, *section.points)
    linked = f"[{status}](../{table})" if table else status
    return f"{section.symbol} {linked}" + (f": {'; '.join(notes)}" if (notes := _notes(section)) else "")


def _notes(section: Section) -> list[str]:
    """Which findings keep the claim from holding, by how: the direction, the size alone, time, too few runs."""
    by_verdict: dict[str, list[str]] = {}
    for finding in judged((*section.not_held, *section.undecided), section.size):
        by_verdict.setdefault(finding.verdict, []).append(f"`{finding.name}`")
    told = {"did not hold": "not", "size differs": "size differs", "seconds differ": "time differs"}
    told |= {"undecided": "undecided", NOT_TRAINED: NOT_TRAINED, "seconds not measured": "time not measured"}
    alone = section.status if len(by_verdict) == 1 else None
    return [
        f"{text} {', '.join(names)}"
        for verdict, text in told.items()
        if (names := by_verdict.get(verdict)) and not (alone == text and text in (UNDECIDED, NOT_TRAINED))
    ]


def _counts(figures: Iterable[FigureVerdicts], size: str) -> dict[str, int]:
    found = Counter(figure.of(size)[0].status if figure.of(size) else NOT_RUN for figure in figures)
    return {status: found[status] for status in _ORDER if found[status]}


def _section_details(section: Section) -> list[str]:
    label = f"**{section.size}**" + (f", {section.provenance['device']}" if section.recorded else "")
    parts = []
    for finding in judged((*section.not_held, *section.undecided), section.size):
        if section.size == "smoke" and finding.timed:
            continue
        parts.append(f"- {label}, {finding.verdict}: {told(finding, section)}")
    lines = ["\n".join(parts)] if parts else []
    if section.comparison is not None and len(section.comparison):
        compared = with_ratios(section.comparison)
        lines += [folded(f"{section.size}: paper vs here, {len(compared)} rows", markdown_table(compared))]
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


def folded(summary: str, text: str) -> str:
    """Markdown behind a fold.

    Args:
        summary: the line that is shown.
        text: Markdown.
    """
    return f"<details><summary>{escaped(summary)}</summary>\n\n{text}\n\n</details>"


def _anchor(title: str) -> str:
    """The anchor that git hosts derive from a heading: lower case, spaces as hyphens, punctuation dropped."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


_COLUMNS = ("figure", "finding", "held", "statement", "evidence")

_UNDECIDED, _NOT_MEASURED = "undecided", "not measured"  # in the column "held"; the latter of seconds


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
        "paper/figure" to its findings, of which those about time are not decided; empty if no smoke run is recorded.
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
            timed, decided = held == _NOT_MEASURED, held in ("True", "False")
            findings.append(Finding(row["finding"], *about, timed=timed, decided=decided, trained=held != NOT_TRAINED))
    return found


def write_smoke_findings(paper: str, findings: Mapping[str, Iterable[Finding]]) -> Path:
    """Writes the smoke verdicts of a paper, without sizes and seconds, which mean nothing on graphs this small.

    Args:
        paper: name of the paper's folder.
        findings: "paper/figure" to its findings at the smoke size.

    Returns:
        The file.
    """
    rows = []
    for figure, found in findings.items():
        kept = judged(found, "smoke")
        rows += [(figure, one.name, _held(one), one.statement, "" if one.timed else one.evidence) for one in kept]
        rows += [] if kept else [(figure, "", "", "", "")]
    file = smoke_file(paper)
    write_file(file, pd.DataFrame(rows, columns=list(_COLUMNS)).to_csv(index=False, lineterminator="\n"))
    return file


def _held(finding: Finding) -> bool | str:
    if not finding.trained:
        return NOT_TRAINED
    return finding.held if finding.decided else _NOT_MEASURED if finding.timed else _UNDECIDED


def run_smoke(experiments: Iterable[Experiment]) -> dict[str, list[Finding]]:
    """Runs figures at the smoke size, as far as the store does not have their points, and checks them.

    Args:
        experiments: the figures.

    Returns:
        "paper/figure" to its findings.
    """
    return {experiment.name: experiment.check(experiment.run(size="smoke")) for experiment in experiments}
