"""Linear fits recover the functions that generated the data and extrapolate to larger batches."""

import numpy as np
import pytest
import torch

from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import BatchSizes
from workbench.memory.traced.predictor import fit_linear, fit_non_negative, size_vector

SRC, DST, EDGES, FED, LARGEST, PADDED, SQUARE, PAIRS, DEGREES, SUM, ALL, DENSE, OUTER = range(13)
OF_DEGREE_TWO = 14


def sizes_of(mb: MiniBatch) -> np.ndarray:
    return size_vector(BatchSizes.of(mb, degrees=True))


def observed(counts: range) -> np.ndarray:
    graph = random_graph(400, 2400, seed=3)
    batches = [random_minibatch(graph, fanouts=(6, 4), num_seeds=n, seed=n) for n in counts]
    return np.stack([sizes_of(mb) for mb in batches])


SEEN, LARGE = observed(range(4, 40, 3)), observed(range(120, 200, 20))
STRIDE = (SEEN.shape[1] - 1) // 2


def fitted(*functions: np.ndarray) -> np.ndarray:
    """Prediction errors on the large batches of fits to the small ones; functions are arrays over both."""
    values = np.stack(functions, 1)
    relation = fit_linear(SEEN, values[: len(SEEN)], LARGE[-1])
    return np.stack([relation(sizes) for sizes in LARGE]) - values[len(SEEN) :]


BOTH = np.concatenate([SEEN, LARGE])


def test_sizes_of_a_block_by_hand() -> None:
    """In-degrees 3, 2, 1, 0, 2."""
    block = Block(torch.tensor([0, 3, 5, 6, 6, 8]), torch.arange(8, dtype=torch.int32), 9, 5)
    sizes = sizes_of(MiniBatch(torch.arange(9), (block,)))
    assert sizes[:13].tolist() == [9, 5, 8, 4, 3, 15, 45, 18, 4, 6, 81, 45, 25]
    assert sizes[13:17].tolist() == [1, 2, 1, 0]  # destinations of in-degree 1, 2, …
    assert sizes[45:49].tolist() == [4, 3, 1, 0]  # of at least these
    assert sizes[-1] == 8 and len(sizes) == 13 + 64 + 1


@pytest.mark.parametrize("layer", [0, 1])
def test_integer_combinations_are_found_exactly(layer: int) -> None:
    at = BOTH[:, layer * STRIDE :]
    differences = fitted(
        np.full(len(BOTH), 4096),
        512 * at[:, EDGES],
        8 * (at[:, DST] + 1),
        256 * (at[:, SRC] + at[:, EDGES]) + 12,
        64 * at[:, PADDED],
        4 * (at[:, SQUARE] + 2 * at[:, PADDED] + at[:, DST]),
        128 * at[:, FED],
        32 * at[:, OF_DEGREE_TWO],
        4 * at[:, ALL] + 8 * at[:, SRC],
        at[:, DENSE],
        4 * at[:, OUTER],
    )
    assert not differences.any()


def test_inexact_fits_use_sizes_of_the_block_of_the_neighbouring_storage() -> None:
    """About half of the inner edges, next to a storage of all of them; in small batches the outer edges correlate."""
    rng = np.random.default_rng(0)
    edges, outer = BOTH[:, EDGES], BOTH[:, STRIDE + EDGES]
    half = rng.binomial(edges, 0.5) * 16
    off = fitted(4 * outer, 16 * edges, half)[:, 2]
    assert np.abs(off).max() < 0.1 * half[-1]


def test_least_squares_coefficients_are_non_negative() -> None:
    rng = np.random.default_rng(1)
    values = (100 * SEEN[:, EDGES] + 5000 + rng.normal(0, 200, len(SEEN))).round()
    coefficients = fit_non_negative(SEEN, values)
    assert (coefficients >= 0).all()
    predicted = LARGE @ coefficients[1:] + coefficients[0]
    assert np.abs(predicted / (100 * LARGE[:, EDGES] + 5000) - 1).max() < 0.1


def test_a_single_observation_is_predicted_exactly() -> None:
    relation = fit_linear(SEEN[:1], np.array([[512, 77]]), SEEN[0])
    assert relation(SEEN[0]).tolist() == [512, 77]
