"""Stacked bars by stage: heights, units, totals, legend."""

from typing import Any

import pytest
import torch

from workbench.memory.estimate import MemoryEstimate
from workbench.memory.plan import Plan
from workbench.partition.redundancy import Redundancy
from workbench.plots.bars import (
    Bar,
    Component,
    StageBar,
    bars,
    component_bars,
    degree_histogram,
    memory_bars,
    plan_bars,
    stage_bars,
    term_bars,
)
from workbench.plots.style import looks


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


def test_bars_of_a_single_stage_have_the_colours_of_their_groups() -> None:
    bars = [StageBar(panel, group, "", {"epoch": 1.0}) for panel in "ab" for group in ("in memory", "COMET")]
    figure: Any = stage_bars(bars[:3], axis="time", title="Found")
    first, _, second, _ = figure.data
    known = looks(["in memory", "COMET"])
    assert first.marker.color == tuple(known[name].color for name in ("in memory", "COMET"))
    assert second.marker.color == (known["in memory"].color,)


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


MIB = 2**20


def draw(*given: Bar, **options: Any) -> Any:
    return bars(given, **options)


def test_each_panel_chooses_its_unit() -> None:
    figure = draw(Bar("a", "1", 3 * 2**30), Bar("b", "1", 300 * MIB), capacity_bytes=512 * MIB)
    assert [axis.title.text for axis in figure.select_yaxes()] == ["peak memory (GiB)", "peak memory (MiB)"]
    assert [shape.y0 for shape in figure.layout.shapes] == [0.5, 512] and figure.data[1].text == ("300",)


def test_one_bar_per_setting_in_the_given_order() -> None:
    figure = draw(Bar("a", "lstm", 3 * MIB), Bar("a", "mean", MIB // 2), Bar("b", "7", 2 * MIB), axes={"a": "kind"})
    left, right = figure.data
    assert (left.x, left.y, right.x, right.y) == (("lstm", "mean"), (3, 0.5), ("7",), (2,))
    assert (left.text, right.text) == (("3", "0.5"), ("2",))
    assert figure.layout.xaxis.categoryarray == ("lstm", "mean") and figure.layout.xaxis.title.text == "kind"
    assert figure.layout.yaxis.title.text == figure.layout.yaxis2.title.text == "peak memory (MiB)"
    assert [a.text for a in figure.layout.annotations] == ["<b>a</b>", "<b>b</b>"]
    assert not figure.layout.shapes and not figure.layout.showlegend


def test_bars_over_the_capacity_or_not_measured_differ_in_colour_and_hatch() -> None:
    figure = draw(
        Bar("a", "1", 2 * MIB),
        Bar("a", "2", 2 * MIB + 1),
        Bar("a", "3", 9 * MIB, measured=False),
        capacity_bytes=2 * MIB,
    )
    named = {trace.name: trace for trace in figure.data}
    assert list(named) == ["fits", "over the capacity", "estimated, not run", "capacity 2.00 MiB"]
    kinds = [named[name] for name in list(named)[:3]]
    assert [trace.x for trace in kinds] == [("1",), ("2",), ("3",)]
    assert len({trace.marker.color for trace in kinds}) == len({trace.marker.pattern.shape for trace in kinds}) == 3
    assert figure.layout.shapes[0].y0 == figure.layout.shapes[0].y1 == 2 and figure.layout.showlegend


def test_the_capacity_line_crosses_no_text() -> None:
    given = [Bar("a", str(size), size) for size in (50, 91, 100, 101)]
    fits, over, _ = draw(*given, capacity_bytes=100).data
    assert fits.textposition == ("outside", "inside", "inside") and over.textposition == ("outside",)


def test_every_panel_shows_the_capacity_and_the_legend_names_each_kind_once() -> None:
    figure = draw(*(Bar(panel, "1", MIB) for panel in "abcd"), capacity_bytes=4 * MIB)
    assert [shape.y0 for shape in figure.layout.shapes] == [4] * 4
    assert all(axis.range[1] > 4 for axis in figure.select_yaxes())
    assert [trace.showlegend for trace in figure.data if trace.name == "fits"] == [True, False, False, False]


def test_text_and_hover() -> None:
    (trace,) = draw(Bar("", "1", 1536, text="K = 9", hover="planned")).data
    assert trace.text == ("K = 9",) and trace.customdata == ("1.50 KiB (1,536 bytes)<br>planned",)
    assert draw(Bar("", "1", 1536)).data[0].customdata == ("1.50 KiB (1,536 bytes)",)


def test_a_bar_of_height_0_shows_its_text() -> None:
    assert draw(Bar("", "1", 0, "no K fits", measured=False)).data[0].text == ("no K fits",)


def test_no_bars_of_memory() -> None:
    with pytest.raises(ValueError, match="no bars to draw"):
        bars([])


def test_one_bar_per_micro_batch_in_the_unit_of_the_largest() -> None:
    figure: Any = memory_bars([3 * MIB, 2 * MIB, MIB // 2])
    (trace,) = figure.data
    assert (trace.x, trace.y) == ((0, 1, 2), (3, 2, 0.5))
    assert figure.layout.yaxis.title.text == "peak memory (MiB)"
    assert trace.customdata[2] == "512.00 KiB (524,288 bytes)"
    assert "3 micro-batches" in figure.layout.title.text and "largest 3.00 MiB" in figure.layout.title.text
    assert not figure.layout.showlegend and not figure.layout.shapes


def test_micro_batches_over_the_capacity_differ_in_colour_and_hatch() -> None:
    figure: Any = memory_bars([3 * MIB, 2 * MIB, 2 * MIB + 1], capacity_bytes=2 * MIB)
    fits, over = figure.data
    assert (fits.name, fits.x) == ("fits", (1,))
    assert (over.name, over.x) == ("over the capacity", (0, 2))
    assert fits.marker.color != over.marker.color
    assert (fits.marker.pattern.shape, over.marker.pattern.shape) == ("", "/")
    assert figure.layout.shapes[0].y0 == figure.layout.shapes[0].y1 == 2
    assert figure.layout.annotations[0].text == "capacity 2.00 MiB"


def test_a_large_capacity_sets_the_unit() -> None:
    figure: Any = memory_bars([MIB], capacity_bytes=2**30)
    assert [t.name for t in figure.data] == ["fits"]
    assert figure.layout.shapes[0].y0 == 1
    assert "1 micro-batch<" in figure.layout.title.text


def test_a_capacity_of_0_is_exceeded() -> None:
    figure: Any = memory_bars([5], capacity_bytes=0)
    assert [t.name for t in figure.data] == ["over the capacity"]


def test_redundancy_below_the_title() -> None:
    figure: Any = memory_bars([MIB], redundancy=Redundancy(1300, 1000, 1.3, 400), title="Cora, REG")
    subtitle = "largest 1.00 MiB · input nodes 1.30 × the batch's · largest part 40% of the batch's"
    assert figure.layout.title.text.startswith("Cora, REG<br>") and subtitle in figure.layout.title.text


def test_no_micro_batches() -> None:
    with pytest.raises(ValueError, match="no micro-batches to draw"):
        memory_bars([])


TERMS_A = {"parameters": MIB, "inputs": 2 * MIB, "aggregator": MIB}


def test_one_trace_per_term_without_terms_that_are_0() -> None:
    bars = term_bars([0, 1], [{"labels": 0, "inputs": 4 * MIB}, {"parameters": MIB, "inputs": MIB, "loss": 0}], MIB)
    assert [trace.name for trace in bars] == ["parameters", "input features"]
    assert [trace.y for trace in bars] == [(0, 1), (4, 1)]
    assert bars[1].customdata[1] == "1.00 MiB (1,048,576 bytes), 50.0%"
    assert all(text == "" for text in bars[0].text)


def test_percentages_only_in_bars_with_room_for_them() -> None:
    (parameters, inputs) = term_bars([0], [{"parameters": 1, "inputs": 99}], 1.0, shares=True)
    assert (parameters.text, inputs.text) == (("",), ("99%",))


def test_components_in_panels_with_units_of_their_own() -> None:
    bars = [
        Component("mean", "x", "ours", TERMS_A, 4 * MIB),
        Component("mean", "x", "measured", None, 5 * MIB),
        Component("lstm", "x", "ours", {"inputs": 3 * 2**30}, 3 * 2**30),
    ]
    figure: Any = component_bars(bars, title="Found")
    titles = [axis.title.text for axis in figure.select_yaxes()]
    assert titles == ["peak memory (MiB)", "peak memory (GiB)"]
    assert [a.text for a in figure.layout.annotations] == ["<b>mean</b>", "<b>lstm</b>"]
    measured = next(trace for trace in figure.data if trace.name == "measured")
    assert measured.y == (5,) and [*measured.x] == [["x"], ["measured"]]
    totals = [trace.text for trace in figure.data if trace.type == "scatter"]
    assert totals == [("4.00 MiB", "5.00 MiB"), ("3.00 GiB",)]
    named = [trace.name for trace in figure.data if trace.showlegend]
    assert sorted(named) == ["aggregator", "input features", "measured", "parameters"]
    assert "Found" in figure.layout.title.text


def test_no_components() -> None:
    with pytest.raises(ValueError, match="no bars"):
        component_bars([], title="")


def estimate(inputs: int) -> MemoryEstimate:
    terms = {"parameters": MIB, "inputs": inputs * MIB, "loss": 0}
    return MemoryEstimate(terms=terms, phase_bytes={"forward": 1}, fixed_bytes=MIB, backend="none")


def plan(inputs: list[int], capacity: int = 10 * MIB) -> Plan:
    return Plan(
        assignment=torch.zeros(0, dtype=torch.int64),
        micro=(None,) * len(inputs),  # pyright: ignore[reportArgumentType]
        estimates=tuple(estimate(size) for size in inputs),
        method="reg",
        strategy="even",
        memory_bytes=capacity,
        redundancy=Redundancy(1300, 1000, 1.3, 400),
        seconds={"estimate": 0.5, "partition": 1.0, "split": 0.25},
        tried=(),
    )


def test_a_plan_by_term_below_the_capacity() -> None:
    figure: Any = plan_bars(plan([3, 5]))
    assert [(bars.name, bars.y) for bars in figure.data] == [("parameters", (1, 1)), ("input features", (3, 5))]
    assert figure.layout.barmode == "stack"
    assert figure.layout.yaxis.title.text == "estimated peak memory (MiB)" and figure.layout.yaxis.range[1] > 10
    (line,) = figure.layout.shapes
    assert line.y0 == line.y1 == 10 and figure.layout.annotations[0].text == "capacity 10.00 MiB"


def test_title_and_subtitle_of_a_plan() -> None:
    title = plan_bars(plan([3, 5])).layout.meta["title"]  # pyright: ignore[reportAttributeAccessIssue]
    assert title.startswith("The batch fits as 2 micro-batches: estimated peak memory of the largest 6.00 MiB · ")
    assert "method reg · input nodes 1.30 × the batch's, largest part 40% of the batch's · planned in 1.75 s" in title
    whole: Any = plan_bars(plan([3]))
    assert whole.layout.title.text.startswith("The whole batch fits: estimated peak memory 4.00 MiB")


@pytest.mark.parametrize(("parts", "first"), [(64, 1), (65, 65)])
def test_more_than_64_micro_batches_are_sorted(parts: int, first: int) -> None:
    figure: Any = plan_bars(plan([*range(1, parts + 1)], capacity=100 * MIB))
    assert figure.data[1].y[0] == first


def test_a_plan_without_micro_batches() -> None:
    with pytest.raises(ValueError, match="no micro-batches"):
        plan_bars(plan([]))
