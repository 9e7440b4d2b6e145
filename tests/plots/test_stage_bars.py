"""Stacked bars by stage: heights, units, totals, legend."""

from typing import Any

import pytest

from workbench.plots.stage_bars import StageBar, stage_bars


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
