"""Which claims reproduce at which size, in Markdown: a row per figure, a row per paper, and the reasons."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.experiment.distance import RATIO, ratio_words, with_ratios
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


def figure_rows(figures: Iterable[FigureVerdicts], page: str) -> str:
    """Formats one row per figure: its title, linked to its details, the verdict at every size, and how far the numbers
    at size real are from the paper's.

    Args:
        figures: of one paper, in order.
        page: the document with their details, as the links name it.
    """
    head = f"| figure | smoke | real | {RATIO} (real) | paper |\n|---|---|---|---|---|"
    return "\n".join([head, *(_figure_row(figure, page) for figure in figures)])


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
    """Formats a figure's claim and its verdict at every size; behind folds the statements that do not hold, with the
    evidence and reasons, and the numbers beside the paper's, the worst deviations first.

    Args:
        figure: its verdicts.
    """
    spec, name = figure.experiment.spec, figure.experiment.name
    notebook = f"[notebook](../../notebooks/{name}.ipynb)"
    parts = [f"## {spec.title}", f"{escaped(spec.claim)} *({escaped(spec.source)}; {notebook})*"]
    parts += ["\n".join(_verdict_line(section) for section in figure.sections)] if figure.sections else []
    parts += [part for section in figure.sections for part in _section_details(section)]
    return "\n\n".join(parts)


def _sections(experiment: Experiment, smoke: Sequence[Finding] | None) -> tuple[Section, ...]:
    """Without figures, which cost seconds to draw."""
    known = [] if smoke is None else [section_of_findings(experiment, "smoke", smoke)]
    return (*known, *(_recorded_section(experiment, kept) for kept in recorded(experiment.sweep.name)))


def _recorded_section(experiment: Experiment, kept: Recorded) -> Section:
    provenance = {"device": str(kept.about["device"]), "table": shown_path(kept.file)}
    section = section_of_findings(experiment, kept.size, ())
    section = replace(section, recorded=True, provenance=provenance, points=kept.points)
    parts: Mapping[str, Callable[[pd.DataFrame], Any]] = {
        "findings": lambda table: tuple(experiment.check(table)),
        "comparison": experiment.compare,
    }
    for part, of in parts.items():
        with suppress(Exception) if section.is_incomplete else nullcontext():  # what needs the missing points fails
            section = replace(section, **{part: of(kept.table)})
    return section


def _figure_row(figure: FigureVerdicts, page: str) -> str:
    title = f"[{escaped(figure.experiment.spec.title)}]({page}#{_anchor(figure.experiment.spec.title)})"
    smoke, real, paper = ("; ".join(map(_verdict, figure.of(size))) or NOT_RUN for size in SIZES)
    ranges = [text for section in figure.of("real") if (text := ratio_words(_compared(section)))]
    return f"| {title} | {smoke} | {real} | {'; '.join(ranges) or '–'} | {paper} |"


def _verdict(section: Section) -> str:
    """A symbol, the status, and how many statements keep the claim from holding."""
    notes = ", ".join(_notes(section))
    return f"{section.symbol} {_status(section)}" + (f": {notes}" if notes else "")


def _verdict_line(section: Section) -> str:
    device = f", {section.provenance['device']}" if section.recorded else ""
    table = section.provenance.get("table")
    rows = f" [Rows](../../{table})." if table else ""
    counted = section.counted
    held = f", {sum(finding.held for finding in counted)} of {len(counted)} statements hold" if counted else ""
    return f"- {section.symbol} **{section.size}**{device}: {_status(section)}{held}.{rows}"


def _status(section: Section) -> str:
    if section.is_incomplete and section.points:
        return "{} ({} of {})".format(section.status, *section.points)
    return section.status


_NOTES = {"did not hold": ("does not hold", "do not hold"), "size differs": ("size differs", "sizes differ")}
_NOTES |= {"seconds differ": ("time differs", "times differ"), "undecided": ("undecided", "undecided")}
_NOTES |= {"seconds not measured": ("time not measured", "times not measured"), NOT_TRAINED: (NOT_TRAINED, NOT_TRAINED)}


def _notes(section: Section) -> list[str]:
    """How many statements keep a claim from holding, by how: the direction, the size alone, time, too few runs."""
    found = (*section.not_held, *section.undecided)
    by_verdict = Counter(finding.verdict for finding in found)
    if len(by_verdict) == 1 and section.status in (UNDECIDED, NOT_TRAINED, TIME_DIFFERS, TIME_NOT_MEASURED, NOT_HELD):
        return []  # the status says it
    return [f"{by_verdict[key]} {words[by_verdict[key] > 1]}" for key, words in _NOTES.items() if by_verdict[key]]


def _counts(figures: Iterable[FigureVerdicts], size: str) -> dict[str, int]:
    found = Counter(figure.of(size)[0].status if figure.of(size) else NOT_RUN for figure in figures)
    return {status: found[status] for status in _ORDER if found[status]}


def _section_details(section: Section) -> list[str]:
    found = (*section.not_held, *section.undecided)
    lines = [
        f"- *{finding.verdict}*: {told(finding, section)}"
        for finding in found
        if not (section.size == "smoke" and finding.timed)
    ]
    parts = [folded(f"{section.size}: what does not hold, and why ({len(lines)})", "\n".join(lines))] if lines else []
    compared = _compared(section)
    if compared is not None:
        apart, rows = ratio_words(compared), f"{len(compared)} rows"
        about = f"paper vs here, {rows}, {RATIO} {apart}, the worst first" if apart else f"numbers here, {rows}"
        parts += [folded(f"{section.size}: {about}", markdown_table(compared))]
    return parts


def _compared(section: Section) -> pd.DataFrame | None:
    given = section.comparison
    return with_ratios(given) if given is not None and len(given) else None


def told(finding: Finding, section: Section) -> str:
    """Formats a part of a claim: its statement, the evidence, and the documented reason why it does not hold.

    Args:
        finding: of the section.
        section: a figure at a size.
    """
    reason = section.deviations.get(finding.name)
    why = f" *Why:* {escaped(reason)}" if reason else ""
    evidence = f" ({escaped(finding.evidence)})" if finding.evidence else ""
    return f"{escaped(finding.statement)}{evidence}.{why}"


def folded(summary: str, text: str) -> str:
    """Markdown behind a fold.

    Args:
        summary: the line that is shown.
        text: Markdown.
    """
    return f'<details markdown="1"><summary>{escaped(summary)}</summary>\n\n{text}\n\n</details>'


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
