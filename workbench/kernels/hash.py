"""The counter-based random number generator behind every random decision, bit-equal in numba and torch.

Indexed SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): the `i`-th
variate of stream `key` is `mix64(key + (i + 1) · γ)`. For two indices, the variate of the first is the key of the
stream of the second.
"""

import math

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.buffers import constant
from workbench.kernels.jit import compiled

_U64 = (1 << 64) - 1

_GAMMA = 0x9E3779B97F4A7C15

_MIX_1 = 0xBF58476D1CE4E5B9

_MIX_2 = 0x94D049BB133111EB

_ROOT = 0x6A09E667F3BCC909

TWO_TO_MINUS_53 = 2.0**-53

_LN_2 = math.log(2.0)

# log of 0.5 … 1 at 1025 points. Logarithms of math libraries differ in the last bit between devices; a table with one
# multiplication and one addition does not. The interpolation error is below 1.3e-7.
_LOG_TABLE = np.array([math.log(0.5 + i / 2048) for i in range(1025)])

_LOG_STEPS = np.diff(_LOG_TABLE)

_CELL_SHIFT = 52 - 10  # bits of a mantissa below those that number a cell of the table

_CELL_MASK, _CELL_WIDTH = (1 << _CELL_SHIFT) - 1, 2.0**-_CELL_SHIFT

_GAMMA_NB, _MIX_1_NB, _MIX_2_NB = np.uint64(_GAMMA), np.uint64(_MIX_1), np.uint64(_MIX_2)

_S11, _S12, _S27, _S30, _S31, _S32 = (np.uint64(s) for s in (11, 12, 27, 30, 31, 32))

_LOW_32 = np.uint64(0xFFFFFFFF)

_ONE = np.uint64(1)


def _signed(word: int) -> int:
    word &= _U64
    return word - (1 << 64) if word >> 63 else word


def _mix_int(word: int) -> int:
    word &= _U64
    word = ((word ^ (word >> 30)) * _MIX_1) & _U64
    word = ((word ^ (word >> 27)) * _MIX_2) & _U64
    return word ^ (word >> 31)


def derive_key(*parts: int) -> int:
    """Fold whole numbers (seed, purpose, step, layer, …) into the 64-bit key of a stream.

    Args:
        parts: whole numbers of any size; order matters.

    Returns:
        The key as a signed 64-bit integer.

    >>> derive_key(0, 1) != derive_key(1, 0)
    True
    """
    key = _ROOT
    for part in parts:
        key = _mix_int(key + (int(part) + 1) * _GAMMA)
    return _signed(key)


@compiled
def mix64(word):
    word = (word ^ (word >> _S30)) * _MIX_1_NB
    word = (word ^ (word >> _S27)) * _MIX_2_NB
    return word ^ (word >> _S31)


@compiled
def hash_index(key, index):
    """Return 64 random bits: the variate `index` of stream `key`, both signed or unsigned."""
    return mix64(np.uint64(key) + (np.uint64(index) + _ONE) * _GAMMA_NB)


@compiled
def unit_interval(bits):
    """Convert the upper 53 bits to a float64 in [0, 1)."""
    return np.float64(bits >> _S11) * TWO_TO_MINUS_53


@compiled
def below(bits, bound):
    """Convert bits to an integer in [0, bound), for bound < 2³¹: the upper part of their product, with bias < 2⁻³³."""
    bound = np.uint64(bound)
    return np.int64(((bits >> _S32) * bound + (((bits & _LOW_32) * bound) >> _S32)) >> _S32)


@compiled
def open_unit_interval(bits):
    """Convert the upper 52 bits to a float64 in (0, 1): the centres of 2⁵² intervals, symmetric around 1/2."""
    return np.float64(((bits >> _S12) << _ONE) + _ONE) * TWO_TO_MINUS_53


@compiled
def negative_log(p):
    """Return -log(p) for p in (0, 1), which is positive and finite."""
    bits = np.float64(p).view(np.int64)  # as frexp, in half the time
    cell = (bits >> _CELL_SHIFT) & 1023
    log_mantissa = _LOG_TABLE[cell] + np.float64(bits & _CELL_MASK) * _CELL_WIDTH * _LOG_STEPS[cell]
    return (1022 - (bits >> 52)) * _LN_2 - log_mantissa


@compiled
def exponential(bits):
    """Convert the upper 52 bits to a standard exponential variate (float64, positive and finite)."""
    return negative_log(open_unit_interval(bits))


def _shift_right(word: Tensor, count: int) -> Tensor:
    """Shift logically; torch's `>>` is an arithmetic shift."""
    return (word >> count) & ((1 << (64 - count)) - 1)


def hash_index_torch(key: int | Tensor, index: Tensor) -> Tensor:
    """Compute `hash_index` for int64 tensors, on any device; the 64 bits are returned as int64."""
    if isinstance(key, int):  # key + (index + 1) · γ in as few kernels as can be
        word = index.to(torch.int64) * _signed(_GAMMA) + _signed(key + _GAMMA)
    else:
        word = torch.add(key + _signed(_GAMMA), index.to(torch.int64), alpha=_signed(_GAMMA))
    word = (word ^ _shift_right(word, 30)) * _signed(_MIX_1)
    word = (word ^ _shift_right(word, 27)) * _signed(_MIX_2)
    return word ^ _shift_right(word, 31)


def unit_interval_torch(bits: Tensor) -> Tensor:
    """Compute `unit_interval` for tensors: float64 in [0, 1)."""
    return _shift_right(bits, 11).to(torch.float64) * TWO_TO_MINUS_53


def below_torch(bits: Tensor, bound: Tensor | int) -> Tensor:
    """Compute `below` for tensors."""
    high, low = _shift_right(bits, 32), bits & 0xFFFFFFFF
    return (high * bound + (low * bound >> 32)) >> 32  # no product reaches 2⁶³, so the sign need not be masked


def open_unit_interval_torch(bits: Tensor) -> Tensor:
    """Compute `open_unit_interval` for tensors."""
    return ((_shift_right(bits, 12) << 1) + 1).to(torch.float64) * TWO_TO_MINUS_53


def negative_log_torch(p: Tensor) -> Tensor:
    """Compute `negative_log` for float64 tensors."""
    table, steps = constant(_LOG_TABLE, p.device), constant(_LOG_STEPS, p.device)
    mantissa, exponent = torch.frexp(p)
    scaled = (mantissa - 0.5) * 2048.0
    index = scaled.to(torch.int64)
    log_mantissa = table[index] + (scaled - index) * steps[index]
    return (-exponent).to(torch.float64) * _LN_2 - log_mantissa


def exponential_torch(bits: Tensor) -> Tensor:
    """Compute `exponential` for tensors."""
    return negative_log_torch(open_unit_interval_torch(bits))


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
def _quantile(p):
    """Return Φ⁻¹(p) for p from 2⁻⁵³ to 1 - 2⁻⁵³, without a branch: signs of variates are unpredictable."""
    bits = np.float64(min(p, 1.0 - p)).view(np.int64)  # exact: a p above 1/2 is a multiple of 2⁻⁵³
    cell = (bits >> _PLACE_BITS) - _FIRST_CELL
    below = _QUANTILES[cell, 0] + np.float64(bits & _PLACE_MASK) * _QUANTILES[cell, 1]
    return math.copysign(below, p - 0.5)


@compiled
def normal_quantile(p):
    """Return Φ⁻¹(p): infinite at 0 and 1 and beyond them. Tails below 2⁻⁵³ count as 2⁻⁵³."""
    if p <= 0.0:
        return -np.inf
    return np.inf if p >= 1.0 else _quantile(max(p, TWO_TO_MINUS_53))


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
    return _quantile(open_unit_interval(bits))


@compiled
def mixed_normal(key, next_key, cosine, sine, index):
    """Return the normal variate `index` of a mixture of two streams (`core.randomness.Variates`)."""
    return cosine * normal(hash_index(key, index)) + sine * normal(hash_index(next_key, index))


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
    table = constant(_QUANTILES, p.device)
    tail = torch.minimum(p, 1.0 - p)
    bits = tail.clamp(min=TWO_TO_MINUS_53).view(torch.int64)
    values, slopes = table[(bits >> _PLACE_BITS) - _FIRST_CELL].unbind(-1)
    below = values + (bits & _PLACE_MASK).to(torch.float64) * slopes
    return torch.copysign(torch.where(tail <= 0.0, -torch.inf, below), p - 0.5)


def normal_cdf_torch(n: Tensor) -> Tensor:
    """Compute `normal_cdf` for float64 tensors, on any device."""
    table = constant(_PROBABILITIES, n.device)
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
    second = sine * normal_torch(hash_index_torch(next_key, index))
    return cosine * normal_torch(hash_index_torch(key, index)) + second


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
