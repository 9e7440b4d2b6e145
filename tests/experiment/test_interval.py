"""Confidence intervals against a textbook's table of Student's t, and against coverage."""

import math
from typing import Any

import pandas as pd
import pytest

from workbench.experiment.interval import decided_within, mean_differences, mean_intervals, runs_to_decide

# Two-sided 95 % points of Student's t by degrees of freedom, as printed in tables.
T_95 = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262}


@pytest.mark.parametrize("freedom", T_95)
def test_half_width_is_that_of_the_tables(freedom: int) -> None:
    values = [float(i * i) for i in range(freedom + 1)]
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / freedom)
    (row,) = mean_intervals(pd.DataFrame({"a": "x", "v": values}), value="v", by=["a"]).to_dict("records")
    assert row["v"] == pytest.approx(mean) and row["runs"] == freedom + 1
    assert row["half_width"] == pytest.approx(T_95[freedom] * deviation / math.sqrt(len(values)), rel=2e-4)
    assert (row["low"], row["high"]) == pytest.approx((mean - row["half_width"], mean + row["half_width"]))


def test_cases_stay_in_order_and_apart_and_rows_without_a_value_are_left_out() -> None:
    table = pd.DataFrame({"a": ["y", "x", "y", "x", "x"], "b": 1, "v": [1.0, 5.0, 3.0, 5.0, None]})
    found = mean_intervals(table, value="v", by=["a", "b"])
    assert found.a.tolist() == ["y", "x"] and found.v.tolist() == [2, 5] and found.runs.tolist() == [2, 2]
    assert found.half_width.tolist() == pytest.approx([12.706, 0], rel=1e-4)


def test_one_run_has_no_interval() -> None:
    (row,) = mean_intervals(pd.DataFrame({"a": ["x"], "v": [2.0]}), value="v", by=["a"]).to_dict("records")
    assert row["v"] == 2 and row["runs"] == 1 and math.isnan(row["half_width"]) and math.isnan(row["low"])


def test_more_confidence_is_wider() -> None:
    table = pd.DataFrame({"a": "x", "v": [1.0, 2, 4]})
    widths = [mean_intervals(table, value="v", by=["a"], confidence=c).half_width[0] for c in (0.5, 0.95, 0.99)]
    assert widths == sorted(widths) and widths[0] < widths[2]
    with pytest.raises(ValueError, match="confidence is 95; it must be between 0 and 1"):
        mean_intervals(table, value="v", by=["a"], confidence=95)


def two_ways(*cases: tuple[str, list[float], list[float]]) -> pd.DataFrame:
    rows = [
        (case, way, value) for case, *both in cases for way, values in zip("mn", both, strict=True) for value in values
    ]
    return pd.DataFrame(rows, columns=["case", "way", "v"])


HAND = (
    "hand",
    [7.0, 11, 11, 11],
    [0.0, 2],
)  # s²/n is 4/4 and 2/2: standard error √2, by Welch 4 / (1/3 + 1/1) = 3 degrees
SETTINGS: dict[str, Any] = {"value": "v", "by": ["case"], "among": "way", "between": ("m", "n")}


def test_a_difference_of_means_has_welchs_interval() -> None:
    (row,) = mean_differences(two_ways(HAND), **SETTINGS).to_dict("records")
    assert row["case"] == "hand" and row["difference"] == 9
    assert row["half_width"] == pytest.approx(3.182 * math.sqrt(2), rel=2e-4)
    assert (row["low"], row["high"]) == pytest.approx((9 - row["half_width"], 9 + row["half_width"]))
    (turned,) = mean_differences(two_ways(HAND), **{**SETTINGS, "between": ("n", "m")}).to_dict("records")
    assert (turned["low"], turned["high"]) == pytest.approx((-row["high"], -row["low"]))


def test_intervals_of_several_cases_hold_at_once() -> None:
    """Of two cases each interval is at 97.5 %; cases without an interval don't count."""
    table = two_ways(HAND, ("z", [1.0, 2, 3], [1.0, 2, 4]), ("one", [5.0], [3.0, 4]), ("none", [], [1.0, 2]))
    found = mean_differences(table, **SETTINGS)
    assert found.case.tolist() == ["hand", "z", "one"]
    assert found.half_width[0] == pytest.approx(4.177 * math.sqrt(2), rel=2e-4)
    assert found.difference[2] == 1.5 and math.isnan(found.half_width[2])


def test_values_that_are_all_the_same_have_an_interval_without_width() -> None:
    (row,) = mean_differences(two_ways(("a", [2.0, 2], [1.0, 1, 1])), **SETTINGS).to_dict("records")
    assert (row["low"], row["high"], row["half_width"]) == (1, 1, 0)


def test_differences_refuse_a_confidence_in_percent() -> None:
    with pytest.raises(ValueError, match="confidence is 95"):
        mean_differences(two_ways(HAND), **SETTINGS, confidence=95)


def test_a_mean_beyond_the_margin_needs_the_runs_that_refute_the_bound() -> None:
    table = pd.DataFrame({"case": "x", "v": [0.0, 0.02, 0.04]})
    found = decided_within("n", "s", table, value="v", by=["case"], most=0.0, margin=0.01)
    assert not found.decided
    number = runs_to_decide(0.02, 0.02, most=0.0)
    assert number is not None and number < 15 and f"about {number} runs would decide" in found.evidence
    near = decided_within("n", "s", table.assign(v=table.v - 0.025), value="v", by=["case"], most=0.0, margin=0.01)
    number = runs_to_decide(-0.005, 0.02, most=0.01)
    assert f"about {number} runs would decide" in near.evidence, "one that may hold is held within the margin"
