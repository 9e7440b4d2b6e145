"""`Inputs`: the data that a model reads for a batch, besides its blocks."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Inputs:
    """The rows that a model reads for a micro-batch.

    Args:
        x: floating [num_inputs, …], features of the input nodes, in the order of `node_ids`; a value that is not a
            tensor is passed to the model as it is.
        aggregated: floating [num_inputs, in_dim], the precomputed aggregate of the first layer, for which the batch
            then has no block; None if the first layer aggregates.
    """

    x: Any
    aggregated: Any = None

    @staticmethod
    def of(rows: Any) -> "Inputs":
        """Return the rows as `Inputs`: as they are if they are, else as features."""
        return rows if isinstance(rows, Inputs) else Inputs(rows)

    def to(self, device: torch.device | None) -> "Inputs":
        """Copy the tensors to a device; None leaves them where they are."""
        return self if device is None else Inputs(_moved(self.x, device), _moved(self.aggregated, device))


def _moved(rows: Any, device: torch.device) -> Any:
    return rows.to(device) if isinstance(rows, Tensor) else rows
