"""Checks that a model computes the same in micro-batches as on the whole batch, and names the module that does not."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.error_text import text_of
from workbench.interop.layer_advice import exact_alternative, known_inexact
from workbench.memory.traced.feature_width import candidate_widths
from workbench.nn.inputs import Inputs
from workbench.nn.signature import Forward, possible_forwards
from workbench.training.arguments import check_model
from workbench.training.exactness.attempts import INEXACT, Subject, trials_of, try_wiring
from workbench.training.exactness.first_inexact import first_inexact
from workbench.training.exactness.result import Exactness, inexact_by_class, known_model
from workbench.training.exactness.small_batch import APART, COMMON_LEAVES, WIRINGS, small_batch
from workbench.training.exactness.trial import Trial, UndecidedError

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
    elsewhere, or modifies in place, is not put back. Models from `build_model` are known and not run. Of a model that
    can't be tried, modules that are known to be inexact are found by their class and options.

    The price is that of 8 forward and backward passes on a few dozen nodes, whatever the size of the batch. An inexact
    model may cost 8 more, and one split of the batch: where its seeds share no nodes, or the parts have all rows of
    the nodes that they read, some layers are exact that are not in other batches. `train_step`, `accumulate` and
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
    """`check_exact` for a given split of the batch.

    Args:
        model: as in `check_exact`, like the other arguments.
        batch: the batch, or one of its parts.
        parts: the parts; None for four of the batch.
        x: rows of `batch`.
        in_dim: channels of random rows.
        forward: calls the model.
    """
    check_model(model)
    mb = _as_minibatch(batch)
    refuse_halo(mb.exchanges, "checked")
    known = known_model(model)
    if known is not None:
        return known
    refusal = _refusal(model, mb)
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
    own_dtype = next((p.dtype for p in subject.model.parameters() if p.is_floating_point()), torch.float32)
    used = dtype or own_dtype
    trials = []
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
            name = first_inexact(model, try_wiring(subject, dtype, WIRINGS[1], randomised=True), tolerance)
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
