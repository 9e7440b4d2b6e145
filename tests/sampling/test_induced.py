"""Edges of induced subgraphs, against a dense matrix."""

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph


def test_edges_between_the_nodes_are_counted():
    graph = random_graph(20, 90)
    dense = torch.zeros(20, 20, dtype=torch.int64)
    rows = torch.arange(20).repeat_interleave(graph.in_degrees())
    dense.index_put_((rows, graph.indices.long()), torch.tensor(1), accumulate=True)
    for nodes in (
        torch.arange(20),
        torch.tensor([3, 17, 5, 4], dtype=torch.int32),
        torch.tensor([], dtype=torch.int64),
    ):
        assert wb.sampling.induced_edges(graph, nodes) == int(dense[nodes.long()][:, nodes.long()].sum())


def test_invalid_nodes():
    graph = random_graph(20, 90)
    with pytest.raises(ValueError, match="nodes contains 3 more than once"):
        wb.sampling.induced_edges(graph, torch.tensor([3, 3]))
    with pytest.raises(IndexError, match="nodes contains 20"):
        wb.sampling.induced_edges(graph, torch.tensor([20]))
