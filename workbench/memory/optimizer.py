"""Memory of an optimizer: its state, the temporaries of its step, and a backup of what the step changes."""

import copy
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_choice
from workbench.error_text import text_of
from workbench.meter.peak import measure_peak
from workbench.meter.storages import rounded_bytes

OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = MappingProxyType(
    {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
)
_ANALYTIC = (*OPTIMIZERS.values(),)


@dataclass(frozen=True)
class OptimizerMemory:
    """Bytes that an optimizer needs.

    Args:
        state_bytes: optimizer state, which persists between steps.
        step_bytes: peak of the temporaries that a step allocates, gradients excluded.
        backup_bytes: a copy of everything that a step changes: parameters, gradients, state.
    """

    state_bytes: int
    step_bytes: int
    backup_bytes: int

    @staticmethod
    def of(optimizer: "str | torch.optim.Optimizer", model: nn.Module, *, on_cuda: bool) -> "OptimizerMemory":
        """Estimate the memory of an optimizer of the model's parameters.

        Args:
            optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer. Adam, AdamW and SGD are
                computed from their options; for any other, two steps of a copy are run and the second is measured.
            model: the model whose parameters it updates.
            on_cuda: the parameters are on a GPU, where torch updates all of them together by default (`foreach`).

        Raises:
            ValueError: The name is unknown, or the optimizer has none of the model's parameters.
            TypeError: `optimizer` is neither a name nor an optimizer.
        """
        if isinstance(optimizer, str):
            check_choice("optimizer", optimizer, OPTIMIZERS)
            kind, groups = OPTIMIZERS[optimizer], [_defaults(OPTIMIZERS[optimizer], model)]
        elif isinstance(optimizer, torch.optim.Optimizer):
            kind, groups = type(optimizer), optimizer.param_groups
            _check_same(groups, model)
            if kind not in _ANALYTIC:
                return _measured(optimizer)
        else:
            raise TypeError(f"optimizer is {optimizer!r}; pass a name ({', '.join(OPTIMIZERS)}) or an optimizer")
        by_group = [_group_bytes(kind, group, on_cuda) for group in groups]
        state_bytes = sum(state for state, _ in by_group)
        step_bytes = max((temporaries for _, temporaries in by_group), default=0)
        return OptimizerMemory(state_bytes, step_bytes, state_bytes + _parameter_and_gradient_bytes(groups))


def _defaults(kind: type[torch.optim.Optimizer], model: nn.Module) -> dict[str, Any]:
    """The parameter group of a new optimizer; constructing one would import torch's compiler."""
    options = {name: option.default for name, option in inspect.signature(kind).parameters.items()}
    trainable = [p for p in model.parameters() if p.requires_grad]
    return {**options, "params": trainable, "decoupled_weight_decay": kind is torch.optim.AdamW}


def _check_same(groups: Iterable[Mapping[str, Any]], model: nn.Module) -> None:
    ours = {id(p) for p in model.parameters()}
    if ours and not any(id(p) in ours for group in groups for p in group["params"]):
        raise ValueError("optimizer has none of the model's parameters; construct it from model.parameters()")


def _parameter_and_gradient_bytes(groups: Iterable[Mapping[str, Any]]) -> int:
    """All parameters, and the gradients of the trainable ones."""
    return sum(rounded_bytes(p.nbytes) * (1 + p.requires_grad) for group in groups for p in group["params"])


def _group_bytes(kind: type[torch.optim.Optimizer], group: Mapping[str, Any], on_cuda: bool) -> tuple[int, int]:
    """State bytes and peak temporary bytes of one parameter group."""
    sizes = [rounded_bytes(p.nbytes) for p in group["params"] if p.requires_grad]
    decays = group["weight_decay"] != 0 and not group.get("decoupled_weight_decay", False)
    grad_updates = ["grad"] * (bool(group["maximize"]) + decays)  # negated to maximize, then weight decay is added
    if kind is torch.optim.SGD:
        states, copies = int(group["momentum"] != 0), min(1, len(grad_updates))
        temporaries = grad_updates + ["grad"] * bool(group["nesterov"])
    else:
        states, copies = 2 + bool(group["amsgrad"]), 1
        temporaries = [*grad_updates, "root", "denominator"]
    if group["fused"]:
        return states * sum(sizes), 0
    foreach = group["foreach"] or (group["foreach"] is None and on_cuda)
    if foreach:
        return states * sum(sizes), copies * sum(sizes)
    return states * sum(sizes), _loop_peak(sizes, temporaries, keeps_grad=bool(group["maximize"]))


def _loop_peak(sizes: Sequence[int], temporaries: Sequence[str], *, keeps_grad: bool) -> int:
    """Peak bytes of a loop over parameters that assigns these variables in order; each lives until reassigned.

    Unless `keeps_grad`, an iteration starts by rebinding `grad`, which frees the previous iteration's temporary.
    """
    live, peak = {"": 0}, 0
    for size in sizes:
        if not keeps_grad:
            live.pop("grad", None)
        for name in temporaries:
            peak = max(peak, sum(live.values()) + size)
            live[name] = size
        live.pop("root", None)  # part of an expression, never a variable
    return peak


def _measured(optimizer: torch.optim.Optimizer) -> OptimizerMemory:
    """Run two steps of a copy with zero gradients: the first creates the state, the second is measured.

    Raises:
        ValueError: A step fails.
    """
    clone = copy.deepcopy(optimizer)
    trainable = [p for group in clone.param_groups for p in group["params"] if p.requires_grad]
    for parameter in trainable:
        parameter.grad = torch.zeros_like(parameter)
    try:
        clone.step()
        step_bytes = measure_peak(clone.step, device=trainable[0].device) if trainable else 0
    except Exception as error:
        raise ValueError(
            f"a step of {type(optimizer).__name__} failed, so its memory can't be measured: {text_of(error)}"
        ) from error
    tensors = [t for state in clone.state.values() for t in state.values() if isinstance(t, Tensor) and t.numel() > 1]
    state_bytes = sum(rounded_bytes(t.nbytes) for t in tensors)
    return OptimizerMemory(state_bytes, step_bytes, state_bytes + _parameter_and_gradient_bytes(clone.param_groups))
