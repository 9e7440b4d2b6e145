"""`TrainingSetup`: everything that determines a training step except its data, and the memory of its optimizer."""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.errors import check_at_least, check_choice, check_seed
from workbench.core.minibatch import MiniBatch
from workbench.error_text import text_of
from workbench.kernels.segment import fused
from workbench.meter.allocation_tracker import rounded_bytes
from workbench.meter.peak import measure_peak
from workbench.nn.gnn import GNN
from workbench.nn.sage import SAGELayer
from workbench.nn.signature import Forward
from workbench.partition.batch import partition_choices
from workbench.partition.batch.prepared_batch import check_method

Optimizer = str | torch.optim.Optimizer


@cache
def _onednn_dtypes() -> tuple[torch.dtype, ...]:
    """Dtypes of the LSTMs that torch hands to oneDNN: bfloat16 only where the processor has the instructions."""
    has_bfloat16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return (torch.float32, torch.bfloat16) if has_bfloat16 else (torch.float32,)


@dataclass(frozen=True)
class Backend:
    """The kernels whose allocations an estimate models.

    Args:
        device: "cpu" for the compiled kernels; "cuda" for those of a GPU. Of the workspace that CUDA libraries allocate
            inside an operator, that of cuDNN's LSTM is modelled.
        lstm: the LSTM implementation of sage-lstm: "onednn" (torch's on CPUs for float32, and with AVX-512 for
            bfloat16), "native" (torch's own, used without oneDNN or cuDNN) or "cudnn". Default: onednn on the CPU where
            torch provides it, cudnn on CUDA.
        fused: on a GPU, sums and maxima over edges are Triton's, which CUDA builds of torch bring; False for plain
            torch, whose messages per edge take memory. Without effect on the CPU.

    Raises:
        ValueError: The device or LSTM is unknown, or the LSTM is not available for the device on this machine.
    """

    device: str = "cpu"
    lstm: str = ""
    fused: bool = True

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        onednn = self.device == "cpu" and torch.backends.mkldnn.is_available()
        default = "cudnn" if self.device == "cuda" else "onednn" if onednn else "native"
        object.__setattr__(self, "lstm", self.lstm or default)
        check_choice("lstm", self.lstm, LSTMS)
        if self.lstm == "onednn" and not onednn:
            raise ValueError(
                f"lstm is 'onednn', which this build of torch does not provide on {self.device}; pass lstm='native'"
            )
        if self.lstm == "cudnn" and self.device != "cuda":
            raise ValueError("lstm is 'cudnn', which requires device='cuda'; pass lstm='native'")

    @staticmethod
    def of(model: nn.Module) -> "Backend":
        """The backend that torch would use for this model on its current device."""
        first = next(model.parameters(), None)
        if first is not None and first.is_cuda:
            cudnn = torch.backends.cudnn.is_available() and torch.backends.cudnn.enabled
            return Backend("cuda", "cudnn" if cudnn else "native", fused(first) is not None)
        onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
        return Backend("cpu", "onednn" if onednn else "native").with_supported_lstm(model)

    def with_supported_lstm(self, model: nn.Module) -> "Backend":
        """This backend, with the native LSTM if oneDNN does not support the model's dtype on this processor."""
        first = next(model.parameters(), None)
        supported = first is None or first.dtype in _onednn_dtypes()
        return self if supported or self.lstm != "onednn" else Backend(self.device, "native")

    def __str__(self) -> str:
        return f"{self.device} ({self.lstm} lstm)"


@dataclass(frozen=True, eq=False)
class Recovery:
    """Out-of-memory recovery: how to split a micro-batch that runs out of memory.

    Args:
        parts: number of pieces, at least 2; pieces that do not fit are split again, down to one seed each.
        method: a name of `workbench.partition.PARTITION_METHODS`, or "auto" or "fast". "range" is the fallback if the
            method itself runs out of memory, if "auto" finds no pymetis or METIS fails, and if the method puts all
            seeds into one part, as "cluster" may.
        seed: seed of the random choices of the method.
        node_parts: integer [num_graph_nodes], a partition of the whole graph, for method "cluster"; None for others.
        on_split: called after each split with the micro-batch, its pieces and the error, for example to count splits
            or to plan the next batch with more parts; everything that the failed attempt allocated is freed by then.

    Raises:
        ValueError: The method is unknown, `parts` is below 2, `seed` is not an integer, or `node_parts` is missing for
            "cluster" or passed to a method that does not use it.
        TypeError: `node_parts` is not an integer tensor.
    """

    parts: int = 2
    method: str = "auto"
    seed: int = 0
    node_parts: Tensor | None = None
    on_split: Callable[[MiniBatch, list[MiniBatch], Exception], object] | None = None

    def __post_init__(self) -> None:
        check_at_least("parts", self.parts, 2)
        check_choice("method", self.method, partition_choices())
        check_method(self.method, self.node_parts)
        check_seed(self.seed)


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """A model, its optimizer and its loss, and how a training step calls them: what estimates, plans and steps share.

    Args:
        model: the module that is trained, in its current mode (train or eval).
        loss_fn: a function of `(output, labels, reduction=…)`, a loss module of torch, or a function that returns the
            losses of each seed.
        optimizer: an optimizer of the model's parameters; for estimates also "adam", "adamw" or "sgd" with torch's
            defaults.
        reduction: "mean" over labelled seeds, or "sum".
        forward: calls the model with a micro-batch and its `Inputs`, as for `workbench.accumulate`; None for the
            default call.
        recover: None, or how to recover from out-of-memory errors.
        backend: the kernels that an estimate models: a `Backend`, "cpu" or "cuda"; None for the model's device.
        in_dim: channels of the features; None: for a traced module, the input width of its first layer.
        aggregate_on_read: estimate steps whose features are `workbench.training.AggregateOnRead(x)`.
    """

    model: nn.Module
    loss_fn: Callable[..., Tensor] = cross_entropy
    optimizer: Optimizer = "adam"
    reduction: str = "mean"
    forward: Forward | None = None
    recover: Recovery | None = None
    backend: Backend | str | None = None
    in_dim: int | None = None
    aggregate_on_read: bool = False

    def __repr__(self) -> str:
        loss, optimizer = getattr(self.loss_fn, "__name__", self.loss_fn), self.optimizer
        name: Any = optimizer if isinstance(optimizer, str) else type(optimizer).__name__
        return f"TrainingSetup({type(self.model).__name__}, {loss}, {name}, {self.reduction})"


DEVICES = ("cpu", "cuda")

LSTMS = ("onednn", "native", "cudnn")

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

        Adam, AdamW and SGD are computed from their options (torch's defaults for a name); of any other optimizer, two
        steps of a copy are run and the second is measured. On a GPU torch updates all parameters together by default
        (`foreach`).

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


def runs_under_autocast(model: GNN, backend: Backend | None) -> bool:
    """Return whether autocast is enabled here for the device that an estimate is about; the model is traced then.

    Raises:
        ValueError: it is enabled, and a layer has an LSTM: its allocations depend on the in-degrees of the batch, and
            estimates from traces have been too low by up to 43 %.
    """
    if not torch.is_autocast_enabled((backend or Backend.of(model)).device):
        return False
    if any(isinstance(layer, SAGELayer) and layer.aggregator == "lstm" for layer in model.layers):
        raise ValueError(
            "sage-lstm can't be estimated under autocast; estimate it outside of the context, which gave 1.1 to 1.5 "
            "times the peak measured under it, or train without autocast in the dtype of the model: model.bfloat16()"
        )
    return True


def check_recover(recover: Any) -> None:
    """Check that the `recover` option of training functions is a `Recovery` or None."""
    if recover is not None and not isinstance(recover, Recovery):
        raise TypeError(f"recover is {recover!r}; pass workbench.Recovery() to recover from OOM errors, or None")
