"""The shapes that claims have, held against a table: who is least and by how much, what falls or rises, what stays
within bounds."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from workbench.experiment.finding import Finding


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
    """One way has the smallest value in every case; ties count as held.

    Args:
        name: see `Finding`, like `statement` and `timed`.
        statement: ·
        table: of an experiment.
        value: column to compare; repeated rows of a case count by their median. A case that only the winner lacks is
            lost.
        among: column of the ways.
        winner: way that is claimed to be the least.
        rivals: ways to compare with; those that the table lacks are left out.
        by: columns that make a case.
        timed: ·

    Raises:
        ValueError: the table has no case with the winner and a rival.
    """
    cases, rivals = _rivalry(table, value, among, by, winner, rivals)
    ratios = (cases[winner] / cases[rivals].min(axis=1)).fillna(float("inf"))  # where the winner failed it lost
    won = int((ratios <= 1).sum())
    worst, best = (
        f"{_case(by, at)}: {winner} {ratio - 1:+.1%} against {cases.loc[at, rivals].astype(float).idxmin()}"
        for at, ratio in ((ratios.idxmax(), ratios.max()), (ratios.idxmin(), ratios.min()))
    )
    evidence = f"{won} of {len(ratios)} cases; best {best}; worst {worst}"
    return Finding(name, statement, won == len(ratios), evidence, timed)


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
    """One way's value over the least of others': at most so much in the median over cases, and in each of them.

    Args:
        name: see `Finding`, like `statement` and `timed`.
        statement: ·
        table: of an experiment.
        value: column to compare, not negative; repeated rows of a case count by their median. Both 0 are a ratio of 1.
            A case that only the winner lacks has an infinite ratio, one that the rivals lack does not count.
        among: column of the ways.
        winner: way that is claimed to be so much less.
        rivals: ways to compare with; those that the table lacks are left out.
        by: columns that make a case.
        median: that the ratio's median is at most.
        worst: that no ratio is beyond.
        timed: ·

    Raises:
        ValueError: the table has no case with the winner and a rival.
    """
    cases, rivals = _rivalry(table, value, among, by, winner, rivals)
    ratios = _over(cases[winner], cases[rivals].min(axis=1)).fillna(float("inf"))
    middle, most = float(ratios.median()), float(ratios.max())
    evidence = (
        f"median {middle:.3g} (wanted: {median:g}), {int((ratios <= median).sum())} of {len(ratios)} cases within it; "
        f"best {ratios.min():.3g}, {_case(by, ratios.idxmin())}; worst {most:.3g}"
        f"{'' if worst == float('inf') else f' (wanted: {worst:g})'}, {_case(by, ratios.idxmax())}"
    )
    return Finding(name, statement, middle <= median and most <= worst, evidence, timed)


def monotone(
    name: str,
    statement: str,
    table: pd.DataFrame,
    *,
    value: str,
    along: str,
    by: Sequence[str],
    falling: bool = False,
    tolerance: float = 0.0,
    timed: bool = False,
) -> Finding:
    """A value rises (or falls) from each step to the next in every series.

    Args:
        name: see `Finding`, like `statement` and `timed`.
        statement: ·
        table: of an experiment.
        value: column that rises; repeated rows count by their median.
        along: column that it rises with.
        by: columns that make a series.
        falling: claim the opposite.
        tolerance: relative step in the wrong direction that is let pass.
        timed: ·

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
    evidence = (
        f"{kept} of {len(worst)} series; the worst, {_case(by, at)}: from {_short(ends.iloc[0])} "
        f"({along} {ends.index[0]}) to {_short(ends.iloc[-1])} ({along} {ends.index[-1]}), "
        f"largest step back {max(0.0, -float(worst[at])):.1%}"
    )
    return Finding(name, statement, kept == len(worst), evidence, timed)


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
    """A value lies between bounds in every case.

    Args:
        name: see `Finding`, like `statement` and `timed`.
        statement: ·
        table: of an experiment; rows without the value are left out.
        value: column of it.
        by: columns that make a case.
        least: the value is at least this.
        most: and at most this.
        form: in which values are told, of Python's format().
        timed: ·

    Raises:
        ValueError: no row has the value.
    """
    known = table.dropna(subset=[value])
    if not len(known):
        raise ValueError(f"nothing to hold against bounds: no row of the table has {value}")
    values: Any = known.set_index(list(by))[value].astype(float)
    kept = int(values.between(least, most).sum())
    ends = {"least": values.argmin(), "most": values.argmax()}
    told = [f"{end} {_case(by, values.index[at])}: {format(values.iloc[at], form)}" for end, at in ends.items()]
    if values.nunique() == 1:
        told = [f"{format(values.iloc[0], form)} in all"]
    evidence = f"{kept} of {len(values)} cases; median {format(values.median(), form)}; {'; '.join(told)}"
    return Finding(name, statement, kept == len(values), evidence, timed)


def _rivalry(
    table: pd.DataFrame, value: str, among: str, by: Sequence[str], winner: str, rivals: Sequence[str]
) -> tuple[Any, list[str]]:
    """A line a case that any rival has, a column a way; and the rivals that there are."""
    cases: Any = _pivot(table, value, among, by)
    rivals = [rival for rival in rivals if rival in cases]
    if winner not in cases or not rivals:
        raise ValueError(f"nothing to compare: the table's {among} are {', '.join(map(str, cases))}")
    return cases.dropna(subset=rivals, how="all"), rivals


def _over(value: Any, other: Any) -> Any:
    return (value / other).mask((value == 0) & (other == 0), 1.0)


def _pivot(table: pd.DataFrame, value: str, columns: str, by: Sequence[str]) -> pd.DataFrame:
    return table.pivot_table(index=list(by), columns=columns, values=value, aggfunc="median")


def _case(by: Sequence[str], at: Any) -> str:
    values = at if isinstance(at, tuple) else (at,)
    return ", ".join(f"{name} {value}" for name, value in zip(by, values, strict=True))


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
