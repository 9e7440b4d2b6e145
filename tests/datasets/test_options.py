"""Options of `load_dataset`: graph, features and splits."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from workbench.core.errors import CapacityError
from workbench.datasets import raw as features
from workbench.datasets.raw import (
    Options,
    RankedClasses,
    RawSet,
    SparseRows,
    Split,
    choose_features,
    choose_split,
    densify,
    random_features,
    reciprocal_ranks,
    shape_graph,
    stratified_split,
)
from workbench.meter.peak import measure_peak

NODES = 5
PAIRS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), min_size=1, max_size=20)


def raw_set(pairs, **more):
    src, dst = torch.tensor(list(pairs), dtype=torch.int32).T.contiguous()
    return RawSet(src, dst, NODES, **more)


def edges(graph):
    """List the pairs (source, destination), sorted."""
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    return sorted(zip(graph.indices.tolist(), dst.tolist(), strict=True))


@given(PAIRS, st.sampled_from([None, False, True]), st.sampled_from([None, False, True]), st.booleans())
def test_options_of_the_graph(pairs, undirected, self_loops, stored_once):
    graph = shape_graph(raw_set(pairs, stored_once=stored_once), undirected=undirected, self_loops=self_loops)
    expected = [(s, d) for s, d in pairs if self_loops is None or s != d]
    if undirected or (undirected is None and stored_once):
        expected = sorted({*expected, *((d, s) for s, d in expected)})
    assert edges(graph) == sorted(expected + [(i, i) for i in range(NODES)] * (self_loops is True))
    assert graph.edge_ids is None


def test_typed_edges():
    raw = raw_set([(0, 1), (1, 1), (2, 1)], edge_type=torch.tensor([7, 8, 9]), node_type=torch.arange(NODES))
    graph = shape_graph(raw, undirected=None, self_loops=False)
    assert graph.edge_type is not None and graph.edge_type.tolist() == [7, 9] and graph.node_type is raw.node_type
    with pytest.raises(ValueError, match="self loops have no type"):
        shape_graph(raw, undirected=None, self_loops=True)


def test_reverse_edges_have_types_and_ids_of_their_own():
    raw = raw_set([(0, 1), (0, 1), (1, 1), (2, 1)], edge_type=torch.tensor([0, 0, 1, 2]))
    merged = shape_graph(raw, undirected=True, self_loops=False)
    assert merged.edge_ids is None and merged.edge_type is not None
    dst = torch.repeat_interleave(torch.arange(NODES), merged.in_degrees()).tolist()
    found = list(zip(merged.indices.tolist(), dst, merged.edge_type.tolist(), strict=True))
    assert found == [(1, 0, 3), (0, 1, 0), (2, 1, 2), (1, 2, 5)]


@given(PAIRS, st.booleans(), st.sampled_from([None, False, True]))
def test_multi_keeps_duplicates(pairs, typed, loops):
    typed = typed and loops is not True
    types = torch.arange(len(pairs)) % 2 if typed else None
    graph = shape_graph(raw_set(pairs, edge_type=types), undirected="multi", self_loops=loops)
    if loops is not None:
        kept = [place for place, (s, d) in enumerate(pairs) if s != d]
        pairs, types = [pairs[place] for place in kept], None if types is None else types[kept]
        pairs += [(node, node) for node in range(NODES)] * loops
    assert edges(graph) == sorted([*pairs, *((d, s) for s, d in pairs)])
    ids = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids
    dst = torch.repeat_interleave(torch.arange(NODES), graph.in_degrees())
    order = torch.argsort(ids)
    assert torch.stack([graph.indices, dst], 1)[order].tolist() == [
        list(p) for p in [*pairs, *((d, s) for s, d in pairs)]
    ]
    if types is not None:
        assert graph.edge_type is not None
        assert graph.edge_type[order].tolist() == [
            *types.tolist(),
            *(types + max(types.tolist(), default=0) + 1).tolist(),
        ]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"undirected": "yes"}, TypeError, "undirected is 'yes'"),
        ({"self_loops": "add"}, TypeError, "self_loops is 'add'"),
        ({"split": -1}, ValueError, "split is -1"),
        ({"features": "random"}, ValueError, "features 'random' is not known; choose given, degree or random:WIDTH"),
        ({"features": "random:0"}, ValueError, "random:0"),
        ({"features": "given:3"}, ValueError, "given:3"),
        ({"features": "onehot"}, ValueError, "onehot"),
        ({"features": "random:²"}, ValueError, "features 'random:²' is not known; choose given"),
        ({"features": "random:٣"}, ValueError, "features 'random:٣' is not known; choose given"),
        ({"features": None}, TypeError, 'features is a NoneType; pass "given", "degree" or "random:128"'),
        ({"features": 128}, TypeError, "features is an int; pass"),
    ],
)
def test_unknown_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Options(**options)


def test_random_features_are_uniform_and_depend_on_the_seed():
    x = random_features(4000, 50, seed=3)
    assert x.dtype == torch.float32 and torch.equal(x, random_features(4000, 50, seed=3))
    assert torch.equal(x[:1000], random_features(1000, 50, seed=3))
    assert not torch.equal(x, random_features(4000, 50, seed=4))
    # 200,000 variates: the mean's standard error is 0.0022, that of the variance 0.002 (kurtosis 1.8)
    assert abs(float(x.mean())) < 0.011 and abs(float(x.double().var()) - 1) < 0.01
    assert float(x.abs().max()) <= math.sqrt(3)
    correlation = torch.corrcoef(x[:, :20].T).fill_diagonal_(0)
    assert float(correlation.abs().max()) < 5.5 / math.sqrt(4000)


def test_random_features_do_not_depend_on_the_chunk_size(monkeypatch):
    whole = random_features(300, 7, seed=0)
    monkeypatch.setattr(features, "_CHUNK", 101)
    assert torch.equal(random_features(300, 7, seed=0), whole)
    assert random_features(0, 7, seed=0).shape == (0, 7)


def test_random_features_need_no_more_memory_than_their_own_and_that_of_a_chunk(monkeypatch):
    monkeypatch.setattr(features, "_CHUNK", 1000)
    own = 4 * 20_000 * 10
    assert own <= measure_peak(lambda: random_features(20_000, 10, seed=0)) < 1.5 * own


def test_sparse_features_sum_duplicates():
    rows = SparseRows(torch.tensor([0, 3, 3, 4]), torch.tensor([1, 0, 1, 2]), torch.tensor([1.0, 2, 3, 4]), 3)
    assert densify(rows).tolist() == [[2, 4, 0], [0, 0, 0], [0, 0, 4]]


def test_too_wide_features_are_refused_with_both_numbers(monkeypatch):
    rows = SparseRows(torch.tensor([0, 1]), torch.tensor([5]), torch.ones(1), 1 << 40)
    with pytest.raises(CapacityError, match=r"require 4\.00 TiB when dense, more than the limit of .*random:128"):
        densify(rows)
    monkeypatch.setattr(features, "available_bytes", lambda: 1000)
    with pytest.raises(CapacityError, match="1000 B"):
        random_features(100, 128, seed=0)


def test_ranked_classes_become_reciprocal_ranks():
    ranked = RankedClasses(torch.tensor([[2, 0, -1], [1, -1, -1], [-1, -1, -1], [1, 1, 0]]), 3)
    assert reciprocal_ranks(ranked).tolist() == [[0.5, 0, 1], [0, 1, 0], [0, 0, 0], [pytest.approx(1 / 3), 1, 0]]


def test_features_by_name():
    raw = raw_set([(0, 1), (2, 1), (1, 0)])
    graph = shape_graph(raw, undirected=None, self_loops=None)
    x, label = choose_features(raw, graph, "given", 0)
    assert x.shape == (NODES, 0) and label == "none"
    x, label = choose_features(raw, graph, "degree", 0)
    assert label == "degree" and x.tolist() == torch.tensor([[2.0], [3], [1], [1], [1]]).log().tolist()
    x, label = choose_features(raw, graph, "random:4", 9)
    assert label == "random:4" and torch.equal(x, random_features(NODES, 4, seed=9))


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=200), st.integers(0, 9))
def test_split_is_stratified(labels, seed):
    y = torch.tensor(labels)
    split = stratified_split(y, seed)
    ids = torch.cat(split)
    labelled = y if bool((y >= 0).any()) else torch.zeros_like(y)
    assert ids.sort().values.tolist() == (labelled >= 0).nonzero().squeeze(1).tolist()
    for label in set(labelled[ids].tolist()):
        size = int((labelled == label).sum())
        for part, share in zip(split, (0.6, 0.2, 0.2), strict=True):
            assert abs(int((labelled[part] == label).sum()) - share * size) <= 1
            assert part.tolist() == sorted(part.tolist())


def test_split_depends_on_the_seed_alone():
    y = torch.arange(1000) % 7
    first, again, other = (stratified_split(y, seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.train_idx, other.train_idx)


def test_public_splits_by_number():
    one, two = (Split(*(torch.tensor([i + part]) for part in range(3))) for i in range(2))
    y = torch.zeros(NODES, dtype=torch.int64)
    assert choose_split(raw_set([(0, 1)], splits=(one,)), y, number=0, seed=0) == (one, "public")
    assert choose_split(raw_set([(0, 1)], splits=(one, two)), y, number=1, seed=0) == (two, "public:1")
    with pytest.raises(ValueError, match="split is 2; this data set has 2 public splits"):
        choose_split(raw_set([(0, 1)], splits=(one, two)), y, number=2, seed=0)
    assert choose_split(raw_set([(0, 1)]), y, number=0, seed=5)[1] == "seeded:5"
    with pytest.raises(ValueError, match="has 0 public splits"):
        choose_split(raw_set([(0, 1)]), y, number=1, seed=0)


@pytest.mark.parametrize("seed", [1.5, "7", True, 2**64])
def test_a_seed_must_be_a_64_bit_integer(seed):
    with pytest.raises(ValueError, match=r"^seed is .*; it must (be a whole number|be in)"):
        Options(seed=seed)
