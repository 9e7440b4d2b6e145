"""What a model, ours or the user's own, is called with, and where."""

import inspect
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.minibatch import MiniBatch

_FROM_BATCH = ("node_ids", "step")
_MISMATCH = ("shapes cannot be multiplied (", "have the same dtype")  # of torch's matrix products
_OF_OTHERS = ("'Block' object", "'tuple' object", "MessagePassing", "edge_index")  # their layers on our blocks
_OTHERS = {"dgl": "DGL", "torch_geometric": "PyG"}


def call_model(model: nn.Module, mb: MiniBatch, x: Any, names: list[str]) -> Any:
    """The model's output for a batch on its device.

    Args:
        model: called with `(mb.blocks, x)` and what of the batch it names.
        mb: the batch.
        x: features of its inputs.
        names: from `wanted_names`.

    Raises:
        ValueError: features of a dtype or a width that a matrix product of the model refuses.
        TypeError: a model that can't be called so, or layers of another library, which do not take our blocks.
    """
    given = {name: getattr(mb, name) for name in names}
    try:
        return model(mb.blocks, x, **given)
    except (AttributeError, TypeError, ValueError) as error:
        remedy = _why_not_callable(model, mb, x, given, str(error))
        if remedy is None:
            raise
        raise TypeError(f"{remedy}. It raised {type(error).__name__}: {error}") from error
    except RuntimeError as error:
        if not any(text in str(error) for text in _MISMATCH) or not isinstance(x, Tensor):
            raise
        dtype = next((p.dtype for p in model.parameters()), None)
        raise ValueError(
            f"{type(model).__name__} failed on features of {x.dtype} {tuple(x.shape)}, its parameters being {dtype}: "
            f"{error}; convert them, x.to({dtype}), and build the model for the width that they have"
        ) from error


def _why_not_callable(model: nn.Module, mb: MiniBatch, x: Any, given: dict[str, Any], error: str) -> str | None:
    """What is wrong with calling the model on blocks, as far as that can be told; None: its own code failed."""
    for part in model.modules():
        library = _OTHERS.get(type(part).__module__.partition(".")[0])
        if library is not None and any(text in error for text in _OF_OTHERS):
            return (
                f"{type(part).__name__} is a layer of {library}, which does not take the workbench's blocks: wrap it "
                "in a module whose forward(blocks, x) converts them (MiniBatch(torch.arange(len(x)), blocks).to_dgl() "
                "or .to_pyg()), or cut its loader's batches with micro_batches and call it yourself"
            )
    try:
        inspect.signature(model.forward).bind(mb.blocks, x, **given)
    except TypeError:
        arguments = inspect.signature(model.forward)
        return f"{type(model).__name__}.forward{arguments} can't be called with (blocks, x); give it these arguments"
    return None


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
