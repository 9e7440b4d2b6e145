"""Who holds what: the picture against the placement that it shows."""

from typing import Any

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from tests.widgets.test_micro_batch_explorer import control
from workbench.core.dataset import Dataset
from workbench.plots.placement import draw_holders
from workbench.widgets import placement_explorer, placement_view

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
    box = placement_explorer(dataset, buffer_shares=[0.2, 0.1], alphas=[0.5], **OPTIONS)
    assert control(box, "buffer share").value == 0.2
    assert control(box, "topology").value == "4 behind a switch"
    assert control(box, "method").options[0] == "algorithm-1"
