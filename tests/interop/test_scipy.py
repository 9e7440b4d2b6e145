"""Sparse matrices of scipy: round trips are exact."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given

import workbench as wb
from tests.interop.exact import assert_fields_equal
from tests.strategies import graphs, random_graph
from workbench.interop import (
    from_scipy,
    to_scipy,
)


@given(graphs())
def test_scipy_round_trip(graph):
    pytest.importorskip("scipy")
    matrix = to_scipy(graph)
    again = from_scipy(matrix, weighted=graph.edge_weight is not None)
    plain = replace(graph, edge_ids=None, edge_type=None, indices=graph.indices.int())
    assert_fields_equal(again, plain)
    dense = np.zeros((graph.num_nodes, graph.num_nodes))
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    np.add.at(dense, (rows.numpy(), graph.indices.numpy()), weight.numpy())
    np.testing.assert_allclose(matrix.toarray(), dense, rtol=1e-6)


def test_changes_of_the_matrix_do_not_reach_the_graph():
    pytest.importorskip("scipy")
    edges = torch.tensor([2, 0, 2, 1], dtype=torch.int32), torch.tensor([0, 0, 0, 2], dtype=torch.int32)
    graph = wb.Graph.from_edges(*edges, edge_weight=torch.tensor([1.0, 2.0, 4.0, 8.0]))
    before = {name: value.clone() for name, value in vars(graph).items() if isinstance(value, torch.Tensor)}
    matrix = graph.to_scipy()
    matrix.sum_duplicates()
    matrix.data *= 2
    assert matrix.toarray()[0].tolist() == [4, 0, 10]
    assert before.keys() >= {"indptr", "indices", "edge_weight"}
    for name, value in before.items():
        assert torch.equal(getattr(graph, name), value), name


def test_scipy_rejects_and_widens():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        from_scipy(sparse.csr_array((2, 3)))
    assert to_scipy(random_graph(edge_weight=torch.bfloat16)).dtype == np.float32


def test_from_scipy_checks_structure():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"matrix is a ndarray; pass a sparse one: scipy.sparse.csr_array\(matrix\)"):
        from_scipy(np.eye(2))
    with pytest.raises(TypeError, match=r"contains int64, but weights must be floating point; .* weighted=False"):
        from_scipy(sparse.csr_array(np.eye(2, dtype=np.int64)))
    matrix = sparse.csr_array(np.ones((3, 3)))
    matrix.indices[4] = 7
    with pytest.raises(ValueError, match=r"indices contains 7; sources must be in \[0, 3\)"):
        from_scipy(matrix)
    matrix.indptr[1] = 8
    with pytest.raises(ValueError, match="indptr must be non-decreasing, but it decreases after row 1, from 8 to 6"):
        from_scipy(matrix)
