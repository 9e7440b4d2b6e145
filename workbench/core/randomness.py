"""Counter-based randomness: each variate is a hash of (seed, purpose, step, layer, ids), equal on every device."""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_seed, check_type
from workbench.kernels.hash import derive_key, hash_index_torch, unit_interval_torch


class Purpose(IntEnum):
    """Purposes of random streams: with one seed, streams of different purposes are independent."""

    SAMPLING = 1
    DROPOUT = 2
    SHUFFLE = 3
    PARTITION = 4
    SPLIT = 5
    FEATURES = 6
    NEGATIVES = 7
    ORDER = 8


def stream(seed: int, purpose: Purpose, step: int = 0, layer: int = 0) -> int:
    """Return the key of the random stream of (seed, purpose, step, layer).

    Args:
        seed: whole number in [-2**63, 2**63).
        step: number of the batch, in [-2**63, 2**63).
    """
    return derive_key(check_seed(seed), purpose, check_seed(step, "step"), layer)


def uniform(key: int | Tensor, ids: Tensor) -> Tensor:
    """Draw one uniform variate per id, equal on every device.

    Args:
        key: key of the stream, or an int64 tensor of keys that broadcasts with `ids`.
        ids: integer tensor of any shape.

    Returns:
        float64 in [0, 1) with 53 random bits, in the broadcast shape.
    """
    return unit_interval_torch(hash_index_torch(key, ids))


def permutation(key: int, count: int) -> Tensor:
    """Return a random permutation of range(count); equal 64-bit variates keep their order.

    Args:
        count: length of the permutation.

    Returns:
        int64 [count].

    >>> sorted(permutation(7, 5).tolist())
    [0, 1, 2, 3, 4]
    """
    return torch.argsort(hash_index_torch(key, torch.arange(count)), stable=True)


@dataclass(frozen=True)
class Smoothed:
    """Batches whose neighbourhoods change slowly: a little from each batch to the next, completely over κ batches.

    Batch i = 0 … κ - 1 of a group mixes the normal variates of this group and of the next one:
    n = cos(πc/2) · n₁ + sin(πc/2) · n₂ with c = i/κ. In every batch alone, all samples keep their probabilities. The
    correlation of n between batches i and j of a group is cos(π(i - j)/(2κ)); between offset a (as c) in one group and
    b in the next it is sin(πa/2) · cos(πb/2), at a lag of exactly κ batches therefore sin(πc)/2; batches two groups
    apart are independent.

    Args:
        kappa: batches per group, κ: a whole number of at least 1, or `math.inf` for one group in the whole run. 1:
            independent batches.

    Raises:
        ValueError: `kappa` is neither.

    Source: Balin et al., "Cooperative minibatching in graph neural networks", 2023, section A.7.

    >>> Smoothed(64)
    Smoothed(kappa=64)
    """

    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "kappa", _check_kappa(self.kappa))


@dataclass(frozen=True)
class Nested:
    """Groups of κ batches that share one set of random variates, as if they were one batch, cut into κ.

    The batches of a group draw the same row for a node that several of them reach; groups are independent.

    Args:
        kappa: batches per group, κ: a whole number of at least 1, or `math.inf` for one group in the whole run. 1:
            independent batches.

    Raises:
        ValueError: `kappa` is neither.

    Source: Balin et al., "Cooperative minibatching in graph neural networks", 2023, section 3.2.

    >>> Nested(4)
    Nested(kappa=4)
    """

    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "kappa", _check_kappa(self.kappa))


Dependence = Smoothed | Nested


class Variates(NamedTuple):
    """One stream of random variates, or the mixture of two.

    Args:
        key: key of the stream; of the current group, if two are mixed.
        next_key: key of the stream of the next group; 0 if unused.
        cosine: share of the first stream's normal variates.
        sine: share of the second stream's; 0.0: the variates are the uniform hashes of `key` alone.
    """

    key: int
    next_key: int = 0
    cosine: float = 1.0
    sine: float = 0.0


def variates(
    seed: int, purpose: Purpose, step: int = 0, layer: int = 0, dependence: Dependence | None = None
) -> Variates:
    """Return the random variates of one layer of a batch: the stream of its step, or those of its group.

    Args:
        step: number of the batch, a 64-bit integer. Groups begin at multiples of κ, below 0 as well.
        dependence: how batches depend on each other; None: independent.

    >>> variates(0, Purpose.SAMPLING, 5, dependence=Nested(2)) == variates(0, Purpose.SAMPLING, 2)
    True
    """
    step = check_seed(step, "step")
    if dependence is None:
        return Variates(stream(seed, purpose, step, layer))
    group, share = _group(step, dependence.kappa)
    key = stream(seed, purpose, group, layer)
    if share == 0.0 or isinstance(dependence, Nested):
        return Variates(key)
    angle = math.pi / 2 * share
    return Variates(key, stream(seed, purpose, group + 1, layer), math.cos(angle), math.sin(angle))


def check_dependence(dependence: object) -> None:
    """Check a sampler's argument `dependence`."""
    remedy = f"pass Smoothed({dependence!r}), Nested({dependence!r}), or None for independent batches"
    check_type("dependence", dependence, (Smoothed, Nested, type(None)), remedy)


def is_mixed(dependence: Dependence | None) -> bool:
    """Return whether some batches mix two streams: all batches must then draw by comparing variates."""
    return isinstance(dependence, Smoothed) and dependence.kappa > 1


def _group(step: int, kappa: float) -> tuple[int, float]:
    """Return the number of a step's group and the step's place in it, c in [0, 1)."""
    if kappa == math.inf:
        return 0, 0.0
    group, offset = divmod(step, int(kappa))
    return group, offset / int(kappa)


def _check_kappa(kappa: float) -> float:
    if isinstance(kappa, float) and kappa == math.inf:
        return kappa
    try:
        check_at_least("kappa", kappa, 1)  # pyright: ignore[reportArgumentType]
    except ValueError as error:
        raise ValueError(f"{error}, or math.inf for one group in the whole run") from None
    return int(kappa)
