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
from workbench.partition.balance import ByteCosts


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
    """Unroll a batch by hop and assign bytes to its nodes: their own and those of their incoming edges.

    `costs` are rounded to whole bytes per node of the graph; None for `ByteCosts.default`.

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

    Returns:
        float64 [nodes]; summed over any hop, the bytes of all nodes from that hop on.
    """
    shares = graph.node_bytes.to(torch.float64)
    _share(*(t.numpy() for t in (graph.hop_starts, graph.indptr, graph.sources, net_sizes(graph), shares)))
    return shares


def net_sizes(graph: ComputationGraph) -> Tensor:
    """Count the pins of every node's net: the nodes of the previous hop that read it, itself included.

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


@dataclass(frozen=True, eq=False)
class ContractedGraph:
    """The seeds, and one node per group of nodes that are needed only together; sources have higher numbers.

    Args:
        num_seeds: number of seeds, which are the first nodes.
        indptr: int64 [nodes + 1].
        sources: int32 or int64, the distinct nodes that every node reads.
        node_bytes: int64 [nodes], the bytes of every group.
        shares: float64 [nodes], every group's fair share of the bytes that it needs, its own included.
    """

    num_seeds: int
    indptr: Tensor
    sources: Tensor
    node_bytes: Tensor
    shares: Tensor

    def arrays(self) -> tuple[Any, ...]:
        """Return the fields for kernels, tensors as numpy arrays."""
        return self.num_seeds, *(t.numpy() for t in (self.indptr, self.sources, self.node_bytes, self.shares))


def contract(graph: ComputationGraph) -> ContractedGraph:
    """Merge every node that has a single reader with it, hop by hop.

    Returns:
        The contracted graph; the nodes of the batch that have several readers keep their order.
    """
    hop_starts, indptr, sources, node_bytes = graph.arrays()
    groups = np.empty(len(node_bytes), sources.dtype)
    num_groups = _group(hop_starts, indptr, sources, groups)
    members, starts, merged_bytes = _members(groups, node_bytes, num_groups)
    merged = torch.empty(len(sources) + len(indptr) - 1, dtype=graph.sources.dtype)
    merged_indptr, shares = torch.zeros(num_groups + 1, dtype=torch.int64), torch.empty(num_groups, dtype=torch.float64)
    _merge(hop_starts, indptr, sources, groups, members, starts, merged_indptr.numpy(), merged.numpy())
    merged = merged[: int(merged_indptr[-1])].clone()
    _share_among_groups(merged_indptr.numpy(), merged.numpy(), merged_bytes, shares.numpy())
    return ContractedGraph(graph.num_seeds, merged_indptr, merged, torch.from_numpy(merged_bytes), shares)


@compiled
def _group(hop_starts, indptr, sources, groups):
    """Write the group of every node and return their number; readers have lower numbers than their sources."""
    num_seeds, count, hop = hop_starts[1], 0, 0
    groups[:] = -1  # no reader so far; -2: several groups read it
    for node in range(len(groups)):
        if node < num_seeds or groups[node] < 0:
            groups[node] = count
            count += 1
        while node >= hop_starts[hop + 1]:
            hop += 1
        group, itself = groups[node], node - hop_starts[hop] + hop_starts[hop + 1]  # the same node one hop on
        if node < len(indptr) - 1:
            for e in range(indptr[node] - 1, indptr[node + 1]):
                source = itself if e < indptr[node] else sources[e]
                if groups[source] == -1:
                    groups[source] = group
                elif groups[source] != group:
                    groups[source] = -2
    return count


@compiled
def _members(groups, node_bytes, num_groups):
    """Return the nodes by group, where every group begins, and the bytes of every group."""
    starts, group_bytes = np.zeros(num_groups + 1, np.int64), np.zeros(num_groups, np.int64)
    for node in range(len(groups)):
        starts[groups[node] + 1] += 1
        group_bytes[groups[node]] += node_bytes[node]
    starts[:] = np.cumsum(starts)
    members, cursor = np.empty(len(groups), np.int64), starts.copy()
    for node in range(len(groups)):
        members[cursor[groups[node]]] = node
        cursor[groups[node]] += 1
    return members, starts, group_bytes


@compiled
def _merge(hop_starts, indptr, sources, groups, members, starts, out_indptr, out):
    """List the distinct other groups that the members of every group read."""
    end = 0
    last = np.full(len(starts) - 1, -1, np.int32)  # the last group that reads each
    for group in range(len(starts) - 1):
        last[group] = group
        for m in range(starts[group], starts[group + 1]):
            node = members[m]
            if node < len(indptr) - 1:
                for e in range(indptr[node] - 1, indptr[node + 1]):
                    source = groups[self_source(hop_starts, node) if e < indptr[node] else sources[e]]
                    if last[source] != group:
                        last[source] = group
                        out[end] = source
                        end += 1
        out_indptr[group + 1] = end


@compiled
def _share_among_groups(indptr, sources, node_bytes, shares):
    """Add a source's share, divided by the number of its readers, to each of them, last node first."""
    num_readers = np.zeros(len(shares), np.int64)
    for source in sources:
        num_readers[source] += 1
    for node in range(len(shares) - 1, -1, -1):
        shares[node] = node_bytes[node]
        for e in range(indptr[node], indptr[node + 1]):
            shares[node] += shares[sources[e]]
        shares[node] /= max(1, num_readers[node])  # from here on the share of each reader
    for node in range(len(shares)):
        shares[node] *= max(1, num_readers[node])
