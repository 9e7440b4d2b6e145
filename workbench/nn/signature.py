"""The arguments and the device with which a model, the workbench's or the user's, is called."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.minibatch import MiniBatch
from workbench.error_text import line_of, text_of
from workbench.interop.layer_advice import cached_layers
from workbench.nn.conventions import Convention, convention_of
from workbench.nn.inputs import Inputs
from workbench.nn.other_conventions import other_conventions

Forward = Callable[[MiniBatch, Inputs], Any]
"""Calls a model: maps a micro-batch and its inputs, both on the model's device, to the model's output."""

_MISMATCH_ERRORS = ("shapes cannot be multiplied (", "have the same dtype")  # of torch's matrix products
_FOREIGN_LAYER_ERRORS = ("'Block' object", "'tuple' object", "MessagePassing", "edge_index")
_LIBRARIES = {"dgl": "DGL", "torch_geometric": "PyG"}


def default_forward(model: nn.Module) -> Forward:
    """Return the default call of a model.

    Args:
        model: a model of the library or of the user's own, called as `model(mb.blocks, inputs.x)`, with `node_ids=` and
            `step=` if its `forward` has parameters of these names (or `**kwargs`), and with `aggregated=` if the inputs
            contain an aggregate. Modules with layers of DGL get DGL blocks instead of the library's; modules whose
            `forward` has a parameter `adjs` or `edge_index` are called as PyG's (`workbench.nn.conventions`).

    Returns:
        A function that returns the model's output for the seeds. It raises ValueError for features of a dtype or width
        that a matrix product of the model refuses, and for a batch with a sample per layer if the model takes one
        `edge_index` for all; TypeError if the model can't be called like this.
    """
    return partial(_call, model, convention_of(_unwrapped(model)))


def possible_forwards(model: nn.Module) -> Iterator[Forward]:
    """Yield the default call of a model, then calls with the arguments in other orders and formats that it may accept.

    Args:
        model: as in `default_forward`.
    """
    convention = convention_of(_unwrapped(model))
    yield partial(_call, model, convention)
    for other in other_conventions(_unwrapped(model)):
        if other.name != convention.name:
            yield partial(_call, model, other)


def _call(model: nn.Module, convention: Convention, mb: MiniBatch, inputs: Inputs) -> Any:
    for name, layer in cached_layers(model):
        raise ValueError(
            f"{type(layer).__name__} ({name}) has cached=True: it would keep what it computes from the edges of its "
            "first batch and use it for every other one; build it with cached=False"
        )
    x = inputs.x
    positional, given = convention.arguments(mb, x)
    if inputs.aggregated is not None:
        given["aggregated"] = inputs.aggregated
    try:
        return convention.outputs(model(*positional, **given), mb)
    except (AttributeError, TypeError, ValueError) as error:
        remedy = _diagnose(model, convention, positional, given, text_of(error))
        if remedy is None:
            raise
        raise TypeError(f"{remedy}. It raised {line_of(error)}") from error
    except RuntimeError as error:
        if not any(text in text_of(error) for text in _MISMATCH_ERRORS) or not isinstance(x, Tensor):
            raise
        dtype = next((p.dtype for p in model.parameters()), None)
        raise ValueError(
            f"{type(model).__name__} with parameters of {dtype} failed on features of {x.dtype} {tuple(x.shape)}: "
            f"{text_of(error)}; convert them, x.to({dtype}), and build the model for their width"
        ) from error


def _diagnose(
    model: nn.Module, convention: Convention, positional: tuple[Any, ...], given: dict[str, Any], error: str
) -> str | None:
    """Explain why the model can't be called like this; None: its own code failed."""
    for module in model.modules() if convention.name == "blocks, x" else ():
        library = _LIBRARIES.get(type(module).__module__.partition(".")[0])
        if library is not None and any(text in error for text in _FOREIGN_LAYER_ERRORS):
            return (
                f"{type(module).__name__} is a layer of {library}, which does not accept the workbench's blocks: write "
                "forward(x, adjs) or forward(x, edge_index) for PyG's layers, forward(blocks, x) without the library's "
                "layers for DGL's, or split its loader's batches with micro_batches and call it yourself"
            )
    try:
        inspect.signature(model.forward).bind(*positional, **given)
    except TypeError:
        arguments = inspect.signature(model.forward)
        names = convention.name.split(", ") if positional else []
        passed = ", ".join((*names, *(f"{name}=" for name in given)))
        return (
            f"{type(model).__name__}.forward{arguments} can't be called with ({passed}); add these parameters, or pass "
            "forward=lambda mb, inputs: …, which calls it as it is"
        )
    return None


def model_device(model: nn.Module) -> torch.device | None:
    """Return the device of the first parameter or buffer; None for a model without any."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return None if first is None else first.device


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module inside wrappers of torch."""
    while (inner := _wrapped(model, inspect.signature(model.forward).parameters)) is not None:
        model = inner
    return model


def _wrapped(model: nn.Module, parameters: Any) -> nn.Module | None:
    """Return the module inside torch.compile's or a data-parallel wrapper, which forwards all arguments."""
    if hasattr(model, "_orig_mod"):
        return model._orig_mod  # pyright: ignore[reportReturnType]
    forwards_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    inner = getattr(model, "module", None)
    return inner if forwards_all and isinstance(inner, nn.Module) else None
