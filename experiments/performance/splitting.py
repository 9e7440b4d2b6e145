"""Splitting a batch into micro-batches against building the same blocks with DGL.

The batch is all training nodes of ogbn-arxiv (undirected; without the file a power-law graph of its size), fanouts
[10, 25]. DGL gets the batch's layers as graphs over the batch's own int32 ids in the format that `in_subgraph` reads,
built beforehand, and two ways to make a block of a part's in-edges: relabelling with vector operations and
`create_block`, as Betty's artifact does with Python sets, and `to_block`, which relabels in C++. Neither side keeps
edge ids.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import workbench as wb
from experiments.performance.graphs import power_law_graph, real_graph
from experiments.performance.timing import interleaved
from workbench.core.block import Block
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch

FANOUTS = [10, 25]
NUM_PARTS = (8, 32)
METHODS = ("random", "metis")
_DATASET = "ogbn-arxiv"


def _graph(quick: bool) -> tuple[str, Graph, Tensor]:
    found = real_graph(_DATASET)
    if found is not None and not quick:
        return _DATASET, *found
    size = 20_000 if quick else 169_343
    graph = power_law_graph(size, 14 * size)
    return "power-law", graph, torch.arange(0, size, 2)


def _layer_graph(block: Block, num_nodes: int) -> Any:
    """A block as a DGL graph over the nodes of its batch: the ids of sources and destinations are the same there."""
    import dgl

    indptr = torch.cat((block.indptr, block.indptr[-1:].expand(num_nodes - block.num_dst))).int()
    empty = torch.empty(0, dtype=torch.int32)
    graph: Any = dgl.graph(("csc", (indptr, block.indices, empty)), num_nodes=num_nodes, idtype=torch.int32)
    return graph.formats("csc")


def _relabelled_block(edges: Any, seeds: Tensor, scratch: tuple[Tensor, Tensor]) -> Any:
    """A block of all edges of a graph, its sources being the seeds, then the others in the order of their ids."""
    import dgl

    src, dst = (ends.long() for ends in edges.edges())
    is_new, label = scratch
    is_new.zero_()
    is_new[src] = True
    is_new[seeds.long()] = False
    nodes = torch.cat((seeds, is_new.nonzero().view(-1).int()))
    label[nodes.long()] = torch.arange(len(nodes), dtype=torch.int32)
    block = dgl.create_block((label[src], label[dst]), num_src_nodes=len(nodes), num_dst_nodes=len(seeds))
    block.srcdata[dgl.NID] = nodes
    return block


def _dgl_split(layers: list[Any], part: Tensor, way: str) -> list[list[Any]]:
    """The blocks of every part, input layer first; `srcdata[dgl.NID]` holds ids of the batch."""
    import dgl

    seeds: Any
    num_nodes = layers[0].num_nodes()
    scratch = torch.empty(num_nodes, dtype=torch.bool), torch.empty(num_nodes, dtype=torch.int32)
    micro = []
    for seeds in torch.argsort(part, stable=True).int().split(torch.bincount(part).tolist()):
        blocks: list[Any] = []
        for layer in reversed(layers):
            edges = dgl.in_subgraph(layer, seeds, store_ids=False)
            block = dgl.to_block(edges, seeds) if way == "to_block" else _relabelled_block(edges, seeds, scratch)
            seeds = block.srcdata[dgl.NID]
            blocks.insert(0, block)
        micro.append(blocks)
    return micro


def _by_destination(src: Tensor, dst: Tensor) -> tuple[Tensor, Tensor]:
    """Edges with rows in the order of ids, and every row as it was: the two sides order new sources differently."""
    order = torch.argsort(dst, stable=True)
    return src[order], dst[order]


def _check_equal(micro: list[MiniBatch], peer: list[list[Any]]) -> None:
    """Both sides have the same rows: the same edges in the same order between the same nodes of the batch.

    Raises:
        AssertionError: they do not.
    """
    import dgl

    assert len(micro) == len(peer)
    for ours, theirs in zip(micro, peer, strict=True):
        assert ours.parent is not None
        for block, other in zip(ours.blocks, theirs, strict=True):
            nodes = other.srcdata[dgl.NID].long()
            assert len(nodes) == block.num_src
            mine = _by_destination(ours.parent[block.indices], ours.parent[block.destinations])
            yours = _by_destination(*(nodes[ends.long()] for ends in other.edges()))
            assert torch.equal(mine[0], yours[0])
            assert torch.equal(mine[1], yours[1])


def _compare(
    ours: Callable[[], list[MiniBatch]], theirs: Callable[[], list[list[Any]]], repeats: int
) -> dict[str, float]:
    _check_equal(ours(), theirs())
    return interleaved(ours, theirs, repeats=repeats)


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One row per partition, number of parts and DGL's way; `ratio` is DGL's seconds over ours."""
    name, graph, seeds = _graph(quick)
    batch = wb.NeighborSampler(FANOUTS).sample(graph, seeds)
    layers = [_layer_graph(block, batch.num_inputs) for block in batch.blocks]
    rows = []
    for method in METHODS:
        for num_parts in NUM_PARTS:
            part = wb.partition_batch(batch, num_parts, method=method)
            ratio = wb.redundancy(batch.split(part), batch).ratio
            for way in ("create_block", "to_block"):
                times = _compare(
                    lambda part=part: batch.split(part),
                    lambda part=part, way=way: _dgl_split(layers, part, way),
                    repeats=5 if quick else 15,
                )
                case = {"graph": name, "num_seeds": batch.num_seeds, "partition": method, "num_parts": num_parts}
                rows.append({**case, "redundancy": ratio, "dgl": way, **times})
    return rows
