"""Confidence intervals of means over independent runs."""

from collections.abc import Sequence

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
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1, such as {CONFIDENCE}")
    from scipy.stats import t

    cases = table.dropna(subset=[value]).groupby([*by], sort=False)[value]
    found = cases.agg(["mean", "sem", "count"]).reset_index()
    half = found["sem"] * t.ppf((1 + confidence) / 2, found["count"] - 1)
    found = found.rename(columns={"mean": value, "count": "runs"}).drop(columns="sem")
    return found.assign(half_width=half, low=found[value] - half, high=found[value] + half)
