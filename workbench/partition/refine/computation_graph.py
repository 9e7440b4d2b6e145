"""The computation graph of a batch, unrolled by hop: the nodes that a part needs for a seed, and the bytes of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.kernels.csr import distinct_rows, index_dtype
from workbench.kernels.jit import compiled
from workbench.partition.costs import ByteCosts


@dataclass(frozen=True, eq=False)
class ComputationGraph:
    """One node per node of a batch and hop from the seeds at which it occurs; hop 0 are the seeds, the last the inputs.

    A node reads its sources one hop on: its distinct in-neighbours, and itself (a layer reads the rows of its
    destinations too), which `sources` does not list.

    Args:
        hop_starts: int64 [hops + 2], the first node of every hop, then the number of nodes.
        indptr: int64 [nodes before the last hop + 1].
        sources: int32 or int64, the nodes that every node reads; at most one per edge of the batch.
        node_bytes: int64 [nodes], the bytes that a part needs for each of its nodes.
    """

    hop_starts: Tensor
    indptr: Tensor
    sources: Tensor
    node_bytes: Tensor

    @property
    def num_seeds(self) -> int:
        return int(self.hop_starts[1])

    def arrays(self) -> tuple[Any, ...]:
        """Return the fields as numpy arrays, for kernels."""
        return tuple(t.numpy() for t in (self.hop_starts, self.indptr, self.sources, self.node_bytes))


def computation_graph(mb: MiniBatch, costs: ByteCosts | None = None) -> ComputationGraph:
    """Unroll a batch by hop and assign bytes to its nodes.

    Args:
        mb: the batch.
        costs: bytes per node and edge of each layer, rounded to whole bytes per node of the graph; None for
            `ByteCosts.default`.

    Returns:
        The graph; a node's bytes are its own and those of its incoming edges.

    Raises:
        ValueError: the costs are of another number of layers.
    """
    costs = ByteCosts.default(len(mb.blocks)) if costs is None else costs
    _check_layers(costs, len(mb.blocks))
    blocks = [b.to("cpu") for b in reversed(mb.blocks)]
    sizes = torch.tensor([mb.num_seeds, *(b.num_src for b in blocks)])
    hop_starts = torch.zeros(len(sizes) + 1, dtype=torch.int64)
    torch.cumsum(sizes, 0, out=hop_starts[1:])
    rows = [distinct_rows(b.indptr, b.indices, b.num_src, diagonal="drop") for b in blocks]
    dtype, none = index_dtype(int(hop_starts[-1])), torch.zeros(0, dtype=torch.int64)
    sources = [local.to(dtype) + int(start) for (_, local), start in zip(rows, hop_starts[1:-1], strict=True)]
    indptr = torch.zeros(int(hop_starts[-2]) + 1, dtype=torch.int64)
    torch.cumsum(torch.cat([none, *(bounds.diff() for bounds, _ in rows)]), 0, out=indptr[1:])
    return ComputationGraph(
        hop_starts, indptr, torch.cat([none.to(dtype), *sources]), _node_bytes(blocks, sizes, costs)
    )


def _check_layers(costs: ByteCosts, num_layers: int) -> None:
    if len(costs.per_edge) != num_layers:
        raise ValueError(
            f"costs are of {len(costs.per_edge)} layers, but the batch has {num_layers} blocks; pass the costs of a "
            "model with one layer per block"
        )


def _node_bytes(blocks: Sequence[Block], sizes: Tensor, costs: ByteCosts) -> Tensor:
    """Bytes of every node, by hop; blocks and sizes are in the order of hops."""
    per_node, per_edge = reversed(costs.per_node), reversed(costs.per_edge)
    hops = [torch.full((int(size),), cost, dtype=torch.float64) for size, cost in zip(sizes, per_node, strict=True)]
    for hop, block, cost in zip(hops[:-1], blocks, per_edge, strict=True):
        hop += block.indptr.diff() * cost
    return torch.cat(hops).round_().to(torch.int64)


def fair_shares(graph: ComputationGraph) -> Tensor:
    """Compute every node's share of the bytes that it needs: a node that n others read counts 1/n for each of them.

    Args:
        graph: the computation graph of a batch.

    Returns:
        float64 [nodes]; summed over any hop, the bytes of all nodes from that hop on.
    """
    shares = graph.node_bytes.to(torch.float64)
    _share(*(t.numpy() for t in (graph.hop_starts, graph.indptr, graph.sources, net_sizes(graph), shares)))
    return shares


def net_sizes(graph: ComputationGraph) -> Tensor:
    """Count the pins of every node's net: the nodes of the previous hop that read it, itself included.

    Args:
        graph: the computation graph of a batch.

    Returns:
        int64 [nodes]; 0 for seeds.
    """
    counts = torch.zeros(len(graph.node_bytes), dtype=torch.int64)
    _count_readers(*(t.numpy() for t in (graph.hop_starts, graph.sources, counts)))
    return counts


@compiled
def self_source(hop_starts, node):
    """Return the same node one hop on, which it reads as a source."""
    hop = 0
    while node >= hop_starts[hop + 1]:
        hop += 1
    return node - hop_starts[hop] + hop_starts[hop + 1]


@compiled
def _count_readers(hop_starts, sources, counts):
    for node in range(hop_starts[len(hop_starts) - 2]):
        counts[self_source(hop_starts, node)] += 1
    for source in sources:
        counts[source] += 1


@compiled
def _share(hop_starts, indptr, sources, net_sizes, shares):
    """Add the shares of sources to those of their readers, last hop first: sources have higher numbers."""
    per_reader = np.empty(len(shares))
    for node in range(len(shares) - 1, -1, -1):
        if node < len(indptr) - 1:
            share = per_reader[self_source(hop_starts, node)]
            for e in range(indptr[node], indptr[node + 1]):
                share += per_reader[sources[e]]
            shares[node] += share
        per_reader[node] = shares[node] / max(1, net_sizes[node])
