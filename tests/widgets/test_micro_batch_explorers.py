"""Peak memory of micro-batches: the figure against a measurement by hand."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph
from tests.widgets.controls import control
from workbench.core.dataset import Dataset
from workbench.training.profile import profile_epoch
from workbench.widgets import (
    curve_explorer,
    curve_view,
    degree_view,
    micro_batch_explorer,
    micro_batch_view,
    terms_explorer,
    terms_view,
)


@pytest.fixture
def dataset() -> Dataset:
    graph = random_graph(300, 1500, edge_ids=False)
    nodes = torch.arange(300)
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    return Dataset.build(
        graph, x, nodes % 3, train_idx=nodes[:200], val_idx=nodes[200:250], test_idx=nodes[250:], name="toy"
    )


@pytest.mark.parametrize("method", ["range", "cluster"])
def test_the_view_shows_the_measured_peaks(dataset: Dataset, method: str) -> None:
    options = {"method": method, "fanout": (3, 4), "hidden_dim": 16, "num_seeds": 50}
    figure: Any = micro_batch_view(dataset, num_parts=4, capacity_bytes=10**9, **options)
    batch = wb.NeighborSampler((3, 4), seed=0).sample(dataset.graph, dataset.train_idx[:50])
    node_parts = wb.partition_graph(dataset.graph, 4, seed=0) if method == "cluster" else None
    micro = batch.split(wb.partition_batch(batch, 4, method=method, node_parts=node_parts))
    model = wb.build_model("sage-mean", in_dim=8, hidden_dim=16, out_dim=3)
    optimizer = torch.optim.Adam(model.parameters())
    peaks = profile_epoch(model, [micro], dataset.x, dataset.y, cross_entropy, optimizer).part_peak_bytes
    (bars,) = figure.data
    assert [f"({peak:,} bytes)" in hover for peak, hover in zip(peaks, bars.customdata, strict=True)] == [True] * len(
        micro
    )
    ratio = sum(m.num_inputs for m in micro) / batch.num_inputs
    assert f"input nodes {ratio:.2f} × the batch's" in figure.layout.annotations[0].text
    assert f"K = {len(micro)}, fanouts 3, 4" in figure.layout.title.text


def test_two_methods_are_drawn_on_the_axis_of_the_whole_batch(dataset: Dataset) -> None:
    options: dict[str, Any] = {"fanout": (3, 4), "num_seeds": 50, "num_parts": 4}
    both: Any = micro_batch_view(dataset, method="range", against="random", budget=0.5, **options)
    alone: Any = micro_batch_view(dataset, method="range", **options)
    assert "range and random, K = 4" in both.layout.title.text and "range, K = 4" in alone.layout.title.text
    assert both.layout.yaxis.range == alone.layout.yaxis.range and both.layout.yaxis2.matches == "y"
    assert {trace.xaxis for trace in both.data} == {"x", "x2"}
    (axis, *_) = [line.y0 for line in both.layout.shapes]
    assert any(line.y0 == pytest.approx(axis / 2, rel=1e-6) for line in both.layout.shapes)


def test_a_cut_into_fewer_parts_than_asked_for_says_so(dataset: Dataset) -> None:
    seeds, asked = dataset.train_idx[:8], 8
    node_parts = wb.partition_graph(dataset.graph, asked, seed=0)
    parts = int(torch.unique(node_parts[seeds]).numel())
    assert parts < asked
    figure: Any = micro_batch_view(dataset, method="cluster", num_parts=asked, fanout=(2,), num_seeds=len(seeds))
    assert f"({parts} parts), K = {asked}" in figure.layout.title.text


def test_no_more_micro_batches_than_seeds(dataset: Dataset) -> None:
    figure: Any = micro_batch_view(dataset, method="range", num_parts=8, fanout=(2,), num_seeds=3)
    assert len(figure.data[0].x) == 3


def test_the_explorer_offers_the_given_choices(dataset: Dataset) -> None:
    box = micro_batch_explorer(dataset, fanouts=[(2, 3)], num_seeds=20)
    assert control(box, "method").value == "reg" and control(box, "against").value is None
    assert control(box, "num parts").value == 4
    assert control(box, "fanout").value == (2, 3)


@pytest.fixture(scope="module")
def data() -> Any:
    return wb.load_dataset("synthetic-products", scale=0.001)


def test_the_parts_add_up_to_the_graphs_in_degrees(data: Any) -> None:
    figure: Any = degree_view(data, method="range", num_parts=3, fanout=4)
    batch, *parts = figure.data
    degrees = data.graph.indptr.diff()[data.train_idx].clamp(max=4)
    assert list(batch.y) == degrees.bincount(minlength=5).tolist()
    assert [sum(values) for values in zip(*(part.y for part in parts), strict=True)] == list(batch.y)
    assert figure.layout.title.text.startswith("synthetic-products: range, K = 3<br>")


def test_the_subtitle_states_the_imbalance(data: Any) -> None:
    figure: Any = degree_view(data, method="metis", num_parts=2, fanout=4)
    first, second = (part.y for part in figure.data[1:])
    shares = [1 - min(pair) / max(pair) for pair in ((sum(first), sum(second)), (first[4], second[4]))]
    assert f"differ by {shares[0]:.0%} in seeds, {shares[1]:.0%} in the last bucket" in figure.layout.title.text


def test_more_parts_than_colours(data: Any) -> None:
    with pytest.raises(ValueError, match="there are 8 names"):
        degree_view(data, method="range", num_parts=7)


SMALL: dict[str, Any] = {"fanout": (3, 3), "hidden_dim": 8, "epochs": 3}


def test_micro_batches_match_the_whole_batch_and_mini_batches_do_not(data: Any) -> None:
    figure: Any = curve_view(data, num_parts=4, **SMALL)
    losses = {trace.name: trace.y for trace in figure.data if trace.yaxis == "y"}
    assert set(losses) == {"whole batch", "micro-batches", "mini-batches"}
    assert losses["micro-batches"] == pytest.approx(losses["whole batch"], abs=1e-5)
    assert abs(losses["mini-batches"][-1] - losses["whole batch"][-1]) > 0.1
    accuracies = [trace.y for trace in figure.data if trace.yaxis == "y2"]
    assert len(accuracies) == 3 and all(0 <= value <= 1 for line in accuracies for value in line)
    assert figure.layout.title.text == "synthetic-products: sage-mean, K = 4, dropout 0.5"


def test_dropout_and_model_reach_the_training(data: Any) -> None:
    choices: list[dict[str, Any]] = [{"dropout": 0.0}, {"model": "gcn"}, {}]
    views: list[Any] = [curve_view(data, num_parts=2, **SMALL, **more) for more in choices]
    assert len({view.data[0].y for view in views}) == 3


def test_the_explorer_trains(data: Any) -> None:
    pytest.importorskip("ipywidgets")
    assert curve_explorer(data, **SMALL) is not None


def test_the_view_shows_estimates_of_the_largest_micro_batch_and_the_measured_peak(data: Any) -> None:
    figure: Any = terms_view(data, model="gcn", num_parts=3, fanout=(3, 4), hidden_dim=16, method="range")
    batch = wb.NeighborSampler((3, 4), seed=0).sample(data.graph, data.train_idx)
    micro = batch.split(wb.partition_batch(batch, 3, method="range"))
    model = wb.build_model("gcn", in_dim=data.num_features, hidden_dim=16, out_dim=data.num_classes)
    optimizer = torch.optim.Adam(model.parameters())
    peak: Any = profile_epoch(model, [micro], data.x, data.y, cross_entropy, optimizer).peak_bytes
    ours = max(wb.estimate_memory(model, mb, accumulating=part > 0).peak_bytes for part, mb in enumerate(micro))
    measured = next(trace for trace in figure.data if trace.name == "measured")
    assert f"({peak:,} bytes)" in measured.customdata[0]
    heights = [trace.y[0] for trace in figure.data if trace.type == "bar" and trace.name != "measured"]
    assert sum(heights) / measured.y[0] == pytest.approx(ours / peak)
    title = figure.layout.title.text
    assert "gcn, the largest of 3 micro-batches: " in title and f"our terms {ours / peak - 1:+.2%}" in title


def test_steps_that_do_not_fit_are_not_measured(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("workbench.widgets.micro_batch_explorers")
    monkeypatch.setattr(module, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(module, "profile_epoch", None)
    figure: Any = terms_view(data)
    assert "not measured" in figure.layout.title.text
    assert "measured" not in {trace.name for trace in figure.data}


def test_the_explorer_of_terms_offers_the_given_choices(data: Any) -> None:
    box = terms_explorer(data, models=["gcn"], fanouts=[(2, 3)])
    values = {widget.description: widget.value for widget in box.children[0].children}
    assert values == {"model": "gcn", "num parts": 1, "fanout": (2, 3), "hidden dim": 64}
    assert box.children[1].description == "Measure"


def test_a_bucket_that_no_seed_is_in_is_even(data: Any) -> None:
    most = int(data.graph.indptr.diff()[data.train_idx].max())
    figure: Any = degree_view(data, method="metis", num_parts=2, fanout=most + 1)
    assert "0% in the last bucket" in figure.layout.title.text and "100%" not in figure.layout.title.text
