"""The computation trees of a batch's outputs, merged: what a part takes along with an output, and what it weighs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.kernels.csr import distinct_rows, index_dtype
from workbench.kernels.jit import compiled

INPUT_BYTES = 512
EDGE_BYTES = 16


@dataclass(frozen=True, eq=False)
class Trees:
    """One node for every node of a batch and hop from the outputs that it stands at; hop 0 are the outputs.

    Children of node v at one hop are its in-neighbours at the next hop, and v itself there (a layer reads its
    destinations' own rows too); that one is not listed, the others once each. Nodes of the last hop are the
    input nodes.

    Args:
        first: int64 [hops + 2], the number of the first node of every hop, and of none.
        indptr: int64 [nodes before the last hop + 1].
        children: int32 or int64, numbers of nodes; at most one an edge.
        cost: int64 [nodes], the bytes a part needs for a node that it has.
    """

    first: Tensor
    indptr: Tensor
    children: Tensor
    cost: Tensor

    @property
    def num_outputs(self) -> int:
        return int(self.first[1])

    def arrays(self) -> tuple[Any, ...]:
        """The fields as kernels take them."""
        return tuple(t.numpy() for t in (self.first, self.indptr, self.children, self.cost))


def computation_trees(mb: MiniBatch, *, input_bytes: int = INPUT_BYTES, edge_bytes: int = EDGE_BYTES) -> Trees:
    """Number the nodes of a batch by hop and say what each costs.

    What an input or an edge really takes depends on the model; the defaults are a row of 128 features in float32, and
    an edge's index with its place in the transposed block.

    Args:
        mb: the batch.
        input_bytes: of an input node.
        edge_bytes: of an edge, of whatever layer.
    """
    blocks = [b.to("cpu") for b in reversed(mb.blocks)]
    sizes = torch.tensor([mb.num_seeds, *(b.num_src for b in blocks)])
    first = torch.zeros(len(sizes) + 1, dtype=torch.int64)
    torch.cumsum(sizes, 0, out=first[1:])
    rows = [distinct_rows(b.indptr, b.indices, b.num_src, own="drop") for b in blocks]
    dtype, none = index_dtype(int(first[-1])), torch.zeros(0, dtype=torch.int64)
    children = [found.to(dtype) + int(start) for (_, found), start in zip(rows, first[1:-1], strict=True)]
    indptr = torch.zeros(int(first[-2]) + 1, dtype=torch.int64)
    torch.cumsum(torch.cat([none, *(bounds.diff() for bounds, _ in rows)]), 0, out=indptr[1:])
    cost = torch.full((int(first[-1]),), input_bytes, dtype=torch.int64)
    cost[: len(indptr) - 1] = torch.cat([none, *(b.indptr.diff() for b in blocks)]) * edge_bytes
    return Trees(first, indptr, torch.cat([none.to(dtype), *children]), cost)


def fair_shares(trees: Trees) -> Tensor:
    """The bytes of every node's tree, those of a node that several need cut evenly among them.

    Args:
        trees: of a batch.

    Returns:
        float64 [nodes]: of the nodes of any hop together, what all inputs and edges behind that hop cost.
    """
    shares = trees.cost.to(torch.float64)
    _share(*(t.numpy() for t in (trees.first, trees.indptr, trees.children, parents(trees), shares)))
    return shares


def parents(trees: Trees) -> Tensor:
    """int64 [nodes]: how many nodes of the hop before need a node, itself included; an output has none."""
    counts = torch.zeros(len(trees.cost), dtype=torch.int64)
    _count_parents(*(t.numpy() for t in (trees.first, trees.children, counts)))
    return counts


@compiled
def self_child(first, node):
    """The same node one hop farther."""
    hop = 0
    while node >= first[hop + 1]:
        hop += 1
    return node - first[hop] + first[hop + 1]


@compiled
def _count_parents(first, children, counts):
    for node in range(first[len(first) - 2]):
        counts[self_child(first, node)] += 1
    for child in children:
        counts[child] += 1


@compiled
def _share(first, indptr, children, parents, shares):
    """Children have higher numbers than their parents, so theirs are known first."""
    for node in range(len(indptr) - 2, -1, -1):
        own = self_child(first, node)
        share = shares[own] / parents[own]
        for e in range(indptr[node], indptr[node + 1]):
            share += shares[children[e]] / parents[children[e]]
        shares[node] += share
