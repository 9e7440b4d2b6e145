"""Bars of settings: heights, the capacity, who is over it and who was not run."""

from typing import Any

import pytest

from workbench.plots.bars import Bar, bars

MIB = 2**20


def draw(*given: Bar, **options: Any) -> Any:
    return bars(given, **options)


def test_a_panel_has_its_own_unit() -> None:
    figure = draw(Bar("a", "1", 3 * 2**30), Bar("b", "1", 300 * MIB), capacity_bytes=512 * MIB)
    assert [axis.title.text for axis in figure.select_yaxes()] == ["peak memory (GiB)", "peak memory (MiB)"]
    assert [shape.y0 for shape in figure.layout.shapes] == [0.5, 512] and figure.data[1].text == ("300",)


def test_a_bar_a_setting_in_the_order_given() -> None:
    figure = draw(Bar("a", "lstm", 3 * MIB), Bar("a", "mean", MIB // 2), Bar("b", "7", 2 * MIB), axes={"a": "kind"})
    left, right = figure.data
    assert (left.x, left.y, right.x, right.y) == (("lstm", "mean"), (3, 0.5), ("7",), (2,))
    assert (left.text, right.text) == (("3", "0.5"), ("2",))
    assert figure.layout.xaxis.categoryarray == ("lstm", "mean") and figure.layout.xaxis.title.text == "kind"
    assert figure.layout.yaxis.title.text == figure.layout.yaxis2.title.text == "peak memory (MiB)"
    assert [a.text for a in figure.layout.annotations] == ["<b>a</b>", "<b>b</b>"]
    assert not figure.layout.shapes and not figure.layout.showlegend


def test_over_and_not_run_differ_by_colour_and_pattern() -> None:
    figure = draw(
        Bar("a", "1", 2 * MIB), Bar("a", "2", 2 * MIB + 1), Bar("a", "3", 9 * MIB, run=False), capacity_bytes=2 * MIB
    )
    named = {trace.name: trace for trace in figure.data}
    assert list(named) == ["fits", "over the capacity", "estimated, not run", "capacity 2.00 MiB"]
    kinds = [named[name] for name in list(named)[:3]]
    assert [trace.x for trace in kinds] == [("1",), ("2",), ("3",)]
    assert len({trace.marker.color for trace in kinds}) == len({trace.marker.pattern.shape for trace in kinds}) == 3
    assert figure.layout.shapes[0].y0 == figure.layout.shapes[0].y1 == 2 and figure.layout.showlegend


def test_the_line_crosses_no_text() -> None:
    given = [Bar("a", str(size), size) for size in (50, 91, 100, 101)]
    within, over, _ = draw(*given, capacity_bytes=100).data
    assert within.textposition == ("outside", "inside", "inside") and over.textposition == ("outside",)


def test_every_panel_has_the_line_and_room_for_it_and_a_kind_is_named_once() -> None:
    figure = draw(*(Bar(panel, "1", MIB) for panel in "abcd"), capacity_bytes=4 * MIB)
    assert [shape.y0 for shape in figure.layout.shapes] == [4] * 4
    assert all(axis.range[1] > 4 for axis in figure.select_yaxes())
    assert [trace.showlegend for trace in figure.data if trace.name == "fits"] == [True, False, False, False]


def test_text_and_hover() -> None:
    (trace,) = draw(Bar("", "1", 1536, text="K = 9", about="planned")).data
    assert trace.text == ("K = 9",) and trace.customdata == ("1.50 KiB (1,536 bytes)<br>planned",)


def test_a_setting_that_needs_nothing_is_only_named() -> None:
    assert draw(Bar("", "1", 0, "no K fits", run=False)).data[0].text == ("no K fits",)


def test_no_bars() -> None:
    with pytest.raises(ValueError, match="no bars to draw"):
        bars([])
