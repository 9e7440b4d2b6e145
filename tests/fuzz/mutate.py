"""Mutation of arguments: one or two valid ones are replaced by typical mistakes, from a seeded generator."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

ANYTHING: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: True,
    lambda: 0,
    lambda: -1,
    lambda: 3,
    lambda: 1.5,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: 2**31,
    lambda: 2**63,
    lambda: 2**64,
    lambda: 10**20,
    lambda: -(2**63) - 1,
    lambda: "",
    lambda: "7",
    lambda: "10,25",
    lambda: "64MiB",
    lambda: [],
    lambda: [1, 2],
    lambda: [0.5],
    lambda: [None],
    lambda: (),
    lambda: {},
    lambda: {"a": 1},
    lambda: b"\xff",
    object,
    lambda: int,
    lambda: np.array([0, 1]),
    lambda: np.array([[0.5, float("nan")]]),
    lambda: np.array([True, False]),
    lambda: np.array([], dtype=np.float32),
    lambda: np.array(["a"]),
    lambda: torch.tensor([]),
    lambda: torch.tensor(3),
    lambda: torch.tensor([True, False, True]),
    lambda: torch.tensor([0.5, float("nan")]),
    lambda: torch.tensor([[1, 2], [3, 4]]),
    lambda: torch.tensor([0, 2**62]),
    lambda: torch.tensor([-1, 5], dtype=torch.int32),
    lambda: torch.zeros(0, 3, dtype=torch.int64),
    lambda: torch.arange(200_000),
    lambda: torch.zeros(3, dtype=torch.complex64),
    lambda: torch.eye(3).to_sparse(),
)

DTYPES = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.float16, torch.float32, torch.float64)
EXTREMES = (-1, -(2**63), 2**31, 2**40, 2**63 - 1)


def _one_entry(values: Tensor, rng: random.Random) -> Tensor:
    """Replace one entry by an extreme integer, NaN or infinity."""
    if not values.numel() or values.dtype == torch.bool:
        return values
    changed = values.detach().clone()
    options = (float("nan"), float("inf"), -1e30) if values.is_floating_point() else EXTREMES
    bad = rng.choice(options)
    if not values.is_floating_point():
        info = torch.iinfo(values.dtype)
        bad = min(max(int(bad), info.min), info.max)
    changed.view(-1)[rng.randrange(values.numel())] = bad
    return changed


TENSOR_CHANGES: tuple[Callable[[Tensor, random.Random], Any], ...] = (
    _one_entry,
    _one_entry,
    _one_entry,
    lambda t, rng: t.to(rng.choice(DTYPES)),
    lambda t, rng: t[: rng.randrange(len(t) + 1)] if t.dim() else t,
    lambda t, rng: torch.cat([t, t]) if t.dim() else t,
    lambda t, rng: t[..., None],
    lambda t, rng: t.flatten()[:1].squeeze(),
    lambda t, rng: t.flip(0) if t.dim() else t,
    lambda t, rng: t * rng.choice((-1, 0, 2, 1000)) if t.dtype != torch.bool else ~t,
    lambda t, rng: t.tolist(),
    lambda t, rng: t.numpy() if t.dtype != torch.bfloat16 else t,
    lambda t, rng: t.repeat_interleave(2)[::2] if t.dim() == 1 else t.T if t.dim() == 2 else t,
)


def mutated(value: Any, rng: random.Random) -> Any:
    """Return a replacement for a valid value."""
    if isinstance(value, Tensor) and rng.random() < 0.7:
        return rng.choice(TENSOR_CHANGES)(value, rng)
    if isinstance(value, list | tuple) and value and rng.random() < 0.6:
        position = rng.randrange(len(value))
        changed = [mutated(item, rng) if i == position else item for i, item in enumerate(value)]
        return rng.choice((changed, tuple(changed), changed[:position], changed * 2))
    return rng.choice(ANYTHING)()


def wrong(arguments: Mapping[str, Any], rng: random.Random, *, keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Mutate one or two arguments; one case in twenty stays valid and must pass."""
    changed = dict(arguments)
    if rng.random() < 0.05:
        return changed
    names = [name for name in arguments if name not in keep]
    for name in rng.sample(names, min(len(names), rng.choice((1, 1, 1, 2)))):
        changed[name] = mutated(arguments[name], rng)
    return changed
