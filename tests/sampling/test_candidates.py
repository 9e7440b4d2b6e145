"""Candidates: excluded edges, huge offsets, and a clean scratch memory after errors."""

import pytest
import torch

from tests.sampling.stars import rows_of, star
from tests.strategies import random_graph
from workbench.core.graph import Graph
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.sampler import candidates, excluded_positions


def test_exactly_the_excluded_edges_are_missing() -> None:
    graph = random_graph(20, 300, seed=2)
    ids = torch.arange(0, 300, 3)
    full = NeighborSampler([-1], edge_ids=True).sample(graph, torch.arange(20), exclude_edges=ids)
    assert full.blocks[0].edge_ids is not None
    assert set(full.blocks[0].edge_ids.tolist()) == set(range(300)) - set(ids.tolist())
    for by_weight in (False, True):
        weighted = random_graph(20, 300, seed=2, edge_weight=torch.float32)
        sampler = NeighborSampler([4], edge_ids=True, weighted=by_weight)
        some = sampler.sample(weighted, torch.arange(20), exclude_edges=ids)
        assert some.blocks[0].edge_ids is not None
        assert not set(some.blocks[0].edge_ids.tolist()) & set(ids.tolist())


def test_edge_ids_of_a_subgraph_can_be_excluded() -> None:
    graph = Graph(torch.tensor([0, 2, 2]), torch.tensor([0, 1], dtype=torch.int32), torch.tensor([10, 20]))
    mb = NeighborSampler([2], edge_ids=True).sample(graph, torch.tensor([0]), exclude_edges=torch.tensor([20]))
    assert mb.blocks[0].edge_ids is not None and mb.blocks[0].edge_ids.tolist() == [10]


def test_sources_out_of_range_are_refused_and_scratch_memory_is_clean() -> None:
    broken = Graph(torch.tensor([0, 3, 3]), torch.tensor([1, 400_000_000, 1], dtype=torch.int32))
    with pytest.raises(IndexError, match=r"400000000; sources must be in \[0, 2\)"):
        NeighborSampler([3, 3]).sample(broken, torch.tensor([0]))
    assert rows_of(NeighborSampler([2]).sample(star(1), torch.tensor([0]))) == [[1]]


def test_offsets_beyond_two_to_the_31(tmp_path) -> None:
    """A row that begins at edge 2³¹ + 5 of a sparse file."""
    edges = 2**31 + 9
    with open(tmp_path / "indices", "wb") as file:
        file.truncate(edges * 4)
    indices = torch.from_file(str(tmp_path / "indices"), shared=False, size=edges, dtype=torch.int32)
    indices[-4:] = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    graph = Graph(torch.tensor([0, edges - 4, edges, edges, edges, edges]), indices)
    mb = NeighborSampler([4, 2], edge_ids=True).sample(graph, torch.tensor([1]))
    assert mb.blocks[0].edge_ids is not None
    assert set(rows_of(mb, 1)[0]) <= {1, 2, 3, 4}
    assert len(set(rows_of(mb, 1)[0])) == 2
    assert mb.blocks[0].edge_ids[:4].tolist() == list(range(edges - 4, edges))
    few = NeighborSampler([2]).sample(graph, torch.tensor([0]))  # a row of 2³¹ + 5 edges
    assert rows_of(few) == [[0, 0]]


@pytest.mark.parametrize("excluded", [[], [0], [0, 1, 2, 199], [199, 5, 5, 6, 7, 8, 9, 100], list(range(200))])
@pytest.mark.parametrize("edge_ids", [False, True])
def test_candidates_are_the_edges_of_a_row_that_are_not_excluded(excluded: list[int], edge_ids: bool) -> None:
    graph, nodes = random_graph(20, 200, seed=1, edge_ids=edge_ids), torch.tensor([3, 19, 0, 3, 7])
    ids = graph.edge_ids if graph.edge_ids is not None else torch.arange(200)
    rows = candidates(graph, nodes, excluded_positions(graph, torch.tensor(excluded, dtype=torch.int32)))
    positions = [position for position in range(200) if int(ids[position]) in excluded]
    assert rows.excluded.tolist() == positions
    for node, degree, first in zip(nodes.tolist(), rows.degrees.tolist(), rows.first_excluded.tolist(), strict=True):
        begin, end = graph.indptr[node : node + 2].tolist()
        assert degree == end - begin - sum(begin <= position < end for position in positions)
        assert first == sum(position < begin for position in positions)


@pytest.mark.parametrize(("ids", "bad"), [([3, 200], 200), ([-1, 3, 900], -1), ([2**40], 2**40)])
def test_excluded_ids_out_of_range_are_named(ids: list[int], bad: int) -> None:
    graph = random_graph(20, 200, seed=1, edge_ids=False)
    with pytest.raises(IndexError, match=rf"edge_ids contains {bad}; ids must be in \[0, 200\)"):
        NeighborSampler([2]).sample(graph, torch.tensor([0]), exclude_edges=torch.tensor(ids))
