"""Shapes of claims, checked against a table: least value, ratio, monotone series, values within bounds.

A value that is NaN or infinite is never the least, within bounds or in order: a table that contains one, of a point
that finished, does not support the claim. The caller leaves out rows that have no such value by design.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from workbench.experiment.finding import Finding, undefined, with_undefined
from workbench.experiment.wording import case_words, plain, quantity


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
    timed: bool = False,
) -> Finding:
    """Check that one method has the smallest value in every case; a tie counts as the smallest.

    Args:
        name: of the finding, short and stable ("reg-least-memory").
        statement: the part of the claim, in one sentence.
        table: rows of an experiment.
        value: column to compare; the median of the rows of a case counts. A case without a value of the winner alone
            is lost.
        among: column that tells the methods apart.
        winner: method that should have the least value.
        rivals: methods to compare with; those that are not in the table are skipped.
        by: columns that identify a case.
        timed: the value is in seconds, so the finding is shown and never asserted.

    Raises:
        ValueError: no case of the table has both the winner and a rival.
    """
    cases, rivals = _rivalry(table, value, among, by, winner, rivals)
    ratios = (cases[winner] / cases[rivals].min(axis=1)).fillna(
        float("inf")
    )  # a case in which the winner failed is lost
    lost = _undefined_rivals(table, value, among, [winner, *rivals])
    won = int((ratios <= 1).sum())
    worst, best = (
        f"{case_words(by, at)}: {plain(winner)} {ratio - 1:+.1%} against "
        f"{plain(cases.loc[at, rivals].astype(float).idxmin())}"
        for at, ratio in ((ratios.idxmax(), ratios.max()), (ratios.idxmin(), ratios.min()))
    )
    evidence = f"{won} of {len(ratios)} cases; best {best}; worst {worst}"
    evidence = with_undefined(evidence, lost, value, [*by, among])
    return Finding(name, statement, won == len(ratios) and not len(lost), evidence, timed)


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
    timed: bool = False,
) -> Finding:
    """Check the ratio of one method's value to the least of its rivals': its median over cases, and its maximum.

    Args:
        name: of the finding, short and stable ("reg-least-memory").
        statement: the part of the claim, in one sentence.
        table: rows of an experiment.
        value: column to compare, not negative; the median of the rows of a case counts. 0 over 0 is a ratio of 1. The
            ratio of a case without a value of the winner alone is infinite; a case without rivals is skipped.
        among: column that tells the methods apart.
        winner: method whose value is the numerator.
        rivals: methods to compare with; those that are not in the table are skipped.
        by: columns that identify a case.
        median: upper bound of the median ratio.
        worst: upper bound of every ratio.
        timed: the value is in seconds, so the finding is shown and never asserted.

    Raises:
        ValueError: no case of the table has both the winner and a rival.
    """
    cases, rivals = _rivalry(table, value, among, by, winner, rivals)
    ratios = _over(cases[winner], cases[rivals].min(axis=1)).fillna(float("inf"))
    lost = _undefined_rivals(table, value, among, [winner, *rivals])
    middle, most = float(ratios.median()), float(ratios.max())
    evidence = (
        f"median {middle:.3g} (wanted: {median:g}), {int((ratios <= median).sum())} of {len(ratios)} cases within it; "
        f"best {ratios.min():.3g}, {case_words(by, ratios.idxmin())}; worst {most:.3g}"
        f"{'' if worst == float('inf') else f' (wanted: {worst:g})'}, {case_words(by, ratios.idxmax())}"
    )
    evidence = with_undefined(evidence, lost, value, [*by, among])
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
    timed: bool = False,
) -> Finding:
    """Check that a value never falls (or never rises) along every series.

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
        timed: the value is in seconds, so the finding is shown and never asserted.

    Raises:
        ValueError: no series has two points.
    """
    series = _pivot(table, value, along, by)
    columns = sorted(series.columns)
    if len(columns) < 2:
        raise ValueError(f"nothing to compare: the table has {along} = {columns}; run at least two values")
    steps = series[columns].T.ffill().pct_change(fill_method=None).T[columns[1:]] * (-1 if falling else 1)
    worst: Any = steps.min(axis=1)
    kept = int((worst >= -tolerance).sum())
    at = worst.idxmin()
    ends = series.loc[[at], columns].dropna(axis=1).iloc[0]
    points = table.groupby([*by, along])[named or along].first().loc[at]
    first, last = (
        f"{quantity(ends.iloc[i], value)} ({case_words([named or along], points[ends.index[i]])})" for i in (0, -1)
    )
    back = -float(worst[at])
    evidence = (
        f"{kept} of {len(worst)} series; the worst, {case_words(by, at)}: from {first} to {last}"
        f"{f', largest step back {back:.1%}' if back > 0 else ''}"
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
    form: str = ".4g",
    timed: bool = False,
) -> Finding:
    """Check that a value is within bounds in every case.

    Args:
        name: of the finding, short and stable ("reg-least-memory").
        statement: the part of the claim, in one sentence.
        table: rows of an experiment.
        value: column to check.
        by: columns that identify a case.
        least: lower bound.
        most: upper bound.
        form: format specification of values in the evidence, as for Python's format().
        timed: the value is in seconds, so the finding is shown and never asserted.

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
    return Finding(name, statement, kept == len(values) and not len(lost), evidence, timed)


def _rivalry(
    table: pd.DataFrame, value: str, among: str, by: Sequence[str], winner: str, rivals: Sequence[str]
) -> tuple[Any, list[str]]:
    """One row per case that has a rival, one column per method; and the rivals in the table."""
    cases: Any = _pivot(table, value, among, by)
    rivals = [rival for rival in rivals if rival in cases]
    if winner not in cases or not rivals:
        found = ", ".join(map(str, cases))
        raise ValueError(f"nothing to compare: the table's {among} are {found}; run {winner} and a rival")
    return cases.dropna(subset=rivals, how="all"), rivals


def _undefined_rivals(table: pd.DataFrame, value: str, among: str, methods: Sequence[str]) -> pd.DataFrame:
    rows: Any = table[table[among].isin(methods)]
    return rows[undefined(rows, value)]


def _over(value: Any, other: Any) -> Any:
    return (value / other).mask((value == 0) & (other == 0), 1.0)


def _pivot(table: pd.DataFrame, value: str, columns: str, by: Sequence[str]) -> pd.DataFrame:
    return table.pivot_table(index=list(by), columns=columns, values=value, aggfunc="median")
