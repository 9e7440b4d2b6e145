"""Dots with intervals: where they stand, how wide the bars are, what is left out."""

from typing import Any

import pandas as pd
import pytest

from workbench.plots.intervals import interval_dots

ROWS = [
    {"case": "cora", "way": "whole", "accuracy": 0.80, "half_width": 0.01},
    {"case": "cora", "way": "micro", "accuracy": 0.79, "half_width": 0.02},
    {"case": "x", "way": "whole", "accuracy": 0.5, "half_width": float("nan")},
    {"case": "x", "way": "micro", "accuracy": None, "half_width": 0.1},
]


def drawn(rows: Any = ROWS) -> Any:
    return interval_dots(rows, x="case", y="accuracy", group="way", title="Equal")


def test_a_dot_a_row_beside_the_other_group_with_its_bar() -> None:
    figure = drawn()
    whole, micro = figure.data
    assert (whole.name, whole.y, whole.error_y.array) == ("whole", (0.8, 0.5), (0.01, 0))
    assert (micro.name, micro.y, micro.error_y.array) == ("micro", (0.79,), (0.02,))
    assert [round(x) for x in whole.x] == [0, 1] and whole.x[0] < 0 < micro.x[0]
    assert figure.layout.xaxis.ticktext == ("cora", "x")
    assert figure.layout.title.text == "Equal"
    assert whole.marker.symbol != micro.marker.symbol and whole.marker.color != micro.marker.color


def test_bars_end_where_no_share_can_be() -> None:
    wide = [{"case": "x", "way": way, "accuracy": 0.3, "half_width": half} for way, half in (("a", 0.4), ("b", 0.8))]
    first, second = drawn(wide).data
    assert (first.error_y.array, first.error_y.arrayminus) == ((0.4,), (0.3,))
    assert (second.error_y.array, second.error_y.arrayminus) == ((0.7,), (0.3,))


def test_hover_says_the_interval_where_there_is_one() -> None:
    assert drawn().data[0].customdata == ("cora: 80.00% ± 1.00%", "x: 50.00%")


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="no row of the table has a value of accuracy"):
        drawn(pd.DataFrame(ROWS).assign(accuracy=None))
