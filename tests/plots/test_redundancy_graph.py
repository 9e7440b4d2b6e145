"""The drawing of A and C = A Aᵀ, against sets of neighbours."""

import pytest
import torch

import workbench as wb
from workbench.plots.redundancy_graph import draw_redundancy_graph, shared_neighbors


def batch(seeds: int = 3) -> wb.MiniBatch:
    src, dst = torch.tensor([5, 6, 5, 6, 7, 7]), torch.tensor([0, 0, 1, 1, 1, 2])
    return wb.FullNeighborSampler(1).sample(wb.Graph.from_edges(src, dst, num_nodes=99), torch.arange(seeds))


def test_c_counts_shared_in_neighbours() -> None:
    a, c = shared_neighbors(batch())
    rows = [{5, 6}, {5, 6, 7}, {7}]
    assert a.sum(1).tolist() == [2, 3, 1]
    assert c.tolist() == [[len(x & y) * (i != j) for j, y in enumerate(rows)] for i, x in enumerate(rows)]


def test_the_title_counts_what_the_cut_separates() -> None:
    assert "1 times" in draw_redundancy_graph(batch(), torch.tensor([0, 0, 1])).layout.title.text
    assert "3 times" in draw_redundancy_graph(batch(), torch.tensor([0, 1, 0])).layout.title.text


def test_large_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="65 seeds; at most 64"):
        draw_redundancy_graph(batch(65), torch.zeros(65, dtype=torch.int64))
