"""Stacked bars by stage: heights, units, totals, legend."""

from typing import Any

import pytest

from workbench.plots.bars import StageBar, degree_histogram, stage_bars


def test_stages_are_stacked_in_the_unit_of_their_panel() -> None:
    bars = [
        StageBar("slow", "NS", "independent", {"copy": 2.0, "compute": 1.5}),
        StageBar("slow", "NS", "cooperative", {"copy": 1.0}),
        StageBar("fast", "NS", "independent", {"copy": 0.004}),
    ]
    figure: Any = stage_bars(bars, axis="modelled time", title="Found", subtitle="more")
    assert [axis.title.text for axis in figure.select_yaxes()] == ["modelled time (s)", "modelled time (ms)"]
    assert [a.text for a in figure.layout.annotations] == ["<b>slow</b>", "<b>fast</b>"]
    copy, compute, *_ = figure.data
    assert (copy.y, compute.y) == ((2.0, 1.0), (1.5, 0.0)) and [*copy.x] == [
        ["NS", "NS"],
        ["independent", "cooperative"],
    ]
    assert [trace.text for trace in figure.data if trace.type == "scatter"] == [("3.5", "1"), ("4",)]
    assert [trace.name for trace in figure.data if trace.showlegend] == ["copy", "compute"]
    assert "Found" in figure.layout.title.text and "more" in figure.layout.title.text


def test_no_bars() -> None:
    with pytest.raises(ValueError, match="no bars"):
        stage_bars([], axis="", title="")


def test_parts_side_by_side_with_exact_counts_of_the_highest_degree() -> None:
    figure: Any = degree_histogram(
        {"whole": {"batch": {2: 3000, 1: 5}}, "cut": {"0": {1: 4, 2: 1000}, "1": {1: 1, 2: 2000}}}
    )
    batch, first, second = figure.data
    assert (batch.x, batch.y) == ((1, 2), (5, 3000))
    assert (first.y, second.y) == ((4, 1000), (1, 2000)) and figure.layout.barmode == "group"
    assert first.xaxis == second.xaxis != batch.xaxis
    assert figure.layout.xaxis.title.text == "in-degree (at 2: 3,000)"
    assert figure.layout.xaxis2.title.text == "in-degree (at 2: 1,000, 2,000)"
    assert len({trace.marker.color for trace in figure.data}) == 3
    assert len({trace.marker.pattern.shape for trace in figure.data}) == 3


def test_equal_names_share_look_and_legend_entry() -> None:
    figure: Any = degree_histogram({"x": {"batch": {1: 1}}, "y": {"batch": {1: 2}, "part": {1: 1}}})
    one, other, _ = figure.data
    assert one.marker == other.marker and (one.showlegend, other.showlegend) == (True, False)


@pytest.mark.parametrize("given", [{}, {"a": {}}, {"a": {"batch": {}}}])
def test_no_counts(given: Any) -> None:
    with pytest.raises(ValueError, match="no in-degrees to draw"):
        degree_histogram(given)


def test_more_parts_than_colours() -> None:
    with pytest.raises(ValueError, match="there are 8 names, but 7 colours"):
        degree_histogram({"a": {str(part): {1: 1} for part in range(8)}})
