"""Affinity blocks: small dense groups of nodes of like degree, which give a graph its triangles.

Phase 1 of BTER (Seshadhri, Kolda, Pinar, "Community structure and scale-free collections of Erdős-Rényi graphs", Phys.
Rev. E 2012). Nodes stand in order of class, and of degree within a class, so that a block has one class.
"""

import torch
from torch import Tensor

from workbench.datasets.standin.pairs import Pairs
from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index, unit_interval
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges


@compiled
def _cut(degrees, class_starts, most, starts):
    """Write where blocks begin: degree d opens a block of d + 1 nodes, at most `most`; return their number."""
    count = 0
    for c in range(len(class_starts) - 1):
        at, end = class_starts[c], class_starts[c + 1]
        while at < end:
            starts[count] = at
            count += 1
            size = min(degrees[at] + 1, most) if degrees[at] > 1 else 1
            at = min(at + size, end)
    return count


def cut_blocks(degrees: Tensor, class_starts: Tensor, most: int) -> Tensor:
    """int64 [blocks + 1]: where blocks begin. A node of degree 1 is a block of its own.

    Args:
        degrees: int64 [nodes], ascending within every class.
        class_starts: int64 [classes + 1].
        most: nodes in the largest block.
    """
    starts = torch.empty(len(degrees) + 1, dtype=torch.int64)
    count = _cut(degrees.numpy(), class_starts.numpy(), most, starts.numpy())
    starts[count] = len(degrees)
    return starts[: count + 1].clone()


def block_density(degrees: Tensor, starts: Tensor, clustering: float) -> float:
    """Probability of an edge in a block that gives the graph a mean local clustering coefficient.

    A node of degree d in a block of b nodes closes (b − 1)(b − 2) ρ³ / (d (d − 1)) of its pairs, if no other edge does.

    Raises:
        ValueError: complete blocks would not give as much.
    """
    sizes = starts.diff().repeat_interleave(starts.diff()).double()
    d = degrees.double()
    complete = float(((sizes - 1) * (sizes - 2) / (d * (d - 1)).clamp(min=1)).mean())
    if clustering > complete:
        raise ValueError(
            f"clustering {clustering} is out of reach: complete blocks within classes so small give {complete:.3f}; "
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
    """Every pair of a block with the same probability (Erdős-Rényi).

    Args:
        starts: int64 [blocks + 1].
        density: the probability.
        key: of the random stream.
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
