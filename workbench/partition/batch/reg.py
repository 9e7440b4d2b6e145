"""Redundancy-embedded graph (REG) partitioning: METIS on the number of in-neighbours that two seeds share.

Betty (Yang et al., ASPLOS 2023), Algorithm 1. The paper multiplies AᵀA over all nodes and keeps the output nodes; the
output block already has one row per seed, so the product here is A·Aᵀ with one row and one column per seed.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from workbench.core.errors import CapacityError, available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.kernels.csr import distinct_rows
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.kernels.transpose import Transposed, transpose
from workbench.partition.batch.prepared_batch import Cut, PartitionOptions, PreparedBatch, output_rows
from workbench.partition.metis import metis

# 16 bytes are the 64-bit neighbour and weight; METIS's process, which maps them, has a peak of 39 more on ogbn-arxiv
# (29 million nonzeros, 32 parts).
BYTES_PER_NONZERO = 56
WEIGHT_SCALE = 1000  # normalized weight of a source that two seeds share: METIS requires integers


@dataclass(frozen=True, eq=False)
class RedundancyEmbeddedGraph:
    """C of Algorithm 1 as a symmetric CSR without its diagonal.

    Args:
        indptr: int64 [num_seeds + 1].
        indices: int64 [nonzeros], the seeds that share an in-neighbour with the row's seed, unordered.
        edge_weight: int64 [nonzeros], the number of in-neighbours they share (multi-edges count once), or the sum of
            those in-neighbours' normalized weights; None: 1 each.
    """

    indptr: Tensor
    indices: Tensor
    edge_weight: Tensor | None


def prepare_reg(batch: PreparedBatch) -> Cut:
    """Minimize the edge cut of the REG, so that seeds of different parts share few in-neighbours."""
    return _cut(redundancy_embedded_graph(batch.host, max_bytes=batch.options.max_bytes), batch.options)


def prepare_reg_unweighted(batch: PreparedBatch) -> Cut:
    """Partition the REG with all edge weights 1, as the paper's artifact does."""
    reg = redundancy_embedded_graph(batch.host, max_bytes=batch.options.max_bytes)
    return _cut(replace(reg, edge_weight=None), batch.options)


def prepare_reg_normalized(batch: PreparedBatch) -> Cut:
    """Partition the REG with normalized weights: a source that n seeds need counts 1/(n - 1) for each pair of them.

    The pairs of a source then weigh n/2 together instead of n²/2: cutting them costs at most n - 1 copies. A seed that
    is a source needs itself.
    """
    reg = redundancy_embedded_graph(batch.host, normalized=True, max_bytes=batch.options.max_bytes)
    return _cut(reg, batch.options)


def _cut(reg: RedundancyEmbeddedGraph, options: PartitionOptions) -> Cut:
    given = {"edge_weight": reg.edge_weight, "weights": options.weights, "seed": options.seed}
    given |= {"time_limit_seconds": options.time_budget_seconds}
    return lambda num_parts: metis(reg.indptr, reg.indices, num_parts, **given)


def redundancy_embedded_graph(
    mb: MiniBatch, *, normalized: bool = False, max_bytes: int | None = None
) -> RedundancyEmbeddedGraph:
    """Build the REG of a batch: for every pair of seeds the sources of the output block that both need.

    Args:
        normalized: weight a source of n seeds by `WEIGHT_SCALE` / (n - 1), rounded, at least 1; a seed then counts as a
            source that it needs itself.
        max_bytes: memory that the graph and METIS's work on it may use, checked before allocating; None: the memory
            that the machine has available.

    Source: Betty (ASPLOS 2023), Algorithm 1.
    """
    indptr, indices, num_src = output_rows(mb)
    rows = distinct_rows(indptr, indices, num_src, diagonal="add" if normalized else "keep")
    columns = transpose(*rows, num_src)
    limit = available_bytes() if max_bytes is None else max_bytes
    degrees = columns.indptr.diff()
    most_pairs = int((degrees * (degrees - 1)).max()) if num_src else 0  # of a single source: a lower bound
    _check_memory(most_pairs, limit, "at least ")
    out_indptr = _count_nonzeros(rows, columns)
    _check_memory(int(out_indptr[-1]), limit, "")
    source_weights = torch.ones_like(degrees)
    if normalized:
        source_weights = (WEIGHT_SCALE / (degrees - 1).clamp(min=1)).round().to(torch.int64).clamp(min=1)
    return _multiply(rows, columns, out_indptr, source_weights)


def _check_memory(nonzeros: int, limit: int, at_least: str) -> None:
    required = nonzeros * BYTES_PER_NONZERO
    if required > limit:
        raise CapacityError(
            f"the redundancy-embedded graph has {at_least}{nonzeros:,} nonzeros and requires {format_bytes(required)} "
            f"to build and partition, more than the limit of {format_bytes(limit)}: use method='metis' (its graph is "
            "no bigger than the block), a smaller batch or fanout, or raise max_bytes"
        )


def _count_nonzeros(rows: tuple[Tensor, Tensor], columns: Transposed) -> Tensor:
    """Return `indptr` of the product."""
    num_rows = len(rows[0]) - 1
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    arrays = [t.numpy() for t in (*rows, columns.indptr, columns.rows, indptr[1:])]
    parallel_rows(lambda lo, hi: _count_rows(*arrays, _minus_ones(num_rows), lo, hi), num_rows)
    return indptr.cumsum_(0)


def _multiply(
    rows: tuple[Tensor, Tensor], columns: Transposed, indptr: Tensor, source_weights: Tensor
) -> RedundancyEmbeddedGraph:
    num_rows = len(indptr) - 1
    indices, values = torch.empty(int(indptr[-1]), dtype=torch.int64), torch.empty(int(indptr[-1]), dtype=torch.int64)
    arrays = [t.numpy() for t in (*rows, columns.indptr, columns.rows, source_weights, indptr, indices, values)]
    parallel_rows(lambda lo, hi: _multiply_rows(*arrays, _minus_ones(num_rows), lo, hi), num_rows)
    return RedundancyEmbeddedGraph(indptr, indices, values)


def _minus_ones(count: int):
    return torch.full((count,), -1, dtype=torch.int64).numpy()


@compiled
def _count_rows(indptr, indices, col_indptr, col_rows, counts, last_row, lo, hi):
    """Count the nonzeros of rows [lo, hi); `last_row`: the last row in which each column was counted."""
    for row in range(lo, hi):
        last_row[row] = row  # leaves the diagonal out
        nonzeros = 0
        for e in range(indptr[row], indptr[row + 1]):
            for c in range(col_indptr[indices[e]], col_indptr[indices[e] + 1]):
                other = col_rows[c]
                if last_row[other] != row:
                    last_row[other] = row
                    nonzeros += 1
        counts[row] = nonzeros


@compiled
def _multiply_rows(indptr, indices, col_indptr, col_rows, source_weights, out_indptr, out, values, slots, lo, hi):
    """Compute rows [lo, hi) of the product; a column's slot is stale if it is before the begin of the row."""
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
                    values[slot] = 0
                    end += 1
                values[slot] += source_weights[indices[e]]
