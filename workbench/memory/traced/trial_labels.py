"""Labels for the outputs of a dry run, of a kind that the loss function accepts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from workbench.error_text import text_of
from workbench.nn.outputs import describe, first_tensor


def find_labels(seed_loss: Callable[[Any, Tensor], Tensor], out: Any) -> Callable[[Tensor], Tensor]:
    """Find a kind of labels that a loss function accepts.

    Args:
        seed_loss: the loss function of an output and labels.
        out: an output of the model.

    Returns:
        A function of the output's rows that returns the labels.

    Raises:
        ValueError: The loss function accepts none.
    """
    error: Exception | None = None
    for labels_for in (class_labels, _values_per_output, _value_per_seed):
        try:
            seed_loss(out, labels_for(rows_of(out)))
            return labels_for
        except Exception as refused:  # a user's loss function may raise anything
            error = error or refused
    reason = "" if error is None else text_of(error)
    raise ValueError(f"loss_fn accepts neither class labels nor values for an output of {describe(out)}: {reason}")


def rows_of(out: Any) -> Tensor:
    """Return the tensor of an output whose rows are the seeds: the first."""
    first = first_tensor(out)
    return torch.empty(0) if first is None else first


def class_labels(out: Tensor) -> Tensor:
    """Return int64 [num_seeds], class 0 for each."""
    return torch.zeros(out.shape[0], dtype=torch.int64)


def _values_per_output(out: Tensor) -> Tensor:
    return torch.zeros(out.shape, dtype=out.dtype)


def _value_per_seed(out: Tensor) -> Tensor:
    return torch.zeros(out.shape[0], dtype=out.dtype)
