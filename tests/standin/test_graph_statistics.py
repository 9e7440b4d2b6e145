"""Graph statistics against brute force on tiny graphs, and on graphs whose statistics are known."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from workbench.core.graph import Graph
from workbench.standin.graph_statistics import (
    clustering,
    degree_quantiles,
    graph_statistics,
    homophily,
    local_clustering,
    reciprocity,
    simple_undirected,
)

edge_lists = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40)


def graph_of(edges: list[tuple[int, int]]) -> Graph:
    pairs = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2)
    return Graph.from_edges(pairs[:, 0], pairs[:, 1], num_nodes=9)


def neighbours_of(edges: list[tuple[int, int]]) -> list[set[int]]:
    return [{b for a, b in edges if a == v} | {a for a, b in edges if b == v} for v in range(9)]


def brute_force_clustering(edges: list[tuple[int, int]]) -> list[float]:
    neighbours = [set(n) - {v} for v, n in enumerate(neighbours_of(edges))]
    pairs = [list(combinations(n, 2)) for n in neighbours]
    return [sum(b in neighbours[a] for a, b in p) / len(p) if p else 0.0 for p in pairs]


@given(edge_lists)
def test_clustering_against_brute_force(edges):
    simple = simple_undirected(graph_of(edges))
    expected = brute_force_clustering(edges)
    assert local_clustering(simple, torch.arange(9)).tolist() == pytest.approx(expected)
    found = clustering(graph_of(edges))
    assert found.mean == pytest.approx(np.mean(expected)) and found.standard_error == 0 and found.num_nodes == 9


@given(edge_lists)
def test_reciprocity_against_brute_force(edges):
    proper = [(a, b) for a, b in edges if a != b]
    expected = np.mean([(b, a) in proper for a, b in proper]) if proper else None
    found = reciprocity(graph_of(edges))
    assert found is None if expected is None else found == pytest.approx(expected)


@given(edge_lists, st.lists(st.integers(-1, 2), min_size=9, max_size=9))
def test_homophily_against_brute_force(edges, labels):
    both = [(labels[a], labels[b]) for a, b in edges if labels[a] >= 0 and labels[b] >= 0]
    found = homophily(graph_of(edges), torch.tensor(labels))
    assert found is None if not both else found == pytest.approx(np.mean([a == b for a, b in both]))


@given(edge_lists)
def test_the_undirected_graph_is_simple_symmetric_and_idempotent(edges):
    simple = simple_undirected(graph_of(edges))
    neighbours = [sorted(n - {v}) for v, n in enumerate(neighbours_of(edges))]
    assert [simple.indices[simple.indptr[v] : simple.indptr[v + 1]].tolist() for v in range(9)] == neighbours
    assert simple_undirected(simple) is simple


def dense_graph(nodes: int, density: float, seed: int) -> Graph:
    upper = np.triu(np.random.default_rng(seed).random((nodes, nodes)) < density, 1)
    src, dst = upper.nonzero()
    return Graph.from_edges(src, dst, num_nodes=nodes, undirected=True)


def test_rows_of_very_different_length(num_threads):
    star = Graph.from_edges([0] * 400 + [1, 1], [*range(1, 401), 2, 3], num_nodes=401, undirected=True)
    values = local_clustering(simple_undirected(star), torch.arange(401))
    assert values[:5].tolist() == pytest.approx([2 / (400 * 399 / 2), 2 / 3, 1.0, 1.0, 0.0])


def test_a_sample_is_accurate_and_reproducible():
    graph = dense_graph(600, 0.05, seed=1)
    exact, sampled = clustering(graph), clustering(graph, num_nodes=200, seed=3)
    assert sampled.num_nodes == 200 and sampled.standard_error > 0
    assert abs(sampled.mean - exact.mean) < 4 * sampled.standard_error
    assert sampled == clustering(graph, num_nodes=200, seed=3) != clustering(graph, num_nodes=200, seed=4)


def test_statistics_of_a_triangle_with_a_tail():
    graph = Graph.from_edges([0, 1, 2, 2], [1, 2, 0, 3], num_nodes=5)
    statistics = graph_statistics(graph, torch.tensor([0, 0, 1, 1, -1]))
    assert (statistics.num_nodes, statistics.num_edges, statistics.largest_degree) == (5, 4, 3)
    assert statistics.mean_degree == pytest.approx(8 / 5)
    assert dict(statistics.degree_quantiles)[0.5] == 2
    assert statistics.clustering.mean == pytest.approx((1 + 1 + 1 / 3) / 5)
    assert statistics.reciprocity == 0 and statistics.homophily == pytest.approx(2 / 4)


def test_homophily_is_undefined_for_several_labels():
    assert homophily(graph_of([(0, 1)]), torch.ones(9, 2)) is None


def test_a_graph_without_nodes_or_edges():
    statistics = graph_statistics(Graph(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int64)))
    assert statistics.clustering.mean == 0 and statistics.reciprocity is None and statistics.degree_quantiles == ()
    assert graph_statistics(graph_of([])).largest_degree == 0


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="num_nodes is 0"):
        clustering(graph_of([(0, 1)]), num_nodes=0)
    with pytest.raises(ValueError, match="first dimension must be 9"):
        homophily(graph_of([(0, 1)]), torch.zeros(3, dtype=torch.int64))


@given(st.lists(st.integers(0, 50), min_size=1), st.floats(0.01, 1))
def test_quantiles_against_their_definition(degrees, share):
    values = torch.tensor(degrees)
    ((_, found),) = degree_quantiles(values, [share])
    assert found in degrees
    assert (values <= found).double().mean() >= share - 1e-6
    assert (values < found).double().mean() < share + 1e-6
