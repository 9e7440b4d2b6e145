"""Scatter plots: the Pareto front against its definition, positions and looks of choices, and a planner's tries."""

from itertools import product
from math import log10, nan
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st

from tests.plots.ticks import shown_number
from workbench.memory.plan import Plan
from workbench.partition.redundancy import Redundancy
from workbench.plots.scatter import distinct_looks, pareto, pareto_front, plan_search

MIB = 2**20
PAIRS = [("host_seconds", "excess"), ("host_bytes", "excess")]
CHOICES = {"reg": (2.0, 100, 1.0), "metis": (0.2, 20, 1.2), "slow": (4.0, 200, 1.1), "random": (0.01, 1, 4.0)}
TABLE = [
    {"choice": name, "data": data, "host_seconds": s, "host_bytes": b * MIB, "excess": e}
    for data in ("x", "y")
    for name, (s, b, e) in CHOICES.items()
]


def drawn(table: Any = TABLE, **options: Any) -> Any:
    return pareto(table, PAIRS, group="choice", facet="data", **options)


def of(figure: Any, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def dominated(point: tuple, other: tuple) -> bool:
    return other[0] <= point[0] and other[1] <= point[1] and other != point


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_the_front_is_the_points_that_no_other_point_dominates(points: list[tuple[int, int]]) -> None:
    found = pareto_front(points)
    best = {point for point in points if not any(dominated(point, other) for other in points)}
    assert {points[place] for place in found} == best and len(found) == len(best)
    assert [points[place][0] for place in found] == sorted({x for x, _ in best})


def test_points_with_nan_are_not_on_the_front() -> None:
    assert pareto_front([(nan, 0), (1, nan), (2, 2)]) == [2]


def test_no_two_choices_share_colour_and_symbol() -> None:
    looks = distinct_looks(["reg", "metis", *range(60)])
    assert len({(look.color, look.symbol) for look in looks.values()}) == 62
    assert (looks["reg"].color, looks["metis"].name) == (distinct_looks(["reg"])["reg"].color, "METIS")
    assert looks["reg"].symbol == "circle"


def test_one_marker_per_choice_and_panel_in_the_unit_of_its_axis() -> None:
    figure = drawn()
    regs = of(figure, "REG")
    assert [(t.x, t.y, t.xaxis) for t in regs] == [
        ((2.0,), (1.0,), "x"), ((2.0,), (1.0,), "x2"), ((100.0,), (1.0,), "x3"), ((100.0,), (1.0,), "x4"),
    ]  # fmt: skip
    assert [t.showlegend for t in regs] == [True, False, False, False]
    assert figure.layout.xaxis.title.text == "host (s)" and figure.layout.xaxis3.title.text == "host (MiB)"
    assert [a.text for a in figure.layout.annotations] == ["<b>x</b>", "<b>y</b>"]


def test_the_line_connects_the_front() -> None:
    for edge in of(drawn(), "Pareto front")[:2]:
        assert (edge.x, edge.y, edge.line.shape) == ((0.01, 0.2, 2.0), (4.0, 1.2, 1.0), "hv")


def test_hover_shows_all_quantities() -> None:
    names = {"excess": "inputs beyond the batch's"}
    (text, *_) = (trace.hovertemplate for trace in of(drawn(names=names), "slow"))
    assert text == "<b>slow</b><br>host: 4 s<br>inputs beyond the batch's: 1.1<br>host: 200.00 MiB<extra></extra>"


def test_rows_without_a_value_are_missing_in_its_panels_only() -> None:
    table = pd.DataFrame(TABLE)
    table.loc[table.choice == "metis", "host_bytes"] = None
    table.loc[table.choice == "slow", "excess"] = 0.0
    figure = drawn(table)
    assert [trace.xaxis for trace in of(figure, "METIS")] == ["x", "x2"]
    assert of(figure, "slow") == []


@pytest.mark.parametrize(("low", "high"), [*product([0.003, 1.1, 180], [1.04, 1.5, 9, 300, 1e7])])
def test_ticks_are_in_range_and_show_their_value(low: float, high: float) -> None:
    table = pd.DataFrame(TABLE[:2]).assign(excess=[low, low * high])
    axis = drawn(table).layout.yaxis
    assert 2 <= len(axis.tickvals) <= 8
    assert all(10 ** axis.range[0] <= tick <= 10 ** axis.range[1] for tick in axis.tickvals)
    assert [shown_number(text) for text in axis.ticktext] == pytest.approx(list(axis.tickvals), rel=1e-4)
    assert axis.range[0] < log10(low) and axis.range[1] > log10(low * high)


def test_no_values() -> None:
    with pytest.raises(ValueError, match="no row of the table has host_seconds and excess"):
        drawn(pd.DataFrame(TABLE).assign(excess=None))
    with pytest.raises(ValueError, match="run the experiment"):
        drawn([])


def plan(num_parts: int, tried: tuple[tuple[int, int], ...]) -> Plan:
    return Plan(
        assignment=torch.zeros(0, dtype=torch.int64),
        micro=(None,) * num_parts,  # pyright: ignore[reportArgumentType]
        estimates=(),
        method="reg",
        strategy="even",
        memory_bytes=10 * MIB,
        redundancy=Redundancy(1300, 1000, 1.3, 400),
        seconds={},
        tried=tried,
    )


def test_tries_and_which_of_them_fit() -> None:
    tried = ((1, 40 * MIB), (5, 9 * MIB), (3, 11 * MIB), (4, 10 * MIB), (2, 10 * MIB))  # 2: not within the margin
    figure: Any = plan_search(plan(4, tried))
    fits, too_large = figure.data
    assert (fits.x, fits.y) == ((2, 4), (5, 4))
    assert (too_large.x, too_large.y) == ((1, 3, 5), (1, 3, 2))
    assert fits.customdata == ("9.00 MiB (9,437,184 bytes)", "10.00 MiB (10,485,760 bytes)")
    assert figure.layout.title.text == "K = 4 found in 5 tries, without a training step"
    whole: Any = plan_search(plan(1, ((1, MIB),)))
    assert whole.layout.title.text.startswith("The whole batch fits")


def test_no_tries() -> None:
    with pytest.raises(ValueError, match="tried no number"):
        plan_search(plan(0, ()))
