"""Pictures of orders: a row per state, a column per partition, on the same axes."""

from typing import Any

import pytest
import torch

import workbench as wb
from workbench.plots.heat_maps import draw_redundancy_graph, draw_sequences, shared_neighbors


def test_cells_are_absent_kept_or_loaded() -> None:
    figure: Any = draw_sequences([("BETA", wb.outofcore.beta_order(3, 2))], title="t")
    drawn = figure.data[0]
    assert [list(line) for line in drawn.z] == [[2, 2, 0], [1, 0, 2], [0, 2, 1]]
    assert [line[0] for line in drawn.customdata] == [4, 3, 2], "buckets that a state trains"
    assert {trace.name for trace in figure.data[1:]} == {"in the buffer", "loaded"}


def test_panels_share_their_axes() -> None:
    figure: Any = draw_sequences(
        [("a", wb.outofcore.beta_order(3, 2)), ("b", wb.outofcore.beta_order(8, 2))], title=None
    )
    states = wb.outofcore.beta_order(8, 2).num_states
    for axis in ("yaxis", "yaxis2"):
        assert list(figure.layout[axis].range) == [states - 0.5, -0.5]
    for axis in ("xaxis", "xaxis2"):
        assert list(figure.layout[axis].range) == [-0.5, 7.5]
    assert [note.text for note in figure.layout.annotations] == ["<b>a</b>", "<b>b</b>"]


def test_no_orders() -> None:
    with pytest.raises(ValueError, match="no order to draw"):
        draw_sequences([], title="t")


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
