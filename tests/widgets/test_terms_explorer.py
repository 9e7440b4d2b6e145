"""Memory by term behind controls: estimates beside the measured peak, which only runs if it fits."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.core.dataset import Dataset
from workbench.training.profile import profile_epoch
from workbench.widgets import terms_explorer, terms_view


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return wb.load_dataset("synthetic-products", scale=0.001)


def test_the_view_shows_estimates_of_the_largest_micro_batch_and_the_measured_peak(dataset: Dataset) -> None:
    figure: Any = terms_view(dataset, model="gcn", num_parts=3, fanout=(3, 4), hidden_dim=16, method="range")
    batch = wb.NeighborSampler((3, 4), seed=0).sample(dataset.graph, dataset.train_idx)
    micro = batch.split(wb.partition_batch(batch, 3, method="range"))
    model = wb.build_model("gcn", in_dim=dataset.num_features, hidden_dim=16, out_dim=dataset.num_classes)
    optimizer = torch.optim.Adam(model.parameters())
    peak: Any = profile_epoch(model, [micro], dataset.x, dataset.y, cross_entropy, optimizer).peak_bytes
    ours = max(wb.estimate_memory(model, mb, accumulating=part > 0).peak_bytes for part, mb in enumerate(micro))
    measured = next(trace for trace in figure.data if trace.name == "measured")
    assert f"({peak:,} bytes)" in measured.customdata[0]
    heights = [trace.y[0] for trace in figure.data if trace.type == "bar" and trace.name != "measured"]
    assert sum(heights) / measured.y[0] == pytest.approx(ours / peak)
    title = figure.layout.title.text
    assert "gcn, the largest of 3 micro-batches: " in title and f"our terms {ours / peak - 1:+.2%}" in title


def test_steps_that_do_not_fit_are_not_measured(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("workbench.widgets.terms_explorer")  # the package's attribute is the function
    monkeypatch.setattr(module, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(module, "profile_epoch", None)
    figure: Any = terms_view(dataset)
    assert "not measured" in figure.layout.title.text
    assert "measured" not in {trace.name for trace in figure.data}


def test_the_explorer_offers_the_given_choices(dataset: Dataset) -> None:
    box = terms_explorer(dataset, models=["gcn"], num_parts=[2, 1], fanouts=[(2, 3)], hidden_dims=[8])
    values = {widget.description: widget.value for widget in box.children[0].children}
    assert values == {"model": "gcn", "num parts": 2, "fanout": (2, 3), "hidden dim": 8}
    assert box.children[1].description == "Measure"
