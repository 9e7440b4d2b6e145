"""Checks of a training step's arguments, before any work: exchanged ones, and those that would train nothing."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_type
from workbench.core.minibatch import MiniBatch


def check_model(model: Any) -> None:
    """Refuse what is no module.

    Raises:
        TypeError: a class or something else.
    """
    if inspect.isclass(model):
        raise TypeError(f"model is the class {model.__name__}; pass an instance of it")
    check_type("model", model, nn.Module, "pass a torch.nn.Module first, then the micro-batches")


def as_batches(micro: MiniBatch | Iterable[MiniBatch]) -> list[MiniBatch]:
    """The micro-batches as a list.

    Raises:
        TypeError: something else than batches of this library.
    """
    batches = list(micro) if isinstance(micro, Iterable) else [micro]
    remedy = (
        "pass a MiniBatch or a list of them (mb.split(part)); MiniBatch.from_dgl and workbench.core.interop.from_pyg "
        "make one of other libraries' batches, and workbench.batches yields pairs (step, batch)"
    )
    for position, batch in enumerate(batches):
        check_type(f"micro[{position}]" if isinstance(micro, Iterable) else "micro", batch, MiniBatch, remedy)
    return batches


def check_optimizer(optimizer: Any) -> None:
    """Refuse an optimizer whose step can't be taken.

    Raises:
        TypeError: no optimizer.
        ValueError: a step that takes a closure.
    """
    if not all(hasattr(optimizer, name) for name in ("param_groups", "step", "zero_grad")):
        remedy = "pass an optimizer such as torch.optim.Adam(model.parameters()), after loss_fn"
        check_type("optimizer", optimizer, torch.optim.Optimizer, remedy)
    if _needs_closure(optimizer):
        raise ValueError(
            f"{type(optimizer).__name__}.step takes a closure that computes the loss again and again, which one step "
            "on accumulated gradients does not offer; use an optimizer whose step takes none, such as Adam or SGD"
        )


def check_trains(optimizer: Any, model: nn.Module, batches: list[MiniBatch], x: Any, loss_fn: Any) -> None:
    """Refuse an optimizer whose step would change nothing that the loss depends on.

    It may hold some of the model's parameters only. Parameters outside of the model are known to count where features
    or edge weights require a gradient, or where features come from a store.

    Raises:
        ValueError: it holds none of the model's parameters that require a gradient.
    """
    own = [*model.parameters(), *(loss_fn.parameters() if isinstance(loss_fn, nn.Module) else ())]
    if own and not _learns_elsewhere(batches, x):
        _check_holds(optimizer, own)


def _needs_closure(optimizer: Any) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def _learns_elsewhere(batches: list[MiniBatch], x: Any) -> bool:
    weights = (block.edge_weight for mb in batches for block in mb.blocks)
    return hasattr(x, "read") or any(isinstance(t, Tensor) and t.requires_grad for t in (x, *weights))


def _check_holds(optimizer: Any, own: list[nn.Parameter]) -> None:
    learned = {id(p) for p in own if p.requires_grad}
    if not learned:
        raise ValueError(
            f"none of the model's {len(own)} parameters requires a gradient, so that a step trains nothing; unfreeze "
            "some: model.requires_grad_(True)"
        )
    if not any(id(p) in learned for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            f"the optimizer holds none of the model's {len(learned)} parameters that require a gradient, so that its "
            f"step trains nothing; make it of this model: torch.optim.{type(optimizer).__name__}(model.parameters())"
        )


def check_differentiable(loss: Tensor) -> None:
    """Refuse a loss that no gradient can be taken of.

    Raises:
        ValueError: with why.
    """
    if loss.requires_grad:
        return
    if not torch.is_grad_enabled():
        raise ValueError(
            "gradients are switched off here (torch.no_grad or inference_mode), so that nothing can be trained; call "
            "it outside, or within torch.enable_grad()"
        )
    raise ValueError(
        "the loss depends on nothing that requires a gradient; unfreeze parameters, model.requires_grad_(True), and "
        "detach no outputs"
    )
