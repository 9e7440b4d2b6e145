"""A finding: one statement of a figure's claim, and whether the table supports or refutes it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from workbench.experiment.title import case_words
from workbench.tracking.record import FINISHED


@dataclass(frozen=True)
class Finding:
    """One part of a figure's claim, checked against a table.

    Args:
        name: short and stable ("reg-least-memory"), unique in its figure; deviations are documented by it.
        statement: the part of the claim, in one sentence.
        held: the table supports it.
        evidence: the measured values that decide, in one line.
        timed: it depends on measured seconds, so it may differ from run to run; no test asserts it.
        decided: the table supports or refutes it. Otherwise the runs are too few to tell, or the seconds of a claim
            about time are not measured; `held` is then False, and the finding counts neither for nor against the claim.
        sized: it is the size of an effect as the paper states it, not its direction.
        trained: the systems that it compares have learnt what they can. Otherwise it says nothing about the claim:
            `held` and `decided` are then False.
    """

    name: str
    statement: str
    held: bool
    evidence: str
    timed: bool = False
    decided: bool = True
    sized: bool = False
    trained: bool = True

    @property
    def counts(self) -> bool:
        """It is a verdict on the direction of the claim, the same on every machine."""
        return self.decided and not self.timed and not self.sized

    @property
    def verdict(self) -> str:
        """The result in words; seconds depend on the machine's load, so they give no verdict on the claim."""
        if not self.trained:
            return NOT_TRAINED
        if self.timed:
            return "seconds agree" if self.held else "seconds differ" if self.decided else "seconds not measured"
        if not self.decided:
            return "undecided"
        return "held" if self.held else "size differs" if self.sized else "did not hold"

    @property
    def symbol(self) -> str:
        """A symbol for the verdict."""
        if not self.trained:
            return "∅"
        return "✓" if self.held else "◷" if self.timed else "?" if not self.decided else "≠" if self.sized else "✗"


HELD, IN_PART, NOT_HELD, UNDECIDED = "held", "held in part", "did not hold", "undecided"
TIME_DIFFERS, TIME_NOT_MEASURED = "time differs", "time not measured"
NOT_TRAINED = "not trained"


def status_of(findings: Sequence[Finding]) -> str | None:
    """The verdict on a claim, of which "held" is the only one without a reservation.

    Seconds depend on the machine: they can keep a claim from holding ("time differs", "time not measured"), but a claim
    of which nothing else fails does not count as refuted by them. A claim about systems that have not learnt is neither
    supported nor refuted, whatever else it says ("not trained").

    Args:
        findings: the parts of the claim.

    Returns:
        None if there are none.
    """
    if any(not finding.trained for finding in findings):
        return NOT_TRAINED
    others = [finding for finding in findings if not finding.timed]
    held = [finding.held for finding in others if finding.decided]
    if not all(held):
        return IN_PART if any(held) else NOT_HELD
    if len(held) < len(others):
        return IN_PART if held else UNDECIDED
    if any(finding.timed and finding.decided and not finding.held for finding in findings):
        return TIME_DIFFERS
    if any(not finding.decided for finding in findings):
        return TIME_NOT_MEASURED
    return HELD if findings else None


def judged(findings: Iterable[Finding], size: str) -> list[Finding]:
    """The findings that count at a size of an experiment.

    Args:
        findings: the parts of a claim.
        size: at "smoke", graphs of a few thousand nodes have neither the paper's sizes of effects, which are left out,
            nor seconds that mean anything, which are not judged.
    """
    if size != "smoke":
        return list(findings)
    kept = [finding for finding in findings if not finding.sized]
    return [replace(one, held=False, decided=False) if one.timed else one for one in kept]


def failed_points(table: pd.DataFrame) -> list[Finding]:
    """One finding that does not hold if points failed: checks skip them, so that the others alone would look complete.

    Args:
        table: rows of a sweep, with `status` and `error`, as `Experiment.run` returns them.
    """
    failed: Any = table[table["status"] != FINISHED] if "status" in table else []
    if not len(failed):
        return []
    evidence = f"{len(failed)} failed, the first with {failed['error'].iloc[0]}"
    return [Finding("points-finished", "every point of the sweep finished", False, evidence)]


def groups_with(table: pd.DataFrame, column: str, by: Sequence[str]) -> Any:
    """Rows of the groups in which a column has values: in these, a value that is missing was lost.

    Args:
        table: rows of a sweep.
        column: with values for some groups by design, such as the methods that a theorem is about.
        by: columns that identify a group.
    """
    counts: Any = table.groupby([*by])[column].transform("count")
    return table[counts > 0]


def undefined(table: pd.DataFrame, column: str) -> Any:
    """Tell which values are NaN or infinite; those of failed points are not meant, which have a finding of their own.

    Args:
        table: rows of a sweep.
        column: with the values.

    Returns:
        A boolean series.
    """
    values: Any = pd.to_numeric(table[column], errors="coerce")
    finite = values.abs().lt(float("inf"))
    return ~finite & (table["status"] == FINISHED) if "status" in table else ~finite


def with_undefined(evidence: str, rows: Any, column: str, by: Sequence[str]) -> str:
    """Add to evidence how many rows have an undefined value, if any, and the first of them.

    Args:
        evidence: one line.
        rows: those whose value is undefined.
        column: with the values.
        by: columns that identify a case.
    """
    if not len(rows):
        return evidence
    case = case_words(by, tuple(rows[name].iloc[0] for name in by))
    number = "1 row is" if len(rows) == 1 else f"{len(rows)} rows are"
    return f"{evidence}; {column} of {number} missing, NaN or infinite, first {case}"


def findings_table(findings: Iterable[Finding], deviations: Mapping[str, str]) -> pd.DataFrame:
    """Findings for people: statement, verdict, evidence, and the reason of a documented deviation.

    Args:
        findings: one row each.
        deviations: name of a finding that is known not to hold, to the reason.
    """
    return pd.DataFrame(
        {
            "statement": finding.statement,
            "verdict": f"{finding.symbol} {finding.verdict}",
            "evidence": finding.evidence,
            "why": "" if finding.held else deviations.get(finding.name, ""),
        }
        for finding in findings
    )
