"""Fanouts per edge type: counts, law, order, and the torch implementation as oracle."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.sampling.stars import assert_equally_likely, mixtures, rows_of, some_of, star
from tests.strategies import graphs, random_graph
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream
from workbench.sampling import typed
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.poisson import mark_smallest
from workbench.sampling.sampler import candidates
from workbench.sampling.uniform import draw_uniform, draw_uniform_torch
from workbench.sampling.weighted import draw_smallest, draw_smallest_torch, draw_weighted, draw_weighted_torch

FANOUTS = {0: 2, 1: -1, 2: 0}
TYPED_GRAPHS = graphs(max_nodes=9, max_edges=60).filter(lambda graph: graph.edge_type is not None)
TYPES = torch.tensor([0, 1, 2])


def typed_star(types: list[int], dtype: torch.dtype = torch.int64) -> Graph:
    plain = star(len(types))
    return Graph(plain.indptr, plain.indices, edge_type=torch.tensor(types, dtype=dtype))


@given(graph=TYPED_GRAPHS, data=st.data())
def test_each_type_gets_its_fanout(graph: Graph, data: st.DataObject) -> None:
    """Counts by (node, type) are exact, edges distinct and not excluded, types ascending within a row."""
    fanouts = {kind: data.draw(st.sampled_from([-1, 0, 1, 2, 5])) for kind in range(3)}
    ids = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids
    excluded = some_of(ids, data.draw(st.integers(0, 2**16)))
    sampler, seeds = NeighborSampler([fanouts], edge_ids=True), torch.arange(graph.num_nodes)
    block = sampler.sample(graph, seeds, exclude_edges=excluded).blocks[0]
    drawn, edge_type = block.edge_ids, graph.edge_type
    assert drawn is not None and edge_type is not None
    ends, bounds = block.indptr.tolist(), graph.indptr.tolist()
    gone = set(excluded.tolist())
    for node in range(graph.num_nodes):
        row = drawn[ends[node] : ends[node + 1]].tolist()
        kinds = edge_type[graph.edge_positions(torch.tensor(row, dtype=torch.int64))].tolist()
        assert kinds == sorted(kinds)
        assert len(set(row)) == len(row)
        for kind, fanout in fanouts.items():
            span = range(bounds[node], bounds[node + 1])
            available = {int(ids[p]) for p in span if edge_type[p] == kind} - gone
            mine = [edge for edge, k in zip(row, kinds, strict=True) if k == kind]
            assert set(mine) <= available
            assert len(mine) == (len(available) if fanout < 0 else min(fanout, len(available)))


def test_labor_draws_none_of_a_type_whose_fanout_is_0() -> None:
    """Also where keys are negative, as normal variates are, which a place before the first would lose against."""
    graph, kinds = random_graph(40, 300, seed=1, num_edge_types=3), []
    for dependence in (None, wb.Smoothed(4)):
        sampler = wb.LaborSampler([FANOUTS], poisson=False, dependence=dependence)
        for step in range(20):
            block = sampler.sample(graph, torch.arange(40), step=step).blocks[0]
            assert block.edge_type is not None
            counts = torch.zeros(40, 3, dtype=torch.int64)
            rows = torch.repeat_interleave(torch.arange(40), block.in_degrees())
            counts.index_put_((rows, block.edge_type.long()), torch.tensor(1), accumulate=True)
            kinds.append(counts)
    degrees = torch.zeros(40, 3, dtype=torch.int64)
    of_edges = torch.repeat_interleave(torch.arange(40), graph.in_degrees()), graph.edge_type.long()  # type: ignore[union-attr]
    degrees.index_put_(of_edges, torch.tensor(1), accumulate=True)
    assert all(torch.equal(counts[:, 1], degrees[:, 1]) and not counts[:, 2].any() for counts in kinds)
    assert all(torch.equal(counts[:, 0], degrees[:, 0].clamp(max=2)) for counts in kinds)


def test_nothing_is_marked_or_read_for_a_fanout_of_0() -> None:
    """In plain Python, where a read beyond an array's end is an error."""
    masks, keys = np.full(1, 255, np.uint8), np.array([-1.0, -3.0, 0.5])
    mark_smallest.py_func(masks, keys, 3, np.empty(0), np.empty(0, np.int64))
    assert masks.tolist() == [0]


def test_subsets_of_each_type_are_equally_likely_and_independent() -> None:
    graph = typed_star([1, 0, 1, 0, 1])  # sources 2 and 4 have type 0; 1, 3 and 5 type 1
    sampler = NeighborSampler([{0: 1, 1: 2}])
    support = {(a, *b) for a in (2, 4) for b in itertools.combinations((1, 3, 5), 2)}
    rows = [rows_of(sampler.sample(graph, torch.tensor([0]), step=step))[0] for step in range(1200)]
    assert_equally_likely([(row[0], *sorted(row[1:])) for row in rows], support)


@given(
    graph=TYPED_GRAPHS,
    limits=st.tuples(*[st.sampled_from([-1, 0, 1, 2, 70])] * 3),
    replace=st.booleans(),
    seed=st.integers(-(2**63), 2**63 - 1),
    data=st.data(),
)
def test_numba_equals_torch(
    graph: Graph, limits: tuple[int, ...], replace: bool, seed: int, data: st.DataObject
) -> None:
    assert graph.edge_type is not None
    nodes = torch.tensor(data.draw(st.permutations(range(graph.num_nodes))))
    rows = candidates(graph, nodes, some_of(torch.arange(graph.num_edges), data.draw(st.integers(0, 2**16))))
    grouped, oracle = (f(graph.edge_type, rows, TYPES) for f in (typed._group_compiled, typed._group_torch))
    full = grouped.counts > 0
    assert torch.equal(grouped.columns[full], oracle.columns)
    assert torch.equal(grouped.counts[full], oracle.counts)
    groups, columns, _ = typed.group_by_type(graph, rows, TYPES)
    assert groups.positions is not None
    fanout = torch.tensor(limits)[columns]
    options = {"replace": replace, "key": stream(seed, Purpose.SAMPLING)}
    in_csr = (groups._replace(positions=None), groups.positions, fanout)
    pairs = [[f(*in_csr, positions=True, **options) for f in (draw_uniform, draw_uniform_torch)]]
    options = {"replace": replace, "variates": data.draw(mixtures(seed))}
    pairs.append([f(graph, groups, fanout, **options) for f in (draw_smallest, draw_smallest_torch)])
    if graph.edge_weight is not None:
        pairs.append([f(graph, groups, fanout, **options) for f in (draw_weighted, draw_weighted_torch)])
    for ours, oracle in pairs:
        assert ours.positions is not None and oracle.positions is not None
        assert torch.equal(ours.indptr, oracle.indptr)
        assert torch.equal(ours.positions, oracle.positions)
        assert torch.equal(ours.sources, oracle.sources)


def test_chunks_of_rows_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, nodes = random_graph(20, 300, num_edge_types=3), torch.arange(20)
    sampler = NeighborSampler([FANOUTS])
    options = {"layer": 0, "exclude_edges": torch.arange(0, 300, 5)}
    once = sampler.draw(graph, nodes, **options)
    for chunk in (1, 7, 100):
        monkeypatch.setattr(typed, "_CHUNK", chunk)
        again = sampler.draw(graph, nodes, **options)
        assert again.indptr.tolist() == once.indptr.tolist()
        assert again.sources.tolist() == once.sources.tolist()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_types_of_every_dtype(dtype: torch.dtype) -> None:
    graph = typed_star([200, 3, 200, 3] if dtype == torch.uint8 else [-7, 3, -7, 3], dtype)
    low, high = (3, 200) if dtype == torch.uint8 else (-7, 3)
    mb = NeighborSampler([{high: 1, low: -1, 2**62: 5}]).sample(graph, torch.tensor([0]))
    assert mb.blocks[0].edge_type is not None
    assert mb.blocks[0].edge_type.tolist() == [low, low, high]


def test_a_type_without_a_fanout_is_refused_where_it_occurs() -> None:
    graph = typed_star([0, 5])
    with pytest.raises(ValueError, match=r"edge_type contains 5, .*no fanout \(only for 0, 1\); add one, 0 to draw"):
        NeighborSampler([{0: 1, 1: 2}]).sample(graph, torch.tensor([0]))
    with pytest.raises(ValueError, match="edge_type contains 5"):
        typed._group_torch(graph.edge_type, candidates(graph, torch.tensor([0]), None), TYPES)  # pyright: ignore
    assert NeighborSampler([{0: 1}]).sample(graph, torch.tensor([1])).num_edges == 0
    with pytest.raises(ValueError, match="the graph has no edge_type; pass one fanout per layer"):
        NeighborSampler([{0: 1}]).sample(star(3), torch.tensor([0]))


def test_invalid_mappings_are_refused() -> None:
    for fanouts in ([{}], [{0: -2}], [{0: 2**63}]):
        with pytest.raises(ValueError, match="one per layer"):
            NeighborSampler(fanouts)
    for fanouts in ({0: 5}, [{0: 1.5}], [{"cites": 5}], [{0: True}]):
        with pytest.raises(TypeError, match=r"a mapping {edge type: fanout} in place of an integer"):
            NeighborSampler(fanouts)  # pyright: ignore[reportArgumentType]
