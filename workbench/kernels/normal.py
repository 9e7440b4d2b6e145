"""The normal distribution by table, bit-equal in numba and torch: Φ⁻¹, Φ, and mixtures of two streams of variates.

Math libraries differ in the last bits between devices. A table lookup with one multiplication and one addition does
not, if they are separate operations: numba fuses them only with `fastmath`, torch's operators never.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import (
    TWO_TO_MINUS_53,
    exponential,
    exponential_torch,
    hash_index,
    hash_index_torch,
    negative_log,
    negative_log_torch,
    open_unit_interval,
    open_unit_interval_torch,
    unit_interval,
    unit_interval_torch,
)
from workbench.kernels.jit import compiled

# Φ⁻¹ in the lower tail from 2⁻⁵³ to 1/2, with 512 cells per factor of 2: the exponent and the leading 9 bits of the
# mantissa are the number of the cell, the remaining 43 bits the place in it. The error is below 6.5e-8 in probability,
# and below 4.8e-7 relative to the tail's probability.
_CELL_BITS = 9
_PLACE_BITS = 52 - _CELL_BITS
_PLACE_MASK = (1 << _PLACE_BITS) - 1
_FIRST_CELL = (1023 - 53) << _CELL_BITS
# Φ in the lower tail from -8.1875 to 0 in steps of 2⁻¹¹: error below 8e-9 in probability, and below 2.1e-6 relative to
# it. Φ(-8.1875) is the first step above 2⁻⁵³: both Φ(n) and 1 - Φ(n) are positive in float64.
_STEPS_PER_UNIT = 2048.0
_LAST_NORMAL = 8.1875


def _rounded(values: Tensor) -> np.ndarray:
    """Round to 40 significant bits, which math libraries agree on."""
    mantissa, exponent = np.frexp(values.numpy())
    return np.ldexp(np.round(mantissa * 2.0**40), exponent - 40)


def _with_slopes(nodes: np.ndarray, per_cell: float) -> np.ndarray:
    """Return the nodes of an interpolation and the slopes behind them, adjacent in memory: [number of nodes, 2]."""
    return np.stack([nodes, np.diff(nodes, append=nodes[-1]) / per_cell], axis=1)


def _quantile_table() -> np.ndarray:
    cell = torch.arange(_FIRST_CELL, ((1023 - 1) << _CELL_BITS) + 1)
    tails = (cell << _PLACE_BITS).view(torch.float64)
    return _with_slopes(_rounded(torch.special.ndtri(tails)), float(1 << _PLACE_BITS))


def _probability_table() -> np.ndarray:
    normals = torch.arange(int(_LAST_NORMAL * _STEPS_PER_UNIT) + 1, dtype=torch.float64) / _STEPS_PER_UNIT
    return _with_slopes(_rounded(torch.special.erfc(normals / 2**0.5) / 2), 1.0)  # torch's ndtr is inexact in the tail


_QUANTILES = _quantile_table()
_PROBABILITIES = _probability_table()


@compiled
def normal_quantile(p):
    """Return Φ⁻¹(p): infinite at 0 and 1 and beyond them. Tails below 2⁻⁵³ count as 2⁻⁵³."""
    upper = p >= 0.5
    tail = 1.0 - p if upper else p  # exact
    if tail <= 0.0:
        return np.inf if upper else -np.inf
    bits = np.float64(max(tail, TWO_TO_MINUS_53)).view(np.int64)
    cell = (bits >> _PLACE_BITS) - _FIRST_CELL
    below = _QUANTILES[cell, 0] + np.float64(bits & _PLACE_MASK) * _QUANTILES[cell, 1]
    return -below if upper else below


@compiled
def normal_cdf(n):
    """Return Φ(n), always above 0 and below 1."""
    scaled = min(abs(n), _LAST_NORMAL) * _STEPS_PER_UNIT
    cell = np.int64(scaled)
    tail = _PROBABILITIES[cell, 0] + (scaled - cell) * _PROBABILITIES[cell, 1]
    return 1.0 - tail if n > 0.0 else tail


@compiled
def normal(bits):
    """Convert the upper 52 bits to a standard normal variate, finite and symmetric around 0."""
    return normal_quantile(open_unit_interval(bits))


@compiled
def mixed_normal(key, next_key, cosine, sine, index):
    """Return the normal variate `index` of a mixture of two streams (`core.variates.Variates`)."""
    first = cosine * normal(hash_index(key, index))
    if sine == 0.0:
        return first
    return first + sine * normal(hash_index(next_key, index))


@compiled
def mixed_uniform(key, next_key, cosine, sine, index):
    """Return the uniform variate `index`, in [0, 1): Φ of the mixture's normal, or the hash of a single stream."""
    if sine == 0.0:
        return unit_interval(hash_index(key, index))
    return normal_cdf(mixed_normal(key, next_key, cosine, sine, index))


@compiled
def mixed_exponential(key, next_key, cosine, sine, index):
    """Return the standard exponential variate `index`: -log Φ of the mixture's normal, or the hash of one stream."""
    if sine == 0.0:
        return exponential(hash_index(key, index))
    return negative_log(normal_cdf(mixed_normal(key, next_key, cosine, sine, index)))


def normal_quantile_torch(p: Tensor) -> Tensor:
    """Compute `normal_quantile` for float64 tensors, on any device."""
    table = torch.from_numpy(_QUANTILES).to(p.device)
    upper = p >= 0.5
    tail = torch.where(upper, 1.0 - p, p)
    bits = tail.clamp(min=TWO_TO_MINUS_53).view(torch.int64)
    values, slopes = table[(bits >> _PLACE_BITS) - _FIRST_CELL].unbind(-1)
    below = values + (bits & _PLACE_MASK).to(torch.float64) * slopes
    below = torch.where(tail <= 0.0, -torch.inf, below)
    return torch.where(upper, -below, below)


def normal_cdf_torch(n: Tensor) -> Tensor:
    """Compute `normal_cdf` for float64 tensors, on any device."""
    table = torch.from_numpy(_PROBABILITIES).to(n.device)
    scaled = n.abs().clamp(max=_LAST_NORMAL) * _STEPS_PER_UNIT
    cell = scaled.to(torch.int64)
    values, slopes = table[cell].unbind(-1)
    tail = values + (scaled - cell) * slopes
    return torch.where(n > 0.0, 1.0 - tail, tail)


def normal_torch(bits: Tensor) -> Tensor:
    """Compute `normal` for int64 tensors of bits."""
    return normal_quantile_torch(open_unit_interval_torch(bits))


def mixed_normal_torch(key: int | Tensor, next_key: int | Tensor, cosine: float, sine: float, index: Tensor) -> Tensor:
    """Compute `mixed_normal` for int64 tensors of indices; keys may be tensors that broadcast with them."""
    first = cosine * normal_torch(hash_index_torch(key, index))
    if sine == 0.0:
        return first
    second = sine * normal_torch(hash_index_torch(next_key, index))
    return first + second


def mixed_uniform_torch(key: int | Tensor, next_key: int | Tensor, cosine: float, sine: float, index: Tensor) -> Tensor:
    """Compute `mixed_uniform` for int64 tensors of indices; keys may be tensors that broadcast with them."""
    if sine == 0.0:
        return unit_interval_torch(hash_index_torch(key, index))
    return normal_cdf_torch(mixed_normal_torch(key, next_key, cosine, sine, index))


def mixed_exponential_torch(
    key: int | Tensor, next_key: int | Tensor, cosine: float, sine: float, index: Tensor
) -> Tensor:
    """Compute `mixed_exponential` for int64 tensors of indices; keys may be tensors that broadcast with them."""
    if sine == 0.0:
        return exponential_torch(hash_index_torch(key, index))
    return negative_log_torch(normal_cdf_torch(mixed_normal_torch(key, next_key, cosine, sine, index)))
