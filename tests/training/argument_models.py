"""Models that are called in unusual ways."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.training.toys import PlainModel, toy_batch
from workbench.nn.model import build_model

X, Y = torch.linspace(-1, 1, 160).sin().view(40, 4), torch.arange(40) % 3


def arguments(**changes) -> dict:
    """Arguments of a valid step, with changes."""
    model = changes.pop("model", None) or build_model("sage-mean", in_dim=4, hidden_dim=5, out_dim=3)
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    fields = {"model": model, "micro": toy_batch(), "x": X, "y": Y, "loss_fn": F.cross_entropy}
    return {**fields, "optimizer": torch.optim.Adam(parameters or [torch.zeros(1, requires_grad=True)])} | changes


def frozen() -> nn.Module:
    return PlainModel().requires_grad_(False)
