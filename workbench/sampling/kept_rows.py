"""Rows of the edges that a sampler keeps, decided eight edges at a time.

A sampler that decides edge by edge does not know how many it keeps before it has decided. It writes them, row after
row, to scratch memory with room for all candidates, of which only the beginning is touched, and then copies them to
arrays of the right size.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.bits import lowest_bit, popcount
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lanes import LANES, compress
from workbench.kernels.prefetch import prefetch
from workbench.kernels.threads import parallel_edges, run_tasks
from workbench.sampling.candidates import row_offsets
from workbench.sampling.race import insert_arrival

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
        if filled < len(smallest) or keys[j] < smallest[filled - 1]:
            filled = insert_arrival(keys[j], j, smallest, offsets, filled)
    masks[: (count + LANES - 1) // LANES] = 0
    for j in range(filled):
        masks[offsets[j] // LANES] |= np.uint8(1 << (offsets[j] % LANES))
