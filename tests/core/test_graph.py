"""Graphs as records: checks, edges and their positions, devices, folders."""

import pytest
import torch
from hypothesis import given, strategies as st

from tests.strategies import graphs, random_graph
from workbench.core.errors import CorruptFileError
from workbench.core.graph import Graph
from workbench.meter.peak import measure_peak


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": torch.tensor([1, 2, 3])}, "indptr runs from 1 to 3"),
        ({"indptr": torch.tensor([0, 2, 4])}, "indptr runs from 0 to 4"),
        ({"indptr": torch.empty(0, dtype=torch.int64)}, "indptr is empty"),
        ({"edge_weight": torch.zeros(3, 2)}, r"edge_weight has shape \(3, 2\)"),
        ({"indptr": torch.tensor([0, 2, 3], dtype=torch.int32)}, "indptr must be a tensor of torch.int64"),
        ({"indices": torch.tensor([0.0, 1.0, 0.0])}, "indices must be a tensor"),
        ({"indices": torch.tensor([[0, 1, 0]])}, r"indices has shape \(1, 3\)"),
        ({"edge_ids": torch.arange(2)}, "edge_ids has shape"),
    ],
)
def test_construction_rejects(change, message):
    fields = {"indptr": torch.tensor([0, 2, 3]), "indices": torch.tensor([0, 1, 0])} | change
    with pytest.raises((TypeError, ValueError), match=message):
        Graph(**fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": torch.tensor([0, 4, 3])}, "indptr must be non-decreasing, but it decreases after row 1"),
        ({"indices": torch.tensor([0, 2, 0])}, r"indices contains 2; sources must be in \[0, 2\)"),
        ({"indices": torch.tensor([0, -1, 0])}, "indices contains -1"),
        ({"edge_ids": torch.tensor([0, 1, 1])}, "edge_ids contains 1 more than once"),
        ({"edge_weight": torch.tensor([0.0, float("inf"), 1.0])}, "edge_weight contains inf at position 1"),
    ],
)
def test_validate_checks_everything(change, message):
    fields = {"indptr": torch.tensor([0, 2, 3]), "indices": torch.tensor([0, 1, 0])} | change
    with pytest.raises((IndexError, ValueError), match=message):
        Graph(**fields).validate()


@given(graphs(), st.randoms(use_true_random=False))
def test_find_edges_and_positions(graph, rng):
    pairs = [(rng.randrange(graph.num_nodes), rng.randrange(graph.num_nodes)) for _ in range(6)] * 2
    src, dst = (torch.tensor(ids) for ids in zip(*pairs, strict=True))
    ids = list(range(graph.num_edges)) if graph.edge_ids is None else graph.edge_ids.tolist()
    bounds, sources = graph.indptr.tolist(), graph.indices.tolist()
    expected = [p for s, d in pairs for p in range(bounds[d], bounds[d + 1]) if sources[p] == s]
    edge_ids = graph.find_edges(src, dst)
    assert edge_ids.tolist() == [ids[p] for p in expected]
    assert graph.edge_positions(edge_ids).tolist() == expected


def test_find_edges_rejects():
    graph = random_graph(4, 8)
    with pytest.raises(IndexError, match=r"dst contains 4; ids must be in \[0, 4\)"):
        graph.find_edges(torch.tensor([0]), torch.tensor([4]))
    with pytest.raises(ValueError, match="dst has shape"):
        graph.find_edges(torch.tensor([0]), torch.tensor([1, 2]))


def test_edge_positions_rejects_unknown_ids():
    graph = Graph(torch.tensor([0, 2]), torch.tensor([0, 0]), edge_ids=torch.tensor([5, 2]))
    assert graph.edge_positions(torch.tensor([2, 5, 5], dtype=torch.int32)).tolist() == [1, 0, 0]
    with pytest.raises(IndexError, match="contains 3, which is not an edge of this graph"):
        graph.edge_positions(torch.tensor([2, 3]))
    with pytest.raises(IndexError, match="contains 6"):
        graph.edge_positions(torch.tensor([6]))
    sparse = Graph(torch.tensor([0, 2]), torch.tensor([0, 0]), edge_ids=torch.tensor([2**60, 2**40]))
    assert sparse.edge_positions(torch.tensor([2**40, 2**60])).tolist() == [1, 0]
    for unknown in (6, 2**40 + 1, 2**60 + 1):
        with pytest.raises(IndexError, match=f"contains {unknown}, which is not an edge of this graph"):
            sparse.edge_positions(torch.tensor([unknown]))
    with pytest.raises(IndexError, match="contains 0, which is not an edge"):
        Graph(torch.tensor([0]), torch.tensor([0])[:0], edge_ids=torch.tensor([0])[:0]).edge_positions(
            torch.tensor([0])
        )


def test_memory_of_edge_positions_does_not_grow_with_the_ids():
    num_edges = 50_000
    shuffled = torch.randperm(num_edges, generator=torch.Generator().manual_seed(0))
    for ids in (shuffled, shuffled * 2**20, shuffled + 2**40):
        graph = Graph(torch.tensor([0, num_edges]), torch.zeros(num_edges, dtype=torch.int32), edge_ids=ids)
        wanted, found = ids[::1000], []
        peak_bytes = measure_peak(lambda g=graph, w=wanted, f=found: f.append(g.edge_positions(w)))
        assert found[0].tolist() == list(range(0, num_edges, 1000))
        assert peak_bytes <= 20 * num_edges


def test_to_moves_every_array_and_keeps_shared_storage():
    graph = random_graph(edge_weight=torch.float32, num_edge_types=2, num_node_types=2)
    moved = graph.to("meta")
    assert all(t is not None and t.device.type == "meta" for t in moved._tensors().values())
    assert moved.device.type == "meta"
    assert graph.nbytes == sum(t.numel() * t.element_size() for t in graph._tensors().values() if t is not None)


def test_html_shows_sizes_and_degrees():
    html = Graph.from_edges([1, 2, 1], [0, 0, 1])._repr_html_()
    assert "<th>mean in-degree</th><td>1.00</td>" in html
    assert "<th>largest in-degree</th><td>2</td>" in html
    assert "<td>0</td>" in Graph.from_edges([], [])._repr_html_()


def test_open_checks_indptr(tmp_path):
    """Opening rejects a graph whose offsets decrease: kernels would read outside the mapped file."""
    valid = random_graph(4, 8)
    decreasing = Graph(torch.tensor([0, 8, 2, 4, 8]), valid.indices)
    decreasing.save(tmp_path / "graph")
    with pytest.raises(CorruptFileError, match="non-decreasing, but it decreases after row 1, from 8 to 2"):
        Graph.open(tmp_path / "graph")
