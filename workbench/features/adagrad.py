"""Adagrad on some rows of two tensors, the values and their sums of squared gradients.

The sums, and all arithmetic, are float32 for values in half precision: in float16 the square of a gradient below 1e-4
is 0, above 256 it is infinite, and the usual eps is 0; in bfloat16 a sum of 256 equal squares no longer grows.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.segment import use_compiled
from workbench.kernels.threads import parallel_rows

_COMPILED = (torch.float32, torch.float64)
_MIN_BYTES_PER_THREAD = 1 << 19


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the sums of squared gradients of values: float32 for half precision, otherwise theirs."""
    return torch.float32 if dtype.itemsize < 4 else dtype


def adagrad_rows(
    values: Tensor,
    state: Tensor,
    ids: Tensor,
    gradients: Tensor,
    *,
    lr: float,
    eps: float,
    state_ids: Tensor | None = None,
) -> None:
    """Update rows in place: `s += g²`, `value −= lr · g / (√s + eps)`.

    Args:
        values: floating [num_rows, …].
        state: like `values`, in its `state_dtype`.
        ids: int64 [n], distinct and in range, which is not checked.
        gradients: [n, …], in the dtype of the state.
        lr: learning rate.
        eps: added to the square root.
        state_ids: int64 [n], where the rows of the state are; None: `ids`.
    """
    others = ids if state_ids is None else state_ids
    if not _runs_compiled(values, state):
        adagrad_rows_torch(values, state, ids, gradients, lr=lr, eps=eps, state_ids=others)
        return
    rows = [x.unsqueeze(1).flatten(1).numpy() for x in (values, state, gradients.contiguous())]
    number = rows[0].dtype.type
    args = *rows, ids.numpy(), others.numpy(), number(lr), number(eps)
    min_rows = _MIN_BYTES_PER_THREAD // max(1, values[:1].nbytes)
    parallel_rows(lambda lo, hi: _adagrad_rows(*args, lo, hi), len(ids), min_rows)


def adagrad_rows_torch(
    values: Tensor,
    state: Tensor,
    ids: Tensor,
    gradients: Tensor,
    *,
    lr: float,
    eps: float,
    state_ids: Tensor | None = None,
) -> None:
    """Compute `adagrad_rows` in plain torch, on any device; its square root may differ in the last bit."""
    others = ids if state_ids is None else state_ids
    sums = state[others] + gradients * gradients
    updated = values[ids].to(sums.dtype) - lr * gradients / (sums.sqrt() + eps)
    values[ids] = updated.to(values.dtype)
    state[others] = sums


def _runs_compiled(values: Tensor, state: Tensor) -> bool:
    contiguous = values.is_contiguous() and state.is_contiguous()
    return use_compiled(values) and values.dtype in _COMPILED and contiguous


@compiled(error_model="numpy")  # no test for a division by zero, which would keep the loop from being vectorised
def _adagrad_rows(values, state, gradients, ids, state_ids, lr, eps, lo, hi):
    for row in range(lo, hi):
        value, total, gradient = values[ids[row]], state[state_ids[row]], gradients[row]
        for c in range(len(gradient)):
            g = gradient[c]
            total[c] += g * g
            value[c] -= lr * g / (np.sqrt(total[c]) + eps)
