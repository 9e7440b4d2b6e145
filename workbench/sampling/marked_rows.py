"""Bitmaps of the edges that a sampler keeps of each row, and the drawn rows that they describe.

A sampler that decides edge by edge does not know how many it keeps before it has decided: it marks first, which reads
every candidate once, and then writes exactly the marked ones.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.bits import lowest_bit
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.threads import parallel_edges
from workbench.sampling.candidates import Candidates, row_offsets
from workbench.sampling.race import insert_arrival
from workbench.sampling.sampler import Drawn
from workbench.sampling.uniform import copy_row

WORD_BITS = 64
_ROWS_AHEAD = 12
_PREFETCH_EDGES = 256  # of a row; the hardware detects longer streams
_LINE = 16  # int32 indices per cache line
_S6 = np.uint64(6)
_ONE, _ZERO, _LOW_6 = np.uint64(1), np.uint64(0), np.uint64(63)


class MarkedRows(NamedTuple):
    """Which edges of some rows are kept. A row without words is kept whole.

    Args:
        words: int64, 64 edges per word; the words of a row begin with its first edge.
        offsets: int64 [n + 1], where the words of every row begin.
        counts: int64 [n], edges kept per row.
    """

    words: Tensor
    offsets: Tensor
    counts: Tensor

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return NumPy views for compiled kernels, the words as uint64."""
        return self.words.numpy().view(np.uint64), self.offsets.numpy(), self.counts.numpy()


def unmarked_rows(rows: Candidates, limits: Tensor) -> MarkedRows:
    """Allocate bitmaps for the rows with more candidates than their limit; counts are not initialized.

    Args:
        rows: the candidates, on the CPU.
        limits: int64 [n], edges per row up to which a row is kept whole.
    """
    offsets = torch.empty(len(limits) + 1, dtype=torch.int64)
    _cumulate_words(rows.lengths.numpy(), rows.degrees.numpy(), limits.numpy(), offsets.numpy())
    words = torch.empty(int(offsets[-1]), dtype=torch.int64)
    return MarkedRows(words, offsets, torch.empty(len(limits), dtype=torch.int64))


@compiled
def _cumulate_words(lengths, degrees, limits, offsets):
    offsets[0] = 0
    for i in range(len(limits)):
        offsets[i + 1] = offsets[i] + (degrees[i] > limits[i]) * ((lengths[i] + WORD_BITS - 1) // WORD_BITS)


@compiled
def prefetch_rows(i, hi, starts, lengths, indices):
    """Prefetch the beginning of a later row, because rows of a batch are scattered over the graph."""
    later = i + _ROWS_AHEAD
    if later < hi and lengths[later] > 0:
        first, last = starts[later], starts[later] + lengths[later] - 1
        for position in range(first, min(last, first + _PREFETCH_EDGES), _LINE):
            prefetch(indices, position)
        prefetch(indices, last)


@compiled
def unmark_excluded(words, start, length, excluded, skip):
    """Clear the bits of excluded edges; `skip` is the row's first excluded edge."""
    while skip < len(excluded) and excluded[skip] < start + length:
        offset = np.uint64(excluded[skip] - start)
        words[offset >> _S6] &= ~(_ONE << (offset & _LOW_6))
        skip += 1


@compiled
def mark_smallest(words, keys, count, smallest, offsets):
    """Mark the edges with the smallest of `count` keys, as many as `smallest` is long; ties go to the first edge."""
    filled = 0
    for j in range(count):
        if filled < len(smallest) or keys[j] < smallest[filled - 1]:
            filled = insert_arrival(keys[j], j, smallest, offsets, filled)
    words[:] = _ZERO
    for j in range(filled):
        offset = np.uint64(offsets[j])
        words[offset >> _S6] |= _ONE << (offset & _LOW_6)


def write_marked(rows: Candidates, marks: MarkedRows, indices: Tensor, *, positions: bool) -> Drawn:
    """Write the kept edges of all rows, in CSR order.

    Args:
        rows: the candidates, consecutive in `indices`.
        marks: the edges to keep.
        indices: int32 or int64, sources by CSR position.
        positions: whether to return the edges' positions in `indices`.

    Returns:
        The drawn rows.
    """
    indptr = row_offsets(marks.counts)
    sources = torch.empty(int(indptr[-1]), dtype=indices.dtype)
    drawn_positions = torch.empty(len(sources) if positions else 0, dtype=torch.int64)
    words, offsets, _ = marks.arrays()
    row_arrays = tuple(t.numpy() for t in (rows.starts, rows.lengths, rows.excluded, rows.first_excluded, indptr))
    out = (sources.numpy(), drawn_positions.numpy())
    parallel_edges(lambda lo, hi: _write_rows(lo, hi, *row_arrays, words, offsets, indices.numpy(), *out), indptr)
    return Drawn(indptr, sources, drawn_positions if positions else None)


@compiled
def _write_rows(lo, hi, starts, lengths, excluded, first_excluded, indptr, words, offsets, indices, sources, positions):
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        e = indptr[i]
        if offsets[i] == offsets[i + 1]:
            first = first_excluded[i] if len(excluded) else 0
            copy_row(starts[i], first, excluded, e, indptr[i + 1], indices, sources, positions)
            continue
        base = starts[i]
        for w in range(offsets[i], offsets[i + 1]):
            word = words[w]
            while word != _ZERO:
                position = base + lowest_bit(word)
                sources[e] = indices[position]
                if len(positions):
                    positions[e] = position
                e += 1
                word &= word - _ONE
            base += WORD_BITS
