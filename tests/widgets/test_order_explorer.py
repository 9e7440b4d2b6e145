"""Orders in a notebook: panels are the orders themselves, headings their loads and bias."""

from typing import Any

import pytest

import workbench as wb
from tests.widgets.controls import control
from workbench.widgets import order_explorer, order_view


def viewed(**orders: wb.outofcore.BucketOrder) -> Any:
    return order_view({name: (order, wb.outofcore.partition_bias(order)) for name, order in orders.items()})


def test_headings_and_title_say_loads_and_bias() -> None:
    beta, comet, even = (
        wb.outofcore.beta_order(12, 4),
        wb.outofcore.comet_order(12, 4),
        wb.outofcore.balanced_order(12, 4),
    )
    figure = viewed(BETA=beta, balanced=even)
    texts = [note.text for note in figure.layout.annotations]
    assert texts[0] == f"<b>BETA: 27 loads (2.25 p), B = {wb.outofcore.partition_bias(beta):.2f}</b>"
    assert texts[1] == f"<b>balanced: 32 loads (2.67 p), B = {wb.outofcore.partition_bias(even):.2f}</b>"
    assert figure.layout.title.text.startswith("BETA loads least; balanced has the least bias<br>")
    assert viewed(COMET=comet, balanced=even).layout.title.text.startswith("Equal loads; balanced has the least bias")
    assert viewed(a=beta, b=beta).layout.title.text.startswith("Equal loads; equal bias<br>")
    assert viewed(BETA=beta).layout.title.text.startswith("BETA: 24 states<br>")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr("IPython.display.display", found.append)
    return found


def test_the_explorer_compares_two_orders(shown: list[Any]) -> None:
    box = order_explorer()
    assert (control(box, "left").value, control(box, "right").value) == ("BETA", "COMET")
    maps = [trace for trace in shown[-1].data if trace.type == "heatmap"]
    assert [len(drawn.z) for drawn in maps] == [
        wb.outofcore.beta_order(16, 4).num_states,
        wb.outofcore.comet_order(16, 4).num_states,
    ]
    control(box, "right").value = "balanced"
    control(box, "epoch").value = 2
    expected = wb.outofcore.balanced_order(16, 4, epoch=2)
    drawn = [trace for trace in shown[-1].data if trace.type == "heatmap"][1]
    assert [[i for i, cell in enumerate(line) if cell] for line in drawn.z] == expected.states.tolist()
    control(box, "left").value = "balanced"
    assert sum(trace.type == "heatmap" for trace in shown[-1].data) == 1, "equal orders are one panel"


def test_impossible_settings_say_what_to_change(shown: list[Any]) -> None:
    box = order_explorer()
    control(box, "logical groups").value = 6
    assert "16 partitions can't be divided into 6 groups" in shown[-1].data
