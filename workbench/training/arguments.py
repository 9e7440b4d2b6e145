"""Validation of a training step's arguments before any work: swapped ones, and ones that would train nothing."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_type
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.links.edge_batch import EdgeBatch
from workbench.nn.losses import Inputs

_FILL_HALO = (
    "pass forward=lambda mb, inputs: model(mb.blocks, inputs.x, exchanges=…), which fills the halo of each layer"
)


def check_model(model: Any) -> None:
    """Check that the model is an instance of a module."""
    if inspect.isclass(model):
        raise TypeError(f"model is the class {model.__name__}; pass an instance of it")
    check_type("model", model, nn.Module, "pass a torch.nn.Module first, then the micro-batches")


def as_batches(micro: MiniBatch | Iterable[MiniBatch]) -> list[MiniBatch]:
    """Convert one or several micro-batches to a list, each of which must be a `MiniBatch`."""
    several = isinstance(micro, Iterable) and not isinstance(micro, Tensor)
    given: Any = micro if several else [micro]
    batches: list[Any] = list(given)
    remedy = (
        "pass a MiniBatch or a list of them (mb.split(part)); MiniBatch.from_dgl and MiniBatch.from_pyg "
        "convert other libraries' batches, and workbench.batches yields pairs (step, batch)"
    )
    for position, batch in enumerate(batches):
        check_type(f"micro[{position}]" if several else "micro", batch, MiniBatch, remedy)
    return batches


def check_halo(batches: list[MiniBatch], forward: Any) -> None:
    """Refuse batches with exchanges if the model is called by default (no `forward`), which ignores exchanges."""
    if forward is None:
        for mb in batches:
            refuse_halo(mb.exchanges, "passed to the model", _FILL_HALO)


def check_read_and_loss(read: Any, loss_of: Any) -> None:
    """Check the functions that `accumulate` calls; an error names the line that makes one."""
    check_type("read", read, Callable, "pass a function of a micro-batch: lambda mb: x[mb.node_ids]")
    module = getattr(loss_of, "__module__", "") or ""
    if not callable(loss_of) or inspect.isclass(loss_of) or module.startswith("torch.nn."):
        name = getattr(loss_of, "__name__", type(loss_of).__name__)
        raise TypeError(
            f"loss_of is {name}, which can't be called as loss_of(output, mb); pass "
            "workbench.BatchLoss.of(micro, y, loss_fn), or a function of the two"
        )


@contextmanager
def exchanged_noted(x: Any, y: Any) -> Iterator[None]:
    """Add to an error that features and labels look exchanged.

    It is no error by itself: a model of embeddings reads integers, and labels may be floating.
    """
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        if isinstance(x, Tensor) and isinstance(y, Tensor) and not x.is_floating_point() and y.is_floating_point():
            error.add_note(
                f"x is {x.dtype} {tuple(x.shape)} and y {y.dtype} {tuple(y.shape)}: are they exchanged? The features x "
                "come first, then the labels y."
            )
        raise


def check_optimizer(optimizer: Any) -> None:
    """Check that this is an optimizer whose step needs no closure."""
    if not all(hasattr(optimizer, name) for name in ("param_groups", "step", "zero_grad")):
        remedy = "pass an optimizer such as torch.optim.Adam(model.parameters()), after loss_fn"
        check_type("optimizer", optimizer, torch.optim.Optimizer, remedy)
    if _needs_closure(optimizer):
        raise ValueError(
            f"{type(optimizer).__name__}.step requires a closure that recomputes the loss, which a step on accumulated "
            "gradients can't provide; use an optimizer without a closure, such as Adam or SGD"
        )


def check_trains(optimizer: Any, model: nn.Module, batches: list[MiniBatch], sources: Inputs, loss_fn: Any) -> None:
    """Check that the optimizer's step changes something that the loss depends on.

    Some of the model's parameters are enough. The check is skipped if features or edge weights require a gradient or
    features come from a store, since the optimizer may then update parameters outside of the model.

    Raises:
        ValueError: The optimizer has none of the model's parameters that require a gradient.
    """
    parameters = [*model.parameters(), *(loss_fn.parameters() if isinstance(loss_fn, nn.Module) else ())]
    if parameters and not _may_train_other_leaves(batches, sources):
        _check_trains_any(optimizer, parameters)


def _needs_closure(optimizer: Any) -> bool:
    if "step" in vars(optimizer):  # patched, by a learning-rate scheduler say
        return _requires_closure(optimizer.step)
    return _class_requires_closure(type(optimizer))


@lru_cache(maxsize=32)  # reading a signature takes as long as a small optimizer's step
def _class_requires_closure(kind: Any) -> bool:
    return _requires_closure(kind.step)


def _requires_closure(step: Any) -> bool:
    closure = inspect.signature(step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def _may_train_other_leaves(batches: list[MiniBatch], sources: Inputs) -> bool:
    rows = (sources.x, sources.aggregated)
    leaves = (*rows, *(block.edge_weight for mb in batches for block in mb.blocks))
    return any(hasattr(source, "read") for source in rows) or any(
        isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves
    )


def _check_trains_any(optimizer: Any, parameters: list[nn.Parameter]) -> None:
    trainable = {id(p) for p in parameters if p.requires_grad}
    if not trainable:
        raise ValueError(
            f"none of the model's {len(parameters)} parameters requires a gradient, so a step trains nothing; unfreeze "
            "some: model.requires_grad_(True)"
        )
    if not any(id(p) in trainable for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            f"the optimizer has none of the model's {len(trainable)} parameters that require a gradient, so its step "
            f"trains nothing; construct it for this model: torch.optim.{type(optimizer).__name__}(model.parameters())"
        )


def check_differentiable(loss: Tensor) -> None:
    """Check that a loss has a gradient; the error states why it has none."""
    if loss.requires_grad:
        return
    if not torch.is_grad_enabled():
        raise ValueError(
            "gradients are disabled here (torch.no_grad or inference_mode), so nothing can be trained; call it "
            "outside, or within torch.enable_grad()"
        )
    raise ValueError(
        "the loss depends on nothing that requires a gradient; unfreeze parameters, model.requires_grad_(True), and do "
        "not detach outputs"
    )


_DEPTH = 4  # of functions and containers inside each other


def refuse_pair_loss(loss_of: Callable[..., Any]) -> None:
    """Refuse a loss that uses an `EdgeBatch`: the pieces of a micro-batch that ran out of memory have no such pairs.

    An `EdgeBatch` is found in variables that the function uses (also the first of a list, or of a mapping's values), in
    bound arguments and in attributes of a callable object; one that the function reads in another way is not.
    """
    if _uses_pairs(loss_of, _DEPTH):
        raise ValueError(
            "recover splits a micro-batch that runs out of memory by its seeds, and a loss over the pairs of an "
            "EdgeBatch can't follow; pass recover=None and split the pairs into more parts beforehand: pairs.split(…), "
            "batch.select([part.parent for part in parts])"
        )


def _uses_pairs(value: Any, depth: int) -> bool:
    return isinstance(value, EdgeBatch) or (depth > 0 and any(_uses_pairs(used, depth - 1) for used in _used_by(value)))


def _used_by(value: Any) -> Iterator[Any]:
    """Yield what a function or container uses; of a container one element, which is like the others."""
    if isinstance(value, FunctionType):
        variables = inspect.getclosurevars(value)
        yield from (*variables.nonlocals.values(), *variables.globals.values(), *(value.__defaults__ or ()))
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, Mapping):
        yield from list(value.values())[:1]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from value[:1]
    elif type(value).__module__.partition(".")[0] != "torch" and callable(value) and hasattr(value, "__dict__"):
        yield from vars(value).values()
