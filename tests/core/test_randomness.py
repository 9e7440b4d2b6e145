"""Variates of sequential ids, seeds, steps and layers behave like independent uniforms.

A p-value below FALSE_ALARM is a failure. There are fewer than a thousand p-values, so that true uniforms would fail
with a probability of at most 1e-6; and since everything is deterministic, the outcome never changes between runs.
Generators with known defects must fail the tests designed for their defect.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from workbench.core.randomness import Purpose, permutation, stream, uniform
from workbench.kernels.hash import below_torch, derive_key, hash_index_torch, unit_interval_torch

FALSE_ALARM = 1e-9
COUNT = 2**15
AXES = ("seed", "step", "layer", "id")
LAGS = (1, 2, 3, 7, 64)

Words = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # seed, step, layer, id → 64 bits, all int64 [n]
cached_stream = lru_cache(None)(stream)


def library(seed: Tensor, step: Tensor, layer: Tensor, ids: Tensor) -> Tensor:
    cells = zip(seed.tolist(), step.tolist(), layer.tolist(), strict=True)
    keys = torch.tensor([cached_stream(first, Purpose.SAMPLING, *others) for first, *others in cells])
    return hash_index_torch(keys, ids)


def congruential(seed: Tensor, step: Tensor, layer: Tensor, ids: Tensor) -> Tensor:
    """One step of a linear congruential generator, from the exclusive or of all arguments."""
    return (ids ^ seed ^ (step << 8) ^ (layer << 16)) * 6364136223846793005 + 1442695040888963407


def additive(seed: Tensor, step: Tensor, layer: Tensor, ids: Tensor) -> Tensor:
    """Well mixed, but a function of the sum: seed 1, step 2 equals seed 2, step 1."""
    return hash_index_torch(0, seed + step + layer + ids)


def forgetful(seed: Tensor, step: Tensor, layer: Tensor, ids: Tensor) -> Tensor:
    """Independent of the layer."""
    return library(seed, step, torch.zeros_like(layer), ids)


def half_mixed(seed: Tensor, step: Tensor, layer: Tensor, ids: Tensor) -> Tensor:
    """One round of mixing where two are needed."""
    word = library(seed, step, layer, torch.zeros_like(ids)) + ids * -0x61C8864680B583EB
    return word ^ (word >> 32 & 0xFFFFFFFF)


def low_discrepancy(seed: Tensor, step: Tensor, layer: Tensor, ids: Tensor) -> Tensor:
    """The golden-ratio sequence, which is too even to be random."""
    return (seed + step + layer + ids) * -0x61C8864680B583EB


def binned(words: Tensor, bits: int, shift: int = 0) -> np.ndarray:
    """Extract `bits` bits of each word, below its upper `shift` bits."""
    return (words >> (64 - bits - shift)).bitwise_and((1 << bits) - 1).numpy()


def equal_frequency_p(values: np.ndarray, bins: int) -> float:
    """Chi-square of equal frequencies. Frequencies that are too equal count as much as unequal ones."""
    statistic = ((np.bincount(values, minlength=bins) - len(values) / bins) ** 2).sum() / (len(values) / bins)
    return 2 * min(float(stats.chi2.sf(statistic, bins - 1)), float(stats.chi2.cdf(statistic, bins - 1)))


def pair_p(first: Tensor, second: Tensor, shift: int = 0) -> float:
    """Chi-square of 16 × 16 equally frequent pairs."""
    return equal_frequency_p(binned(first, 4, shift) * 16 + binned(second, 4, shift), 256)


def lagged(words: Tensor, lag: int) -> tuple[Tensor, Tensor]:
    """Pairs `lag` apart, every word in one pair only."""
    rows = words[: len(words) // (2 * lag) * 2 * lag].view(-1, 2, lag)
    return rows[:, 0].flatten(), rows[:, 1].flatten()


def runs_p(words: Tensor) -> float:
    """Changes between the upper and the lower half are as frequent as of a fair coin."""
    changes = int(((words[1:] ^ words[:-1]) < 0).sum())
    return float(stats.binomtest(changes, len(words) - 1).pvalue)


def bits_p(words: Tensor) -> float:
    """Each of 64 bits is set in half of the words."""
    ones = torch.stack([(words >> bit & 1).sum() for bit in range(64)])
    z = (2 * ones - len(words)).double() / len(words) ** 0.5
    return float(stats.chi2.sf(float((z**2).sum()), 64))


def bit_pairs_p(words: Tensor) -> float:
    """No two bits of a word agree more or less often than by chance: the worst of 2016 pairs, times 2016."""
    signs = (words[:, None] >> torch.arange(64) & 1).double() * 2 - 1
    z = (signs.T @ signs).triu(1).abs().max() / len(words) ** 0.5
    return min(1.0, float(2016 * 2 * stats.norm.sf(float(z))))


def line(axis: str, count: int = COUNT, start: int = 0) -> list[Tensor]:
    """Coordinates that count along one axis; the others stay constant."""
    fixed = {"seed": 3, "step": 5, "layer": 1, "id": 11}
    return [torch.arange(start, start + count) if name == axis else torch.full((count,), fixed[name]) for name in AXES]


def shifted(coordinates: list[Tensor], **by: int) -> list[Tensor]:
    return [values + by.get(name, 0) for name, values in zip(AXES, coordinates, strict=True)]


def along_p(words: Words, axis: str) -> Iterator[tuple[str, float]]:
    """Variates counted along an axis are uniform and independent of those soon after."""
    sequence = words(*line(axis))
    yield f"even {axis}", equal_frequency_p(binned(sequence, 8), 256)
    yield f"even low {axis}", equal_frequency_p(binned(sequence, 8, shift=56), 256)
    yield f"kolmogorov {axis}", float(stats.kstest(unit_interval_torch(sequence).numpy(), "uniform").pvalue)
    yield f"runs {axis}", runs_p(sequence)
    yield f"bits {axis}", bits_p(sequence)
    yield f"bit pairs {axis}", bit_pairs_p(sequence)
    for lag in LAGS:
        yield f"lag {axis} {lag}", pair_p(*lagged(sequence, lag))
        yield f"lag low {axis} {lag}", pair_p(*lagged(sequence, lag), shift=60)


def between_p(words: Words) -> Iterator[tuple[str, float]]:
    """Variates of the same ids under neighbouring seeds, steps and layers are independent; so are those of swaps."""
    base = line("id", start=1000)
    here = words(*base)
    for axis in AXES[:3]:
        for by in (1, 2):
            there = words(*shifted(base, **{axis: by}))
            yield f"neighbour {axis} {by}", pair_p(here, there)
            yield f"neighbour bits {axis} {by}", bits_p(here ^ there)
    for up, down in combinations(AXES, 2):
        one, other = words(*shifted(base, **{up: 1})), words(*shifted(base, **{down: 1}))
        yield f"diagonal {up} {down}", pair_p(one, other)
        yield f"diagonal bits {up} {down}", bits_p(one ^ other)


def avalanche_p(words: Words) -> Iterator[tuple[str, float]]:
    """Flipping one bit of an id or a seed flips each bit of the word with probability one half."""
    for axis in ("id", "seed"):
        for bit in range(0, 40, 1 if axis == "id" else 8):
            counting = torch.arange(4096)
            low = counting & ((1 << bit) - 1)
            off = line(axis, 4096)
            off[AXES.index(axis)] = ((counting - low) << 1) + low  # counts over numbers whose bit is 0
            yield f"avalanche {axis} {bit}", bits_p(words(*off) ^ words(*shifted(off, **{axis: 1 << bit})))


@lru_cache(None)
def battery(words: Words) -> dict[str, float]:
    along = (pair for axis in AXES for pair in along_p(words, axis))
    return dict([*along, *between_p(words), *avalanche_p(words)])


def test_battery_accepts_the_library():
    p_values = battery(library)
    assert 100 < len(p_values) < 900
    assert {name: p for name, p in p_values.items() if p < FALSE_ALARM} == {}


@pytest.mark.parametrize(
    ("weak", "tests"),
    [
        (congruential, ["even id", "even low id", "runs seed", "bits step", "bit pairs layer", "lag id 1"]),
        (congruential, ["neighbour seed 1", "neighbour bits step 2", "avalanche id 0", "avalanche seed 8"]),
        (additive, ["diagonal seed step", "diagonal step layer", "diagonal bits layer id"]),
        (forgetful, ["even layer", "kolmogorov layer", "bits layer", "neighbour layer 1", "neighbour bits layer 2"]),
        (half_mixed, ["even id", "runs id", "bit pairs id", "lag low id 7", "avalanche id 39"]),
        (low_discrepancy, ["even id", "runs id", "lag seed 1", "lag low step 64", "avalanche seed 32"]),
    ],
)
def test_battery_rejects_weak_generators(weak, tests):
    assert {name: p for name in tests if (p := battery(weak)[name]) >= FALSE_ALARM} == {}


def test_uniform_is_the_hash_scaled():
    key, ids = stream(1, Purpose.DROPOUT, step=2, layer=3), torch.arange(1000)
    assert torch.equal(uniform(key, ids), unit_interval_torch(hash_index_torch(key, ids)))
    keys = torch.tensor([key, key + 1])[:, None]
    assert torch.equal(uniform(keys, ids)[1], uniform(key + 1, ids))


@pytest.mark.parametrize("bound", [2, 3, 10, 100, 255, 2**31 - 1])
@pytest.mark.parametrize("axis", AXES)
def test_below_is_uniform(axis, bound):
    values = below_torch(library(*line(axis)), bound)
    assert int(values.min()) >= 0
    assert int(values.max()) < bound
    bins = min(bound, 255)  # for a large bound the bins differ by one value in eight million
    assert equal_frequency_p((values * bins // bound).numpy(), bins) > FALSE_ALARM


def test_every_order_of_four_is_equally_likely():
    orders = Counter(tuple(permutation(stream(0, Purpose.SHUFFLE, step), 4).tolist()) for step in range(6000))
    assert set(orders) == set(permutations(range(4)))
    assert stats.chisquare(list(orders.values())).pvalue > FALSE_ALARM


def test_permutation_of_a_thousand_is_a_permutation():
    order = permutation(7, 1000)
    assert torch.equal(order.sort().values, torch.arange(1000))
    assert not torch.equal(order, permutation(8, 1000))
    assert permutation(7, 0).tolist() == []


def test_streams_have_distinct_keys():
    cells = list(product(range(-3, 9), Purpose, range(40), range(8)))
    assert len({stream(*cell) for cell in cells}) == len(cells)
    assert stream(4, Purpose.DROPOUT, 5, 6) == derive_key(4, 2, 5, 6)
