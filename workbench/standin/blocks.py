"""Affinity blocks: small dense groups of nodes of similar degree, which provide a graph's triangles.

Phase 1 of BTER (Seshadhri, Kolda, Pinar, "Community structure and scale-free collections of Erdős-Rényi graphs", Phys.
Rev. E 2012). Nodes are ordered by class, then by degree, so that all nodes of a block have the same class.
"""

import torch
from torch import Tensor

from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index, unit_interval
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges
from workbench.standin.node_pairs import Pairs


@compiled
def _cut(degrees, class_starts, max_size, starts):
    """Write where blocks begin and return their number; a first node of degree d opens a block of d + 1 nodes."""
    count = 0
    for c in range(len(class_starts) - 1):
        at, end = class_starts[c], class_starts[c + 1]
        while at < end:
            starts[count] = at
            count += 1
            size = min(degrees[at] + 1, max_size) if degrees[at] > 1 else 1
            at = min(at + size, end)
    return count


def cut_blocks(degrees: Tensor, class_starts: Tensor, max_size: int) -> Tensor:
    """Cut the nodes into affinity blocks; a node of degree 1 is a block by itself.

    Args:
        degrees: int64 [nodes], ascending within every class.
        class_starts: int64 [classes + 1].
        max_size: nodes in the largest block.

    Returns:
        int64 [blocks + 1], where blocks begin.
    """
    starts = torch.empty(len(degrees) + 1, dtype=torch.int64)
    count = _cut(degrees.numpy(), class_starts.numpy(), max_size, starts.numpy())
    starts[count] = len(degrees)
    return starts[: count + 1].clone()


def block_density(degrees: Tensor, starts: Tensor, clustering: float) -> float:
    """Compute the edge probability ρ within blocks that yields a mean local clustering coefficient.

    A node of degree d in a block of b nodes closes (b - 1)(b - 2) ρ³ / (d (d - 1)) of its pairs, not counting triangles
    with edges outside blocks.

    Args:
        degrees: int64 [nodes].
        starts: int64 [blocks + 1], where blocks begin.
        clustering: the mean local clustering coefficient to reach.

    Returns:
        ρ.

    Raises:
        ValueError: not even complete blocks reach it.
    """
    sizes = starts.diff().repeat_interleave(starts.diff()).double()
    d = degrees.double()
    complete = float(((sizes - 1) * (sizes - 2) / (d * (d - 1)).clamp(min=1)).mean())
    if clustering > complete:
        raise ValueError(
            f"clustering is {clustering}, but complete blocks within such small classes reach only {complete:.3f}; "
            "pass a larger scale"
        )
    return (clustering / complete) ** (1 / 3)


@compiled
def _count_pairs(starts, density, key, lo, hi, counts):
    for block in range(lo, hi):
        size, block_key = starts[block + 1] - starts[block], hash_index(key, starts[block])
        for pair in range(size * (size - 1) // 2):
            counts[block] += unit_interval(hash_index(block_key, pair)) < density


@compiled
def _write_pairs(starts, density, key, lo, hi, slots, left, right):
    for block in range(lo, hi):
        first, slot = starts[block], slots[block]
        size, block_key = starts[block + 1] - first, hash_index(key, first)
        pair = 0
        for i in range(1, size):
            for j in range(i):
                if unit_interval(hash_index(block_key, pair)) < density:
                    left[slot], right[slot] = first + i, first + j
                    slot += 1
                pair += 1


def block_pairs(starts: Tensor, density: float, key: int) -> Pairs:
    """Draw every pair within a block with equal probability (an Erdős-Rényi graph per block).

    Args:
        starts: int64 [blocks + 1], where blocks begin.
        density: the probability.
        key: key of the random stream.

    Returns:
        The pairs.
    """
    sizes = starts.diff()
    work = offsets(sizes * (sizes - 1) // 2)
    counts = torch.zeros(len(sizes), dtype=torch.int64)
    s, c = starts.numpy(), counts.numpy()
    parallel_edges(lambda lo, hi: _count_pairs(s, density, key, lo, hi, c), work)
    slots = offsets(counts)
    left, right = (torch.empty(int(slots[-1]), dtype=torch.int32) for _ in range(2))
    p, a, b = slots.numpy(), left.numpy(), right.numpy()
    parallel_edges(lambda lo, hi: _write_pairs(s, density, key, lo, hi, p, a, b), work)
    return Pairs(left, right)
