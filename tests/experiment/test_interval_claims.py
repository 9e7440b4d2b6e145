"""Claims about expected values: decided by simultaneous intervals."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from workbench.experiment.interval import decided_within, expectation_agrees, runs_to_decide


def runs(**cases: list[float]) -> pd.DataFrame:
    return pd.DataFrame([{"case": case, "value": value} for case, values in cases.items() for value in values])


def decided(table: pd.DataFrame, **options: object) -> str:
    return decided_within("name", "statement", table, value="value", by=["case"], **options).verdict  # type: ignore


def test_an_interval_across_a_bound_decides_nothing():
    surely_above, across, surely_below = [1.0, 1.1, 0.9], [-1.0, 1.1, 0.0], [-1.0, -1.1, -0.9]
    assert decided(runs(a=surely_below), most=0.0) == "held"
    assert decided(runs(a=surely_below, b=across), most=0.0) == "undecided"
    assert decided(runs(a=surely_below, b=across, c=surely_above), most=0.0) == "did not hold"


def test_the_intervals_are_simultaneous():
    """Half a width: 1 · t(1 − 0.05 / 2 / cases, 2 degrees of freedom), for runs at -√3, 0, √3 around a mean."""
    values = [-(3**0.5), 0.0, 3**0.5]
    for number in (1, 20):
        half = float(t.ppf(1 - 0.025 / number, 2))
        for excess, told in ((0.99, "undecided"), (1.01, "did not hold"), (-0.99, "undecided"), (-1.01, "held")):
            cases = {f"c{i}": [v + half * excess for v in values] for i in range(number)}
            assert decided(runs(**cases), most=0.0) == told


def test_every_look_at_a_case_is_a_test_of_its_own():
    """Two looks at the case with more runs and one at the other are three tests; half a width as above."""
    values, more = [-(3**0.5), 0.0, 3**0.5], [-(3**0.5), -1.0, 0.0, 1.0, 3**0.5]
    for looks, tests in (((), 2), ((3,), 2), ((3, 5), 3), ((3, 4, 5, 6), 4)):
        half = float(t.ppf(1 - 0.025 / tests, 2))
        for excess, told in ((0.99, "undecided"), (1.01, "held")):
            table = runs(a=[value - half * excess for value in values], b=[value - 100 for value in more])
            assert decided(table, most=0.0, looks=looks) == told


def test_values_at_a_bound_hold_with_a_margin_alone():
    for noise in (0.0, 1e-12):
        at_the_bound = runs(a=[noise, noise])
        assert decided(at_the_bound, most=0.0) == "undecided"
        assert decided(at_the_bound, most=0.0, margin=0.01) == "held"
    assert decided(runs(a=[1e-5, 1e-5]), most=0.0, margin=0.01) == "did not hold", "beyond the bound for sure"


def test_a_margin_is_how_far_an_interval_may_reach():
    """Half-widths of two runs ± s around a mean: t(0.975, 1 degree of freedom) · s."""
    step = 0.01 / float(t.ppf(0.975, 1))
    for factor, told in ((0.99, "held"), (1.01, "undecided")):
        assert decided(runs(a=[-step * factor, step * factor]), most=0.0, margin=0.01) == told
        assert decided(runs(a=[-step * factor, step * factor]), least=0.0, most=0.0, margin=0.01) == told


def test_evidence_names_the_worst_case():
    table = runs(a=[-1.0, -1.0], b=[0.5, 0.5], c=[-2.0, 2.2])
    found = decided_within("name", "statement", table, value="value", by=["case"], most=0.0)
    assert found.evidence.startswith("1 of 3 intervals within the bounds, 1 outside;")
    assert found.evidence.endswith("mean, b: 0.5 ± 0")


def test_a_single_run_decides_nothing_whatever_it_is():
    with pytest.raises(ValueError, match="no case of the table has value in two rows"):
        decided(runs(a=[1.0], b=[2.0]), most=0.0)
    for single in (-5.0, 5.0):
        table = runs(a=[-2.0, -2.0], b=[single])
        found = decided_within("name", "statement", table, value="value", by=["case"], most=0.0)
        assert found.verdict == "undecided"
        assert found.evidence.endswith("; 1 of 2 cases have a single run, first b")


def test_equal_bounds_are_a_value_that_intervals_must_contain():
    across, surely_above = [-1.0, 1.1, 0.0], [1.0, 1.1, 0.9]
    both: Any = {"least": 0.0, "most": 0.0, "margin": 0.5}
    assert decided(runs(a=[-0.01, 0.01, 0.0]), **both) == "held"
    assert decided(runs(a=across), **both) == "undecided"
    assert decided(runs(a=across, b=surely_above), **both) == "did not hold"
    table = runs(a=across, b=surely_above)
    found = decided_within("name", "statement", table, value="value", by=["case"], **both)
    assert found.evidence.startswith("1 of 2 intervals contain 0, 0 of them within 0.5 of 0; the worst mean, b: 1 ±")


def counts(spread: float, shift: float = 0.0) -> pd.DataFrame:
    """Four runs of counts around 10 and 1,000, the small ones `shift` above their expectation."""
    off = [-spread, spread, 0.0, 0.0]
    rows = [
        ("a", size, run, size * (1 + off[run] / size + shift * (size == 10)), size)
        for size in (10, 1000)
        for run in range(4)
    ]
    return pd.DataFrame(rows, columns=["case", "size", "run", "count", "expected"])


@pytest.mark.parametrize(
    ("spread", "shift", "told"), [(2.0, 0.0, "held"), (200.0, 0.0, "undecided"), (0.1, 0.5, "did not hold")]
)
def test_counts_agree_with_an_expectation_together_and_at_each_point(spread, shift, told):
    found = expectation_agrees(
        "name", "statement", counts(spread, shift), value="count", expected="expected", by=["case"], along="size",
        run="run", margin=0.01,
    )  # fmt: skip
    assert found.verdict == told


def test_two_bounds_are_an_equivalence_test():
    narrow, wide, far = [0.01, -0.01, 0.0], [5.0, -5.0, 0.0], [2.0, 2.01, 1.99]
    margin = {"least": -1.0, "most": 1.0}
    assert decided(runs(a=narrow), **margin) == "held"
    assert decided(runs(a=wide), **margin) == "undecided"  # contains 0, which shows nothing
    assert decided(runs(a=narrow, b=far), **margin) == "did not hold"


def test_half_widths_have_no_sign():
    table = runs(a=[0.1, 0.2, 0.3])
    found = decided_within("name", "statement", table, value="value", by=["case"], most=1.0, form="+.2%")
    assert "+20.00% ± 24.84%" in found.evidence


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_run_that_is_not_a_number_supports_nothing(value: float) -> None:
    surely_below = [-1.0, -1.1, -0.9]
    table = runs(a=surely_below, b=surely_below)
    spoiled = runs(a=[*surely_below, value], b=surely_below)
    for options in ({"most": 0.0}, {"most": -1.0, "margin": 1.0}, {"least": -2.0, "most": 0.0}):
        assert decided(table, **options) == "held" and decided(spoiled, **options) == "did not hold"


def test_so_many_runs_as_wanted_decide_four_times_of_five():
    """The helper's number against trials: normal runs, whose interval lies on one side of the bound or within both."""
    random = np.random.default_rng(0)
    both = {"least": -0.005, "most": 0.005}
    for mean, bounds in ((0.002, {"most": 0.005}), (0.001, both), (0.0, both), (0.008, {"most": 0.005}), (0.008, both)):
        number = runs_to_decide(mean, 0.004, **bounds)
        assert number is not None
        values = random.normal(mean, 0.004, (2000, number))
        half = t.ppf(0.975, number - 1) * values.std(1, ddof=1) / number**0.5
        low, high = values.mean(1) - half, values.mean(1) + half
        least, most = bounds.get("least", -math.inf), bounds["most"]
        decides = ((low >= least) & (high <= most)) | (low > most) | (high < least)
        assert 0.76 < decides.mean() < 0.9
    assert runs_to_decide(0.005, 0.004, most=0.005) is None, "at the bound no number decides"


def test_what_is_undecided_says_what_would_decide():
    found = decided_within("name", "statement", runs(a=[-1.0, 1.1, 0.2, -0.6]), value="value", by=["case"], most=0.0)
    wanted = runs_to_decide(-0.075, float(np.std([-1.0, 1.1, 0.2, -0.6], ddof=1)), most=0.0)
    assert found.verdict == "undecided" and wanted is None
    assert found.evidence.endswith("; more than 1000 runs would decide a, if mean and spread stay")
    near = decided_within("name", "statement", runs(a=[-1.0, 0.1, -0.6]), value="value", by=["case"], most=0.0)
    wanted = runs_to_decide(-0.5, float(np.std([-1.0, 0.1, -0.6], ddof=1)), most=0.0)
    assert near.evidence.endswith(f"; about {wanted} runs would decide a, if mean and spread stay")
