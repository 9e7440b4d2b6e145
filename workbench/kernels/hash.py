"""The counter-based random number generator behind every random decision, bit-equal in numba and torch.

Indexed SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): the `i`-th
variate of stream `key` is `mix64(key + (i + 1) · γ)`. For two indices, the variate of the first is the key of the
stream of the second.
"""

import math

import numpy as np
import torch
from torch import Tensor

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
    mantissa, exponent = math.frexp(p)
    scaled = (mantissa - 0.5) * 2048.0
    index = np.int64(scaled)
    log_mantissa = _LOG_TABLE[index] + (scaled - index) * _LOG_STEPS[index]
    return -exponent * _LN_2 - log_mantissa


@compiled
def exponential(bits):
    """Convert the upper 52 bits to a standard exponential variate (float64, positive and finite)."""
    return negative_log(open_unit_interval(bits))


def _shift_right(word: Tensor, count: int) -> Tensor:
    """Shift logically; torch's `>>` is an arithmetic shift."""
    return (word >> count) & ((1 << (64 - count)) - 1)


def hash_index_torch(key: int | Tensor, index: Tensor) -> Tensor:
    """Compute `hash_index` for int64 tensors, on any device; the 64 bits are returned as int64."""
    word = key + (index.to(torch.int64) + 1) * _signed(_GAMMA)
    word = (word ^ _shift_right(word, 30)) * _signed(_MIX_1)
    word = (word ^ _shift_right(word, 27)) * _signed(_MIX_2)
    return word ^ _shift_right(word, 31)


def unit_interval_torch(bits: Tensor) -> Tensor:
    """Compute `unit_interval` for tensors: float64 in [0, 1)."""
    return _shift_right(bits, 11).to(torch.float64) * TWO_TO_MINUS_53


def below_torch(bits: Tensor, bound: Tensor | int) -> Tensor:
    """Compute `below` for tensors."""
    high, low = _shift_right(bits, 32), bits & 0xFFFFFFFF
    return _shift_right(high * bound + _shift_right(low * bound, 32), 32)


def open_unit_interval_torch(bits: Tensor) -> Tensor:
    """Compute `open_unit_interval` for tensors."""
    return ((_shift_right(bits, 12) << 1) + 1).to(torch.float64) * TWO_TO_MINUS_53


def negative_log_torch(p: Tensor) -> Tensor:
    """Compute `negative_log` for float64 tensors."""
    table, steps = (torch.from_numpy(t).to(p.device) for t in (_LOG_TABLE, _LOG_STEPS))
    mantissa, exponent = torch.frexp(p)
    scaled = (mantissa - 0.5) * 2048.0
    index = scaled.to(torch.int64)
    log_mantissa = table[index] + (scaled - index) * steps[index]
    return (-exponent).to(torch.float64) * _LN_2 - log_mantissa


def exponential_torch(bits: Tensor) -> Tensor:
    """Compute `exponential` for tensors."""
    return negative_log_torch(open_unit_interval_torch(bits))
