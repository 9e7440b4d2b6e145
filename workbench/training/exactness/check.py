"""`check_exact`: whether micro-batches of a model compute the same as the whole batch, and warnings if not."""

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.error_text import text_of
from workbench.interop.layer_advice import (
    cached_layers,
    exact_alternative,
    is_batch_statistic,
    is_known_inexact,
    is_layer,
    known_inexact,
    statistic_owner,
)
from workbench.memory.traced.predictor import candidate_widths
from workbench.nn.gnn import GNN
from workbench.nn.losses import Inputs
from workbench.nn.signature import Forward, possible_forwards
from workbench.training.aggregated_rows import OnAggregates
from workbench.training.arguments import check_model
from workbench.training.exactness.trial import (
    APART,
    COMMON_LEAVES,
    INEXACT,
    WIRINGS,
    Subject,
    Trial,
    UndecidedError,
    seed_positions,
    small_batch,
    trials_of,
    try_wiring,
    used_dtype,
)

_USED_BY_OWN = {nn.Linear, nn.ReLU, nn.ELU, nn.LayerNorm, nn.BatchNorm1d, nn.Identity, nn.LSTM}
_USED_BY_OWN |= {nn.ModuleList, nn.Sequential}


@dataclass(frozen=True)
class Exactness:
    """Whether the parts of a batch compute the same as the whole batch.

    Args:
        exact: True if they do, False if they do not, None if it can't be decided, or if it is not so of this batch, but
            of others: then `kind` is set.
        deviation: largest deviation of outputs (relative to the largest output) and of gradients (of their norms),
            where it was measured.
        module: name in the model of the first module that is inexact; "" for the model itself.
        kind: name of the module's class; "" if no module was found to be inexact.
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


def known_model(model: nn.Module, forward: Forward | None) -> Exactness | None:
    """Decide a model of the library, whose layers are exact but for two.

    None for any other model, and for a call of the user's own, which may look across the batch.
    """
    if forward is not None and not isinstance(forward, OnAggregates):
        return None
    inner: Any = model
    while hasattr(inner, "_orig_mod") or (hasattr(inner, "no_sync") and hasattr(inner, "module")):
        inner = inner._orig_mod if hasattr(inner, "_orig_mod") else inner.module
    if type(inner) is not GNN or not all(map(_is_own, inner.modules())):
        return None
    return inexact_by_class(inner) or Exactness(True)


def _is_own(module: nn.Module) -> bool:
    return type(module).__module__.startswith("workbench.nn.") or type(module) in _USED_BY_OWN


def inexact_by_class(model: nn.Module) -> Exactness | None:
    """Find a module that is known to look across the batch."""
    for name, module in known_inexact(model):
        return Exactness(False, None, name, type(module).__name__, exact_alternative(module))
    return None


_EXACT = {torch.float64: 1e-11, torch.float32: 1e-5}
"""The largest deviation that rounding explains, by dtype; rounding of 16 bits would hide what layers do."""

_MAX_WIDE_BYTES = 1 << 24  # larger parameters are not copied, so that the trial fits wherever a step does


def check_exact(
    model: nn.Module, batch: Any, *, x: Any = None, in_dim: int | None = None, forward: Forward | None = None
) -> Exactness:
    """Check that outputs and gradients of micro-batches are those of the whole batch, by trying the model.

    Runs forward and backward passes on batches of a few dozen nodes made from rows of `batch`, as a whole and in three
    parts, in float64 (in the model's dtype if it computes in no other, or its parameters exceed 16 MiB). They are wired
    so that every part reads nodes whose rows it lacks, in two ways: once with the features, once with random ones and
    random values for parameters that are 0, which would hide what they multiply. Dropout is off. Parameters, gradients,
    buffers, modes, caches of layers and torch's random state are as before afterwards; state that a module keeps
    elsewhere, or modifies in place, is not put back. Models from `build_model` are known and not run, unless `forward`
    calls them. Of a model that can't be tried, modules known to be inexact are found by their class and options.

    The price is that of 8 forward and backward passes on a few dozen nodes, whatever the size of the batch. An inexact
    model may cost 8 more, and one split of the batch: where its seeds share no nodes, or the parts have all rows of
    the nodes that they read, some layers are exact that are not in other batches. Parts of this batch that agree by
    chance are not found out, as the whole batch may not fit; nor is what deviates between equal features alone, such as
    the gradient of a maximum, which rounding gives to one of equal neighbours. `train_step`, `accumulate` and
    `micro_batches` pay it once per model.

    Args:
        model: the module, in its current mode: BatchNorm in eval mode is exact.
        batch: a `MiniBatch`, DGL blocks or a batch of PyG, whose node and edge data the model finds in the small ones.
        x: floating [num_inputs, …], features of the batch's inputs in the order of `node_ids`, or `Inputs`. None:
            random features.
        in_dim: channels of the random features; None: the `x` of a PyG batch, or a width that modules of the model
            have as an attribute.
        forward: calls the model with a micro-batch and its `Inputs`, as for `workbench.accumulate`; it is called with
            micro-batches of other nodes than those of `batch` in order, and in float64. None for the default call, or
            another order of arguments that the model accepts.

    Returns:
        The result. It names the module, if the model is inexact, and states why, if it can't be decided.

    Raises:
        TypeError: `model` is not a module, or `batch` is of another type.
        ValueError: The batch has exchanges.

    Source: Betty (ASPLOS 2023), section 4.2: gradients of micro-batches add up only if seeds are independent.
    """
    return check_parts(model, batch, None, x=x, in_dim=in_dim, forward=forward)


def check_parts(
    model: nn.Module,
    batch: Any,
    parts: list[MiniBatch] | None,
    *,
    x: Any = None,
    in_dim: int | None = None,
    forward: Forward | None = None,
) -> Exactness:
    """`check_exact` for a given split of the batch; None: four parts."""
    check_model(model)
    mb = _as_minibatch(batch)
    refuse_halo(mb.exchanges, "checked")
    known = known_model(model, forward)
    if known is not None:
        return known
    refusal = _refusal(model, mb, forward)
    if refusal is not None:
        return inexact_by_class(model) or Exactness(None, reason=refusal)
    inputs = list(_candidates(model, batch, mb, x, in_dim))
    first: Exactness | None = None
    for call in (forward,) if forward else possible_forwards(model):
        for rows in inputs:
            result = _try(Subject(model, mb, rows, call, parts))
            if result.exact is not None or result.kind:
                return result
            first = first or result
    assert first is not None
    return inexact_by_class(model) or first


def _as_minibatch(batch: Any) -> MiniBatch:
    if isinstance(batch, MiniBatch):
        return batch
    return MiniBatch.from_pyg(batch) if hasattr(batch, "n_id") else MiniBatch.from_dgl(batch)


def _candidates(model: nn.Module, batch: Any, mb: MiniBatch, x: Any, in_dim: int | None) -> Iterator[Inputs]:
    """Inputs to try, the likeliest first."""
    if x is None and in_dim is None and isinstance(own := getattr(batch, "x", None), Tensor):
        x = own
    if x is not None:
        yield Inputs.of(x)
        return
    widths = [in_dim] if in_dim is not None else candidate_widths(model, mb) or [1]
    small = small_batch(mb)
    assert small is not None
    for width in dict.fromkeys(widths):
        yield Inputs(torch.randn(small.mb.num_inputs, width, generator=torch.Generator().manual_seed(0)))


def _refusal(model: nn.Module, mb: MiniBatch, forward: Forward | None) -> str | None:
    """Return why a model can't be tried."""
    if isinstance(forward, OnAggregates):
        return "its first layer's aggregates are those of the batch; check it with the features"
    if mb.num_inputs < 4:
        return f"the batch has {mb.num_inputs} nodes; 4 are needed"
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return "the model is scripted; check the module that it was made from"
    if any(nn.parameter.is_lazy(p) for p in model.parameters()):
        return "the model has uninitialized parameters; call it once before"
    if hasattr(model, "no_sync"):
        return f"{type(model).__name__} communicates; check its .module"
    return next((f"{name} has cached=True" for name, _ in cached_layers(model)), None)


def _try(subject: Subject) -> Exactness:
    """Try a model on small batches in float64, else in its own dtype."""
    size = sum(p.nbytes for p in subject.model.parameters())
    error: Exception | None = None
    for dtype in (torch.float64, None) if size <= _MAX_WIDE_BYTES else (None,):
        try:
            return _tried(subject, dtype)
        except Exception as raised:  # a model's code may raise anything; the caller's own call will raise it again
            error = raised.with_traceback(None)
    kind = "" if isinstance(error, UndecidedError) else f"{type(error).__name__} on a small batch: "
    return Exactness(None, reason=f"{kind}{'' if error is None else text_of(error)}")


def _tried(subject: Subject, dtype: torch.dtype | None) -> Exactness:
    """Try a model on all wirings: it is exact if it is on every one that it runs on, of which one must be able to fail.

    Raises:
        UndecidedError: Rounding, or the parts, can hide what the model does.
    """
    used, trials = used_dtype(subject.model, dtype), []
    for trial in trials_of(subject, dtype):
        if not trial.deviation <= INEXACT[used]:
            return _inexact(subject, trial, dtype, INEXACT[used])
        trials.append(trial)
    deviation = max(trial.deviation for trial in trials)
    if not any(trial.can_fail for trial in trials):
        raise UndecidedError("the parts of every small batch have all rows of it, so none can differ from the whole")
    if not deviation <= _EXACT.get(used, -1.0):
        raise UndecidedError(f"a relative deviation of {deviation:.1g} may be the rounding of {used}, or not")
    called = {call.module for trial in trials for call in trial.whole.calls}
    for name, module in known_inexact(subject.model):
        if module in called or called.intersection(module.modules()):
            raise UndecidedError(
                f"{type(module).__name__} ({name}) makes no difference on a small batch, but may on others: "
                f"{exact_alternative(module)}"
            )
    return Exactness(True, deviation)


def _inexact(subject: Subject, trial: Trial, dtype: torch.dtype | None, tolerance: float) -> Exactness:
    """Name the module that made a trial deviate; say if it does not make parts of this batch deviate."""
    model = subject.model
    name = first_inexact(model, trial, tolerance)
    if not name:  # equal features may hide where it is
        try:
            name = first_inexact(model, try_wiring(subject, dtype, WIRINGS[1], "random"), tolerance)
        except Exception:
            name = ""
    module = model.get_submodule(name)
    kind, reason = type(module).__name__, exact_alternative(module)
    common = subject.overlap()
    if not common.lacks_any:
        wiring = COMMON_LEAVES if common.shares else APART
        try:
            similar = try_wiring(subject, dtype, wiring)
        except Exception:
            return Exactness(False, trial.deviation, name, kind, reason)
        if similar.deviation <= tolerance:
            share = "have the rows of all nodes that they read" if common.shares else "share no nodes"
            here = f"{kind} ({name}) is inexact, but not in this batch, whose parts {share}: "
            return Exactness(None, similar.deviation, name, kind, here + reason)
    return Exactness(False, trial.deviation, name, kind, reason)


def first_inexact(model: nn.Module, trial: Trial, tolerance: float) -> str:
    """Find the first module whose results for the seeds differ between whole and parts, though its arguments do not.

    Returns the name of the innermost such module in the model; "" is the model itself: what differs is computed between
    its modules, or in the backward pass. Batch statistics inside a layer are named even if they are those of its edges,
    of which none is a seed's.
    """
    modules, calls = dict(model.named_modules()), [call.module for call in trial.whole.calls]
    if any([call.module for call in part.calls] != calls for part in trial.parts):
        return ""
    names = {module: name for name, module in modules.items()}
    for position, module in enumerate(calls):
        if not _differs(trial, position, "results", tolerance):
            continue
        for name in _enclosing(names[module]):
            call = next((p for p in range(position, len(calls)) if calls[p] is modules[name]), position)
            if not _differs(trial, call, "results", tolerance):
                break  # the rows that differ inside are not those of the seeds
            named = calls[call] is modules[name] and _can_be_named(name, modules, trial.whole.calls[call].arguments)
            if named and not _differs(trial, call, "arguments", tolerance):
                return _statistic_inside(model, name, set(calls))
    return ""


def _statistic_inside(model: nn.Module, name: str, called: set[nn.Module]) -> str:
    """The name of the first batch statistic that ran in a module of a library; else the module's own."""
    module = model.get_submodule(name)
    inside = module.named_modules(prefix=name) if is_layer(module) else ()
    found = (inner for inner, kind in inside if is_batch_statistic(kind) and kind in called)
    statistic = next(found, None)
    return name if statistic is None else statistic_owner(model, statistic)


def _enclosing(name: str) -> list[str]:
    """Names of a module and those around it, from the innermost."""
    parts = name.split(".") if name else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _can_be_named(name: str, modules: dict[str, nn.Module], arguments: list[Tensor]) -> bool:
    """Whether a module is to blame, rather than a layer of DGL or PyG around it.

    Such a layer consists of modules that read rows of edges, such as sums by destination, or that it calls on other
    edges than it was called on: these differ, but what is inexact is the layer. Inside of it, a module is to blame that
    is known to be inexact, is the user's own, or is torch's and reads rows of nodes.
    """
    library = type(modules[name]).__module__.partition(".")[0]
    is_inside = any(is_layer(modules[outer]) for outer in _enclosing(name)[1:])
    if not is_inside or library not in ("torch", "torch_geometric", "dgl"):
        return True
    return is_known_inexact(modules[name]) or (library == "torch" and bool(arguments))


def _differs(trial: Trial, position: int, field: str, tolerance: float) -> bool:
    """Return whether the seeds' rows of a call differ; rows of other shapes can't be compared."""
    whole = getattr(trial.whole.calls[position], field)
    for part in trial.parts:
        mine = getattr(part.calls[position], field)
        for rows, all_rows in zip(mine, whole, strict=True) if len(mine) == len(whole) else ():
            expected = all_rows[seed_positions(part.batch)]
            difference = (rows - expected).abs().max() if rows.shape == expected.shape and rows.numel() else 0.0
            if not difference <= tolerance * expected.abs().max():
                return True
    return False


_CHECKED: WeakKeyDictionary[nn.Module, set[Any]] = WeakKeyDictionary()
"""The modes in which each model was checked."""


def warn_if_inexact(
    model: nn.Module, forward: Forward | None, parts: list[MiniBatch] | None, mb: MiniBatch, inputs: Inputs
) -> None:
    """Warn of a model whose micro-batches are not exact; check it once per model and modes of its modules.

    A model that is inexact, but not in these micro-batches, is checked again with the next ones. `parts` are the
    micro-batches of the batch; None if it is not known into which ones it will be split.
    """
    if mb.exchanges is not None or _is_too_early(model, mb) or not _is_new(model):
        return
    _report(model, check_parts(_tried_model(model, forward), mb, parts, x=inputs, forward=forward))


def warn_if_batch_inexact(model: nn.Module | None, batch: Any, forward: Forward | None = None) -> None:
    """Warn of a model (None: of none) whose micro-batches are not exact, before a batch of any library is split."""
    if model is None or getattr(batch, "exchanges", None) is not None or not _is_new(model):
        return
    _report(model, check_exact(_tried_model(model, forward), batch, forward=forward))


def _report(model: nn.Module, result: Exactness) -> None:
    if result.exact is None and result.kind:
        _CHECKED[model].discard(_modes(model))
    if result.exact is False:
        warnings.warn(str(result), RuntimeWarning, stacklevel=_level_of_caller())


def _is_new(model: nn.Module) -> bool:
    """Return whether a model has not been checked in its current modes, and note that it is."""
    modes = _modes(model)
    checked = _CHECKED.setdefault(model, set())
    is_new = modes not in checked
    checked.add(modes)
    return is_new


def _modes(model: nn.Module) -> tuple[Any, ...]:
    return tuple((type(module), module.training) for module in model.modules())


def _tried_model(model: nn.Module, forward: Forward | None) -> nn.Module:
    """The module inside a data-parallel one, whose calls communicate."""
    inner = model.module if forward is None and hasattr(model, "no_sync") else model
    assert isinstance(inner, nn.Module)
    return inner


def _is_too_early(model: nn.Module, mb: MiniBatch) -> bool:
    """Return whether a later micro-batch may decide what this one can't."""
    return mb.num_inputs < 4 or any(nn.parameter.is_lazy(p) for p in model.parameters())


def _level_of_caller() -> int:
    """Stack level, for `warnings.warn` in the calling function, of the first frame outside of the library."""
    level, frame = 0, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("workbench."):
        level, frame = level + 1, frame.f_back
    return level + 1
