"""Autocast, which changes dtypes inside operators, so that the analytic model does not apply."""

import torch

from workbench.memory.backend import Backend
from workbench.nn.gnn import GNN
from workbench.nn.sage import SAGELayer


def runs_under_autocast(model: GNN, backend: Backend | None) -> bool:
    """Return whether autocast is enabled here for the device that an estimate is about; the model is traced then.

    Args:
        model: the model.
        backend: the kernels requested; None for those of the model's device.

    Raises:
        ValueError: it is enabled, and a layer has an LSTM: its allocations depend on the in-degrees of the batch, and
            estimates from traces have been too low by up to 43 %.
    """
    if not torch.is_autocast_enabled((backend or Backend.of(model)).device):
        return False
    if any(isinstance(layer, SAGELayer) and layer.aggregator == "lstm" for layer in model.layers):
        raise ValueError(
            "sage-lstm can't be estimated under autocast; estimate it outside of the context, which gave 1.1 to 1.5 "
            "times the peak measured under it, or train without autocast in the dtype of the model: model.bfloat16()"
        )
    return True
