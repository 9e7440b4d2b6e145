"""Autocast, which changes dtypes inside operators, so that the analytic model does not apply."""

import torch

from workbench.memory.backend import Backend
from workbench.nn.model import GNN


def runs_under_autocast(model: GNN, backend: Backend | None) -> bool:
    """Return whether autocast is enabled here for the device that an estimate is about.

    Args:
        model: the model.
        backend: the kernels requested; None for those of the model's device.
    """
    return torch.is_autocast_enabled((backend or Backend.of(model)).device)
