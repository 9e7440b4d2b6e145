"""Checks that a model computes the same in micro-batches as on the whole batch, and names the module that does not."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.interop.layer_advice import exact_alternative, is_batch_statistic
from workbench.memory.traced.feature_width import feature_widths
from workbench.nn.gcn import GCNLayer
from workbench.nn.gnn import GNN
from workbench.nn.inputs import Inputs
from workbench.nn.signature import Forward, default_forward, model_device
from workbench.training.arguments import check_model
from workbench.training.exactness.borrowed_model import borrowed_model, random_state
from workbench.training.exactness.first_inexact import first_inexact
from workbench.training.exactness.small_batch import small_batch
from workbench.training.exactness.trial import Trial, UndecidedError, try_model

_TOLERANCES = {torch.float64: 1e-8, torch.float32: 5e-3, torch.bfloat16: 0.2, torch.float16: 0.1}
_MAX_WIDE_BYTES = 1 << 24  # larger parameters are not copied, so that the trial fits wherever a step does
_USED_BY_OWN = {
    nn.Linear,
    nn.ReLU,
    nn.ELU,
    nn.LayerNorm,
    nn.BatchNorm1d,
    nn.Identity,
    nn.LSTM,
    nn.ModuleList,
    nn.Sequential,
}


@dataclass(frozen=True)
class Exactness:
    """Whether the parts of a batch compute the same as the whole batch.

    Args:
        exact: True if they do, False if they do not, None if it can't be decided.
        deviation: largest deviation of outputs (relative to the largest output) and of gradients (of their norms),
            where it was measured.
        module: name in the model of the first module that is inexact; "" for the model itself.
        kind: name of the module's class; "" if the model is not inexact.
        reason: why the model is inexact, and what to use instead; or why it can't be decided.
    """

    exact: bool | None
    deviation: float | None = None
    module: str = ""
    kind: str = ""
    reason: str = ""

    def __str__(self) -> str:
        if self.exact is not False:
            return "exact" if self.exact else f"undecided: {self.reason}"
        measured = "" if self.deviation is None else f" (a relative deviation of {self.deviation:.1g} on a small batch)"
        return (
            f"{self.kind}{f' ({self.module})' if self.module else ''} makes gradients of micro-batches differ from the "
            f"whole batch's{measured}: {self.reason}"
        )


def check_exact(
    model: nn.Module, batch: Any, *, x: Any = None, in_dim: int | None = None, forward: Forward | None = None
) -> Exactness:
    """Check that outputs and gradients of micro-batches are those of the whole batch, by trying the model.

    Runs forward and backward passes on a batch of at most 12 seeds and a few dozen nodes made from rows of `batch`, as
    a whole and in three parts, in float64 (in the model's dtype if it computes in no other, or its parameters exceed 16
    MiB). Dropout is off. Parameters, gradients, buffers, modes, caches of layers and torch's random state are as before
    afterwards; state that a module keeps elsewhere, or modifies in place, is not put back. Models from `build_model`
    are known and not run.

    The price is that of 4 forward and backward passes on a few dozen nodes, whatever the size of the batch: on one CPU
    core 13 to 36 ms for models of 2 and 3 layers of the library, DGL and PyG, 0.05 to 0.32 of one training step on
    1,024 seeds. `train_step`, `accumulate` and `micro_batches` pay it once per model.

    Args:
        model: the module, in its current mode: BatchNorm in eval mode is exact.
        batch: a `MiniBatch`, DGL blocks or a batch of PyG.
        x: floating [num_inputs, …], features of the batch's inputs in the order of `node_ids`, or `Inputs`. None:
            random features.
        in_dim: channels of the random features; None: the `x` of a PyG batch, or a width that modules of the model
            have as an attribute.
        forward: calls the model with a micro-batch and its `Inputs`, as for `workbench.accumulate`; it is called with
            micro-batches of other nodes than those of `batch` in order, and in float64. None for the default call.

    Returns:
        The result. It names the module, if the model is inexact, and states why, if it can't be decided.

    Raises:
        TypeError: `model` is not a module, or `batch` is of another type.
        ValueError: The batch has exchanges.

    Source: Betty (ASPLOS 2023), section 4.2: gradients of micro-batches add up only if seeds are independent.
    """
    check_model(model)
    mb = _as_minibatch(batch)
    refuse_halo(mb.exchanges, "checked")
    known = _known(model)
    if known is not None:
        return known
    call = forward or default_forward(model)
    first, *others = (partial(_try, model, mb, inputs, call) for inputs in _candidates(model, batch, mb, x, in_dim))
    result = first()
    decided = (other for other in (attempt() for attempt in others) if other.exact is not None)
    return result if result.exact is not None else next(decided, result)


def _as_minibatch(batch: Any) -> MiniBatch:
    if isinstance(batch, MiniBatch):
        return batch
    return MiniBatch.from_pyg(batch) if hasattr(batch, "n_id") else MiniBatch.from_dgl(batch)


def _known(model: nn.Module) -> Exactness | None:
    """Decide a model of the library, whose layers are exact but for two; None for any other."""
    inner: Any = model
    while hasattr(inner, "_orig_mod") or hasattr(inner, "no_sync"):
        inner = inner._orig_mod if hasattr(inner, "_orig_mod") else inner.module
    if type(inner) is not GNN or not all(map(_is_own, inner.modules())):
        return None
    return _inexact_by_class(inner) or Exactness(True)


def _is_own(module: nn.Module) -> bool:
    return type(module).__module__.startswith("workbench.nn.") or type(module) in _USED_BY_OWN


def _inexact_by_class(model: nn.Module) -> Exactness | None:
    """Find a module that is known to look across the batch."""
    for name, module in model.named_modules():
        if is_batch_statistic(module) or (isinstance(module, GCNLayer) and module.norm == "both"):
            return Exactness(False, None, name, type(module).__name__, exact_alternative(module))
    return None


def _candidates(model: nn.Module, batch: Any, mb: MiniBatch, x: Any, in_dim: int | None) -> Iterator[Inputs]:
    """Inputs to try, the likeliest first."""
    if x is None and in_dim is None and isinstance(own := getattr(batch, "x", None), Tensor):
        x = own
    if x is not None:
        yield Inputs.of(x)
        return
    widths = [in_dim] if in_dim is not None else list(feature_widths(model)) or [1]
    rows = mb.num_inputs if (batch := small_batch(mb)) is None else batch.num_inputs
    for width in dict.fromkeys(widths):
        yield Inputs(torch.randn(rows, width, generator=torch.Generator().manual_seed(0)))


def _try(model: nn.Module, mb: MiniBatch, inputs: Inputs, forward: Forward) -> Exactness:
    """Try a model on a small batch in float64, else in its own dtype; else look for modules that are known."""
    if (reason := _refusal(model, mb)) is not None:
        return _inexact_by_class(model) or Exactness(None, reason=reason)
    size = sum(p.nbytes for p in model.parameters())
    error: Exception | None = None
    for dtype in (torch.float64, None) if size <= _MAX_WIDE_BYTES else (None,):
        try:
            return _tried(model, mb, inputs, forward, dtype)
        except Exception as raised:  # a model's code may raise anything; the caller's own call will raise it again
            error = raised.with_traceback(None)
    kind = "" if isinstance(error, UndecidedError) else f"{type(error).__name__} on a small batch: "
    return _inexact_by_class(model) or Exactness(None, reason=f"{kind}{error}")


def _refusal(model: nn.Module, mb: MiniBatch) -> str | None:
    """Return why a model can't be tried."""
    if mb.num_inputs < 4:
        return f"the batch has {mb.num_inputs} nodes; 4 are needed"
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return "the model is scripted; check the module that it was made from"
    if any(nn.parameter.is_lazy(p) for p in model.parameters()):
        return "the model has uninitialized parameters; call it once before"
    if hasattr(model, "no_sync"):
        return f"{type(model).__name__} communicates; check its .module"
    return None


def _tried(model: nn.Module, mb: MiniBatch, inputs: Inputs, forward: Forward, dtype: torch.dtype | None) -> Exactness:
    batch, device = small_batch(mb, dtype), model_device(model) or mb.device
    assert batch is not None
    sizes = mb.num_inputs, batch.num_inputs
    rows = Inputs(*(_first_rows(t, *sizes, device, dtype) for t in (inputs.x, inputs.aggregated)))
    with warnings.catch_warnings(action="ignore"), _uncompiled():
        trial, is_random = _trial_without_dropout(model, batch.to(device), rows, forward, dtype)
    own_dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    tolerance = _TOLERANCES[dtype or own_dtype]
    if trial.deviation <= tolerance:
        return Exactness(True, trial.deviation)
    if is_random:
        raise UndecidedError("the model draws random numbers in eval mode too")
    name = first_inexact(model, trial, tolerance)
    module = model.get_submodule(name)
    return Exactness(False, trial.deviation, name, type(module).__name__, exact_alternative(module))


def _trial_without_dropout(
    model: nn.Module, batch: MiniBatch, rows: Inputs, forward: Forward, dtype: torch.dtype | None
) -> tuple[Trial, bool]:
    """Try a model in its modes, but for dropout; in eval mode if it draws random numbers, and say if it still does."""
    before, trial, is_random = random_state(model), None, True
    for keep_modes in (True, False):
        with borrowed_model(model, dtype, keep_modes=keep_modes) as parameters:
            trial = try_model(model, parameters, batch, rows, forward)
            is_random = not all(map(torch.equal, before, random_state(model)))
        if not is_random:
            break
    assert trial is not None
    return trial, is_random


def _first_rows(rows: Any, total: int, count: int, device: torch.device, dtype: torch.dtype | None) -> Any:
    """The first `count` rows of all tensors with `total` rows, on the model's device; other tensors are kept."""

    def first(value: Any) -> Any:
        if isinstance(value, Tensor):
            value = value[:count] if value.shape[:1] == (total,) else value
            return value.detach().to(device, dtype if value.is_floating_point() else None)
        if value is None or isinstance(value, (int, float, str)):
            return value
        raise UndecidedError(f"its inputs contain a {type(value).__name__}, of which rows can't be taken")

    if isinstance(rows, Tensor) and rows.shape[:1] not in ((total,), (count,)):
        raise UndecidedError(f"x has shape {tuple(rows.shape)}, but the batch {total} inputs; pass x[batch.node_ids]")
    return tree_map(first, rows)


def _uncompiled() -> AbstractContextManager[Any]:
    """Run compiled modules eagerly; compiling them for a small batch would take seconds."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
