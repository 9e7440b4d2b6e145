"""Confidence intervals of means over independent runs, and of their differences."""

import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

CONFIDENCE = 0.95


def mean_intervals(
    table: pd.DataFrame, *, value: str, by: Sequence[str], confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """The mean of every case and its confidence interval by Student's t.

    Args:
        table: rows, independent of each other within a case; rows without the value are skipped.
        value: column to average.
        by: columns that identify a case.
        confidence: probability that the interval contains the expected value, if the runs are normally distributed.

    Returns:
        One row per case, in order of appearance: `by`, the mean in column `value`, `half_width` of the interval, its
        ends `low` and `high`, and the number of `runs`. The interval of a single run is NaN.

    Raises:
        ValueError: confidence is not between 0 and 1.
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
    """Differences between the means of two methods in every case, with simultaneous confidence intervals.

    Welch's intervals, because the methods' variances may differ; each at 1 − (1 − confidence) / cases (Bonferroni).

    Args:
        table: rows, independent of each other; rows without the value are skipped.
        value: column to average.
        by: columns that identify a case.
        among: column that tells the methods apart.
        between: minuend and subtrahend, two values of `among`.
        confidence: probability that all intervals contain the expected differences, if the runs are normally
            distributed.

    Returns:
        One row per case with both methods, in order of appearance: `by`, `difference`, `half_width` of its interval,
        its ends `low` and `high`. The interval of a case with a single run of a method is NaN.

    Raises:
        ValueError: confidence is not between 0 and 1.

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
        warnings.simplefilter("ignore", RuntimeWarning)  # equal values: their interval has width 0
        found: Any = ttest_ind(*pair, equal_var=False)
        ends = found.confidence_interval(confidence)
    return float(ends.low), float(ends.high)


def _check(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must be between 0 and 1, such as {CONFIDENCE}")
