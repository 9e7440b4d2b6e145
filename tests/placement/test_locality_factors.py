"""`locality_factors`: the boost against a search in plain Python, and its refusals."""

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.strategies import graphs
from workbench.core.graph import Graph
from workbench.placement.locality import one_hop_more_torch


def nearby(graph: Graph, buffered: set[int], hops: int) -> set[int]:
    """Nodes from which at most `hops` steps to in-neighbours lead into the buffer, by walking all paths."""

    def reaches(node: int, left: int) -> bool:
        if node in buffered:
            return True
        row = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
        return left > 0 and any(reaches(source, left - 1) for source in row)

    return {node for node in range(graph.num_nodes) if reaches(node, hops)}


@given(graph=graphs(max_nodes=8, max_edges=14), hops=st.integers(0, 3), data=st.data())
def test_nodes_within_hops_are_boosted(graph: Graph, hops: int, data: st.DataObject) -> None:
    buffered = data.draw(st.sets(st.integers(0, graph.num_nodes - 1)))
    factors = wb.placement.locality_factors(
        graph, torch.tensor(sorted(buffered), dtype=torch.int64), factor=3, hops=hops
    )
    expected = nearby(graph, buffered, hops)
    assert factors.tolist() == [3.0 if node in expected else 1.0 for node in range(graph.num_nodes)]
    near = torch.zeros(graph.num_nodes, dtype=torch.bool)
    near[sorted(buffered)] = True
    for _ in range(hops):
        near = one_hop_more_torch(graph, near)
    assert near.nonzero()[:, 0].tolist() == sorted(expected)


def test_refusals() -> None:
    path = Graph.from_edges([0, 1], [1, 2])
    with pytest.raises(ValueError, match=r"factor is 0\.5; it must be from 1"):
        wb.placement.locality_factors(path, torch.tensor([0]), factor=0.5)
    with pytest.raises(ValueError, match="factor is nan"):
        wb.placement.locality_factors(path, torch.tensor([0]), factor=float("nan"))
    with pytest.raises(ValueError, match="hops is -1"):
        wb.placement.locality_factors(path, torch.tensor([0]), factor=2, hops=-1)
    with pytest.raises(IndexError, match="buffered contains 3"):
        wb.placement.locality_factors(path, torch.tensor([3]), factor=2)
    with pytest.raises(ValueError, match="more than once"):
        wb.placement.locality_factors(path, torch.tensor([1, 1]), factor=2)
    broken = Graph(torch.tensor([0, 1]), torch.tensor([7]))
    with pytest.raises(IndexError, match="indices contains 7"):
        wb.placement.locality_factors(broken, torch.tensor([0]), factor=2, hops=1)
