"""Shapes of claims, checked against a table: least value, ratio, monotone series, values within bounds.

A value that is NaN or infinite is never the least, within bounds or in order: a table that contains one, of a point
that finished, does not support the claim. The caller leaves out rows that have no such value by design.

The size that a paper states is a finding of its own (`stated_size`), beside the direction. Findings that compare the
accuracies of systems count only if these have learnt (`once_trained`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any

import pandas as pd

from workbench.experiment.figure_spec import StatedSize
from workbench.experiment.finding import Finding, undefined, with_undefined
from workbench.experiment.title import case_words, plain, quantity

MARGIN = 0.01
"""Relative difference below which values count as equal: none of them is the least, and their series does not rise."""

LESS, MORE = 1 - MARGIN, 1 + MARGIN
"""Bounds of a ratio whose numerator is less, or more, than its denominator."""


def least(
    name: str,
    statement: str,
    table: pd.DataFrame,
    *,
    value: str,
    among: str,
    winner: str,
    rivals: Sequence[str],
    by: Sequence[str],
    margin: float = MARGIN,
    timed: bool = False,
) -> Finding:
    """Check that one method has the smallest value in every case.

    Args:
        name: of the finding, short and stable ("reg-least-memory").
        statement: the part of the claim, in one sentence.
        table: rows of an experiment.
        value: column to compare; the median of the rows of a case counts. A case without a value of the winner alone
            is lost.
        among: column that tells the methods apart.
        winner: method that should have the least value.
        rivals: methods to compare with; those that are not in the table are skipped, and named in the evidence. A
            case that lacks another is lost.
        by: columns that identify a case.
        margin: relative difference by which it must be smaller; 0 for claims that allow a tie ("no more than").
        timed: the value is in seconds, which alone decide about time; no test asserts the finding.

    Raises:
        ValueError: no case of the table has both the winner and a rival.
    """
    cases, rivals, absent = _rivalry(table, value, among, by, winner, rivals)
    rival = cases[rivals].min(axis=1)
    changes = _change(rival, cases[winner]).fillna(float("inf"))  # a case in which the winner failed is lost
    lost = _lost_rows(table, value, among, by, [winner, *rivals])
    won = int((changes <= -margin).sum())
    worst, best = (
        f"{case_words(by, at)}: {plain(winner)} {change:+.1%} against "
        f"{plain(cases.loc[at, rivals].astype(float).idxmin())}"
        for at, change in ((changes.idxmax(), changes.max()), (changes.idxmin(), changes.min()))
    )
    evidence = f"{won} of {len(changes)} cases; best {best}; worst {worst}"
    evidence = with_undefined(evidence + absent, lost, value, [*by, among])
    return Finding(name, statement, won == len(changes) and not len(lost), evidence, timed)


def ratio(
    name: str,
    statement: str,
    table: pd.DataFrame,
    *,
    value: str,
    among: str,
    winner: str,
    rivals: Sequence[str],
    by: Sequence[str],
    median: float,
    worst: float = float("inf"),
    groups: Sequence[str] = (),
    timed: bool = False,
) -> Finding:
    """Check the ratio of one method's value to the least of its rivals': its median over cases, and its maximum.

    Args:
        name: of the finding, short and stable ("reg-least-memory").
        statement: the part of the claim, in one sentence.
        table: rows of an experiment.
        value: column to compare, not negative; the median of the rows of a case counts. 0 over 0 is a ratio of 1. The
            ratio of a case without a value of the winner alone is infinite.
        among: column that tells the methods apart.
        winner: method whose value is the numerator.
        rivals: methods to compare with; those that are not in the table are skipped, and named in the evidence. A
            case that lacks another is lost.
        by: columns that identify a case.
        median: upper bound of the median ratio.
        worst: upper bound of every ratio.
        groups: of `by`, columns that identify groups of cases, of which each must have the median; none: all are one.
        timed: the value is in seconds, which alone decide about time; no test asserts the finding.

    Raises:
        ValueError: no case of the table has both the winner and a rival.
    """
    cases, rivals, absent = _rivalry(table, value, among, by, winner, rivals)
    ratios = _over(cases[winner], cases[rivals].min(axis=1)).fillna(float("inf"))
    lost = _lost_rows(table, value, among, by, [winner, *rivals])
    medians: Any = ratios.groupby([*groups], sort=False).median() if groups else pd.Series([ratios.median()])
    middle, most = float(medians.max()), float(ratios.max())
    of = f" of {case_words(groups, medians.idxmax())}" if groups else ""
    evidence = (
        f"median{of} {middle:.3g} (wanted: {median:g}), {int((ratios <= median).sum())} of {len(ratios)} cases within "
        f"it; best {ratios.min():.3g}, {case_words(by, ratios.idxmin())}; worst {most:.3g}"
        f"{'' if worst == float('inf') else f' (wanted: {worst:g})'}, {case_words(by, ratios.idxmax())}"
    )
    evidence = with_undefined(evidence + absent, lost, value, [*by, among])
    return Finding(name, statement, middle <= median and most <= worst and not len(lost), evidence, timed)


def monotone(
    name: str,
    statement: str,
    table: pd.DataFrame,
    *,
    value: str,
    along: str,
    by: Sequence[str],
    named: str | None = None,
    falling: bool = False,
    tolerance: float = 0.0,
    change: float = MARGIN,
    timed: bool = False,
) -> Finding:
    """Check that a value rises (or falls) along every series: never back, and from the first point to the last.

    Args:
        name: of the finding, short and stable ("reg-least-memory").
        statement: the part of the claim, in one sentence.
        table: rows of an experiment.
        value: column that rises; the median of the rows of a point counts.
        along: column that orders a series.
        by: columns that identify a series.
        named: column with the names of points, for the evidence; None: `along`.
        falling: the value falls instead.
        tolerance: relative step in the wrong direction that is allowed.
        change: relative change from the first point of a series to the last, at least; 0 for claims that allow a
            constant series ("no fewer").
        timed: the value is in seconds, which alone decide about time; no test asserts the finding.

    Raises:
        ValueError: no series has two points.
    """
    series = _pivot(table, value, along, by)
    columns = sorted(series.columns)
    if len(columns) < 2:
        raise ValueError(f"nothing to compare: the table has {along} = {columns}; run at least two values")
    sign = -1 if falling else 1
    filled = series[columns].T.ffill()
    steps = _change(filled.shift(), filled).T[columns[1:]] * sign
    worst: Any = steps.min(axis=1)
    first, last = series[columns].bfill(axis=1).iloc[:, 0], series[columns].ffill(axis=1).iloc[:, -1]
    total: Any = (last - first) * sign
    changed = (total >= change * first.abs()) & ((total > 0) | (change == 0))
    right = (worst >= -tolerance) & changed
    kept = int(right.sum())
    at = worst.mask(right & ~right.all(), float("inf")).fillna(float("-inf")).idxmin()  # NaN: of a single point
    ends = series.loc[[at], columns].dropna(axis=1).iloc[0]
    points = table.groupby([*by, along])[named or along].first().loc[at]
    first, last = (
        f"{quantity(ends.iloc[i], value)} ({case_words([named or along], points[ends.index[i]])})" for i in (0, -1)
    )
    back = -float(worst[at])
    evidence = (
        f"{kept} of {len(worst)} series; the worst, {case_words(by, at)}: from {first} to {last}"
        f"{f', largest step back {back:.1%}' if back > 0 else '' if changed[at] else ', no change'}"
    )
    lost = table[undefined(table, value)]
    evidence = with_undefined(evidence, lost, value, [*by, along])
    return Finding(name, statement, kept == len(worst) and not len(lost), evidence, timed)


def within(
    name: str,
    statement: str,
    table: pd.DataFrame,
    *,
    value: str,
    by: Sequence[str],
    least: float = float("-inf"),
    most: float = float("inf"),
    share: float = 1.0,
    form: str = ".4g",
    timed: bool = False,
    sized: bool = False,
) -> Finding:
    """Check that a value is within bounds in every case, or in a share of them.

    Args:
        name: of the finding, short and stable ("reg-least-memory").
        statement: the part of the claim, in one sentence.
        table: rows of an experiment.
        value: column to check.
        by: columns that identify a case.
        least: lower bound.
        most: upper bound.
        share: share of the cases in which it must be, from 0 to 1.
        form: format specification of values in the evidence, as for Python's format().
        timed: the value is in seconds, which alone decide about time; no test asserts the finding.
        sized: the bounds are the size that the paper states.

    Raises:
        ValueError: no row has the value.
    """
    known = table.dropna(subset=[value])
    if not len(known):
        raise ValueError(f"nothing to check: no row of the table has {value}; run the points that measure it")
    values: Any = known.set_index(list(by))[value].astype(float)
    kept = int(values.between(least, most).sum())
    ends = {"least": values.argmin(), "most": values.argmax()}
    told = [f"{end} {case_words(by, values.index[at])}: {format(values.iloc[at], form)}" for end, at in ends.items()]
    if values.nunique() == 1:
        told = [f"{format(values.iloc[0], form)} in all"]
    evidence = f"{kept} of {len(values)} cases; median {format(values.median(), form)}; {'; '.join(told)}"
    lost = table[undefined(table, value)]
    evidence = with_undefined(evidence, lost, value, by)
    return Finding(name, statement, kept >= share * len(values) and not len(lost), evidence, timed, sized=sized)


def median_within(
    name: str,
    statement: str,
    table: pd.DataFrame,
    *,
    value: str,
    by: Sequence[str],
    least: float = float("-inf"),
    most: float = float("inf"),
    form: str = ".4g",
    timed: bool = False,
) -> Finding:
    """Check that the median of a value over all cases is within bounds.

    Args:
        name: of the finding, short and stable ("reg-least-memory").
        statement: the part of the claim, in one sentence.
        table: rows of an experiment, one per case.
        value: column of which the median is checked.
        by: columns that identify a case.
        least: lower bound.
        most: upper bound.
        form: format specification of values in the evidence, as for Python's format().
        timed: the value is in seconds, which alone decide about time; no test asserts the finding.
    """
    lost = table[undefined(table, value)]
    numbers: Any = table[value].astype(float)
    median = float(numbers.median())
    evidence = with_undefined(f"median {format(median, form)} of {len(table)} cases", lost, value, by)
    return Finding(name, statement, least <= median <= most and not len(lost), evidence, timed)


def stated_size(name: str, size: StatedSize, measured: pd.Series | None) -> Finding:
    """Compare the size of an effect with the one that the paper states.

    Args:
        name: of the finding, its key in the figure's file.
        size: as the figure's file states it.
        measured: one value per case; NaN if a value that it needs is undefined. None or empty: no case measures it, so
            the finding is undecided.
    """
    low, high = size.bounds
    wanted = f"stated: {_numbers(size.size)}"
    if (low, high) != size.size:
        wanted += f", within {size.tolerance:.0%}: {low:.3g} to {high:.3g}"
    if measured is None or not len(measured):
        told = f"no row of the table measures it ({wanted})"
        return Finding(name, size.statement, False, told, size.timed, decided=False, sized=True)
    values: Any = measured.astype(float)
    compared = values.tolist() if size.over == "each" else [_summary(values, size.over)]
    held = all(low <= value <= high for value in compared)
    told = f"{values.min():.3g}" if len(values) == 1 else f"{values.min():.3g} to {values.max():.3g}"
    if len(values) > 1:
        kept = f"{sum(low <= value <= high for value in compared)} of {len(values)} cases within"
        told += f", {kept if size.over == 'each' else f'{size.over} {compared[0]:.3g}'}"
    lost = int((~values.abs().lt(float("inf"))).sum())
    told += f"; {lost} of {len(values)} cases are NaN or infinite" if lost else ""
    return Finding(name, size.statement, held, f"{told} ({wanted})", size.timed, sized=True)


def method_ratios(table: pd.DataFrame, *, value: str, among: str, between: tuple[Any, Any], by: Sequence[str]) -> Any:
    """One method's value relative to another's in every case that has both.

    Args:
        table: rows of an experiment.
        value: column to compare; the median of the rows of a case counts.
        among: column that tells the methods apart.
        between: numerator and denominator, two values of `among`.
        by: columns that identify a case.

    Returns:
        One ratio per case, NaN where a row of either method has an undefined value; empty without a case.
    """
    rows: Any = table[table[among].isin(between)]
    rows = rows.assign(undefined_=undefined(rows, value))
    cases: Any = rows.groupby([*by, among], sort=False)
    wide = cases[value].median().mask(cases["undefined_"].any()).unstack(among)
    if not {*between} <= {*wide}:
        return pd.Series(dtype=float)
    there = cases.size().unstack(among)[[*between]].notna().all(axis=1)
    found: Any = wide[between[0]] / wide[between[1]]
    return found[there]


BEATEN = 0.1
"""Part of the way from the majority class to a score of 1 that a system must have gone to have learnt."""
STILL_RISING = 0.01
"""Rise from one quarter of the evaluations to the last one, in the mean over seeds, at which a system is not done."""
FEWEST_EVALUATIONS = 4
"""Evaluations below which there are no quarters to compare."""


def trained(
    table: pd.DataFrame, *, value: str, along: str, by: Sequence[str], seed: str = "seed", name: str = "trained"
) -> Finding:
    """Check that systems have learnt: each run beats the majority class, and scores no longer rise.

    A run beats it if its mean score over the last quarter of the evaluations has gone a tenth of the way from the
    majority's score to 1. A system has levelled off if that mean, over seeds, is at most a point above the mean of the
    quarter before; one that falls has.

    Args:
        table: one row per evaluation, with the score of the majority class in column `majority` (the share of the
            largest class; 0.5 for ROC AUC). Without the column, it is not shown that anything was learnt.
        value: column with scores between 0 and 1.
        along: column that orders the evaluations of a run.
        by: columns that identify a system.
        seed: column that identifies the runs of a system.
        name: of the finding.
    """
    statement = (
        f"every run beats the majority class by {BEATEN:.0%} of what it leaves and more, and every system has levelled "
        f"off, within {100 * STILL_RISING:g} point per quarter of the evaluations"
    )
    if "majority" not in table:
        missing = "no row has the majority's score, so it is not shown that anything was learnt; run the points again"
        return Finding(name, statement, False, missing, decided=False, trained=False)
    rows: Any = table[table[value].notna() | undefined(table, value) & table[along].notna()]
    per_run: Any = rows.sort_values(along, kind="stable").groupby([*by, seed], sort=False)
    ends: Any = pd.DataFrame(
        {
            "late": per_run[value].agg(_late_mean),
            "before": per_run[value].agg(_late_mean, quarters_before=1),
            "majority": per_run["majority"].max(skipna=False),
            "evaluations": per_run[value].size(),
        }
    )
    beats = ends.late - ends.majority >= BEATEN * (1 - ends.majority)
    systems: Any = ends.groupby([*by], sort=False)
    rise = (ends.late - ends.before).groupby([*by], sort=False).mean()
    few = systems.evaluations.min() < FEWEST_EVALUATIONS
    learnt, done = beats.groupby([*by], sort=False).all(), (rise <= STILL_RISING) & ~few
    held = learnt & done
    told = f"{int(held.sum())} of {len(held)} systems"
    if not learnt.all():
        worst = (ends.late - ends.majority)[~beats].fillna(float("-inf")).idxmin()
        told += (
            f"; {int((~learnt).sum())} do not beat the majority, first {case_words([*by, seed], worst)}: "
            f"{ends.late[worst]:.4f} against {ends.majority[worst]:.4f}"
        )
    if few.any():
        told += (
            f"; {int(few.sum())} with fewer than {FEWEST_EVALUATIONS} evaluations, first {case_words(by, few.idxmax())}"
        )
    elif not done.all():
        most = rise.fillna(float("inf")).idxmax()
        told += f"; {int((~done).sum())} still rise, most {case_words(by, most)}: {100 * rise[most]:+.1f} points"
    good = bool(held.all()) and len(held) > 0
    return Finding(name, statement, good, told, decided=good, trained=good)


def once_trained(findings: Iterable[Finding], *shown: Finding) -> list[Finding]:
    """Let findings that compare the accuracies of systems count only if these have learnt; else: "not trained".

    Args:
        findings: that compare them.
        shown: what `trained` found of these systems.

    Returns:
        `shown`, then the findings.
    """
    if all(one.held for one in shown):
        return [*shown, *findings]
    return [*shown, *(replace(one, held=False, decided=False, trained=False) for one in findings)]


def _late_mean(values: pd.Series, quarters_before: int = 0) -> float:
    """Mean of the last quarter of some values, or of one before; NaN if one is undefined."""
    size = max(1, len(values) // 4)
    end = len(values) - quarters_before * size
    late: Any = values.iloc[max(0, end - size) : end]
    return float(late.mean(skipna=False)) if late.abs().lt(float("inf")).all() else float("nan")


def _summary(values: Any, over: str) -> float:
    if not values.abs().lt(float("inf")).all():
        return float("nan")
    if over == "geometric mean":
        return float(exp(values.map(log).mean())) if (values > 0).all() else float("nan")
    return float({"mean": values.mean, "median": values.median, "largest": values.max}[over]())


def _numbers(size: float | tuple[float, float]) -> str:
    return f"{size[0]:g} to {size[1]:g}" if isinstance(size, tuple) else f"{size:g}"


def _rivalry(
    table: pd.DataFrame, value: str, among: str, by: Sequence[str], winner: str, rivals: Sequence[str]
) -> tuple[Any, list[str], str]:
    """One row per case that has a rival, one column per method; the rivals in the table, with a value or not; and, for
    the evidence, those that are not."""
    cases: Any = _pivot(table, value, among, by)
    there = set(table[among])
    if winner not in there or not any(rival in cases for rival in rivals):
        found = ", ".join(map(str, cases))
        raise ValueError(f"nothing to compare: the table's {among} are {found}; run {winner} and a rival")
    absent = ", ".join(plain(rival) for rival in rivals if rival not in there)
    rivals = [rival for rival in rivals if rival in there]
    cases = cases.reindex(columns=[winner, *rivals]).dropna(subset=rivals, how="all")
    return cases, rivals, f"; no rows of {absent}" if absent else ""


def _lost_rows(table: pd.DataFrame, value: str, among: str, by: Sequence[str], methods: Sequence[str]) -> pd.DataFrame:
    """Rows of methods with an undefined value, and of methods that a case lacks but others have."""
    rows: Any = table[table[among].isin(methods)]
    there = rows.groupby([*by, among], sort=False).size().unstack(among)
    lacking: Any = there.isna().stack()
    absent = lacking[lacking].index.to_frame(index=False)
    return pd.concat([rows[undefined(rows, value)], absent.assign(**{value: float("nan")})])


def _change(before: Any, after: Any) -> Any:
    """Relative change, positive where the value rises, negative values included; 0 from 0 to 0."""
    return ((after - before) / before.abs()).mask(after == before, 0.0)


def _over(value: Any, other: Any) -> Any:
    return (value / other).mask((value == 0) & (other == 0), 1.0)


def _pivot(table: pd.DataFrame, value: str, columns: str, by: Sequence[str]) -> pd.DataFrame:
    return table.pivot_table(index=list(by), columns=columns, values=value, aggfunc="median")
