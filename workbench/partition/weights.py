"""Weights of the seeds of a batch, which parts are to share evenly."""

import torch
from torch import Tensor

from workbench.core.block import FLOATS
from workbench.core.errors import ID_DTYPES, check_vector


def check_weights(weights: Tensor | None, count: int) -> Tensor | None:
    """The weights on the CPU, if they can be balanced.

    Raises:
        TypeError: neither integers nor floats.
        ValueError: another length, a negative, infinite or missing number, or all zero.
    """
    check_vector("weights", weights, count, (*ID_DTYPES, *FLOATS))
    if weights is None or not count:
        return None
    low, high = (float(v) for v in torch.aminmax(weights))
    if not (low >= 0 and 0 < high < float("inf")):
        raise ValueError(f"weights lie in [{low}, {high}]; they must be finite, not negative and not all zero")
    return weights.detach().cpu()
