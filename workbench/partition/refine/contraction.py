"""The contracted computation graph: nodes that a part needs only together are one node.

If all readers of a node are one node, a part needs it exactly when it needs that reader, so both are merged. This is
repeated hop by hop: a seed represents everything that it alone needs, and a shared node everything that is needed only
through it. On real batches more than half of all nodes disappear, and the bytes of any part stay the same.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.partition.refine.computation_graph import ComputationGraph, self_source


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

    Args:
        graph: the computation graph of a batch.

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
    _share(merged_indptr.numpy(), merged.numpy(), merged_bytes, shares.numpy())
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
def _share(indptr, sources, node_bytes, shares):
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
