"""Counts of scores above a threshold per row, and the positions of those that are neither above nor below it."""

import torch
from torch import Tensor

from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.segment import use_compiled
from workbench.kernels.threads import parallel_rows

_MIN_ROWS_PER_THREAD = 16  # of thousands of scores
_COMPILED = (torch.float32, torch.float64)


def count_scores(scores: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count each row's scores above `high`, and list those that are neither above `high` nor below `low`.

    NaN, as a score or as a limit, is neither above nor below, so what it makes undecided is listed.

    Args:
        scores: floating [n, k].
        low: [n], in the dtype of the scores.
        high: [n], at least `low`.

    Returns:
        int64 [n], the counts; and int64 rows and columns of the listed scores, ascending.
    """
    if not use_compiled(scores) or scores.dtype not in _COMPILED:
        return count_scores_torch(scores, low, high)
    above, near = torch.empty(2, len(scores), dtype=torch.int64)
    views = scores.contiguous().numpy(), low.contiguous().numpy(), high.contiguous().numpy()
    counts = above.numpy(), near.numpy()
    parallel_rows(lambda lo, hi: _count_scores(*views, *counts, lo, hi), len(scores), _MIN_ROWS_PER_THREAD)
    ends = offsets(near)
    columns = torch.empty(int(ends[-1]), dtype=torch.int64)
    out = ends.numpy(), columns.numpy()
    parallel_rows(lambda lo, hi: _list_scores(*views, *out, lo, hi), len(scores), _MIN_ROWS_PER_THREAD)
    return above, torch.repeat_interleave(near), columns


def count_scores_torch(scores: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `count_scores` in plain torch."""
    above = scores > high[:, None]
    row, column = (~(above | (scores < low[:, None]))).nonzero().unbind(1)
    return above.sum(1), row, column


@compiled
def _count_scores(scores, low, high, above, near, lo, hi):
    for i in range(lo, hi):
        row, least, most = scores[i], low[i], high[i]
        over, under = 0, 0
        for j in range(len(row)):
            over += row[j] > most
            under += row[j] < least
        above[i], near[i] = over, len(row) - over - under


@compiled
def _list_scores(scores, low, high, ends, columns, lo, hi):
    for i in range(lo, hi):
        at, row = ends[i], scores[i]
        if ends[i + 1] > at:
            for j in range(len(row)):
                if not (row[j] < low[i] or row[j] > high[i]):
                    columns[at] = j
                    at += 1
