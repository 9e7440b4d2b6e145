"""Confidence intervals of means over independent runs, and of their differences."""

import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

from workbench.experiment.finding import Finding, undefined, with_undefined
from workbench.experiment.title import case_words

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


POWER = 0.8
"""Probability with which so many runs as `runs_to_decide` tells decide."""
MOST_RUNS = 1000


def runs_to_decide(
    mean: float,
    deviation: float,
    *,
    least: float = float("-inf"),
    most: float = float("inf"),
    confidence: float = CONFIDENCE,
    power: float = POWER,
) -> int | None:
    """The number of runs whose interval is within the bounds, or outside, if mean and spread stay what they are.

    An interval has a half-width of t(1 − (1 − confidence) / 2) · s / √n. With a probability of `power`, by Student's t,
    the mean of so many runs is that far from the bounds on both sides of it, or outside from the nearest one.

    Args:
        mean: of the runs, such as differences between paired runs.
        deviation: their standard deviation s.
        least: lower bound.
        most: upper bound.
        confidence: of the interval.
        power: probability that so many runs decide.

    Returns:
        At least 2; None if `MOST_RUNS` are too few.

    Source: Cohen, Statistical Power Analysis for the Behavioral Sciences (1988), chapter 2; for two bounds Schuirmann
    (Journal of Pharmacokinetics and Biopharmaceutics, 1987).

    >>> runs_to_decide(0.001, 0.004, least=-0.005, most=0.005), runs_to_decide(0.005, 0.004, most=0.005)
    (11, None)
    """
    _check(confidence)
    import numpy as np
    from scipy.stats import t

    numbers = np.arange(2, MOST_RUNS + 1)
    half_width = t.ppf((1 + confidence) / 2, numbers - 1)
    distances = [mean - least, most - mean] if least <= mean <= most else [max(least - mean, mean - most)]
    with np.errstate(divide="ignore", invalid="ignore"):
        far_enough = [t.cdf(room * np.sqrt(numbers) / deviation - half_width, numbers - 1) for room in distances]
    enough = 1 - np.sum([1 - share for share in far_enough], axis=0) >= power
    return int(numbers[enough.argmax()]) if enough.any() else None


_ROUNDING = 1e-6  # of values of magnitude 1: recorded tables have seven digits


def decided_within(
    name: str,
    statement: str,
    table: pd.DataFrame,
    *,
    value: str,
    by: Sequence[str],
    least: float = float("-inf"),
    most: float = float("inf"),
    margin: float = 0.0,
    confidence: float = CONFIDENCE,
    looks: Sequence[int] = (),
    form: str = ".3g",
) -> Finding:
    """Check that an expected value is within bounds in every case, if the runs can tell.

    It does not hold if an interval is outside the bounds, holds if all are within them and the margin around them, and
    is undecided otherwise: the runs are too few, or differ too much, and the evidence says how many would decide. With
    bounds on both sides of 0 this is an equivalence test: that no difference is larger than a bound, which a test that
    finds no difference does not show.

    The intervals are simultaneous: each is at 1 − (1 − confidence) / tests (Bonferroni), so the check wrongly fails
    with a probability of at most 1 − confidence over all of them together. A case is a test, and one more for every
    time that runs were added to it because those before did not decide.

    Args:
        name: of the finding, short and stable.
        statement: the part of the claim, in one sentence.
        table: rows, independent of each other within a case. A case with a single run decides nothing.
        value: column to average; 0 and 1 are its natural scale.
        by: columns that identify a case.
        least: lower bound.
        most: upper bound; equal to the lower one, intervals must contain it.
        margin: how far beyond a bound an interval may reach that is not outside, for claims that allow a tie: the
            interval of a value that is at the bound reaches beyond it.
        confidence: probability that all intervals contain the expected values.
        looks: numbers of runs at which cases were looked at, ascending, if more were added to those not decided then.
        form: format specification of values in the evidence.

    Raises:
        ValueError: no case has the value in two rows.
    """
    low, high = least - margin, most + margin
    found = _simultaneous(table, value, by, confidence, looks)
    outside: Any = (found.low > most + _ROUNDING) | (found.high < least - _ROUNDING)
    inside: Any = (found.low > low + _ROUNDING) & (found.high < high - _ROUNDING) & ~outside
    found = found.assign(inside=inside, outside=outside)
    lost = table[undefined(table, value)]
    held, refuted = bool(inside.all()) and not len(lost), bool(outside.any()) or bool(len(lost))
    evidence = with_undefined(_evidence(found, value, by, least, most, margin, form), lost, value, by)
    if not (held or refuted):
        evidence += _wanted(found, value, by, (least, most), (low, high), float(found.confidence.iloc[0]))
    return Finding(name, statement, held, evidence, decided=held or refuted)


def expectation_agrees(
    name: str,
    statement: str,
    table: pd.DataFrame,
    *,
    value: str,
    expected: str,
    by: Sequence[str],
    along: str,
    run: str,
    margin: float,
) -> Finding:
    """Check that counts have the expectation that a formula gives, if the runs can tell.

    It does not hold if the interval of a case at any point of a series is off. It holds if besides the sums over each
    series, whose intervals are narrower, agree within the margin.

    Args:
        name: of the finding, short and stable.
        statement: the part of the claim, in one sentence.
        table: rows, independent of each other within a case and a point.
        value: column of counts.
        expected: column with their expectations, positive.
        by: columns that identify a case.
        along: column that tells the points of a series apart.
        run: column that tells the runs of a case apart.
        margin: relative error up to which the sums agree.

    Raises:
        ValueError: no case has the value in two runs.
    """
    runs: Any = table.groupby([*by, run], sort=False)[[value, expected]]
    sums = runs.sum(min_count=1).reset_index()
    each, together = (
        decided_within(
            name,
            statement,
            rows.assign(excess=rows[value] / rows[expected] - 1),
            value="excess",
            by=cases,
            least=0.0,
            most=0.0,
            margin=allowed,
        )
        for rows, cases, allowed in ((table, [*by, along], float("inf")), (sums, by, margin))
    )
    return together if each.held else each


def _wanted(
    found: Any,
    value: str,
    by: Sequence[str],
    bounds: tuple[float, float],
    with_margin: tuple[float, float],
    confidence: float,
) -> str:
    """What would decide: other runs of the cases that have one, and the number of runs of the case that needs most.

    A mean beyond the margin needs an interval outside of the bounds themselves, any other one within the margin.
    """
    told = ""
    if len(single := found[found.runs < 2]):
        first = case_words(by, _case(single.iloc[0], by))
        told = f"; {len(single)} of {len(found)} cases have a single run, first {first}"
    unsure = found[~found.inside & ~found.outside & (found.runs > 1)]
    numbers = {}
    for _, row in unsure.iterrows():
        least, most = with_margin if with_margin[0] <= row[value] <= with_margin[1] else bounds
        number = runs_to_decide(row[value], row["deviation"], least=least, most=most, confidence=confidence)
        numbers[_case(row, by)] = number
    if not numbers:
        return told
    case, number = max(numbers.items(), key=lambda item: item[1] or MOST_RUNS + 1)
    runs = f"about {number} runs" if number else f"more than {MOST_RUNS} runs"
    return f"{told}; {runs} would decide {case_words(by, case)}, if mean and spread stay"


def _simultaneous(table: pd.DataFrame, value: str, by: Sequence[str], confidence: float, looks: Sequence[int]) -> Any:
    """One row per case: its interval, one of all that hold at once, its confidence, and the standard deviation of its
    runs."""
    measured: Any = table[~undefined(table, value)]
    runs: Any = measured.dropna(subset=[value])
    if not runs.duplicated([*by]).any():
        raise ValueError(f"nothing to check: no case of the table has {value} in two rows; run more repetitions")
    cases = runs.groupby([*by], sort=False)[value]
    tests = sum(max(1, sum(number <= count for number in looks)) for count in cases.size())
    each = 1 - (1 - confidence) / tests
    found: Any = mean_intervals(runs, value=value, by=by, confidence=each)
    return found.assign(confidence=each, deviation=cases.std().to_numpy())


def _evidence(found: Any, value: str, by: Sequence[str], least: float, most: float, margin: float, form: str) -> str:
    excess = (found[value] - most).clip(lower=least - found[value])
    worst = found.loc[excess.idxmax()]
    inside, outside = int(found.inside.sum()), int(found.outside.sum())
    bounds = f"{most:g}" if least == most else "the bounds"
    near = f"within {margin:g} of {bounds}" if 0 < margin < float("inf") else f"within {bounds}"
    told = f"{inside} of {len(found)} intervals {near}, {outside} outside"
    if least == most:
        told = f"{len(found) - outside} of {len(found)} intervals contain {most:g}"
        told += f", {inside} of them {near}" if margin < float("inf") else ""
    width = f"{worst.half_width:{form.replace('+', '')}}"
    return f"{told}; the worst mean, {case_words(by, _case(worst, by))}: {worst[value]:{form}} ± {width}"


def _case(row: Any, by: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[column] for column in by)
