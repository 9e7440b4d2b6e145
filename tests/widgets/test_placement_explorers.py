"""Who holds what: the picture against the placement that it shows."""

from typing import Any

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from tests.widgets.controls import control
from workbench.core.dataset import Dataset
from workbench.plots.heat_maps import draw_holders
from workbench.sampling.batches import EpochOrder
from workbench.widgets import LOCALITY_FACTORS, locality_explorer, locality_view, placement_explorer, placement_view

OPTIONS: dict[str, Any] = {"fanouts": (3, 4), "batch_size": 6}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    nodes = torch.arange(300)
    x, (train, val, test) = torch.zeros(300, 8), nodes.split([200, 100, 0])
    graph = random_graph(300, 1500, edge_ids=False)
    return Dataset.build(graph, x, nodes % 3, train_idx=train, val_idx=val, test_idx=test, name="toy")


def panels(figure: Any) -> list[torch.Tensor]:
    return [torch.tensor(trace.z) for trace in figure.data if trace.type == "heatmap"]


def test_a_small_picture_shows_every_row() -> None:
    p = torch.tensor([0.0, 5, 4, 3, 2, 1])
    placed = wb.placement.place_rows(p, num_devices=2, rows_per_device=2, peer_cost=0.3)
    figure: Any = draw_holders([("example", placed)], title="t")
    assert list(figure.data[1].x) == ["1", "2", "3", "4", "5", "0"]
    (shares,) = panels(figure)
    assert shares.tolist() == [[1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1]]
    assert list(figure.data[0].y) == [5, 4, 3, 2, 1, 0]
    with pytest.raises(ValueError, match="there is no placement, or no row, to draw"):
        draw_holders([], title="t")


def test_columns_of_many_rows_are_shares_of_the_buffers(dataset: Dataset) -> None:
    figure: Any = placement_view(dataset, buffer_share=0.2, alpha=0.1, topology="2 pairs", rival="random", **OPTIONS)
    ours, random = panels(figure)
    assert ours.shape == random.shape == (5, 80)
    for shares, covered in ((ours, 120), (random, 240)):  # pairs hold the same rows; random parts are disjoint
        rows = [int(name.replace(",", "").split("–")[1]) for name in figure.data[1].x]
        sizes = torch.tensor(rows).diff(prepend=torch.zeros(1, dtype=torch.int64))
        held = (shares[:4] * sizes).sum(1)
        assert held.tolist() == pytest.approx([60.0] * 4)
        assert float((shares[4] * sizes).sum()) == pytest.approx(300 - covered)


def test_the_titles_tell_costs_and_duplicates(dataset: Dataset) -> None:
    figure: Any = placement_view(dataset, buffer_share=0.1, alpha=1.0, topology="2 behind a switch", **OPTIONS)
    told = [note.text for note in figure.layout.annotations]
    assert any("algorithm-1: costs" in text and "30 duplicates" in text for text in told)
    assert "30 rows per device, 2 behind a switch, α = 1" in figure.layout.title.text
    with pytest.raises(ValueError, match="topology 'ring' is not known"):
        placement_view(dataset, topology="ring", **OPTIONS)


def test_the_explorer_offers_the_given_choices(dataset: Dataset) -> None:
    box = placement_explorer(dataset, **OPTIONS)
    assert control(box, "buffer share").value == 0.1
    assert control(box, "topology").value == "4 behind a switch"
    assert control(box, "method").options[0] == "algorithm-1"


LOCALITY: dict[str, Any] = {"fanouts": (3, 4), "batch_size": 20}


@pytest.fixture(scope="module")
def graph_to_move() -> Dataset:
    nodes = torch.arange(600)
    x, (train, val, test) = torch.zeros(600, 8), nodes.split([400, 200, 0])
    graph = random_graph(600, 9000, edge_ids=False)
    return Dataset.build(graph, x, nodes % 3, train_idx=train, val_idx=val, test_idx=test, name="toy")


def values(figure: Any) -> dict[tuple[str, str], list[float]]:
    return {(trace.name, trace.yaxis): list(trace.y) for trace in figure.data if trace.name}


def test_lines_are_means_of_batches_and_plain_sampling_is_where_they_start(graph_to_move: Dataset) -> None:
    found = values(locality_view(graph_to_move, factor=4, **LOCALITY))
    assert len(found) == 4 and all(len(line) == len(LOCALITY_FACTORS) for line in found.values())
    moved, read = (found["unbiased", axis] for axis in ("y", "y2"))
    assert all(0 < a < b for a, b in zip(moved, read, strict=True)) and moved[-1] < moved[0]
    plain = wb.placement.LocalitySampler((3, 4), torch.ones(600))
    counts = [
        plain.sample(graph_to_move.graph, graph_to_move.train_idx[order], step=step).num_inputs
        for step, order in EpochOrder(400, 20).positions(0)
        if step < 8
    ]
    assert read[0] == pytest.approx(sum(counts) / 8)


def test_a_factor_of_ones_own_is_drawn_and_told(graph_to_move: Dataset) -> None:
    figure: Any = locality_view(graph_to_move, factor=8, hops=1, **LOCALITY)
    assert list(figure.data[0].x) == [1, 2, 4, 8, 16, 64]
    assert "f = 8:" in figure.layout.title.text
    with pytest.raises(ValueError, match="factor is 0"):
        locality_view(graph_to_move, factor=0, **LOCALITY)


def test_the_locality_explorer_offers_the_given_choices(graph_to_move: Dataset) -> None:
    box = locality_explorer(graph_to_move, **LOCALITY)
    assert control(box, "factor").value == 4 and control(box, "buffer share").value == 0.1
