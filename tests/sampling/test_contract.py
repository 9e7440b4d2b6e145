"""The contract of all samplers: a part of the seeds draws its part of the batch, and `draw` gives the rows of blocks.

A new sampler joins by one line in `SAMPLERS`; with `rows_are_independent` False it is tested for `draw` alone.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench as wb
from tests.sampling.stars import some_of
from tests.strategies import examples, random_graph
from workbench.core.graph import Graph
from workbench.sampling.dense import two_way

FEW, SOME = {0: 1, 1: -1, 2: 2}, {0: 2, 1: 0, 2: 3}
BACK = {3: 1, 4: -1, 5: 0}


class LastNeighbors(wb.Sampler):
    """A sampler with `draw` alone: the last two edges of every row, weighted by their offset."""

    num_layers, rows_are_independent, edge_ids = 2, True, True

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> wb.sampling.Drawn:
        ends = graph.indptr[nodes + 1]
        counts = (ends - graph.indptr[nodes]).clamp(max=2)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        row = torch.repeat_interleave(torch.arange(len(nodes)), counts)
        positions = torch.arange(len(row)) - indptr[1:][row] + ends[row]
        offsets = positions - graph.indptr[nodes][row]
        return wb.sampling.Drawn(indptr, graph.indices[positions], positions, offsets.float())


FACTORS = torch.tensor([1.0, 4, 1, 1, 2.5, 4, 1, 4, 1, 1, 2.5, 1])
"""A factor per node of the largest graph."""

SAMPLERS: dict[str, wb.Sampler] = {
    "uniform": wb.NeighborSampler([2, 3], edge_ids=True, seed=3),
    "all, then one": wb.NeighborSampler([1, -1]),
    "replace": wb.NeighborSampler([2, 3], replace=True),
    "weighted": wb.NeighborSampler([2, 3, 2], weighted=True, edge_ids=True),
    "weighted, replace": wb.NeighborSampler([-1, 3], weighted=True, replace=True),
    "by type": wb.NeighborSampler([FEW, SOME], edge_ids=True),
    "by type, replace": wb.NeighborSampler([FEW, 2], replace=True),
    "by type, weighted": wb.NeighborSampler([FEW, SOME], weighted=True),
    "by type, weighted, replace": wb.NeighborSampler([SOME, FEW], weighted=True, replace=True),
    "labor": wb.LaborSampler([2, 3], edge_ids=True, seed=3),
    "labor, exact, one layer of variates": wb.LaborSampler([2, -1, 3], poisson=False, layer_dependency=True),
    "labor, by type, smoothed": wb.LaborSampler([FEW, 2], dependence=wb.Smoothed(3)),
    "labor-1": wb.LaborSampler([2, 3], importance=1, edge_ids=True),
    "labor-*": wb.LaborSampler([2, 3], importance="*", poisson=False, dependence=wb.Nested(2)),
    "random walks": wb.RandomWalkSampler([3, 2], num_walks=6, seed=4),
    "random walks, smoothed": wb.RandomWalkSampler([2, 4], num_walks=3, weighted=False, dependence=wb.Smoothed(4)),
    "smoothed": wb.NeighborSampler([2, 3], edge_ids=True, dependence=wb.Smoothed(3)),
    "smoothed, replace": wb.NeighborSampler([2, 3], replace=True, dependence=wb.Smoothed(3)),
    "smoothed, weighted": wb.NeighborSampler([2, 3], weighted=True, dependence=wb.Smoothed(3)),
    "smoothed, by type": wb.NeighborSampler([FEW, SOME], dependence=wb.Smoothed(3)),
    "nested": wb.NeighborSampler([2, 3], dependence=wb.Nested(2)),
    "locality": wb.placement.LocalitySampler([2, 3], FACTORS, edge_ids=True),
    "locality, by type, smoothed": wb.placement.LocalitySampler(
        [FEW, 2], FACTORS, weights="ratio", dependence=wb.Smoothed(3)
    ),
    "locality, published": wb.placement.LocalitySampler([2, -1], FACTORS, biased=True, edge_ids=True),
    "locality, published, by type": wb.placement.LocalitySampler(
        [SOME, 2], FACTORS, biased=True, dependence=wb.Nested(2)
    ),
    "ladies": wb.LadiesSampler([4, 2], edge_ids=True),
    "ladies, squared, smoothed": wb.LadiesSampler(
        [3, -1], importance="squared", factors=FACTORS, weights="published", dependence=wb.Smoothed(3)
    ),
    "dense": wb.DenseSampler([2, 2, 2], edge_ids=True, seed=3),
    "dense, replace": wb.DenseSampler([2, 2], replace=True),
    "dense, weighted": wb.DenseSampler([2, 2], weighted=True, edge_ids=True),
    "dense, by type, smoothed": wb.DenseSampler([SOME, SOME], dependence=wb.Smoothed(3)),
    "dense, a fanout per hop": wb.DenseSampler([2, 1, 3]),
    "dense, in and out": wb.DenseSampler([2, 2], out_fanouts=[1, 1], edge_ids=True),
    "dense, in and out, by type": wb.DenseSampler([SOME, FEW], out_fanouts=[BACK] * 2, edge_ids=True, num_edge_types=3),
    "user-defined": LastNeighbors(),
}
EXCLUDES = {name for name in SAMPLERS if name != "user-defined"}
REACHES_FURTHER = {name for name in SAMPLERS if name.startswith("random walks")}
"""Samplers whose neighbours are not edges of the graph, found by reading the rows of other nodes."""
BOTH_WAYS = {name for name, sampler in SAMPLERS.items() if getattr(sampler, "out_fanouts", None)}
"""Samplers that also draw reverse edges: their positions are those of the in-edges and of the out-edges together."""
INDEPENDENT = [name for name, sampler in SAMPLERS.items() if sampler.rows_are_independent]


def sampler_for(name: str, graph: Graph) -> wb.Sampler:
    """Return a sampler whose factors, if it has any, are those of the graph's nodes."""
    sampler = SAMPLERS[name]
    if isinstance(sampler, wb.placement.LocalitySampler | wb.LadiesSampler) and sampler.factors is not None:
        repeats = -(-graph.num_nodes // len(sampler.factors))
        return replace(sampler, factors=sampler.factors.repeat(repeats)[: graph.num_nodes])
    return sampler


def excluded_edges(name: str, graph: Graph, data: st.DataObject) -> Tensor | None:
    """Draw edge ids to exclude, or None."""
    if name not in EXCLUDES or data.draw(st.booleans()):
        return None
    ids = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids
    return some_of(ids, data.draw(st.integers(0, 2**16)))


def graphs() -> st.SearchStrategy[Graph]:
    options = {"edge_weight": torch.float32, "num_edge_types": 3}
    sizes = st.tuples(st.integers(1, 12), st.integers(0, 60), st.integers(0, 2**16))
    return st.builds(lambda size, ids: random_graph(*size, edge_ids=ids, **options), sizes, st.booleans())


def assert_same_batch(a: wb.MiniBatch, b: wb.MiniBatch) -> None:
    assert torch.equal(a.node_ids, b.node_ids)
    for ours, theirs in zip(a.blocks, b.blocks, strict=True):
        for name, tensor in ours._tensors().items():
            other = theirs._tensors()[name]
            assert (tensor is None) == (other is None)
            assert tensor is None or other is None or (tensor.dtype == other.dtype and torch.equal(tensor, other)), name


def rows_only(graph: Graph, nodes: Tensor) -> Graph:
    """Return a graph that contains only the rows of some nodes, as a rank or a partition buffer does."""
    kept = torch.zeros(graph.num_nodes, dtype=torch.bool)
    kept[nodes] = True
    degrees = graph.in_degrees()
    edges = kept.repeat_interleave(degrees)
    ids = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids
    assert graph.edge_weight is not None and graph.edge_type is not None
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), (degrees * kept).cumsum(0)])
    return Graph(indptr, graph.indices[edges], ids[edges], graph.edge_weight[edges], graph.edge_type[edges])


@pytest.mark.parametrize("name", INDEPENDENT)
@given(graph=graphs(), step=st.integers(-3, 3), data=st.data())
def test_sampling_a_part_of_the_seeds_is_splitting_the_whole(
    name: str, graph: Graph, step: int, data: st.DataObject
) -> None:
    sampler, exclude = sampler_for(name, graph), excluded_edges(name, graph, data)
    seeds = torch.tensor(data.draw(st.permutations(range(graph.num_nodes))))
    part = seeds.roll(data.draw(st.integers(0, 9))) % 3
    whole = sampler.sample(graph, seeds, step=step, exclude_edges=exclude)
    for number, micro in zip(part.unique().tolist(), whole.split(part), strict=True):
        alone = sampler.sample(graph, seeds[part == number], step=step, exclude_edges=exclude)
        assert_same_batch(alone, micro)


@pytest.mark.parametrize("name", SAMPLERS)
@examples(6)
@given(graph=graphs(), step=st.integers(-3, 3), data=st.data())
def test_draw_gives_the_rows_of_the_blocks(name: str, graph: Graph, step: int, data: st.DataObject) -> None:
    sampler, exclude = sampler_for(name, graph), excluded_edges(name, graph, data)
    seeds = torch.tensor(data.draw(st.permutations(range(graph.num_nodes)))[:4])
    mb = sampler.sample(graph, seeds, step=step, exclude_edges=exclude)
    assert len(mb.blocks) == sampler.num_layers
    edges = graph
    if isinstance(sampler, wb.DenseSampler) and sampler.out_fanouts:
        edges = two_way(graph, num_edge_types=sampler.num_edge_types, edge_ids=True)
    for layer, block in enumerate(mb.blocks):
        first = first_drawn_for(sampler, mb, layer)
        nodes, start = mb.node_ids[first : block.num_dst], int(block.indptr[first])
        drawn = sampler.draw(graph, nodes, layer=layer, step=step, exclude_edges=exclude)
        assert torch.equal(drawn.indptr, block.indptr[first:] - start)
        assert torch.equal(drawn.sources.long(), mb.node_ids[block.indices[start:].long()])
        assert (drawn.weight is None) == (block.edge_weight is None)
        assert drawn.weight is None or block.edge_weight is None or torch.equal(drawn.weight, block.edge_weight[start:])
        if name in REACHES_FURTHER:
            assert drawn.positions is block.edge_type is block.edge_ids is None
            continue
        assert drawn.positions is not None and edges.edge_type is not None and block.edge_type is not None
        assert torch.equal(drawn.sources, edges.indices[drawn.positions])
        assert torch.equal(edges.edge_type[drawn.positions], block.edge_type[start:])
        if block.edge_ids is not None:
            assert torch.equal(edges.edge_positions(block.edge_ids[start:]), drawn.positions)


def first_drawn_for(sampler: wb.Sampler, mb: wb.MiniBatch, layer: int) -> int:
    """Return the first destination that `draw` gives the row of: in a DENSE sample, a node keeps its first row."""
    keeps = isinstance(sampler, wb.DenseSampler) and not sampler.rows_are_independent
    return mb.blocks[layer + 1].num_dst if keeps and layer + 1 < len(mb.blocks) else 0


@pytest.mark.parametrize("name", [name for name in INDEPENDENT if name not in REACHES_FURTHER | BOTH_WAYS])
@examples(6)
@given(graph=graphs(), data=st.data())
def test_a_part_of_the_topology_draws_the_same_rows(name: str, graph: Graph, data: st.DataObject) -> None:
    """A rank or a partition buffer has other CSR positions, but the same rows."""
    sampler, exclude = sampler_for(name, graph), excluded_edges(name, graph, data)
    owned = torch.tensor(data.draw(st.permutations(range(graph.num_nodes)))[:5])
    local = rows_only(graph, owned)
    assert local.edge_ids is not None
    theirs = None if exclude is None else exclude[torch.isin(exclude, local.edge_ids)]
    for layer in range(sampler.num_layers):
        whole = sampler.draw(graph, owned, layer=layer, step=2, exclude_edges=exclude)
        part = sampler.draw(local, owned, layer=layer, step=2, exclude_edges=theirs)
        assert torch.equal(whole.indptr, part.indptr)
        assert torch.equal(whole.sources, part.sources)
        assert whole.positions is not None and part.positions is not None
        ids = whole.positions if graph.edge_ids is None else graph.edge_ids[whole.positions]
        assert torch.equal(ids, local.edge_ids[part.positions])
