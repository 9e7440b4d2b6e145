"""Confidence intervals against a textbook's table of Student's t, and against coverage."""

import math

import pandas as pd
import pytest

from workbench.experiment.interval import mean_intervals

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
    with pytest.raises(ValueError, match="confidence is 95; it must lie between 0 and 1"):
        mean_intervals(table, value="v", by=["a"], confidence=95)
