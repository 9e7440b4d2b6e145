"""Contract of every graph partitioner."""

import sys

import pytest
import torch

from tests.strategies import random_graph
from workbench.partition.graph import GRAPH_PARTITION_METHODS, partition_graph

GRAPH = random_graph(200, 900, seed=6)


@pytest.mark.parametrize("method", GRAPH_PARTITION_METHODS)
@pytest.mark.parametrize("num_parts", [1, 2, 9, 200])
def test_every_part_has_nodes(method: str, num_parts: int) -> None:
    if method == "metis":
        pytest.importorskip("pymetis")
    part = partition_graph(GRAPH, num_parts, method=method)
    assert part.dtype == torch.int64 and part.shape == (200,)
    assert torch.unique(part).tolist() == list(range(num_parts))
    assert torch.equal(part, partition_graph(GRAPH, num_parts, method=method))
    assert int(torch.bincount(part).max()) <= 1.1 * 200 / num_parts + 2


def test_range_keeps_the_order() -> None:
    assert partition_graph(random_graph(5, 9), 2, method="range").tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("method", ["metis", "random"])
def test_seeds_differ(method: str) -> None:
    if method == "metis":
        pytest.importorskip("pymetis")
    assert len({tuple(partition_graph(GRAPH, 5, method=method, seed=s).tolist()) for s in range(4)}) > 1


def test_metis_cuts_fewer_edges_than_random() -> None:
    pytest.importorskip("pymetis")
    rows = torch.repeat_interleave(torch.arange(200), GRAPH.indptr.diff())

    def cut(method: str) -> int:
        part = partition_graph(GRAPH, 5, method=method)
        return int((part[rows] != part[GRAPH.indices]).sum())

    assert cut("metis") < 0.9 * cut("random")


def test_degenerate_graphs() -> None:
    for g in (random_graph(6, 0), random_graph(1, 3)):
        part = partition_graph(g, 1)
        assert part.tolist() == [0] * g.num_nodes
    assert torch.unique(partition_graph(random_graph(6, 0), 4)).numel() == 4


def test_bad_arguments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"method 'best' is not known; choose from fennel, ldg, metis, random, range"):
        partition_graph(GRAPH, 2, method="best")
    with pytest.raises(ValueError, match=r"num_parts is 201, but the graph has 200 nodes"):
        partition_graph(GRAPH, 201)
    with pytest.raises(ValueError, match=r"num_parts is 0"):
        partition_graph(GRAPH, 0)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"pip install pymetis"):
        partition_graph(GRAPH, 2)
