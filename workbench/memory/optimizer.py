"""What an optimizer holds between steps, and what its step makes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from workbench.core.cpu_gauge import rounded_bytes
from workbench.core.errors import check_choice

_STATES = {"adam": 2, "adamw": 2, "sgd": 0}
OPTIMIZERS = tuple(_STATES)


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
            kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
            wanted = [p for p in model.parameters() if p.requires_grad]
            if not wanted:
                return OptimizerMemory(0, 0)
            optimizer = kinds[optimizer](wanted)  # holds no state before its first step
        assert isinstance(optimizer, torch.optim.Optimizer)
        groups = [_group_bytes(optimizer, group, on_cuda) for group in optimizer.param_groups]
        return OptimizerMemory(sum(s for s, _ in groups), max((t for _, t in groups), default=0))


def _group_bytes(optimizer: torch.optim.Optimizer, group: dict, on_cuda: bool) -> tuple[int, int]:
    """State and temporaries of one group."""
    sizes = [rounded_bytes(p.nbytes) for p in group["params"] if p.requires_grad]
    if isinstance(optimizer, torch.optim.Adam):  # AdamW is one
        states, copies = 2 + bool(group["amsgrad"]), 2
    elif isinstance(optimizer, torch.optim.SGD):
        states, copies = int(group["momentum"] != 0), int(bool(group["nesterov"]))
    else:
        return _other_bytes(optimizer, group)
    decays = group["weight_decay"] != 0 and not group.get("decoupled_weight_decay", False)
    return states * sum(sizes), _step_bytes(sizes, copies, group, decays, on_cuda)


def _step_bytes(sizes: Sequence[int], copies: int, group: dict, decays: bool, on_cuda: bool) -> int:
    """One parameter's temporaries, which live until the next one's are made; or all of them at once.

    Adam's are the root of the second moment and that root divided; all together it is divided in place.
    """
    if group.get("fused"):
        return 0
    if group["foreach"] or (group["foreach"] is None and on_cuda):
        return sum(sizes) * (min(copies, 1) + decays)
    left = most = 0
    for size in sizes:
        most = max(most, left + (copies + decays) * size)
        left = (min(copies, 1) + decays) * size
    return most


def _other_bytes(optimizer: torch.optim.Optimizer, group: dict) -> tuple[int, int]:
    state = sum(
        rounded_bytes(value.nbytes)
        for p in group["params"]
        for value in optimizer.state.get(p, {}).values()
        if isinstance(value, Tensor) and value.numel() > 1
    )
    return state, sum(rounded_bytes(p.nbytes) for p in group["params"])
