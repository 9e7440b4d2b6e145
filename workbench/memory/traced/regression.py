"""Regress storage sizes on the sizes of a batch: exact integer combinations first, else non-negative least squares."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from workbench.memory.sizes import BatchSizes, BlockSizes

_MAX_REGRESSORS = 3
_BUCKETS = 32
_STABLE = (0, 1, 2, 3, 8, 9)  # sizes of a block that extrapolate well
_LINEAR = 4  # the first sizes of a block, which grow linearly with the batch
_INACCURATE = 0.1
_BLOCK_SIZES = 13
_SIZES = _BLOCK_SIZES + 2 * _BUCKETS


def size_vector(sizes: BatchSizes) -> np.ndarray:
    """int64 [77 · layers + 1]: the sizes of a batch that a model's tensors may be proportional to.

    For each block: sources, destinations, edges; destinations with in-edges; the largest in-degree, and that and its
    square times the destinations (padded neighbours and their pairs); pairs of edges with a common destination; number
    and sum of the distinct in-degrees; sources², destinations · sources and destinations² (dense adjacencies, full
    attention); destinations of in-degree 1, …, 32; destinations of at least these in-degrees. Last: edges of all
    blocks.

    Args:
        sizes: sizes of a batch, including `degree_counts`.
    """
    per_block = [_block_sizes(block) for block in sizes.blocks]
    return np.concatenate([*per_block, [sum(block.num_edges for block in sizes.blocks)]]).astype(np.int64)


def _block_sizes(block: BlockSizes) -> np.ndarray:
    assert block.degree_counts is not None
    counts = block.degree_counts.numpy()
    degrees = np.arange(len(counts))
    largest, empty = max(len(counts) - 1, 0), int(counts[0]) if len(counts) else 0
    sizes = (
        block.num_src,
        block.num_dst,
        block.num_edges,
        block.num_dst - empty,
        largest,
        block.num_dst * largest,
        block.num_dst * largest**2,
        int((counts * degrees**2).sum()),
        int((counts > 0).sum()),
        int(degrees[counts > 0].sum()),
        block.num_src**2,
        block.num_src * block.num_dst,
        block.num_dst**2,
    )
    buckets = np.zeros(_BUCKETS + 1, np.int64)
    buckets[: len(counts)] = counts[: _BUCKETS + 1]
    at_least = block.num_dst - np.cumsum(buckets[:-1])
    return np.concatenate([sizes, buckets[1:], at_least])


def bucket_columns(num_sizes: int) -> np.ndarray:
    """bool [sizes]: the columns that count destinations of one in-degree."""
    size = np.arange(num_sizes) % _SIZES
    return (size >= _BLOCK_SIZES) & (size < _BLOCK_SIZES + _BUCKETS)


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Linear functions of the sizes of a batch, each shared by the values that it fits.

    Args:
        coefficients: [functions, 1 + sizes], the intercept first.
        function_of: [values], index of the function of each value.
    """

    coefficients: np.ndarray
    function_of: np.ndarray

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        """Predict int64 [values] from the sizes [sizes] of a batch."""
        return np.rint(self.coefficients @ np.concatenate([[1], sizes])).astype(np.int64)[self.function_of]


def fit_linear(sizes: np.ndarray, values: np.ndarray, target: np.ndarray) -> LinearFit:
    """Fit the simplest linear function of the sizes to every value.

    Candidates are integer combinations of up to three sizes of adjacent blocks, with or without an integer intercept,
    simplest first; among equally simple ones that are exact for every observation, the one that predicts most for
    `target` is chosen. A value without an exact fit is fitted by non-negative least squares.

    Args:
        sizes: int64 [observations, sizes].
        values: int64 [observations, values].
        target: int64 [sizes], sizes of the largest batch to predict.
    """
    distinct, function_of = np.unique(values, axis=1, return_inverse=True)
    coefficients = np.full((distinct.shape[1], 1 + sizes.shape[1]), np.nan)  # NaN: not fitted yet
    constant = (distinct == distinct[:1]).all(0)
    coefficients[constant] = 0
    coefficients[constant, 0] = distinct[0, constant]
    for columns in _candidate_columns(sizes):
        unfitted = np.flatnonzero(np.isnan(coefficients[:, 0]))
        if not len(unfitted):
            break
        _fit_exactly(coefficients, unfitted, columns, sizes, distinct, target)
    _fit_approximately(coefficients, function_of.reshape(-1), sizes, distinct)
    return LinearFit(coefficients, function_of.reshape(-1))


def _candidate_columns(sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Candidate column sets of [1, sizes]: arrays [candidates, columns] of equally many columns, simplest first."""
    columns = _distinct_columns(sizes)
    without_buckets = [c for c in columns if c % _SIZES < _BLOCK_SIZES]
    for count in range(1, _MAX_REGRESSORS + 1):
        subsets = combinations(without_buckets if count > 1 else columns, count)
        adjacent = [s for s in subsets if s[-1] // _SIZES - s[0] // _SIZES <= 1]
        if not adjacent or len(sizes) < count + 3:
            return
        yield np.array(adjacent) + 1
        yield np.array([(-1, *s) for s in adjacent]) + 1


def _distinct_columns(sizes: np.ndarray) -> list[int]:
    """Columns that vary; of several equal ones, the first."""
    first: dict[bytes, int] = {}
    for column in np.flatnonzero((sizes != sizes[:1]).any(0)):
        first.setdefault(sizes[:, column].tobytes(), int(column))
    return list(first.values())


def _fit_exactly(
    coefficients: np.ndarray,
    unfitted: np.ndarray,
    columns: np.ndarray,
    sizes: np.ndarray,
    values: np.ndarray,
    target: np.ndarray,
) -> None:
    """Fill in the functions for which a candidate with integer coefficients is exact."""
    regressors = np.concatenate([np.ones((len(sizes), 1)), sizes], 1)
    design = regressors[:, columns].transpose(1, 0, 2)  # [candidates, observations, columns]
    scale = np.abs(design).max(1, keepdims=True)
    solutions = np.rint(np.linalg.pinv(design / scale) @ values[:, unfitted] / scale.transpose(0, 2, 1))
    exact = (design @ solutions == values[:, unfitted]).all(1)  # [candidates, unfitted]
    predictions = (np.concatenate([[1], target])[columns][:, :, None] * solutions).sum(1)
    best = np.where(exact, predictions, -np.inf).argmax(0)
    for position in np.flatnonzero(exact.any(0)):
        function, candidate = unfitted[position], best[position]
        coefficients[function] = 0
        coefficients[function, columns[candidate]] = solutions[candidate, :, position]


def _fit_approximately(
    coefficients: np.ndarray, function_of: np.ndarray, sizes: np.ndarray, values: np.ndarray
) -> None:
    """Fill in the functions without an exact fit.

    Storages are numbered in execution order, so the nearest exactly fitted one tells the block that a storage belongs
    to. Sizes of other blocks correlate with this block's while batches are small, and would extrapolate wrongly.
    """
    exact = np.flatnonzero(np.any(coefficients[:, 1:] > 0, axis=1)[function_of])
    for function in np.flatnonzero(np.isnan(coefficients[:, 0])).tolist():
        position = function_of.tolist().index(function)
        nearest = exact[np.abs(exact - position).argmin()] if len(exact) else None
        if nearest is None:
            coefficients[function] = fit_non_negative(sizes, values[:, function])
        else:
            block = int(coefficients[function_of[nearest], 1:].argmax()) // _SIZES
            coefficients[function] = _best_multiple(sizes, values[:, function], block)


def _best_multiple(sizes: np.ndarray, values: np.ndarray, block: int) -> np.ndarray:
    """[1 + sizes]: the most accurate multiple of one size of a block; least squares over all if that is inaccurate."""
    columns = [block * _SIZES + size for size in range(_LINEAR) if block * _SIZES + size < sizes.shape[1]]
    multiples = [values.sum() / max(1, sizes[:, column].sum()) for column in columns]
    errors = [np.abs(m * sizes[:, c] - values).sum() for c, m in zip(columns, multiples, strict=True)]
    best = int(np.argmin(errors))
    if errors[best] > _INACCURATE * values.sum():
        return fit_non_negative(sizes, values)
    result = np.zeros(1 + sizes.shape[1])
    result[1 + columns[best]] = multiples[best]
    return result


def fit_non_negative(sizes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[1 + sizes]: non-negative coefficients with the least sum of squared relative errors, the intercept first.

    Only sources, destinations, edges, destinations with in-edges, and number and sum of distinct in-degrees are used
    as regressors: with more, the fit follows few observations closely and extrapolates poorly.

    Args:
        sizes: int64 [observations, sizes].
        values: int64 [observations].
    """
    from scipy.optimize import nnls  # slow to import, and used only for modules without an exact fit

    columns = [c for c in _distinct_columns(sizes) if c % _SIZES in _STABLE]
    weight = 1 / (values + 0.05 * values.max() + 1)
    design = np.concatenate([np.ones((len(sizes), 1)), sizes[:, columns]], 1) * weight[:, None]
    scale = design.max(0) + 1e-300
    result = np.zeros(1 + sizes.shape[1])
    result[[0, *(column + 1 for column in columns)]] = nnls(design / scale, values * weight)[0] / scale
    return result
