"""Axis titles, units and logarithmic ticks."""

from itertools import pairwise, product
from math import log10

import pytest
from plotly.subplots import make_subplots

from tests.plots.ticks import shown_number
from workbench.plots.axes import PanelGrid, label, log2_x_axes, log_axis, unit_of
from workbench.plots.style import titled


@pytest.mark.parametrize(
    ("column", "largest", "unit", "expected"),
    [
        ("peak_bytes", 2**30, None, ("GiB", 2**30)),
        ("peak_bytes", 2**30 - 1, None, ("MiB", 2**20)),
        ("peak_bytes", 5, "GiB", ("GiB", 2**30)),
        ("peak_bytes", 0, None, ("B", 1)),
        ("epoch_seconds", 0.25, None, ("ms", 1e-3)),
        ("epoch_seconds", 1.0, None, ("s", 1)),
        ("epoch_seconds", 90.0, None, ("min", 60)),
        ("total_inputs", 1e9, None, ("", 1)),
    ],
)
def test_units(column: str, largest: float, unit: str | None, expected: tuple[str, float]) -> None:
    assert unit_of(column, largest, unit) == expected


@pytest.mark.parametrize(("column", "says"), [("peak_bytes", "choose from B, KiB"), ("loss", "choose from none")])
def test_units_that_do_not_fit_the_column(column: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"{column} can't be shown in 's'; {says}"):
        unit_of(column, 1.0, "s")


def test_labels() -> None:
    assert label("num_parts") == "micro-batches K"
    assert label("peak_bytes", "GiB") == "peak memory (GiB)"
    assert label("backward_seconds", "ms") == "backward (ms)"
    assert label("val_accuracy") == "val accuracy"


@pytest.mark.parametrize(("low", "ratio"), [*product([0.003, 1.1, 180], [1.04, 1.5, 9, 300, 1e7])])
def test_logarithmic_ticks_are_in_range_and_show_their_value(low: float, ratio: float) -> None:
    axis = log_axis([low, low * ratio])
    assert 2 <= len(axis["tickvals"]) <= 8
    assert all(10 ** axis["range"][0] <= tick <= 10 ** axis["range"][1] for tick in axis["tickvals"])
    assert [shown_number(text) for text in axis["ticktext"]] == pytest.approx(axis["tickvals"], rel=1e-4)
    assert axis["range"][0] < log10(low) and axis["range"][1] > log10(low * ratio)


def test_the_coarsest_steps_that_give_enough_ticks() -> None:
    assert log_axis([2e-6, 2])["tickvals"] == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1]
    assert log_axis([1, 8])["tickvals"] == [1, 2, 5]


def test_ticks_of_values_have_room_for_their_texts() -> None:
    figure = make_subplots(1, 1)
    log2_x_axes(figure, (354, 16, 1, 22, 304, 72))
    assert figure.layout.xaxis.tickvals == (1, 16, 22, 72, 304)
    assert figure.layout.xaxis.ticktext == ("1", "16", "22", "72", "304")
    assert 10 ** figure.layout.xaxis.range[1] > 354
    side_by_side = make_subplots(1, 3)
    log2_x_axes(side_by_side, [2**power for power in range(7)])
    assert side_by_side.layout.xaxis3.ticktext == ("1", "2", "4", "8", "16", "32", "64")
    log2_x_axes(side_by_side, [2**power for power in range(14)])
    assert side_by_side.layout.xaxis3.ticktext == ("1", "4", "16", "64", "256", "1k", "4k")


def test_an_axis_without_values() -> None:
    assert log_axis([]) == {"type": "log"}


@pytest.mark.parametrize(("facets", "columns", "bands"), [(1, 1, 1), (3, 3, 1), (4, 2, 2), (5, 3, 2), (7, 3, 3)])
@pytest.mark.parametrize("stacked", [1, 2])
def test_panels_have_one_height_and_do_not_overlap(facets: int, columns: int, bands: int, stacked: int) -> None:
    grid = PanelGrid(tuple(map(str, range(facets))), stacked)
    assert (grid.columns, grid.bands) == (columns, bands)
    figure = grid.figure()
    axes = [(tuple(y.domain), y) for y in figure.select_yaxes()]
    assert len(axes) == facets * stacked
    heights = [round(high - low, 6) for (low, high), _ in axes]
    assert len(set(heights)) == 1
    ends = sorted({domain for domain, _ in axes})
    assert all(below[1] < above[0] for below, above in pairwise(ends))
    assert [a.text for a in figure.layout.annotations] == [f"<b>{name}</b>" for name in range(facets)]  # pyright: ignore[reportAttributeAccessIssue]


def test_long_titles_of_facets_are_broken_and_get_room() -> None:
    """Those of three facets side by side would run into each other."""
    short, long = PanelGrid(("a", "b", "c") * 2), PanelGrid(("a", "ogbn-arxiv · LABOR-0 · batches of 1024", "c") * 2)
    texts = [note.text for note in long.figure().layout.annotations]
    assert texts[1] == "<b>ogbn-arxiv · LABOR-0 ·<br>batches of 1024</b>" and texts[0] == "<b>a</b>"
    assert long.height > short.height
    above = [titled(grid.figure(), "title", height=grid.height).layout.margin.t for grid in (short, long)]
    assert above[1] > above[0]
