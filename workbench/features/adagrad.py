"""Adagrad on some rows of two tensors, the values and their sums of squared gradients."""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.segment import use_compiled
from workbench.kernels.threads import parallel_rows

_COMPILED = (torch.float32, torch.float64)
_MIN_BYTES_PER_THREAD = 1 << 19


def adagrad(values: Tensor, state: Tensor, gradients: Tensor, *, lr: float, eps: float) -> tuple[Tensor, Tensor]:
    """Compute `s + g²` and `value − lr · g / (√(s + g²) + eps)`.

    Args:
        values: floating [n, …].
        state: like `values`.
        gradients: like `values`.
        lr: learning rate.
        eps: added to the square root.

    Returns:
        New values and new state.
    """
    state = state + gradients * gradients
    return values - lr * gradients / (state.sqrt() + eps), state


def adagrad_rows(values: Tensor, state: Tensor, ids: Tensor, gradients: Tensor, *, lr: float, eps: float) -> None:
    """Update some rows in place, with the bits of `adagrad`.

    Args:
        values: floating [num_rows, …].
        state: like `values`.
        ids: int64 [n], distinct and in range, which is not checked.
        gradients: [n, …].
        lr: learning rate.
        eps: added to the square root.
    """
    if not _runs_compiled(values, state):
        values[ids], state[ids] = adagrad(values[ids], state[ids], gradients, lr=lr, eps=eps)
        return
    rows = [
        x.flatten(1).numpy() for x in (values.unsqueeze(1), state.unsqueeze(1), gradients.contiguous().unsqueeze(1))
    ]
    number = rows[0].dtype.type
    args = *rows, ids.numpy(), number(lr), number(eps)
    parallel_rows(
        lambda lo, hi: _adagrad_rows(*args, lo, hi), len(ids), _MIN_BYTES_PER_THREAD // max(1, values[:1].nbytes)
    )


def _runs_compiled(values: Tensor, state: Tensor) -> bool:
    contiguous = values.is_contiguous() and state.is_contiguous()
    return use_compiled(values) and values.dtype in _COMPILED and contiguous


@compiled
def _adagrad_rows(values, state, gradients, ids, lr, eps, lo, hi):
    for row in range(lo, hi):
        value, total, gradient = values[ids[row]], state[ids[row]], gradients[row]
        for c in range(len(gradient)):
            g = gradient[c]
            total[c] += g * g
            value[c] -= lr * g / (np.sqrt(total[c]) + eps)
