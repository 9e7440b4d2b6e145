"""Adagrad on some rows of two tensors, the values and their sums of squared gradients."""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.segment import use_compiled
from workbench.kernels.threads import parallel_rows

_COMPILED = (torch.float32, torch.float64)
_MIN_BYTES_PER_THREAD = 1 << 19


def adagrad_rows(values: Tensor, state: Tensor, ids: Tensor, gradients: Tensor, *, lr: float, eps: float) -> None:
    """Update rows in place: `s += g²`, `value −= lr · g / (√s + eps)`.

    Args:
        values: floating [num_rows, …].
        state: like `values`.
        ids: int64 [n], distinct and in range, which is not checked.
        gradients: [n, …].
        lr: learning rate.
        eps: added to the square root.
    """
    if not _runs_compiled(values, state):
        adagrad_rows_torch(values, state, ids, gradients, lr=lr, eps=eps)
        return
    rows = [x.unsqueeze(1).flatten(1).numpy() for x in (values, state, gradients.contiguous())]
    number = rows[0].dtype.type
    args = *rows, ids.numpy(), number(lr), number(eps)
    min_rows = _MIN_BYTES_PER_THREAD // max(1, values[:1].nbytes)
    parallel_rows(lambda lo, hi: _adagrad_rows(*args, lo, hi), len(ids), min_rows)


def adagrad_rows_torch(values: Tensor, state: Tensor, ids: Tensor, gradients: Tensor, *, lr: float, eps: float) -> None:
    """Compute `adagrad_rows` in plain torch, on any device; its square root may differ in the last bit."""
    sums = state[ids] + gradients * gradients
    values[ids] -= lr * gradients / (sums.sqrt() + eps)
    state[ids] = sums


def _runs_compiled(values: Tensor, state: Tensor) -> bool:
    contiguous = values.is_contiguous() and state.is_contiguous()
    return use_compiled(values) and values.dtype in _COMPILED and contiguous


@compiled(error_model="numpy")  # no test for a division by zero, which would keep the loop from being vectorised
def _adagrad_rows(values, state, gradients, ids, lr, eps, lo, hi):
    for row in range(lo, hi):
        value, total, gradient = values[ids[row]], state[ids[row]], gradients[row]
        for c in range(len(gradient)):
            g = gradient[c]
            total[c] += g * g
            value[c] -= lr * g / (np.sqrt(total[c]) + eps)
