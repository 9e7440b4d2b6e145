"""Splitting a batch into micro-batches beside building the same blocks with DGL.

The batch consists of all training nodes. DGL gets the layers of the batch as graphs over the batch's own int32 ids, in
the format that `in_subgraph` reads, built beforehand. It builds a block of a part's in-edges in one of two ways: vector
operations relabel and `create_block` builds, as in Betty's artifact (which uses Python sets), or `to_block` relabels in
C++. Neither side keeps edge ids.
"""

from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor

import workbench as wb
from experiments.performance import speedup
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import beside_dgl, import_dgl
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.experiment.config import PartitionMethod
from workbench.experiment.finding import Finding


class Config(GraphPoint):
    """One partition of the batch, and the function of DGL that builds blocks; fanouts input layer first."""

    fanouts: tuple[int, ...]
    method: PartitionMethod
    num_parts: PositiveInt
    dgl_function: Literal["create_block", "to_block"]


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, seeds = config.load()
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(graph, seeds)
    layers = [_layer_graph(block, batch.num_inputs) for block in batch.blocks]
    part = wb.partition_batch(batch, config.num_parts, method=config.method, seed=config.seed)
    micro, peer = batch.split(part), dgl_split(layers, part, config.dgl_function)
    check_equal(micro, peer)
    times = beside_dgl(
        lambda: batch.split(part), lambda: dgl_split(layers, part, config.dgl_function), repeats=config.repeats
    )
    ratio = wb.redundancy(micro, batch).ratio
    yield {"graph": config.graph, "num_seeds": batch.num_seeds, "redundancy": ratio, **times}


def _layer_graph(block: Block, num_nodes: int) -> Any:
    """A block as a DGL graph over the nodes of its batch, in which sources and destinations share their ids."""
    dgl = import_dgl()

    indptr = torch.cat((block.indptr, block.indptr[-1:].expand(num_nodes - block.num_dst))).int()
    empty = torch.empty(0, dtype=torch.int32)
    graph: Any = dgl.graph(("csc", (indptr, block.indices, empty)), num_nodes=num_nodes, idtype=torch.int32)
    return graph.formats("csc")


def dgl_split(layers: list[Any], part: Tensor, function: str) -> list[list[Any]]:
    """The blocks of every part by DGL, input layer first; `srcdata[dgl.NID]` contains ids of the batch.

    Args:
        layers: the batch's blocks as DGL graphs, input layer first.
        part: part of every seed, int64 [num_seeds].
        function: of DGL, "create_block" or "to_block".
    """
    dgl = import_dgl()

    seeds: Any
    num_nodes = layers[0].num_nodes()
    scratch = torch.empty(num_nodes, dtype=torch.bool), torch.empty(num_nodes, dtype=torch.int32)
    micro = []
    for seeds in torch.argsort(part, stable=True).int().split(torch.bincount(part).tolist()):
        blocks: list[Any] = []
        for layer in reversed(layers):
            edges = dgl.in_subgraph(layer, seeds, store_ids=False)
            block = dgl.to_block(edges, seeds) if function == "to_block" else _relabelled(edges, seeds, scratch)
            seeds = block.srcdata[dgl.NID]
            blocks.insert(0, block)
        micro.append(blocks)
    return micro


def _relabelled(edges: Any, seeds: Tensor, scratch: tuple[Tensor, Tensor]) -> Any:
    """A block of all edges of a graph, whose sources are the seeds, then the others in the order of their ids."""
    dgl = import_dgl()

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


def check_equal(micro: list[MiniBatch], peer: list[list[Any]]) -> None:
    """Check that both sides built the same rows: same edges in the same order between the same nodes of the batch.

    Args:
        micro: micro-batches of this library.
        peer: DGL's blocks of every part, input layer first.

    Raises:
        AssertionError: they differ.
    """
    dgl = import_dgl()

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


def _by_destination(src: Tensor, dst: Tensor) -> tuple[Tensor, Tensor]:
    """Edges sorted by destination, each row in its order: the two sides number new sources differently."""
    order = torch.argsort(dst, stable=True)
    return src[order], dst[order]


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = table.assign(parts=table.num_parts.map("{} parts".format))
    title = "Splitting a batch into micro-batches"
    return speedup.draw_ratios(rows, panel="method", case=["parts"], group="dgl_function", title=title)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    return speedup.faster(table, by=["graph", "method", "num_parts", "dgl_function"], least=5, median=7)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios over all cases."""
    seeds, counts = table.num_seeds.iloc[0], " and ".join(map(str, dict.fromkeys(table.num_parts)))
    return speedup.summary({f"splitting a batch of {seeds:,} seeds into {counts} parts": table})
