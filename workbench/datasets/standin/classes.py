"""What a node carries: features that tell its class faintly, labels, a split."""

import math

import numpy as np
import torch
from torch import Tensor

from workbench.core.randomness import permutation, uniform
from workbench.datasets.standin.spec import StandIn
from workbench.datasets.standin.streams import Draw, key_of
from workbench.kernels.hash import hash_index
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows

_CHUNK_ROWS = 1 << 14
_OWN_LABELS = 8
_OWN_SHARE, _OTHER_SHARE = 0.7, 0.03


_LOW, _S16, _S32, _S48 = (np.uint64(word) for word in (0xFFFF, 16, 32, 48))
_MIDDLE, _PER_DEVIATION = 2.0 * 65535, 1 / math.sqrt((2.0**32 - 1) / 3)


@compiled
def _near_normal(bits):
    """Sum of four 16-bit uniform variates, centred and of variance 1: near normal, and the same on every machine."""
    total = (bits & _LOW) + ((bits >> _S16) & _LOW) + ((bits >> _S32) & _LOW) + (bits >> _S48)
    return (float(total) - _MIDDLE) * _PER_DEVIATION


@compiled
def _fill(first, classes, centres, key, lo, hi, x):
    for row in range(lo, hi):
        row_key = hash_index(key, first + row)
        for f in range(x.shape[1]):
            x[row, f] = _near_normal(hash_index(row_key, f)) + centres[classes[row], f]


def _noisy(first: int, classes: Tensor, centres: Tensor, key: int, x: Tensor) -> None:
    c, m, out = classes.numpy(), centres.numpy(), x.numpy()
    parallel_rows(lambda lo, hi: _fill(first, c, m, key, lo, hi, out), len(x))


def class_centres(name: str, seed: int, classes: int, width: int, signal: float) -> Tensor:
    """float32 [classes, width]: random directions of length `signal`."""
    centres = torch.empty(classes, width)
    flat = torch.zeros(classes, dtype=torch.int64)
    _noisy(0, flat, torch.zeros(1, width), key_of(name, seed, Draw.CENTRE), centres)
    return (centres.double() * (signal / centres.double().norm(dim=1, keepdim=True))).float()


def features(spec: StandIn, seed: int, classes: Tensor) -> Tensor:
    """A class centre of length `spec.signal` plus noise of variance 1 in every channel.

    One node's features say little about its class; the mean of its neighbours' says much.

    Args:
        spec: width, classes, signal and dtype (float16 is rounded from float32).
        seed: any whole number.
        classes: int64 [nodes].

    Returns:
        `spec.feature_dtype` [nodes, spec.features].
    """
    centres = class_centres(spec.name, seed, spec.classes, spec.features, spec.signal)
    key = key_of(spec.name, seed, Draw.NOISE)
    x = torch.empty(len(classes), spec.features, dtype=spec.feature_dtype)
    if x.dtype == torch.float32:
        _noisy(0, classes, centres, key, x)
        return x
    buffer = torch.empty(min(_CHUNK_ROWS, len(classes)), spec.features)
    for start in range(0, len(classes), _CHUNK_ROWS):
        rows = x[start : start + _CHUNK_ROWS]
        _noisy(start, classes[start : start + len(rows)], centres, key, buffer[: len(rows)])
        rows.copy_(buffer[: len(rows)])
    return x


def multi_labels(name: str, seed: int, classes: Tensor, num_labels: int) -> Tensor:
    """float32 [nodes, num_labels] of 0 and 1: a class has a few labels that most of its nodes carry, others are rare.

    Args:
        name: of the stand-in.
        seed: any whole number.
        classes: int64 [nodes].
        num_labels: labels, as many as classes.
    """
    key = key_of(name, seed, Draw.LABEL)
    share = torch.full((num_labels, num_labels), _OTHER_SHARE, dtype=torch.float64)
    for c in range(num_labels):
        share[c, permutation(key + 1 + c, num_labels)[:_OWN_LABELS]] = _OWN_SHARE
    y = torch.empty(len(classes), num_labels)
    for start in range(0, len(classes), _CHUNK_ROWS):
        own = classes[start : start + _CHUNK_ROWS]
        ids = (torch.arange(start, start + len(own)) * num_labels)[:, None] + torch.arange(num_labels)
        y[start : start + len(own)] = (uniform(key, ids) < share[own]).float()
    return y


def split_nodes(
    name: str, seed: int, nodes: int, sizes: tuple[int, int, int], date: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Training, validation and test nodes, ascending: drawn at random, and in order of time where there are dates.

    Args:
        name: of the stand-in.
        seed: any whole number.
        nodes: how many there are.
        sizes: of the three parts.
        date: int32 [nodes], rank in time: training nodes are the oldest, test nodes the newest; None: no order.
    """
    chosen = permutation(key_of(name, seed, Draw.SPLIT), nodes)[: sum(sizes)]
    if date is not None:
        chosen = chosen[torch.argsort(date[chosen])]
    train, val, test = (part.sort().values for part in chosen.split(list(sizes)))
    return train, val, test
