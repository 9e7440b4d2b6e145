"""Affinity blocks, stub matching, edge switching, citations and bipartite graphs against their specifications."""

import pytest
import torch
from hypothesis import given, strategies as st

from workbench.core.graph import Graph
from workbench.standin.bipartite import Side, bipartite_edges
from workbench.standin.classes import citations, num_pairs
from workbench.standin.graph_statistics import clustering, homophily, reciprocity, simple_undirected
from workbench.standin.stand_in import DegreeLaw, GraphShape, degree_sequence
from workbench.standin.topology import (
    Pairs,
    assign_classes,
    between_classes,
    block_density,
    block_pairs,
    class_sizes,
    cut_blocks,
    drop_self_loops,
    match_stubs,
    node_classes,
    pairs_of_graph,
    random_subset,
    relabel,
    simple_graph,
    undirected_graph,
)

LAW = DegreeLaw.lognormal(mean=12.0, sigma=1.0, population=20_000)


def as_set(pairs: Pairs) -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for a, b in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)}


@given(st.integers(1, 400), st.integers(-(2**63), 2**63 - 1))
def test_the_bijection_reaches_every_number_once(count, key):
    assert sorted(random_subset(count, count, key).tolist()) == list(range(count))


@given(st.lists(st.integers(0, 9), min_size=6, max_size=6), st.integers(0, 2**40))
def test_matching_uses_every_stub_but_an_odd_one_within_its_group(stubs, key):
    pairs = match_stubs(torch.tensor(stubs), torch.tensor([0, 2, 6]), key)
    used = torch.bincount(torch.cat(list(pairs)), minlength=6)
    odd = sum(stubs[:2]) % 2 + sum(stubs[2:]) % 2
    assert bool((used <= torch.tensor(stubs)).all()) and int(used.sum()) == sum(stubs) - odd
    assert torch.equal(pairs.left < 2, pairs.right < 2)


def test_blocks_contain_one_class_and_similar_degrees():
    degrees, classes = torch.tensor([1, 2, 2, 3, 3, 3, 1, 1, 9, 9]), torch.tensor([0, 6, 10])
    assert cut_blocks(degrees, classes, 256).tolist() == [0, 1, 4, 6, 7, 8, 10]
    assert cut_blocks(degrees, classes, 2).tolist() == [0, 1, 3, 5, 6, 7, 8, 10]


def test_complete_and_sparse_blocks():
    starts = torch.arange(0, 3001, 10)
    complete = block_pairs(starts, 1.0, key=5)
    assert len(complete.left) == len(as_set(complete)) == 300 * 45
    assert torch.equal(complete.left // 10, complete.right // 10) and bool((complete.left != complete.right).all())
    sparse = block_pairs(starts, 0.3, key=5)
    assert len(sparse.left) == pytest.approx(0.3 * 300 * 45, rel=0.06)
    assert as_set(sparse) < as_set(complete)


def test_clustering_above_that_of_complete_blocks_is_refused():
    degrees = torch.ones(10, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"clustering is 0\.5, but .* reach only 0\.000; pass a larger scale"):
        block_density(degrees, torch.arange(11), 0.5)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_loops_are_dropped_in_place(edges):
    ends = torch.tensor(edges, dtype=torch.int32).reshape(-1, 2)
    remaining = drop_self_loops(Pairs(ends[:, 0].clone(), ends[:, 1].clone()))
    found = sorted(zip(remaining.left.tolist(), remaining.right.tolist(), strict=True))
    assert found == sorted((a, b) for a, b in edges if a != b)


def test_pairs_and_graph_are_converted_back_and_forth():
    pairs = Pairs(torch.tensor([0, 1, 4, 2, 2], dtype=torch.int32), torch.tensor([1, 0, 2, 2, 3], dtype=torch.int32))
    graph = simple_graph(pairs, 5)
    listed = pairs_of_graph(graph)
    assert as_set(listed) == {(0, 1), (2, 4), (2, 3)} and len(listed.left) == 3
    again = simple_graph(listed, 5)
    assert torch.equal(again.indices, graph.indices) and torch.equal(again.indptr, graph.indptr)


def test_relabelling_and_pairs_between_classes():
    pairs = Pairs(torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 2, 0], dtype=torch.int32))
    assert as_set(relabel(pairs, torch.tensor([7, 3, 5], dtype=torch.int32))) == {(3, 7), (3, 5), (5, 7)}
    pairs = Pairs(torch.tensor([0, 1, 2, 0], dtype=torch.int32), torch.tensor([1, 2, 3, 3], dtype=torch.int32))
    classes, allowed = torch.tensor([0, 0, 1, 2]), torch.tensor([True, True, True, False])
    assert between_classes(pairs, classes, allowed).tolist() == [1]
    assert between_classes(pairs, classes, torch.ones(4, dtype=torch.bool)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("target", "same_class"), [(0.1, 0.6), (0.3, 0.8)])
def test_a_graph_meets_degrees_clustering_and_homophily(target, same_class):
    degrees = degree_sequence(LAW, 20_000, 240_000, max_neighbours=19_999)
    order = assign_classes("test", 3, degrees, 10, 0.7)
    graph = undirected_graph("test", 3, order, GraphShape(LAW, clustering=target, homophily=same_class))
    assert simple_undirected(graph) is graph
    assert graph.num_edges == pytest.approx(240_000, rel=0.005)
    targets = torch.empty_like(degrees)
    targets[order.public_ids] = order.degrees
    assert float((graph.in_degrees() == targets).double().mean()) > 0.9
    assert clustering(graph).mean == pytest.approx(target, abs=0.03)
    assert homophily(graph, node_classes(order)) == pytest.approx(same_class, abs=0.03)


def test_class_sizes_are_exact_and_independent_of_degrees_and_ids():
    degrees = degree_sequence(LAW, 20_000, 240_000, max_neighbours=19_999)
    order = assign_classes("test", 0, degrees, 4, 0.5)
    sizes = class_sizes(20_000, 4, 0.5)
    classes = node_classes(order)
    assert torch.equal(torch.bincount(classes), sizes) and sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    means = [float(part.double().mean()) for part in order.degrees.split(sizes.tolist())]
    assert max(means) / min(means) < 1.1
    assert abs(float(torch.corrcoef(torch.stack([classes.double(), torch.arange(20_000.0).double()]))[0, 1])) < 0.05


def test_newer_nodes_cite_older_ones_except_for_mutual_pairs():
    degrees = degree_sequence(LAW, 20_000, 240_000, max_neighbours=19_999)
    order = assign_classes("test", 1, degrees, 5, 0.7)
    both = undirected_graph("test", 1, order, GraphShape(LAW, clustering=0.2, homophily=0.6))
    date = torch.randperm(20_000, generator=torch.Generator().manual_seed(0)).int()
    cited = citations(both, date, 0.2, key=9)
    rows = torch.arange(20_000).repeat_interleave(cited.in_degrees())
    newer = date[cited.indices.long()] > date[rows]
    assert reciprocity(cited) == pytest.approx(0.2, abs=0.01)
    assert float(newer.double().mean()) == pytest.approx(0.9, abs=0.01)  # of each mutual pair one edge isn't newer
    assert torch.equal(simple_undirected(cited).indices, both.indices)
    assert num_pairs(cited.num_edges, 0.2) == pytest.approx(both.num_edges / 2, rel=0.01)
    acyclic = citations(both, date, 0.0, key=9)
    assert acyclic.num_edges == both.num_edges // 2 and reciprocity(acyclic) == 0


def test_bipartite_edges_meet_degrees_and_prefer_the_class():
    generator = torch.Generator().manual_seed(2)
    left = Side(torch.full((600,), 5), torch.randint(0, 6, (600,), generator=generator))
    right = Side(torch.full((300,), 10), torch.randint(0, 6, (300,), generator=generator))
    lefts, rights = bipartite_edges(left, right, share=0.7, key=4)
    assert len(set(zip(lefts.tolist(), rights.tolist(), strict=True))) == len(lefts) >= 2990
    assert bool((torch.bincount(lefts, minlength=600) <= 5).all())
    assert bool((torch.bincount(rights, minlength=300) <= 10).all())
    same_class = float((left.classes[lefts] == right.classes[rights]).double().mean())
    assert 0.65 < same_class < 0.85


def small_graph() -> Graph:
    law = DegreeLaw.lognormal(mean=10.0, sigma=1.0, population=30_000)
    order = assign_classes("test", 5, degree_sequence(law, 30_000, 300_000, max_neighbours=29_999), 8, 0.7)
    return undirected_graph("test", 5, order, GraphShape(law, clustering=0.2, homophily=0.6))


@pytest.fixture(scope="module")
def reference() -> Graph:
    return small_graph()


def test_threads_do_not_change_the_graph(reference, num_threads):
    graph = small_graph()
    assert torch.equal(graph.indptr, reference.indptr) and torch.equal(graph.indices, reference.indices)
