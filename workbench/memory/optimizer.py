"""What an optimizer holds between steps, and what its step makes."""

import copy
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.cpu_gauge import rounded_bytes
from workbench.core.errors import check_choice
from workbench.core.meter import measure_peak

OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = MappingProxyType(
    {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
)
_PRICED = (*OPTIMIZERS.values(),)


@dataclass(frozen=True)
class OptimizerMemory:
    """Bytes of an optimizer.

    Args:
        state_bytes: held between steps.
        step_bytes: the most that a step makes besides, gradients excluded.
        copied_bytes: of a copy of what a step changes: parameters, gradients, state.
    """

    state_bytes: int
    step_bytes: int
    copied_bytes: int

    @staticmethod
    def of(optimizer: "str | torch.optim.Optimizer", model: nn.Module, *, on_cuda: bool) -> "OptimizerMemory":
        """What an optimizer of the model's parameters takes.

        Args:
            optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer. Adam, AdamW and SGD are priced
                from their options; of any other a copy takes two steps, which are measured.
            model: its parameters, where `optimizer` is a name.
            on_cuda: torch then updates all parameters together unless told not to (`foreach=False`).

        Raises:
            ValueError: another name, or an optimizer of other parameters.
            TypeError: something else.
        """
        if isinstance(optimizer, str):
            check_choice("optimizer", optimizer, OPTIMIZERS)
            kind, groups = OPTIMIZERS[optimizer], [_defaults(OPTIMIZERS[optimizer], model)]
        elif isinstance(optimizer, torch.optim.Optimizer):
            kind, groups = type(optimizer), optimizer.param_groups
            _check_same(groups, model)
            if kind not in _PRICED:
                return _measured(optimizer)
        else:
            raise TypeError(f"optimizer is {optimizer!r}; pass a name ({', '.join(OPTIMIZERS)}) or an optimizer")
        priced = [_group_bytes(kind, group, on_cuda) for group in groups]
        state = sum(state for state, _ in priced)
        return OptimizerMemory(state, max((made for _, made in priced), default=0), state + _copied(groups))


def _defaults(kind: type[torch.optim.Optimizer], model: nn.Module) -> dict[str, Any]:
    """The options of a new optimizer of the model's parameters; making one would import torch's compiler."""
    options = {name: option.default for name, option in inspect.signature(kind).parameters.items()}
    learned = [p for p in model.parameters() if p.requires_grad]
    return {**options, "params": learned, "decoupled_weight_decay": kind is torch.optim.AdamW}


def _check_same(groups: Iterable[Mapping[str, Any]], model: nn.Module) -> None:
    ours = {id(p) for p in model.parameters()}
    if ours and not any(id(p) in ours for group in groups for p in group["params"]):
        raise ValueError("optimizer has none of the model's parameters; make it of model.parameters()")


def _copied(groups: Iterable[Mapping[str, Any]]) -> int:
    """Parameters, and gradients of those that learn."""
    return sum(rounded_bytes(p.nbytes) * (1 + p.requires_grad) for group in groups for p in group["params"])


def _group_bytes(kind: type[torch.optim.Optimizer], group: Mapping[str, Any], on_cuda: bool) -> tuple[int, int]:
    """State and temporaries of one group."""
    sizes = [rounded_bytes(p.nbytes) for p in group["params"] if p.requires_grad]
    decays = group["weight_decay"] != 0 and not group.get("decoupled_weight_decay", False)
    changed = ["grad"] * (bool(group["maximize"]) + decays)  # the gradient's sign is turned, then decay is added
    if kind is torch.optim.SGD:
        states, copies = int(group["momentum"] != 0), min(1, len(changed))
        made = changed + ["grad"] * bool(group["nesterov"])
    else:
        states, copies, made = 2 + bool(group["amsgrad"]), 1, [*changed, "root", "denominator"]
    if group["fused"]:
        return states * sum(sizes), 0
    together = group["foreach"] or (group["foreach"] is None and on_cuda)
    made_at_once = copies * sum(sizes) if together else _one_by_one(sizes, made, kept=bool(group["maximize"]))
    return states * sum(sizes), made_at_once


def _one_by_one(sizes: Sequence[int], made: Sequence[str], *, kept: bool) -> int:
    """Most bytes of a loop over parameters whose variables are made in this order and live until made anew.

    Unless `kept`, the loop begins with another value for its gradient, so the one that it made before ends.
    """
    held, most = {"": 0}, 0
    for size in sizes:
        if not kept:
            held.pop("grad", None)
        for name in made:
            most = max(most, sum(held.values()) + size)
            held[name] = size
        held.pop("root", None)  # only a part of an expression
    return most


def _measured(optimizer: torch.optim.Optimizer) -> OptimizerMemory:
    """Of a copy, with gradients of zero: the first step makes the state, the second is measured.

    Raises:
        ValueError: the steps fail.
    """
    copied = copy.deepcopy(optimizer)
    learned = [p for group in copied.param_groups for p in group["params"] if p.requires_grad]
    for parameter in learned:
        parameter.grad = torch.zeros_like(parameter)
    try:
        copied.step()
        step_bytes = measure_peak(copied.step, device=learned[0].device) if learned else 0
    except Exception as error:
        raise ValueError(f"a step of {type(optimizer).__name__} failed, so it can't be priced: {error}") from error
    tensors = [t for state in copied.state.values() for t in state.values() if isinstance(t, Tensor) and t.numel() > 1]
    state = sum(rounded_bytes(t.nbytes) for t in tensors)
    return OptimizerMemory(state, step_bytes, state + _copied(copied.param_groups))
