"""Stacked bars by term: heights, percentages, totals, measured peaks, and the micro-batches of a plan."""

from typing import Any

import pytest
import torch

from workbench.memory.estimate import MemoryEstimate
from workbench.memory.plan import Plan
from workbench.partition.redundancy import Redundancy
from workbench.plots.stacked_bars import Component, component_bars, plan_bars, term_bars

MIB = 2**20
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
        capacity_bytes=capacity,
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
    own: Any = plan_bars(plan([3]), title="Mine")
    assert own.layout.title.text.startswith("Mine<br>")


@pytest.mark.parametrize(("parts", "first"), [(64, 1), (65, 65)])
def test_more_than_64_micro_batches_are_sorted(parts: int, first: int) -> None:
    figure: Any = plan_bars(plan([*range(1, parts + 1)], capacity=100 * MIB))
    assert figure.data[1].y[0] == first


def test_a_plan_without_micro_batches() -> None:
    with pytest.raises(ValueError, match="no micro-batches"):
        plan_bars(plan([]))
