"""Rows of the edges that a sampler keeps, decided eight edges at a time.

A sampler that decides edge by edge does not know how many it keeps before it has decided. It writes them, row after
row, to scratch memory with room for all candidates, of which only the beginning is touched, and then copies them to
arrays of the right size.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_vector
from workbench.core.graph import Graph
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lane_instructions import lowest_bit, popcount, prefetch
from workbench.kernels.lanes import LANES, compress
from workbench.kernels.threads import parallel_edges, run_tasks
from workbench.sampling.sampler import row_offsets
from workbench.sampling.weighted import insert_arrival

_ROWS_AHEAD = 12

_PREFETCH_EDGES = 256  # of a row; the hardware detects longer streams

_LINE = 16  # int32 indices per cache line

_ONE, _ZERO = np.uint64(1), np.uint64(0)


def keep_edges(
    kernel: Callable[..., object], room: Tensor, dtypes: Sequence[torch.dtype | None]
) -> tuple[Tensor, list[Tensor | None]]:
    """Run a kernel that writes the edges it keeps of every row.

    Args:
        kernel: called with a range of rows, the first slot for them, int64 [n], where it writes the number of edges
            kept per row, and an array per output to write to from that slot on, row after row.
        room: int64 [n + 1], the first slot for every row: offsets of rows that contain all candidates.
        dtypes: of the outputs; None: not needed, the kernel gets an empty array.

    Returns:
        The offsets of the rows, int64 [n + 1], and the outputs.
    """
    starts, counts = room.numpy(), torch.empty(len(room) - 1, dtype=torch.int64)
    scratch = [_empty(int(starts[-1]), dtype) for dtype in dtypes]
    ranges: list[tuple[int, int]] = []

    def run(lo: int, hi: int) -> None:
        kernel(lo, hi, starts[lo], counts.numpy(), *scratch)
        ranges.append((lo, hi))

    parallel_edges(run, room, 1)
    indptr = row_offsets(counts)
    ends = indptr.numpy()
    kept = [None if dtype is None else torch.empty(int(ends[-1]), dtype=dtype) for dtype in dtypes]
    needed = [(out.numpy(), source) for out, source in zip(kept, scratch, strict=True) if out is not None]

    def move(lo: int, hi: int) -> None:
        for out, source in needed:
            out[ends[lo] : ends[hi]] = source[starts[lo] : starts[lo] + ends[hi] - ends[lo]]

    run_tasks([partial(move, lo, hi) for lo, hi in ranges])
    return indptr, kept


def _empty(size: int, dtype: torch.dtype | None) -> np.ndarray:
    return torch.empty(0 if dtype is None else size, dtype=dtype or torch.int64).numpy()


@compiled_inline
def prefetch_rows(i, hi, starts, lengths, indices):
    """Prefetch the beginning of a later row, because rows of a batch are scattered over the graph."""
    later = i + _ROWS_AHEAD
    if later < hi and lengths[later] > 0:
        first, last = starts[later], starts[later] + lengths[later] - 1
        for position in range(first, min(last, first + _PREFETCH_EDGES), _LINE):
            prefetch(indices, position)
        prefetch(indices, last)


@compiled_inline
def without_excluded(mask, position, excluded, skip):
    """Clear the bits of excluded edges among the eight from `position` on.

    `skip` is the first excluded edge from `position` on; return the mask, and the first one behind the eight.
    """
    while skip < len(excluded) and excluded[skip] < position + LANES:
        mask &= ~(_ONE << np.uint64(excluded[skip] - position))
        skip += 1
    return mask, skip


@compiled_inline
def write_kept(mask, position, indices, sources, positions, slot):
    """Write the sources of those of eight edges whose bits are set, and positions if wanted; return the next slot."""
    compress(indices, position, mask, sources, slot)
    if len(positions):
        rest, e = mask, slot
        while rest != _ZERO:
            positions[e] = position + lowest_bit(rest)
            rest &= rest - _ONE
            e += 1
    return slot + popcount(mask)


@compiled
def mark_smallest(masks, keys, count, smallest, offsets):
    """Set the bits of the smallest of `count` keys, as many as `smallest` is long; ties go to the first.

    `masks` gets a byte per eight keys.
    """
    filled = 0
    for j in range(count):
        if filled < len(smallest) or (filled > 0 and keys[j] < smallest[filled - 1]):
            filled = insert_arrival(keys[j], j, smallest, offsets, filled)
    masks[: (count + LANES - 1) // LANES] = 0
    for j in range(filled):
        masks[offsets[j] // LANES] |= np.uint8(1 << (offsets[j] % LANES))


WEIGHTS = ("mean", "ratio", "sum")
"""What Σ weight · h over a drawn row estimates, divided by the number of its edges unless for "sum"."""


def inverse_weights(kind: str, inverse: Tensor, counts: Tensor, degrees: Tensor, totals: Tensor, row: Tensor) -> Tensor:
    """Compute float32 weights of drawn edges, to be applied by a mean or a sum over each row.

    Args:
        inverse: float64 [num_drawn], 1 / P of every drawn edge.
        counts: int64 [num_rows], edges drawn per row.
        degrees: int64 [num_rows], candidates per row.
        totals: float64 [num_rows], sums of `inverse` over the rows ("ratio" alone reads them).
        row: int64 [num_drawn], the row of every edge.
    """
    if kind == "sum":
        return inverse.float()
    norm = counts.double() / (degrees.double() if kind == "mean" else totals)
    return (norm[row] * inverse).float()


MAX_LEVELS = 256

_LARGEST = 2.0**20


class Levels(NamedTuple):
    """A factor per node.

    Args:
        factors: float64 [num_levels], the distinct factors, in descending order.
        codes: uint8 [num_nodes], the level of every node.
    """

    factors: Tensor
    codes: Tensor

    @classmethod
    def of(cls, factors: Tensor) -> "Levels":
        """Find the levels of a valid vector of factors."""
        distinct, codes = torch.unique(factors.detach().double(), return_inverse=True)
        if len(distinct) > MAX_LEVELS:
            raise ValueError(
                f"factors contains {len(distinct)} different values; at most {MAX_LEVELS} are possible: round them, to "
                "powers of two, say"
            )
        return cls(distinct.flip(0), (len(distinct) - 1 - codes).to(torch.uint8))

    def on(self, graph: Graph) -> "Levels":
        """Return the levels on the graph's device.

        Raises:
            ValueError: they are those of another number of nodes.
        """
        if len(self.codes) != graph.num_nodes:
            raise ValueError(
                f"factors has {len(self.codes)} values, but the graph has {graph.num_nodes} nodes; pass one per node "
                "(wb.placement.locality_factors computes them from the ids of buffered nodes)"
            )
        return Levels(self.factors.to(graph.device), self.codes.to(graph.device))


def check_factors(factors: Tensor) -> None:
    """Check that factors are floating [num_nodes], each from 2⁻²⁰ to 2²⁰."""
    check_vector("factors", factors, None, (torch.float64, torch.float32))
    bad = ~((factors >= 1 / _LARGEST) & (factors <= _LARGEST))
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise ValueError(f"factors contains {factors[at].item()} at position {at}; factors must be from 2⁻²⁰ to 2²⁰")
