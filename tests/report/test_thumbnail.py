"""Sketches of figures."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from workbench.report.thumbnail import HEIGHT, WIDTH, thumbnail


def parsed(figure: go.Figure) -> ET.Element:
    return ET.fromstring(thumbnail(figure, "a sketch <of> it"))


def test_a_rising_line_rises_within_the_picture() -> None:
    figure = go.Figure(go.Scatter(x=[1, 10, 100], y=np.array([1.0, 2.0, 4.0]), line_color="#123456"))
    (line,) = parsed(figure.update_xaxes(type="log")).findall("polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert line.attrib["stroke"] == "#123456"
    assert [x for x, _ in points] == sorted(x for x, _ in points) and points[1][0] * 2 == pytest.approx(WIDTH, abs=4)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


@pytest.mark.parametrize("sideways", [False, True])
def test_bars_have_lengths_in_proportion(sideways: bool) -> None:
    values = {"y": ["a", "b"], "x": [1, 3], "orientation": "h"} if sideways else {"x": ["a", "b"], "y": [1, 3]}
    small, large = (
        float(bar.attrib["width" if sideways else "height"])
        for bar in parsed(go.Figure(go.Bar(values))).findall("rect")
    )
    assert large == pytest.approx(3 * small, abs=0.2)


def test_stacked_bars_touch() -> None:
    figure = go.Figure([go.Bar(x=["a"], y=[1]), go.Bar(x=["a"], y=[2])]).update_layout(barmode="stack")
    low, high = ([float(bar.attrib[key]) for key in ("y", "height")] for bar in parsed(figure).findall("rect"))
    assert high[0] + high[1] == pytest.approx(low[0], abs=0.2) and high[0] >= 0


def test_bars_of_inner_and_outer_categories_stand_side_by_side() -> None:
    places = [["k = 1", "k = 1", "k = 2"], ["reg", "metis", "reg"]]
    figure = go.Figure([go.Bar(x=places, y=[1, 2, 3]), go.Bar(x=places, y=[1, 1, 1])]).update_layout(barmode="stack")
    bars = parsed(figure).findall("rect")
    lefts = {bar.attrib["x"] for bar in bars}
    assert len(bars) == 6 and len(lefts) == 3 and all(0 <= float(left) <= WIDTH for left in lefts)


def test_a_band_is_an_area() -> None:
    band = go.Scatter(x=[1, 2, 2, 1], y=[1, 1, 2, 2], fill="toself", mode="lines")
    assert len(parsed(go.Figure(band)).findall("polygon")) == 1 and not parsed(go.Figure(band)).findall("polyline")


def test_panels_lie_apart_and_gaps_are_skipped() -> None:
    figure = make_subplots(1, 2)
    figure.add_scatter(x=[1, 2, 3], y=[1, None, float("nan")], mode="markers", row=1, col=1)
    figure.add_scatter(x=[1, 2], y=[5, 6], mode="markers", row=1, col=2)
    xs = [float(point.attrib["cx"]) for point in parsed(figure).findall("circle")]
    assert len(xs) == 3 and xs[0] < WIDTH / 2 < min(xs[1:])


def test_a_heat_map_and_an_empty_figure() -> None:
    assert len(parsed(go.Figure(go.Heatmap(z=[[0, 1], [2, 3]]))).findall("rect")) == 4
    assert parsed(go.Figure()).attrib["aria-label"] == "a sketch <of> it"


def test_large_figures_stay_small() -> None:
    figure = go.Figure([go.Scatter(x=np.arange(10_000), y=np.arange(10_000)) for _ in range(10)])
    text = thumbnail(figure, "many")
    assert len(text) < 10_000 and not re.search("nan|None", text)
