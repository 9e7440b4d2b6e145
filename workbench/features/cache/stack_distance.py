"""Miss ratios of LRU caches of every capacity from one pass over a trace.

An LRU cache of c rows contains the c rows that were used last, so an access hits exactly if fewer than c other rows
were used since the previous access to its row. A Fenwick tree over the positions of the last accesses counts them in
O(log n).

Source: Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal 9, 1970;
Bennett, Kruskal, "LRU stack processing", IBM Journal of Research and Development 19, 1975 (the tree).
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import check_ids, check_type
from workbench.core.trace import AccessTrace
from workbench.features.cache.simulate import warmup_reads
from workbench.features.cache.static import num_rows_of
from workbench.kernels.jit import compiled


def miss_ratio_curve(trace: AccessTrace, *, warmup: int | float = 0) -> Tensor:
    """Compute the miss rate of an LRU cache of every capacity, in access semantics.

    Args:
        trace: reads of row ids.
        warmup: first reads that the miss rates leave out: their number, or their share if it is a float.

    Returns:
        float64 [distinct rows + 1]: element c is the miss rate of a cache of c rows, 1 for c = 0; no larger cache
        misses less than the last.

    Raises:
        ValueError: a warm-up that is longer than the trace, or leaves no access.
        CapacityError: ids so large that the last accesses of all rows below them do not fit into memory.

    Source: Mattson et al. (1970).
    """
    distances, distinct = stack_distances(trace)
    counted = distances[int(trace.offsets[warmup_reads(warmup, len(trace))]) :]
    if not len(counted):
        raise ValueError(f"no access is left of {trace} after a warm-up of {warmup}; pass a longer trace")
    hits = torch.bincount(counted[counted > 0], minlength=distinct + 1).cumsum(0).double()
    return 1 - hits / len(counted)


def stack_distances(trace: AccessTrace) -> tuple[Tensor, int]:
    """Compute the stack distance of every access: the smallest capacity of an LRU cache in which it hits.

    Args:
        trace: reads of row ids.

    Returns:
        int64 [num_accesses], 0 for the first access to a row, and the number of distinct rows.
    """
    check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
    limit = num_rows_of(trace)
    ids = check_ids("trace.ids", trace.ids, limit).cpu()
    check_fits(f"the last accesses of {limit:,} rows", 8 * limit + 12 * len(ids), "number the rows from 0")
    last = torch.full((limit,), -1, dtype=torch.int64)
    tree, distances = torch.zeros(len(ids) + 1, dtype=torch.int32), torch.empty_like(ids)
    distinct = _distances(ids.numpy(), last.numpy(), tree.numpy(), distances.numpy())
    return distances, distinct


@compiled(_nrt=False)
def _distances(ids, last, tree, distances):
    """Keep a 1 in the tree at the position of each row's last access; ones after a row's own are its distance."""
    distinct = 0
    for i in range(len(ids)):
        before = last[ids[i]]
        if before < 0:
            distances[i] = 0
            distinct += 1
        else:
            distances[i] = distinct - _prefix_sum(tree, before)
            _add(tree, before, -1)
        _add(tree, i, 1)
        last[ids[i]] = i
    return distinct


@compiled(_nrt=False)
def _prefix_sum(tree, position):
    """Sum the values before a position."""
    total = np.int64(0)
    while position > 0:
        total += tree[position]
        position -= position & -position
    return total


@compiled(_nrt=False)
def _add(tree, position, value):
    position += 1
    while position < len(tree):
        tree[position] += value
        position += position & -position
