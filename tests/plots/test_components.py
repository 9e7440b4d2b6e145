"""Components drawn: panels with units of their own, totals, what was measured beside what was counted."""

from typing import Any

import pytest

from workbench.plots.components import Component, component_bars

MIB = 2**20
TERMS_A = {"parameters": MIB, "inputs": 2 * MIB, "aggregator": MIB}


def components() -> list[Component]:
    return [
        Component("mean", "x", "ours", TERMS_A, 4 * MIB),
        Component("mean", "x", "measured", None, 5 * MIB),
        Component("lstm", "x", "ours", {"inputs": 3 * 2**30}, 3 * 2**30),
    ]


def test_components_stand_in_panels_of_their_own_unit() -> None:
    figure: Any = component_bars(components(), title="Found")
    assert (figure.layout.yaxis.title.text, figure.layout.yaxis2.title.text) == (
        "peak memory (MiB)",
        "peak memory (GiB)",
    )
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
