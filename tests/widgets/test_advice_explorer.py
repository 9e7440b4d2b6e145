"""Advice behind controls: the figure is that of the budgets chosen, and nothing is counted again."""

from typing import Any

import pytest

import workbench as wb
from tests.advisor.test_advise import GPU, advised, arxiv as arxiv, reduced
from tests.widgets.controls import control
from workbench.widgets import advice_explorer, advice_view

NAMES = ("memory", "host memory", "devices")


@pytest.fixture(scope="module")
def advice(arxiv: wb.Dataset) -> Any:
    return advised(arxiv, machine=GPU)


def title(figure: Any) -> str:
    return figure.layout.meta["title"]


def test_the_explorer_prices_the_budgets_of_its_controls(advice: Any, monkeypatch: pytest.MonkeyPatch):
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    monkeypatch.setattr("workbench.advisor.counts.Counts._sample", lambda *_: pytest.fail("sampled again"))
    box = advice_explorer(advice)
    pricer = advice.pricer
    initial = pricer.memory_bytes, pricer.host_bytes, pricer.devices
    assert tuple(control(box, name).value for name in NAMES) == initial
    assert "× 1: 4.00 GiB per device, 4.00 GiB of the host" in title(shown[-1])
    control(box, "devices").value = 2
    assert {"placement", "cooperation"} <= {trace.name for trace in shown[-1].data}
    control(box, "memory").value = min(value for _, value in control(box, "memory").options)
    texts = [text for trace in shown[-1].data for text in trace.customdata or ()]
    assert texts and all("micro-batches" in text for text in texts if "cooperation" not in text)


def test_the_view_is_that_of_another_call(arxiv: wb.Dataset, advice: Any):
    host = reduced(arxiv)
    fresh = advised(arxiv, machine=GPU, host_memory=host, devices=1)
    figure: Any = advice_view(advice, host_memory=host)
    traces = [trace for trace in figure.data if trace.customdata is not None]
    assert [trace.name for trace in traces] == ["plain", "disk"]
    assert title(figure).split(" ·")[0].partition(":")[0] == "Advised"
    assert sum(len(trace.x) for trace in traces) == len(fresh.priced)


def test_a_budget_below_the_parameters_says_so(advice: Any):
    with pytest.raises(wb.CapacityError, match="parameters and gradients take"):
        advice_view(advice, memory=100)


def test_budgets_are_relative_to_what_has_a_price(arxiv: wb.Dataset):
    """A configuration without a price has no peak either."""
    machine = wb.Machine(10e9, 5e9, 5e9, 1e11, name="a cluster's node", is_cpu=True)
    advice = advised(arxiv, machine=machine, host_memory=reduced(arxiv))
    assert not all(one.can_be_priced for one in advice.priced)
    peak = min(one.peak_bytes for one in advice.priced if one.can_be_priced)
    values = [value for _, value in control(advice_explorer(advice), "memory").options]
    assert min(values) == round(0.25 * peak)
