"""The result box at the head of a figure's notebook: the claim, what was found here, and where it fails."""

from collections.abc import Mapping, Sequence

from workbench.experiment.experiment import Experiment
from workbench.experiment.finding import Finding
from workbench.report.markdown import escaped
from workbench.report.sections import NOT_RUN, Section
from workbench.report.verdicts import SIZES, verdicts


def result_box(experiment: Experiment, smoke: Mapping[str, Sequence[Finding]]) -> str:
    """Formats the recorded verdicts of a figure as a quoted block of Markdown; runs nothing.

    Args:
        experiment: the figure.
        smoke: "paper/figure" to its findings at the smoke size.
    """
    return box_of(experiment, verdicts([experiment], smoke)[0].sections)


def box_of(experiment: Experiment, sections: Sequence[Section]) -> str:
    """Formats the verdicts of a figure as a quoted block of Markdown.

    Args:
        experiment: the figure.
        sections: its recorded verdicts, one per size.
    """
    spec = experiment.spec
    lines = [
        f"**Claim.** {escaped(spec.claim)} *({experiment.paper}, {escaped(spec.source)})*",
        "",
        "**Found here.**",
        "",
    ]
    for section in sections:
        lines += _section(section)
    run = {section.size for section in sections}
    lines += [f"- – **{size}**: {NOT_RUN}" for size in SIZES if size in experiment.sweep.spec.sizes and size not in run]
    notes = {size: experiment.note(size) for size in experiment.sweep.spec.sizes}
    lines += [line for size, note in notes.items() if note for line in ("", f"*{size}*: {escaped(note)}")]
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _section(section: Section) -> list[str]:
    counted = [finding for finding in section.findings if not finding.timed]
    held = sum(finding.held for finding in counted)
    device = f", {section.provenance['device']}" if section.recorded else ""
    head = f"- {section.symbol} **{section.size}**{device}: {section.status}, {held} of {len(counted)} statements"
    return [head, *(_failing(finding, section) for finding in counted if not finding.held)]


def _failing(finding: Finding, section: Section) -> str:
    reason = section.deviations.get(finding.name)
    why = f" *Why:* {escaped(reason)}" if reason else ""
    return f"    - {finding.symbol} {escaped(finding.statement)} ({escaped(finding.evidence)}).{why}"
