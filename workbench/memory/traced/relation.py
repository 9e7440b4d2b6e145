"""Which sizes of a batch a number of bytes follows: found exactly where whole numbers do, else by least squares."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from workbench.memory.sizes import BatchSizes, BlockSizes

_MOST_SIZES = 3
_BUCKETS = 32
_BASIC = (0, 1, 2, 3, 8, 9)
_PLAIN = 4
_FAR_OFF = 0.1
_BLOCK_SIZES = 13
_SIZES = _BLOCK_SIZES + 2 * _BUCKETS


def size_vector(sizes: BatchSizes) -> np.ndarray:
    """int64 [77 · layers + 1]: the sizes that tensors of a model may have.

    Of each block: sources, destinations, edges; destinations with in-edges; the largest in-degree, it and its square
    times the destinations (padded neighbours and their pairs); edges paired within destinations; distinct in-degrees
    and their sum; sources times sources, destinations times sources and times destinations (dense adjacencies, all
    attending to all); destinations of in-degree 1, …, 32; destinations of at least these. Last: edges of all blocks.

    Args:
        sizes: with `degree_counts`.
    """
    parts = [_of_block(block) for block in sizes.blocks]
    return np.concatenate([*parts, [sum(block.num_edges for block in sizes.blocks)]]).astype(np.int64)


def _of_block(block: BlockSizes) -> np.ndarray:
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
    """bool [sizes]: those that are destinations of one in-degree."""
    size = np.arange(num_sizes) % _SIZES
    return (size >= _BLOCK_SIZES) & (size < _BLOCK_SIZES + _BUCKETS)


@dataclass(frozen=True, eq=False)
class Relation:
    """Linear functions of the sizes of a batch.

    Args:
        coefficients: [functions, 1 + sizes], a constant first.
        function_of: [values], the function of each value.
    """

    coefficients: np.ndarray
    function_of: np.ndarray

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        """int64 [values].

        Args:
            sizes: [sizes].
        """
        return np.rint(self.coefficients @ np.concatenate([[1], sizes])).astype(np.int64)[self.function_of]


def fit_relation(sizes: np.ndarray, values: np.ndarray, whole: np.ndarray) -> Relation:
    """The simplest linear functions that give all values.

    Whole multiples of up to three sizes of one block, with or without a whole constant, are tried in this order, first
    of those equally simple the one that gives most for `whole`; where none gives a value exactly in every observation,
    least squares without negative coefficients over all sizes.

    Args:
        sizes: int64 [observations, sizes].
        values: int64 [observations, values].
        whole: int64 [sizes], of the largest batch that is asked for.
    """
    distinct, function_of = np.unique(values, axis=1, return_inverse=True)
    found = np.full((distinct.shape[1], 1 + sizes.shape[1]), np.nan)
    constant = (distinct == distinct[:1]).all(0)
    found[constant] = 0
    found[constant, 0] = distinct[0, constant]
    for chosen in _candidates(sizes):
        open_ = np.flatnonzero(np.isnan(found[:, 0]))
        if len(open_):
            _match(found, open_, chosen, sizes, distinct, whole)
    _approximate(found, function_of.reshape(-1), sizes, distinct)
    return Relation(found, function_of.reshape(-1))


def _approximate(found: np.ndarray, function_of: np.ndarray, sizes: np.ndarray, values: np.ndarray) -> None:
    """Fill in the functions that nothing gives exactly.

    Storages come in the order of the work, so what stands next to one that follows a block's sizes does so too. Sizes
    of other blocks rise with these while batches are small, and would mislead about large ones.
    """
    exact = np.flatnonzero(np.any(found[:, 1:] > 0, axis=1)[function_of])
    for function in np.flatnonzero(np.isnan(found[:, 0])).tolist():
        position = function_of.tolist().index(function)
        nearest = exact[np.abs(exact - position).argmin()] if len(exact) else None
        found[function] = (
            fit_non_negative(sizes, values[:, function])
            if nearest is None
            else _best_multiple(sizes, values[:, function], int(found[function_of[nearest], 1:].argmax()) // _SIZES)
        )


def _best_multiple(sizes: np.ndarray, values: np.ndarray, block: int) -> np.ndarray:
    """[1 + sizes]: the multiple of one size of a block that is least off; sizes of all where it is far off."""
    columns = [block * _SIZES + size for size in range(_PLAIN) if block * _SIZES + size < sizes.shape[1]]
    multiples = [values.sum() / max(1, sizes[:, column].sum()) for column in columns]
    off = [np.abs(m * sizes[:, c] - values).sum() for c, m in zip(columns, multiples, strict=True)]
    best = int(np.argmin(off))
    if off[best] > _FAR_OFF * values.sum():
        return fit_non_negative(sizes, values)
    result = np.zeros(1 + sizes.shape[1])
    result[1 + columns[best]] = multiples[best]
    return result


def _candidates(sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Sets of columns of [1, sizes], of equal length at a time, the simplest first."""
    columns = _distinct_columns(sizes)
    plain = [c for c in columns if c % _SIZES < _BLOCK_SIZES]
    for count in range(1, _MOST_SIZES + 1):
        sets = combinations(plain if count > 1 else columns, count)
        near = [s for s in sets if s[-1] // _SIZES - s[0] // _SIZES <= 1]
        if not near or len(sizes) < count + 3:
            return
        yield np.array(near) + 1
        yield np.array([(-1, *s) for s in near]) + 1


def _distinct_columns(sizes: np.ndarray) -> list[int]:
    """Columns that vary, of equal ones the first."""
    seen: dict[bytes, int] = {}
    for column in np.flatnonzero((sizes != sizes[:1]).any(0)):
        seen.setdefault(sizes[:, column].tobytes(), int(column))
    return list(seen.values())


def _match(
    found: np.ndarray, open_: np.ndarray, chosen: np.ndarray, sizes: np.ndarray, values: np.ndarray, whole: np.ndarray
) -> None:
    """Fill in the functions that a candidate gives exactly."""
    with_one = np.concatenate([np.ones((len(sizes), 1)), sizes], 1)
    design = with_one[:, chosen].transpose(1, 0, 2)  # [candidates, observations, chosen]
    scale = np.abs(design).max(1, keepdims=True)
    solved = np.rint(np.linalg.pinv(design / scale) @ values[:, open_] / scale.transpose(0, 2, 1))
    exact = (design @ solved == values[:, open_]).all(1)  # [candidates, open]
    at_whole = (np.concatenate([[1], whole])[chosen][:, :, None] * solved).sum(1)
    best = np.where(exact, at_whole, -np.inf).argmax(0)
    for position in np.flatnonzero(exact.any(0)):
        function, candidate = open_[position], best[position]
        found[function] = 0
        found[function, chosen[candidate]] = solved[candidate, :, position]


def fit_non_negative(sizes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[1 + sizes]: coefficients ≥ 0 with the least squares of relative errors, a constant first.

    Only sources, destinations, edges, destinations with in-edges and what hardly grows (distinct in-degrees, their sum)
    are asked: with more, few observations are followed closely and larger batches are missed.
    """
    columns = [c for c in _distinct_columns(sizes) if c % _SIZES in _BASIC]
    weight = 1 / (values + 0.05 * values.max() + 1)
    design = np.concatenate([np.ones((len(sizes), 1)), sizes[:, columns]], 1) * weight[:, None]
    scale = design.max(0) + 1e-300
    solved = _least_squares(design / scale, values * weight) / scale
    result = np.zeros(1 + sizes.shape[1])
    result[[0, *(column + 1 for column in columns)]] = solved
    return result


def _least_squares(design: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Lawson and Hanson's active sets (Solving Least Squares Problems, 1974, chapter 23)."""
    solution, used = np.zeros(design.shape[1]), np.zeros(design.shape[1], dtype=bool)
    for _ in range(3 * design.shape[1]):
        gain = np.where(used, -np.inf, design.T @ (target - design @ solution))
        if gain.max() <= 1e-9:
            break
        used[gain.argmax()] = True
        while True:
            trial = _solve(design, target, used)
            negative = used & (trial <= 0)
            if not negative.any():
                break
            step = (solution[negative] / (solution[negative] - trial[negative] + 1e-300)).min()
            solution += step * (trial - solution)
            used &= solution > 1e-12
        solution = trial
    return solution


def _solve(design: np.ndarray, target: np.ndarray, used: Sequence[bool] | np.ndarray) -> np.ndarray:
    trial = np.zeros(design.shape[1])
    trial[used] = np.linalg.lstsq(design[:, used], target, rcond=None)[0]
    return trial
