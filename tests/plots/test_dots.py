"""Dots: positions, intervals, error bounds, and rows that are skipped."""

from typing import Any

import pandas as pd
import pytest

from workbench.plots.dots import difference_dots, error_dots, interval_dots

ERRORS = [
    {"data": data, "layer": layer, "by": by, "error": error}
    for data in ("x", "y")
    for layer, by, error in (
        ("mean", "ours", 0.01),
        ("mean", "theirs", -0.4),
        ("gat", "ours", -0.02),
        ("gat", "theirs", None),
    )
]
MEANS = [
    {"case": "cora", "way": "whole", "accuracy": 0.80, "half_width": 0.01},
    {"case": "cora", "way": "micro", "accuracy": 0.79, "half_width": 0.02},
    {"case": "x", "way": "whole", "accuracy": 0.5, "half_width": float("nan")},
    {"case": "x", "way": "micro", "accuracy": None, "half_width": 0.1},
]


def draw_errors(rows: Any = ERRORS, **options: Any) -> Any:
    return error_dots(rows, x="layer", group="by", facet="data", **options)


def draw_means(rows: Any = MEANS) -> Any:
    return interval_dots(rows, x="case", y="accuracy", group="way", title="Equal")


def test_one_dot_per_error_with_groups_side_by_side() -> None:
    figure = draw_errors(title="Small")
    assert [trace.name for trace in figure.data] == ["ours", "theirs"] * 2
    ours, theirs = figure.data[:2]
    assert ours.y == (0.01, -0.02) and theirs.y == (-0.4,)
    assert [round(x) for x in ours.x] == [0, 1] and ours.x[0] < 0 < theirs.x[0]
    assert figure.layout.xaxis.ticktext == ("mean", "gat")
    assert [trace.showlegend for trace in figure.data] == [True, True, False, False]
    assert ours.marker.symbol != theirs.marker.symbol and ours.marker.color != theirs.marker.color
    assert ours.customdata == ("mean: +1.00%", "gat: -2.00%")


def test_bounds_are_shaded_in_every_panel() -> None:
    bands = [shape for shape in draw_errors(within=0.07).layout.shapes if shape.type == "rect"]
    assert [(band.y0, band.y1) for band in bands] == [(-0.07, 0.07)] * 2


def test_no_errors() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        draw_errors(pd.DataFrame(ERRORS).assign(error=None))


def test_one_dot_per_mean_with_its_interval() -> None:
    figure = draw_means()
    whole, micro = figure.data
    assert (whole.name, whole.y, whole.error_y.array) == ("whole", (0.8, 0.5), (0.01, 0))
    assert (micro.name, micro.y, micro.error_y.array) == ("micro", (0.79,), (0.02,))
    assert [round(x) for x in whole.x] == [0, 1] and whole.x[0] < 0 < micro.x[0]
    assert figure.layout.xaxis.ticktext == ("cora", "x")
    assert figure.layout.title.text == "Equal"
    assert whole.marker.symbol != micro.marker.symbol and whole.marker.color != micro.marker.color


def test_intervals_are_clipped_to_0_and_1() -> None:
    wide = [{"case": "x", "way": way, "accuracy": 0.3, "half_width": half} for way, half in (("a", 0.4), ("b", 0.8))]
    first, second = draw_means(wide).data
    assert (first.error_y.array, first.error_y.arrayminus) == ((0.4,), (0.3,))
    assert (second.error_y.array, second.error_y.arrayminus) == ((0.7,), (0.3,))


def test_intervals_of_ratios_end_at_0_alone() -> None:
    cases = (("a", 1.8, 0.4), ("b", 0.3, 1))
    rows = [{"case": "x", "way": way, "r": mean, "half_width": half} for way, mean, half in cases]
    figure: Any = interval_dots(rows, x="case", y="r", group="way", ratios=True)
    first, second = figure.data
    assert (first.error_y.array, first.error_y.arrayminus) == ((0.4,), (0.4,))
    assert (second.error_y.array, second.error_y.arrayminus) == ((1,), (0.3,))
    assert first.customdata == ("x: 1.80 ± 0.40",) and not figure.layout.yaxis.tickformat
    assert [line.y0 for line in figure.layout.shapes] == [1]


def test_no_interval_of_a_share_above_1_points_down() -> None:
    (dots,) = draw_means([{"case": "x", "way": "a", "accuracy": 1.2, "half_width": 0.1}]).data
    assert (dots.error_y.array, dots.error_y.arrayminus) == ((0,), (0.1,))


def test_hover_shows_the_interval_if_known() -> None:
    assert draw_means().data[0].customdata == ("cora: 80.00% ± 1.00%", "x: 50.00%")


def test_no_means() -> None:
    with pytest.raises(ValueError, match="no row of the table has a value of accuracy"):
        draw_means(pd.DataFrame(MEANS).assign(accuracy=None))


@pytest.mark.parametrize(("panels", "number", "angle"), [(1, 6, 0), (1, 7, -60), (3, 2, 0), (3, 3, -60)])
def test_many_names_of_cases_stand_upright(panels: int, number: int, angle: int) -> None:
    rows = [
        {"case": f"case {place}", "data": str(panel), "d": 0.1, "half_width": 0.01}
        for panel in range(panels)
        for place in range(number)
    ]
    figure: Any = difference_dots(rows, x="case", y="d", group="data", facet="data", margin=0.005)
    assert figure.layout.xaxis.tickangle == angle


def test_differences_keep_their_sign_and_lie_over_the_margin() -> None:
    rows = [
        {"case": case, "data": data, "d": d, "half_width": half}
        for case, data, d, half in (("a", "x", -0.02, 0.01), ("b", "x", 0.001, 0.03), ("b", "y", None, 0.01))
    ]
    figure = difference_dots(rows, x="case", y="d", group="data", margin=0.005, y_title="difference")
    traces: Any = figure.data
    (dots,) = traces
    assert (dots.y, dots.error_y.array) == ((-0.02, 0.001), (0.01, 0.03))
    assert dots.customdata == ("a: -2.00% ± 1.00%", "b: +0.10% ± 3.00%")
    (band,) = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert (band.y0, band.y1) == (-0.005, 0.005)
    with pytest.raises(ValueError, match="no row of the table has a value of d"):
        difference_dots(rows[2:], x="case", y="d", group="data", margin=0.005)


def test_differences_of_another_size_have_a_panel_of_their_own() -> None:
    rows = [
        {"case": case, "data": data, "d": d, "half_width": 0.01}
        for case, data, d in (("a", "x", -0.002), ("b", "x", 0.001), ("b", "y", -0.4))
    ]
    figure: Any = difference_dots(rows, x="case", y="d", group="data", facet="data", margin=0.005)
    first, second = figure.data
    assert (first.yaxis, first.x, second.yaxis, second.x) == ("y", (0, 1), "y2", (0,))
    assert (figure.layout.xaxis.ticktext, figure.layout.xaxis2.ticktext) == (("a", "b"), ("b",))
    assert [text.text for text in figure.layout.annotations] == ["<b>x</b>", "<b>y</b>"]
    assert not figure.layout.showlegend
    bands = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert [(band.yref.split()[0], band.y0, band.y1) for band in bands] == [("y", -0.005, 0.005), ("y2", -0.005, 0.005)]


def test_long_names_are_steep_so_that_the_first_is_drawn() -> None:
    def axis(name: str) -> Any:
        rows = [{"case": case, "way": "a", "r": 1.0, "half_width": 0.1} for case in (name, "x")]
        return interval_dots(rows, x="case", y="r", group="way", ratios=True).layout.xaxis

    assert (axis("4 parts, random, gather").tickangle, axis("cora").tickangle) == (-60, -30)


def test_a_difference_without_an_interval_has_none() -> None:
    rows = [{"case": "a", "data": "x", "d": 0.01, "half_width": float("nan")}]
    figure: Any = difference_dots(rows, x="case", y="d", group="data", margin=0.005)
    assert figure.data[0].customdata == ("a: +1.00%",)
