"""Lines: every value of the table at its position, in the unit of the axis."""

from math import log2, log10
from typing import Any

import pandas as pd
import pytest

from workbench.plots.lines import lines

GIB = 2**30
ENDS = ("low", "high")


def row(method: str, num_parts: int, gib: float, **more: Any) -> dict[str, Any]:
    return {"method": method, "num_parts": num_parts, "peak_bytes": gib * GIB, **more}


TABLE = [row("range", 4, 2), row("range", 1, 6), row("reg", 1, 6), row("reg", 2, 3), row("reg", 4, 1)]


def draw(table: Any = TABLE, **options: Any) -> Any:
    return lines(table, x="num_parts", y="peak_bytes", group="method", **options)


def trace(figure: Any, name: str, place: int = 0) -> Any:
    return [t for t in figure.data if t.name == name][place]


def titles(figure: Any) -> list[str]:
    return [a.text for a in figure.layout.annotations]


def test_one_line_per_group_sorted_by_x() -> None:
    figure = draw()
    assert [t.name for t in figure.data] == ["REG", "range"]
    assert (trace(figure, "REG").x, trace(figure, "REG").y) == ((1, 2, 4), (6, 3, 1))
    assert (trace(figure, "range").x, trace(figure, "range").y) == ((1, 4), (6, 2))
    assert figure.layout.yaxis.title.text == "peak memory (GiB)"
    assert figure.layout.xaxis.title.text == "micro-batches K"
    assert figure.layout.yaxis.rangemode == "tozero"


def test_unit_by_size_or_as_requested() -> None:
    small = [row("reg", 1, 0.5)]
    assert draw(small).layout.yaxis.title.text == "peak memory (MiB)"
    assert draw(small).data[0].y == (512,)
    assert draw(small, units={"peak_bytes": "GiB"}).data[0].y == (0.5,)
    with pytest.raises(ValueError, match="can't be shown in 'GB'"):
        draw(small, units={"peak_bytes": "GB"})


def test_hover_names_the_method_and_the_exact_bytes() -> None:
    reg = trace(draw(), "REG")
    assert reg.customdata[1] == " (3,221,225,472 bytes)"
    assert "REG" in reg.hovertemplate and "peak memory: %{y:.4~g} GiB" in reg.hovertemplate


def test_ticks_at_the_values_present() -> None:
    axis = draw(log_x=True).layout.xaxis
    assert axis.type == "log"
    assert (axis.tickvals, axis.ticktext) == ((1, 2, 4), ("1", "2", "4"))
    assert axis.range[0] < 0 and axis.range[1] > log10(4)


def test_logarithmic_y_axes_have_a_range_and_ticks_of_their_own() -> None:
    axis = draw(log_y=True).layout.yaxis
    assert axis.type == "log" and axis.rangemode is None
    assert axis.range[0] < log10(1) and axis.range[1] > log10(6)
    assert all(axis.range[0] <= log10(tick) <= axis.range[1] for tick in axis.tickvals) and len(axis.tickvals) >= 2


def test_facets_have_titles_axes_and_units_of_their_own() -> None:
    table = [
        row("reg", 1, 3, dataset="arxiv"),
        row("reg", 1, 0.25, dataset="cora"),
        row("range", 1, 0.5, dataset="cora"),
    ]
    figure = draw(table, facet="dataset")
    assert titles(figure) == ["<b>arxiv</b>", "<b>cora</b>"]
    assert figure.layout.yaxis.title.text == "peak memory (GiB)"
    assert figure.layout.yaxis2.title.text == "peak memory (MiB)"
    assert [(t.name, t.yaxis, t.y) for t in figure.data] == [
        ("REG", "y", (3,)),
        ("REG", "y2", (256,)),
        ("range", "y2", (512,)),
    ]
    assert [t.showlegend for t in figure.data] == [True, False, True]


def test_facets_have_no_panels_of_quantities_that_they_lack() -> None:
    sets = [("one", 6.0, 3.0), ("two", 6.0, None), ("three", 6.0, 2.0), ("four", None, 5.0)]
    table = [
        {"method": "reg", "num_parts": k, "dataset": name, "peak_bytes": a and a * GIB, "seconds": b}
        for name, a, b in sets
        for k in (1, 2)
    ]
    figure: Any = lines(table, x="num_parts", y=["peak_bytes", "seconds"], group="method", facet="dataset")
    assert [a.text.strip("</b>") for a in figure.layout.annotations] == ["one", "two", "three", "four"]
    axes = {t.yaxis: (t.y[0], figure.layout["yaxis" + t.yaxis[1:]]) for t in figure.data}
    assert [value for value, _ in axes.values()] == [6, 3, 6, 6, 2, 5]
    tops = [axis.domain[1] for _, axis in axes.values()]
    assert tops[0] == tops[2] and tops[3] == tops[5] > tops[4], "four begins at the top of its band, beside three"
    assert axes["y6"][1].title.text == "seconds"


def test_combinations_of_facet_columns_as_they_occur() -> None:
    table = [row("reg", 1, 3, dataset=d, model=m) for d, m in [("a", "gat"), ("a", "gcn"), ("b", "gat")]]
    assert titles(draw(table, facet=("dataset", "model"))) == ["<b>a · gat</b>", "<b>a · gcn</b>", "<b>b · gat</b>"]


def test_reported_values_are_hollow_and_only_in_their_facet() -> None:
    table = [row("reg", 1, 3, dataset="a"), row("reg", 1, 3, dataset="b")]
    figure = draw(table, facet="dataset", reported=[row("reg", 2, 8, dataset="b"), row("mini", 2, 9, dataset="gone")])
    assert [(t.name, t.xaxis) for t in figure.data] == [("REG", "x"), ("REG", "x2"), ("REG, paper", "x2")]
    paper, own = trace(figure, "REG, paper"), trace(figure, "REG")
    assert (paper.x, paper.y, paper.showlegend) == ((2,), (8,), True)
    assert paper.marker.symbol == own.marker.symbol + "-open"
    assert paper.line.dash == "dot" and paper.line.color == own.line.color


def test_reported_values_without_the_facet_column_are_in_all_facets() -> None:
    table = [row("reg", 1, 3, dataset="a"), row("reg", 1, 3, dataset="b")]
    figure = draw(table, facet="dataset", reported=[row("other", 2, 8)], log_x=True)
    assert [t.name for t in figure.data].count("other, paper") == 2
    assert figure.layout.xaxis.tickvals == (1, 2)


def test_repetitions_become_their_median_with_error_bars_from_minimum_to_maximum() -> None:
    reg = draw([row("reg", 1, g) for g in (2, 7, 3)] + [row("reg", 2, 1)]).data[0]
    assert reg.y == (3, 1)
    assert (reg.error_y.array, reg.error_y.arrayminus) == ((4, 0), (1, 0))
    assert draw().data[0].error_y.array is None


def test_spread_from_columns_as_error_bars() -> None:
    table = [{"k": 1, "m": "reg", "epoch_seconds": 3.0, "low": 2.5, "high": 5.0}]
    figure: Any = lines(table, x="k", y="epoch_seconds", group="m", spread={"epoch_seconds": ENDS})
    assert (figure.data[0].error_y.array, figure.data[0].error_y.arrayminus) == ((2,), (0.5,))
    assert figure.layout.yaxis.title.text == "epoch time (s)"


def test_spread_as_a_band() -> None:
    table = [{"k": k, "m": "reg", "epoch_seconds": 3.0 * k, "low": 2.0, "high": 4.0 + k} for k in (1, 2, 3)]
    figure: Any = lines(table, x="k", y="epoch_seconds", group="m", spread={"epoch_seconds": ENDS}, band=True)
    band, line = figure.data
    assert (line.x, line.y, line.mode, line.error_y.array) == ((1, 2, 3), (3, 6, 9), "lines", None)
    assert (band.x, band.y, band.fill) == ((1, 2, 3, 3, 2, 1), (5, 6, 7, 2, 2, 2), "toself")
    assert (line.showlegend, band.showlegend, band.legendgroup, band.hoverinfo) == (True, False, line.name, "skip")
    assert band.fillcolor == "rgba(0, 114, 178, 0.18)" and line.line.color == "#0072B2"


def test_a_band_in_the_unit_of_its_line_with_no_width_where_the_spread_is_unknown() -> None:
    lows = ((1, None), (2, GIB), (3, GIB))
    table = [{"k": k, "m": "reg", "peak_bytes": 2 * GIB, "low": low, "high": None} for k, low in lows]
    figure: Any = lines(pd.DataFrame(table), x="k", y="peak_bytes", group="m", spread={"peak_bytes": ENDS}, band=True)
    assert [t.y for t in figure.data] == [(2, 2, 2)]
    table[1]["high"] = 3 * GIB
    figure = lines(pd.DataFrame(table), x="k", y="peak_bytes", group="m", spread={"peak_bytes": ENDS}, band=True)
    assert figure.data[0].y == (2, 3, 2, 1, 1, 2)


def test_bands_are_drawn_below_all_lines() -> None:
    table = [{"k": k, "m": m, "v": 3.0, "low": 2.0, "high": 4.0} for k in (1, 2, 3) for m in "ab"]
    figure: Any = lines(table, x="k", y="v", group="m", spread={"v": ENDS}, band=True)
    assert [(t.name, t.fill, t.showlegend) for t in figure.data] == [
        ("a", "toself", False),
        ("b", "toself", False),
        ("a", None, True),
        ("b", None, True),
    ]


@pytest.mark.parametrize("values", [(1,), (1, 2)])
@pytest.mark.parametrize("band", [False, True])
def test_fewer_than_three_points_are_no_curve(values: tuple[int, ...], band: bool) -> None:
    rows = [row("reg", k, k + more) for k in values for more in (1, 3)]
    figure: Any = lines(rows, x="num_parts", y="peak_bytes", group="method", band=band)
    (points,) = figure.data
    assert points.mode == "markers" and len(points.error_y.array) == len(values)
    told = {1: "", 2: "<br>(two values: no curve)"}[len(values)]
    assert figure.layout.xaxis.title.text == f"micro-batches K{told}"


def test_an_axis_with_a_curve_says_nothing_of_the_points_beside_it() -> None:
    rows = [row("reg", k, k) for k in (1, 2, 4)] + [row("metis", k, k) for k in (1, 4)]
    figure: Any = lines(rows, x="num_parts", y="peak_bytes", group="method")
    assert [trace.mode for trace in figure.data] == ["lines+markers", "markers"]
    assert figure.layout.xaxis.title.text == "micro-batches K"


def test_rows_without_a_value_are_skipped() -> None:
    table = pd.DataFrame([*TABLE, {"method": "metis", "num_parts": 1}, {"method": "reg", "num_parts": 8}])
    figure: Any = draw(table)
    assert [t.name for t in figure.data] == ["REG", "range"]
    assert trace(figure, "REG").x == (1, 2, 4)


def test_quantities_are_stacked_above_one_x_axis() -> None:
    table = [row("reg", k, 6 / k, epoch_seconds=0.1 * k, dataset=d) for k in (1, 2, 4) for d in "ab"]
    figure: Any = lines(table, x="num_parts", y=["peak_bytes", "epoch_seconds"], group="method", facet="dataset")
    layout = figure.layout
    assert [layout[f"yaxis{n}"].title.text for n in ("", 2, 3, 4)] == ["peak memory (GiB)"] * 2 + [
        "epoch time (ms)"
    ] * 2
    assert [layout[f"xaxis{n}"].title.text for n in ("", 2, 3, 4)] == [None, None, "micro-batches K", "micro-batches K"]
    assert layout.yaxis.domain[0] > layout.yaxis3.domain[1]
    assert layout.xaxis.domain == layout.xaxis3.domain
    assert titles(figure) == ["<b>a</b>", "<b>b</b>"]
    assert [t.y for t in figure.data if t.yaxis == "y3"] == [(100, 200, 400)]


def test_invalid_tables() -> None:
    with pytest.raises(ValueError, match="no rows to draw"):
        draw([])
    with pytest.raises(ValueError, match="no column dataset; it has method, num_parts, peak_bytes"):
        draw(facet="dataset")
    with pytest.raises(ValueError, match="no column num_parts"):
        draw(reported=[{"method": "reg", "peak_bytes": 1}])


def test_a_title_enlarges_the_top_margin() -> None:
    assert draw(title="Peak").layout.title.text == "Peak"
    assert draw(title="Peak").layout.margin.t > draw().layout.margin.t
    assert log2(draw().layout.height) > 8
