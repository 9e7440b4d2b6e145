"""Redundancy-embedded graph partitioning: METIS on how many in-neighbours two outputs share.

Betty (Yang et al., ASPLOS 2023), Algorithm 1. The paper multiplies AᵀA over all nodes and keeps the output nodes; rows
of the output block already are the output nodes, so the product here is A·Aᵀ with one row and one column per output.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from workbench.core.errors import CapacityError
from workbench.core.host_memory import available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.kernels.csr import distinct_rows
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.kernels.transpose import Transposed, transpose
from workbench.partition.batch.options import PartitionOptions, output_rows
from workbench.partition.metis import metis

# 16 are 64-bit neighbours and weights; METIS's process, which maps them, has a peak of 39 more on ogbn-arxiv (29
# million nonzeros, 32 parts).
BYTES_PER_NONZERO = 56
WHOLE = 1000  # what a source of two outputs counts where weights are normalized: METIS takes whole numbers


@dataclass(frozen=True, eq=False)
class SharedNeighbours:
    """The redundancy-embedded graph: C of Algorithm 1 as a symmetric CSR without diagonal.

    Args:
        indptr: int64 [num_outputs + 1].
        indices: int64 [nonzeros], the outputs that share an in-neighbour with the row's; in no order.
        counts: int64 [nonzeros], how many they share (multi-edges count once), or the sum of these sources' weights.
    """

    indptr: Tensor
    indices: Tensor
    counts: Tensor | None


def reg_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut the redundancy-embedded graph so that outputs in different parts share few in-neighbours."""
    return _cut(shared_neighbours(mb, max_bytes=options.max_bytes), num_parts, options)


def reg_unweighted_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Like `reg_parts`, but any number of shared in-neighbours counts as one: what the paper's artifact does."""
    return _cut(replace(shared_neighbours(mb, max_bytes=options.max_bytes), counts=None), num_parts, options)


def reg_normalized_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Like `reg_parts`, but a source that n outputs need counts 1/(n - 1) for each pair of them.

    A source's pairs then weigh n/2 together and not n²/2: what a cut saves is at most n - 1 copies. An output that is a
    source needs itself.
    """
    return _cut(shared_neighbours(mb, normalized=True, max_bytes=options.max_bytes), num_parts, options)


def _cut(graph: SharedNeighbours, num_parts: int, options: PartitionOptions) -> Tensor:
    return metis(
        graph.indptr,
        graph.indices,
        num_parts,
        edge_weight=graph.counts,
        weights=options.weights,
        seed=options.seed,
        time_limit_seconds=options.time_limit_seconds,
    )


def shared_neighbours(mb: MiniBatch, *, normalized: bool = False, max_bytes: int | None = None) -> SharedNeighbours:
    """Count for every pair of outputs the sources that both have in the output block.

    Args:
        mb: the batch; its output block is what counts.
        normalized: a source of n outputs counts `WHOLE` / (n - 1), rounded, at least 1; an output is a source of its
            own, too.
        max_bytes: memory the graph and METIS's work on it may take; None: what the machine has left.

    Raises:
        CapacityError: it would take more; nothing has been built then.

    Source: Betty (ASPLOS 2023), Algorithm 1.
    """
    indptr, indices, num_src = output_rows(mb)
    rows = distinct_rows(indptr, indices, num_src, own="add" if normalized else "keep")
    columns = transpose(*rows, num_src)
    limit = available_bytes() if max_bytes is None else max_bytes
    degrees = columns.indptr.diff()
    _check(
        int((degrees * (degrees - 1)).max()) if num_src else 0, limit, "at least "
    )  # outputs of one source, all pairs
    out_indptr = _count(rows, columns)
    _check(int(out_indptr[-1]), limit, "")
    return _fill(rows, columns, out_indptr, _weights(degrees) if normalized else torch.ones_like(degrees))


def _weights(degrees: Tensor) -> Tensor:
    return (WHOLE / (degrees - 1).clamp(min=1)).round().to(torch.int64).clamp(min=1)


def _check(nonzeros: int, limit: int, at_least: str) -> None:
    needed = nonzeros * BYTES_PER_NONZERO
    if needed > limit:
        raise CapacityError(
            f"the graph of shared in-neighbours has {at_least}{nonzeros:,} nonzeros and takes {format_bytes(needed)} "
            f"to build and cut, more than the {format_bytes(limit)} it may: use method='metis' (its graph is "
            "no bigger than the block), a smaller batch or fanout, or raise max_bytes"
        )


def _count(rows: tuple[Tensor, Tensor], columns: Transposed) -> Tensor:
    """`indptr` of the product."""
    num_rows = len(rows[0]) - 1
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    arrays = [t.numpy() for t in (*rows, columns.indptr, columns.rows, indptr[1:])]
    parallel_rows(lambda lo, hi: _count_rows(*arrays, _no_slots(num_rows), lo, hi), num_rows)
    return indptr.cumsum_(0)


def _fill(rows: tuple[Tensor, Tensor], columns: Transposed, indptr: Tensor, weights: Tensor) -> SharedNeighbours:
    num_rows = len(indptr) - 1
    indices, counts = torch.empty(int(indptr[-1]), dtype=torch.int64), torch.empty(int(indptr[-1]), dtype=torch.int64)
    arrays = [t.numpy() for t in (*rows, columns.indptr, columns.rows, weights, indptr, indices, counts)]
    parallel_rows(lambda lo, hi: _fill_rows(*arrays, _no_slots(num_rows), lo, hi), num_rows)
    return SharedNeighbours(indptr, indices, counts)


def _no_slots(num_rows: int):
    return torch.full((num_rows,), -1, dtype=torch.int64).numpy()


@compiled
def _count_rows(indptr, indices, col_indptr, col_rows, counts, last_row, lo, hi):
    """Nonzeros of rows [lo, hi); `last_row` says for which row an output was counted last."""
    for row in range(lo, hi):
        last_row[row] = row  # leaves the diagonal out
        found = 0
        for e in range(indptr[row], indptr[row + 1]):
            for c in range(col_indptr[indices[e]], col_indptr[indices[e] + 1]):
                other = col_rows[c]
                if last_row[other] != row:
                    last_row[other] = row
                    found += 1
        counts[row] = found


@compiled
def _fill_rows(indptr, indices, col_indptr, col_rows, weights, out_indptr, out, counts, slots, lo, hi):
    """Rows [lo, hi) of the product; an output's slot is of this row if it is not before where the row begins."""
    for row in range(lo, hi):
        begin = out_indptr[row]
        end = begin
        for e in range(indptr[row], indptr[row + 1]):
            for c in range(col_indptr[indices[e]], col_indptr[indices[e] + 1]):
                other = col_rows[c]
                if other == row:
                    continue
                slot = slots[other]
                if slot < begin:
                    slot = end
                    slots[other] = slot
                    out[slot] = other
                    counts[slot] = 0
                    end += 1
                counts[slot] += weights[indices[e]]
