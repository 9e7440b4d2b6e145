"""Edge prediction with every sampler: one non-edge per edge that shares an endpoint, no target edge in the blocks."""

import itertools

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.sampling.test_contract import EXCLUDES, REACHES_FURTHER, SAMPLERS, assert_same_batch, sampler_for
from workbench.core.graph import Graph

FULL = wb.FullNeighborSampler(2, edge_ids=True)


def undirected_graph() -> Graph:
    """A graph with both directions of every edge, some of them twice, with types and weights."""
    generator = torch.Generator().manual_seed(1)
    src, dst = torch.randint(40, (2, 90), generator=generator)
    src, dst = (
        torch.cat([a, b, a[:9]])[torch.cat([src, dst, src[:9]]) != torch.cat([dst, src, dst[:9]])]
        for a, b in ((src, dst), (dst, src))
    )
    weight, kind = torch.rand(len(src), generator=generator), torch.randint(3, (len(src),), generator=generator)
    return Graph.from_edges(src, dst, num_nodes=40, edge_weight=weight, edge_type=kind)


GRAPH = undirected_graph()
TESTED: dict[str, wb.Sampler] = {name: sampler_for(name, GRAPH) for name in SAMPLERS if name in EXCLUDES} | {
    "full": FULL
}
PAIRS = torch.stack([GRAPH.indices.long(), torch.repeat_interleave(torch.arange(40), GRAPH.in_degrees())])
EDGES = set(map(tuple, PAIRS.T.tolist()))
PAIRS = PAIRS[:, PAIRS[0] < PAIRS[1]][:, ::3]
OPTIONS = {"batch_size": 7, "negatives": wb.links.Negatives(1, ends="either", avoid_edges=True, seed=2)}


def without(graph: Graph, edge_ids: Tensor) -> Graph:
    """Return the graph without some edges; the others keep their ids."""
    assert graph.edge_ids is not None and graph.edge_weight is not None and graph.edge_type is not None
    kept = ~torch.isin(graph.edge_ids, edge_ids)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), kept.cumsum(0)])[graph.indptr]
    columns = (t[kept] for t in (graph.indices, graph.edge_ids, graph.edge_weight, graph.edge_type))
    return Graph(indptr, *columns)


def pairs_of(seeds: Tensor, src: Tensor | None, dst: Tensor | None) -> list[tuple[int, int]]:
    assert src is not None and dst is not None
    return list(zip(seeds[src].tolist(), seeds[dst].tolist(), strict=True))


@pytest.mark.parametrize("name", TESTED)
def test_negatives_share_an_endpoint_and_targets_are_not_sampled(name: str) -> None:
    sampler = TESTED[name]
    reached = 0
    for step, pairs, mb in itertools.islice(wb.edge_batches(GRAPH, PAIRS, sampler=sampler, **OPTIONS), 6):
        positive = pairs_of(pairs.seeds, pairs.src, pairs.dst)
        negative = pairs_of(pairs.seeds, pairs.neg_src, pairs.neg_dst)
        assert all((a == u) != (b == v) for (u, v), (a, b) in zip(positive, negative, strict=True))
        assert not EDGES & set(negative) and all(a != b for a, b in negative)
        assert set(mb.seeds.tolist()) == {node for pair in positive + negative for node in pair}
        targets = {pair for u, v in positive for pair in ((u, v), (v, u))}
        if name in REACHES_FURTHER:  # a neighbour may be reached without the edge
            edge_ids = pairs.target_edges(GRAPH)
            assert_same_batch(mb, sampler.sample(without(GRAPH, edge_ids), mb.seeds, step=step))
            continue
        for block in mb.blocks:
            drawn = pairs_of(mb.node_ids, block.indices.long(), block.destinations.long())
            assert not targets & set(drawn)
            reached += len(EDGES.intersection(drawn))
    assert reached or name in REACHES_FURTHER


@pytest.mark.parametrize("name", TESTED)
def test_without_exclusion_targets_are_sampled(name: str) -> None:
    """The check above can fail: the same batches with exclude="none" contain targets, or differ."""
    sampler, leaked = TESTED[name], False
    both, none = (
        wb.edge_batches(GRAPH, PAIRS, sampler=sampler, **OPTIONS, exclude=e, epoch=0) for e in ("both", "none")
    )
    for (_, pairs, a), (_, _, b) in zip(both, none, strict=True):
        leaked |= not torch.equal(a.node_ids, b.node_ids) or a.num_edges != b.num_edges
        assert torch.equal(a.seeds, pairs.seeds) and torch.equal(a.seeds, b.seeds)
    assert leaked
