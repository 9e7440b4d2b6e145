"""What a model, ours or the user's own, is called with, and where."""

import inspect
from itertools import chain
from typing import Any

import torch
from torch import nn

_FROM_BATCH = ("node_ids", "step")


def model_device(model: nn.Module) -> torch.device | None:
    """Device of the first parameter or buffer; None for a model without."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return None if first is None else first.device


def wanted_names(model: nn.Module) -> list[str]:
    """What of a batch, besides blocks and features, the model takes: those of `node_ids` and `step` that its `forward`
    names (or takes as `**kwargs`).
    """
    inner, parameters = model, inspect.signature(model.forward).parameters
    while (wrapped := _wrapped(inner, parameters)) is not None:
        inner, parameters = wrapped, inspect.signature(wrapped.forward).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return [name for name in _FROM_BATCH if anything or name in parameters]


def _wrapped(model: nn.Module, parameters: Any) -> nn.Module | None:
    """The module inside torch.compile's or a data-parallel wrapper, which hands every argument on."""
    if hasattr(model, "_orig_mod"):
        return model._orig_mod  # pyright: ignore[reportReturnType]
    hands_on = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    inner = getattr(model, "module", None)
    return inner if hands_on and isinstance(inner, nn.Module) else None
