"""Wiring: blocks, stub matching, switching and citations, each against what it promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.graph import Graph
from workbench.datasets.measure import clustering, homophily, reciprocity, simple_undirected
from workbench.datasets.standin.bipartite import Side, bipartite_edges
from workbench.datasets.standin.blocks import block_density, block_pairs, cut_blocks
from workbench.datasets.standin.citation import citations, pairs_of
from workbench.datasets.standin.degrees import DegreeLaw, degree_sequence
from workbench.datasets.standin.matching import match_stubs, random_subset
from workbench.datasets.standin.pairs import Pairs, pairs_of_graph, renamed, simple_graph, where_apart, without_loops
from workbench.datasets.standin.spec import Recipe
from workbench.datasets.standin.topology import arrange, class_sizes, node_classes, undirected_graph

LAW = DegreeLaw.lognormal(mean=12.0, sigma=1.0, population=20_000)


def as_set(pairs: Pairs) -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for a, b in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)}


@given(st.integers(1, 400), st.integers(-(2**63), 2**63 - 1))
def test_the_bijection_reaches_every_number_once(count, key):
    assert sorted(random_subset(count, count, key).tolist()) == list(range(count))


@given(st.lists(st.integers(0, 9), min_size=6, max_size=6), st.integers(0, 2**40))
def test_matching_uses_every_stub_but_an_odd_one_and_stays_within_groups(stubs, key):
    pairs = match_stubs(torch.tensor(stubs), torch.tensor([0, 2, 6]), key)
    used = torch.bincount(torch.cat(list(pairs)), minlength=6)
    odd = sum(stubs[:2]) % 2 + sum(stubs[2:]) % 2
    assert bool((used <= torch.tensor(stubs)).all()) and int(used.sum()) == sum(stubs) - odd
    assert torch.equal(pairs.left < 2, pairs.right < 2)


def test_blocks_hold_one_class_and_nodes_of_like_degree():
    degrees, classes = torch.tensor([1, 2, 2, 3, 3, 3, 1, 1, 9, 9]), torch.tensor([0, 6, 10])
    assert cut_blocks(degrees, classes, 256).tolist() == [0, 1, 4, 6, 7, 8, 10]
    assert cut_blocks(degrees, classes, 2).tolist() == [0, 1, 3, 5, 6, 7, 8, 10]


def test_complete_blocks_hold_every_pair_and_sparse_ones_their_share():
    starts = torch.arange(0, 3001, 10)
    complete = block_pairs(starts, 1.0, key=5)
    assert len(complete.left) == len(as_set(complete)) == 300 * 45
    assert torch.equal(complete.left // 10, complete.right // 10) and bool((complete.left != complete.right).all())
    sparse = block_pairs(starts, 0.3, key=5)
    assert len(sparse.left) == pytest.approx(0.3 * 300 * 45, rel=0.06)
    assert as_set(sparse) < as_set(complete)


def test_more_clustering_than_complete_blocks_give_is_refused():
    degrees = torch.ones(10, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"clustering 0\.5 is out of reach: .* give 0\.000; pass a larger scale"):
        block_density(degrees, torch.arange(11), 0.5)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_loops_are_dropped_in_place(edges):
    ends = torch.tensor(edges, dtype=torch.int32).reshape(-1, 2)
    kept = without_loops(Pairs(ends[:, 0].clone(), ends[:, 1].clone()))
    found = sorted(zip(kept.left.tolist(), kept.right.tolist(), strict=True))
    assert found == sorted((a, b) for a, b in edges if a != b)


def test_pairs_of_a_graph_make_the_graph_again():
    pairs = Pairs(torch.tensor([0, 1, 4, 2, 2], dtype=torch.int32), torch.tensor([1, 0, 2, 2, 3], dtype=torch.int32))
    graph = simple_graph(pairs, 5)
    listed = pairs_of_graph(graph)
    assert as_set(listed) == {(0, 1), (2, 4), (2, 3)} and len(listed.left) == 3
    again = simple_graph(listed, 5)
    assert torch.equal(again.indices, graph.indices) and torch.equal(again.indptr, graph.indptr)


def test_pairs_are_renamed_and_found_by_class():
    pairs = Pairs(torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 2, 0], dtype=torch.int32))
    assert as_set(renamed(pairs, torch.tensor([7, 3, 5], dtype=torch.int32))) == {(3, 7), (3, 5), (5, 7)}
    pairs = Pairs(torch.tensor([0, 1, 2, 0], dtype=torch.int32), torch.tensor([1, 2, 3, 3], dtype=torch.int32))
    classes, allowed = torch.tensor([0, 0, 1, 2]), torch.tensor([True, True, True, False])
    assert where_apart(pairs, classes, allowed).tolist() == [1]
    assert where_apart(pairs, classes, torch.ones(4, dtype=torch.bool)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("target", "alike"), [(0.1, 0.6), (0.3, 0.8)])
def test_a_graph_meets_degrees_clustering_and_homophily(target, alike):
    degrees = degree_sequence(LAW, 20_000, 240_000, neighbours=19_999)
    wiring = arrange("test", 3, degrees, 10, 0.7)
    graph = undirected_graph("test", 3, wiring, Recipe(LAW, clustering=target, homophily=alike))
    assert simple_undirected(graph) is graph
    assert graph.num_edges == pytest.approx(240_000, rel=0.005)
    wanted = torch.empty_like(degrees)
    wanted[wiring.public_ids] = wiring.degrees
    assert float((graph.in_degrees() == wanted).double().mean()) > 0.9
    assert clustering(graph).mean == pytest.approx(target, abs=0.03)
    assert homophily(graph, node_classes(wiring)) == pytest.approx(alike, abs=0.03)


def test_classes_have_exact_sizes_and_nothing_to_do_with_degrees_or_ids():
    degrees = degree_sequence(LAW, 20_000, 240_000, neighbours=19_999)
    wiring = arrange("test", 0, degrees, 4, 0.5)
    sizes = class_sizes(20_000, 4, 0.5)
    classes = node_classes(wiring)
    assert torch.equal(torch.bincount(classes), sizes) and sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    means = [float(part.double().mean()) for part in wiring.degrees.split(sizes.tolist())]
    assert max(means) / min(means) < 1.1
    assert abs(float(torch.corrcoef(torch.stack([classes.double(), torch.arange(20_000.0).double()]))[0, 1])) < 0.05


def test_the_newer_cites_the_older_but_for_pairs_that_cite_each_other():
    degrees = degree_sequence(LAW, 20_000, 240_000, neighbours=19_999)
    wiring = arrange("test", 1, degrees, 5, 0.7)
    both = undirected_graph("test", 1, wiring, Recipe(LAW, clustering=0.2, homophily=0.6))
    date = torch.randperm(20_000, generator=torch.Generator().manual_seed(0)).int()
    cited = citations(both, date, 0.2, key=9)
    rows = torch.arange(20_000).repeat_interleave(cited.in_degrees())
    newer = date[cited.indices.long()] > date[rows]
    assert reciprocity(cited) == pytest.approx(0.2, abs=0.01)
    assert float(newer.double().mean()) == pytest.approx(0.9, abs=0.01)  # one edge of each mutual pair leads back
    assert torch.equal(simple_undirected(cited).indices, both.indices)
    assert pairs_of(cited.num_edges, 0.2) == pytest.approx(both.num_edges / 2, rel=0.01)
    acyclic = citations(both, date, 0.0, key=9)
    assert acyclic.num_edges == both.num_edges // 2 and reciprocity(acyclic) == 0


def test_bipartite_edges_meet_both_sides_and_prefer_the_class():
    generator = torch.Generator().manual_seed(2)
    left = Side(torch.full((600,), 5), torch.randint(0, 6, (600,), generator=generator))
    right = Side(torch.full((300,), 10), torch.randint(0, 6, (300,), generator=generator))
    lefts, rights = bipartite_edges(left, right, share=0.7, key=4)
    assert len(set(zip(lefts.tolist(), rights.tolist(), strict=True))) == len(lefts) >= 2990
    assert bool((torch.bincount(lefts, minlength=600) <= 5).all())
    assert bool((torch.bincount(rights, minlength=300) <= 10).all())
    alike = float((left.classes[lefts] == right.classes[rights]).double().mean())
    assert 0.65 < alike < 0.85


def small_graph() -> Graph:
    law = DegreeLaw.lognormal(mean=10.0, sigma=1.0, population=30_000)
    wiring = arrange("test", 5, degree_sequence(law, 30_000, 300_000, neighbours=29_999), 8, 0.7)
    return undirected_graph("test", 5, wiring, Recipe(law, clustering=0.2, homophily=0.6))


@pytest.fixture(scope="module")
def reference() -> Graph:
    return small_graph()


def test_results_do_not_depend_on_the_number_of_threads(reference, num_threads):
    graph = small_graph()
    assert torch.equal(graph.indptr, reference.indptr) and torch.equal(graph.indices, reference.indices)
