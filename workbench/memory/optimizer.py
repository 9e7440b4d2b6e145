"""What an optimizer holds between steps, and what its step makes."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.cpu_gauge import rounded_bytes
from workbench.core.errors import check_choice

OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = MappingProxyType(
    {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
)


@dataclass(frozen=True)
class OptimizerMemory:
    """Bytes of an optimizer, parameter by parameter.

    Args:
        state_bytes: held between steps.
        step_bytes: the most that a step makes besides, gradients excluded.
    """

    state_bytes: int
    step_bytes: int

    @staticmethod
    def of(optimizer: "str | torch.optim.Optimizer", model: nn.Module, *, on_cuda: bool) -> "OptimizerMemory":
        """What an optimizer of the model's parameters takes.

        Args:
            optimizer: "adam", "adamw" or "sgd" with torch's defaults, or one of torch.optim (Adam, AdamW, SGD; any
                other by the state that it has now, its step by one copy of it all).
            model: its parameters, where `optimizer` is a name.
            on_cuda: torch then updates all parameters together unless told not to (`foreach=False`).

        Raises:
            ValueError: another name.
        """
        if isinstance(optimizer, str):
            check_choice("optimizer", optimizer, OPTIMIZERS)
            kind = OPTIMIZERS[optimizer]
            groups = [_group_bytes(kind, _defaults(kind, model), {}, on_cuda)]
        else:
            kind = type(optimizer)
            groups = [_group_bytes(kind, group, optimizer.state, on_cuda) for group in optimizer.param_groups]
        return OptimizerMemory(sum(s for s, _ in groups), max((t for _, t in groups), default=0))


def _defaults(kind: type[torch.optim.Optimizer], model: nn.Module) -> dict[str, Any]:
    """The options of a new optimizer of the model's parameters; making one would import torch's compiler."""
    options = {name: option.default for name, option in inspect.signature(kind).parameters.items()}
    decoupled = kind is torch.optim.AdamW
    return {**options, "params": list(model.parameters()), "decoupled_weight_decay": decoupled}


def _group_bytes(
    kind: type[torch.optim.Optimizer], group: Mapping[str, Any], state: Mapping[Any, Any], on_cuda: bool
) -> tuple[int, int]:
    """State and temporaries of one group."""
    sizes = [rounded_bytes(p.nbytes) for p in group["params"] if p.requires_grad]
    decays = ["grad"] * (group.get("weight_decay", 0) != 0 and not group.get("decoupled_weight_decay", False))
    if issubclass(kind, torch.optim.Adam):  # AdamW is one
        states, copies, made = 2 + bool(group["amsgrad"]), 1, [*decays, "root", "denominator"]
    elif issubclass(kind, torch.optim.SGD):
        states, copies, made = int(group["momentum"] != 0), len(decays), decays + ["grad"] * bool(group["nesterov"])
    else:
        return _other_bytes(group, state)
    if group.get("fused"):
        return states * sum(sizes), 0
    together = group["foreach"] or (group["foreach"] is None and on_cuda)
    return states * sum(sizes), copies * sum(sizes) if together else _one_by_one(sizes, made)


def _one_by_one(sizes: Sequence[int], made: Sequence[str]) -> int:
    """Most bytes of a loop over parameters whose variables are made in this order and live until made anew."""
    held, most = {"": 0}, 0
    for size in sizes:
        for name in made:
            most = max(most, sum(held.values()) + size)
            held[name] = size
        held.pop("root", None)  # only a part of an expression
    return most


def _other_bytes(group: Mapping[str, Any], state: Mapping[Any, Any]) -> tuple[int, int]:
    held = sum(
        rounded_bytes(value.nbytes)
        for p in group["params"]
        for value in state.get(p, {}).values()
        if isinstance(value, Tensor) and value.numel() > 1
    )
    return held, sum(rounded_bytes(p.nbytes) for p in group["params"])
