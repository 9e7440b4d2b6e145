"""Memory bars: heights, the budget and who is over it."""

from typing import Any

import pytest

from workbench.partition.redundancy import Redundancy
from workbench.plots.memory import memory_bars

MIB = 2**20


def test_a_bar_a_micro_batch_in_the_unit_of_the_largest() -> None:
    figure: Any = memory_bars([3 * MIB, 2 * MIB, MIB // 2])
    (bars,) = figure.data
    assert (bars.x, bars.y) == ((0, 1, 2), (3, 2, 0.5))
    assert figure.layout.yaxis.title.text == "peak memory (MiB)"
    assert bars.customdata[2] == "512.00 KiB (524,288 bytes)"
    assert "3 micro-batches" in figure.layout.title.text and "largest 3.00 MiB" in figure.layout.title.text
    assert not figure.layout.showlegend and not figure.layout.shapes


def test_over_the_budget_differs_by_colour_and_pattern() -> None:
    figure: Any = memory_bars([3 * MIB, 2 * MIB, 2 * MIB + 1], budget_bytes=2 * MIB)
    within, over = figure.data
    assert (within.name, within.x) == ("within the budget", (1,))
    assert (over.name, over.x) == ("over the budget", (0, 2))
    assert within.marker.color != over.marker.color
    assert (within.marker.pattern.shape, over.marker.pattern.shape) == ("", "/")
    assert figure.layout.shapes[0].y0 == figure.layout.shapes[0].y1 == 2
    assert figure.layout.annotations[0].text == "budget 2.00 MiB"


def test_a_budget_far_above_sets_the_unit_and_nobody_is_over() -> None:
    figure: Any = memory_bars([MIB], budget_bytes=2**30)
    assert [t.name for t in figure.data] == ["within the budget"]
    assert figure.layout.shapes[0].y0 == 1
    assert "1 micro-batch<" in figure.layout.title.text


def test_a_budget_of_nothing_is_exceeded() -> None:
    figure: Any = memory_bars([5], budget_bytes=0)
    assert [t.name for t in figure.data] == ["over the budget"]


def test_redundancy_and_title() -> None:
    figure: Any = memory_bars([MIB], redundancy=Redundancy(1300, 1000, 1.3, 400), title="Cora, REG")
    said = "largest 1.00 MiB · input nodes 1.30 × the batch's · the largest part's 40% of them"
    assert figure.layout.title.text.startswith("Cora, REG<br>") and said in figure.layout.title.text


def test_no_micro_batches() -> None:
    with pytest.raises(ValueError, match="no micro-batches to draw"):
        memory_bars([])
