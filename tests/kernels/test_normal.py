"""Φ and Φ⁻¹ by table compared with scipy, and numba with torch bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import special

from workbench.kernels import hash as n
from workbench.kernels.hash import TWO_TO_MINUS_53
from workbench.kernels.jit import compiled

INT64 = st.integers(-(2**63), 2**63 - 1)
SHARES = st.floats(0, 1, exclude_max=True)


@compiled
def fill(numbers, shares, quantiles, probabilities, normals, uniforms):
    key, next_key, cosine, sine = 5, 7, shares[0], shares[1]
    for i in range(len(numbers)):
        quantiles[i] = n.normal_quantile(numbers[i])
        probabilities[i] = n.normal_cdf(20.0 * numbers[i] - 10.0)
        normals[i] = n.mixed_normal(key, next_key, cosine, sine, i)
        uniforms[i] = n.mixed_uniform(key, next_key, cosine, sine, i)


def in_every_octave(count: int) -> np.ndarray:
    """Probabilities with every exponent of a 53-bit uniform variate below 1/2: `count` each, cell bounds included."""
    octaves = 2.0 ** -np.arange(2, 54)[:, None]
    return np.concatenate([octaves * (1 + np.arange(count) / count), octaves * (1 + (np.arange(count) + 0.5) / count)])


def test_error_of_the_quantile_is_1e_7_in_probability_with_every_exponent():
    tails = in_every_octave(2048).ravel()
    below = n.normal_quantile_torch(torch.from_numpy(tails)).numpy()
    assert np.abs(special.ndtr(below) - tails).max() <= 6.5e-8
    assert np.abs(special.log_ndtr(below) - np.log(tails)).max() <= 4.8e-7
    assert np.abs(below - special.ndtri(tails)).max() <= 2.5e-7
    upper = tails[tails >= TWO_TO_MINUS_53 * 2**20]
    above = n.normal_quantile_torch(torch.from_numpy(1 - upper)).numpy()
    assert np.abs(special.ndtr(-above) - (1 - (1 - upper))).max() <= 6.5e-8


def test_the_quantile_never_falls():
    tails = np.unique(np.concatenate([[0.0], in_every_octave(512).ravel(), [0.5]]))
    steps = np.concatenate([np.nextafter(tails, 0), tails, np.nextafter(tails, 1)])
    p = torch.from_numpy(np.unique(np.concatenate([steps, 1 - steps])))
    quantiles = n.normal_quantile_torch(p)
    assert bool((quantiles[1:] >= quantiles[:-1]).all())


def test_error_of_the_probability_is_1e_7_and_small_in_the_tails():
    normals = np.linspace(-8.18, 8.18, 200_001)
    probabilities = n.normal_cdf_torch(torch.from_numpy(normals)).numpy()
    exact = special.ndtr(normals)
    assert np.abs(probabilities - exact).max() <= 8e-9
    assert np.abs(probabilities / exact - 1)[normals < 0].max() <= 2.1e-6


def in_torch(function):
    return lambda value: function(torch.tensor([value], dtype=torch.float64)).item()


@pytest.mark.parametrize("function", [n.normal_quantile, in_torch(n.normal_quantile_torch)], ids=["numba", "torch"])
def test_quantiles_of_impossible_and_certain_events_are_infinite(function):
    p = [-1.0, 0.0, 0.5, 1.0, 2.0]
    assert [function(value) for value in p] == [-np.inf, -np.inf, 0, np.inf, np.inf]
    assert function(1e-300) == function(TWO_TO_MINUS_53)


@pytest.mark.parametrize("function", [n.normal_cdf, in_torch(n.normal_cdf_torch)], ids=["numba", "torch"])
def test_probabilities_are_above_0_and_below_1(function):
    assert function(-1e9) > 0
    assert function(-1e9) == pytest.approx(function(-8.1875))
    assert function(0.0) == 0.5
    assert function(8.1875) < 1
    assert function(1e9) == function(8.1875)


@given(sine=SHARES)
def test_numba_equals_torch(sine):
    """A fused multiply-add would change the last bit of about every third value."""
    shares = (float(np.sqrt(1 - sine**2)), sine)
    numbers = np.random.default_rng(int(sine * 2**20)).random(500)
    out = [np.empty(500) for _ in range(4)]
    fill(numbers, np.array(shares), *out)
    index = torch.arange(500)
    expected = [
        n.normal_quantile_torch(torch.from_numpy(numbers)),
        n.normal_cdf_torch(20.0 * torch.from_numpy(numbers) - 10.0),
        n.mixed_normal_torch(5, 7, *shares, index),
        n.mixed_uniform_torch(5, 7, *shares, index),
    ]
    assert all(torch.equal(torch.from_numpy(a), b) for a, b in zip(out, expected, strict=True))


@given(words=st.lists(INT64, min_size=1, max_size=20))
def test_normals_are_finite_and_symmetric(words):
    bits = torch.tensor([*words, 0, -1])
    assert bool(n.normal_torch(bits).isfinite().all())
    assert torch.equal(n.normal_torch(bits), -n.normal_torch(~bits))
    assert n.normal_torch(bits).tolist() == [n.normal(np.uint64(word & (2**64 - 1))) for word in bits.tolist()]


def test_keys_may_be_tensors():
    keys, index = torch.tensor([[3], [4]]), torch.arange(5)
    rows = [n.mixed_normal_torch(key, key + 1, 0.6, 0.8, index) for key in (3, 4)]
    assert torch.equal(n.mixed_normal_torch(keys, keys + 1, 0.6, 0.8, index), torch.stack(rows))
