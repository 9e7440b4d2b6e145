"""Confidence intervals of means over independent runs, and of their differences."""

import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

CONFIDENCE = 0.95


def mean_intervals(
    table: pd.DataFrame, *, value: str, by: Sequence[str], confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """The mean of every case and Student's confidence interval around it.

    Args:
        table: rows, independent of each other within a case; those without the value are left out.
        value: column of it.
        by: columns that make a case.
        confidence: probability that the interval holds the mean that the runs are drawn around, if they are normal.

    Returns:
        A row a case, in order of appearance: `by`, the mean under the name of `value`, `half_width` of the interval,
        its ends `low` and `high`, and `runs`. A case of one run has no interval: NaN.

    Raises:
        ValueError: a confidence that is not between 0 and 1.
    """
    _check(confidence)
    from scipy.stats import t

    cases = table.dropna(subset=[value]).groupby([*by], sort=False)[value]
    found = cases.agg(["mean", "sem", "count"]).reset_index()
    half = found["sem"] * t.ppf((1 + confidence) / 2, found["count"] - 1)
    found = found.rename(columns={"mean": value, "count": "runs"}).drop(columns="sem")
    return found.assign(half_width=half, low=found[value] - half, high=found[value] + half)


def mean_differences(
    table: pd.DataFrame,
    *,
    value: str,
    by: Sequence[str],
    among: str,
    between: tuple[str, str],
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """How far the means of two ways are apart in every case, with confidence intervals that hold in all cases at once.

    Welch's intervals, as the ways may spread differently; each at 1 − (1 − confidence) / cases, after Bonferroni.

    Args:
        table: rows, independent of each other; those without the value are left out.
        value: column of it.
        by: columns that make a case.
        among: column of the ways.
        between: of them, the one whose mean counts and the one whose mean is taken off.
        confidence: probability that the intervals of all cases hold what the runs are drawn around, if they are normal.

    Returns:
        A row a case that has both ways, in order of appearance: `by`, `difference`, `half_width` of its interval, its
        ends `low` and `high`. A case with a single run of a way has no interval: NaN.

    Raises:
        ValueError: a confidence that is not between 0 and 1.

    Source: Welch, The generalization of "Student's" problem when several different population variances are involved
    (Biometrika, 1947).
    """
    _check(confidence)
    known = table.dropna(subset=[value])
    cases: Any = known[known[among].isin(between)].groupby([*by], sort=False)
    pairs = {at: [rows.loc[rows[among] == way, value].to_numpy() for way in between] for at, rows in cases}
    pairs = {at: pair for at, pair in pairs.items() if min(map(len, pair))}
    several = sum(min(map(len, pair)) > 1 for pair in pairs.values())
    each = 1 - (1 - confidence) / max(1, several)
    found = [(*at, pair[0].mean() - pair[1].mean(), *_welch(pair, each)) for at, pair in pairs.items()]
    rows = pd.DataFrame(found, columns=[*by, "difference", "low", "high"])
    return rows.assign(half_width=(rows.high - rows.low) / 2)


def _welch(pair: Any, confidence: float) -> tuple[float, float]:
    if min(map(len, pair)) < 2:
        return float("nan"), float("nan")
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of values that are all the same: their interval has no width
        found: Any = ttest_ind(*pair, equal_var=False)
        ends = found.confidence_interval(confidence)
    return float(ends.low), float(ends.high)


def _check(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1, such as {CONFIDENCE}")
