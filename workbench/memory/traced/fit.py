"""Learn the memory of a module without an analytic model from traced training steps on small sub-batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from workbench.core.minibatch import MiniBatch
from workbench.memory.analytic.layers import LABEL_BYTES
from workbench.memory.estimate import TERMS, BatchSizes, MemoryEstimate
from workbench.memory.traced.dry_run import DryRun, Terms, batches_of_all_degrees, sub_batches
from workbench.memory.traced.predictor import PhaseTerms, ReplayPredictor, fit_predictor, size_vector
from workbench.meter.allocation_tracker import rounded_bytes
from workbench.nn.losses import LossFunction

_RUNNING_LOSS_BYTES = 512
_FEW = 7  # sub-batches that are traced first: enough for an exact fit of three sizes, and one held out


@dataclass(frozen=True, eq=False)
class TracedEstimator:
    """Estimates the memory of micro-batches from traces of small ones.

    Args:
        fresh: predicts a micro-batch's allocations when no gradients exist yet.
        accumulating: predicts them when gradients exist.
        fixed_terms: bytes by term of parameters and optimizer state.
        gradient_bytes: gradients of all parameters.
        update_bytes: peak of the optimizer step's temporaries.
        backup_bytes: copies made by OOM recovery: before a micro-batch, and before the optimizer step.
        recover: estimate steps with OOM recovery, which computes a micro-batch's gradients separately.
        kept_labels: number of labels that are on the device during the whole step; 0 if each micro-batch has its own.
        backend: name of the backend that was traced.
        error: largest relative error of the bytes that a step adds, over the sub-batches held out from the fit.
    """

    fresh: PhaseTerms
    accumulating: PhaseTerms
    fixed_terms: Terms
    gradient_bytes: int
    update_bytes: int
    backup_bytes: tuple[int, int]
    recover: bool
    kept_labels: int
    backend: str
    error: float

    def __call__(self, batch: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        """Estimate the training step of a micro-batch; `accumulating`: gradients of earlier ones of the batch exist."""
        sizes = BatchSizes.of(batch, degrees=True)
        predict = self.accumulating if accumulating and not self.recover else self.fresh
        blocks = {"blocks": sum(rounded_bytes(nbytes) for nbytes in sizes.array_bytes)}
        resident = {  # from before the first micro-batch, within the step's own phase
            **self.fixed_terms,
            "labels": rounded_bytes(LABEL_BYTES * max(self.kept_labels, batch.num_seeds)) if self.kept_labels else 0,
            "loss": _RUNNING_LOSS_BYTES,
            "workspace": self.backup_bytes[0],
        }
        gradients = {"gradients": self.gradient_bytes if accumulating else 0}
        traced = predict(size_vector(sizes)).items()
        phases = {phase: _sum_terms({**resident, **blocks, **gradients}, terms) for phase, terms in traced}
        phases["step"] = max(resident, self._update_terms(), key=lambda terms: sum(terms.values()))
        return self._estimate(phases)

    def _update_terms(self) -> Terms:
        workspace = self.update_bytes + self.backup_bytes[1]
        step = {"gradients": self.gradient_bytes, "loss": _RUNNING_LOSS_BYTES, "workspace": workspace}
        return {**self.fixed_terms, **step}

    def _estimate(self, phases: Mapping[str, Terms]) -> MemoryEstimate:
        totals = {phase: sum(terms.values()) for phase, terms in phases.items()}
        at_peak = phases[max(totals, key=lambda phase: totals[phase])]
        return MemoryEstimate(
            terms={name: at_peak.get(name, 0) for name in TERMS},
            phase_bytes=totals,
            fixed_bytes=sum(self.fixed_terms.values()),
            backend=self.backend,
            error=self.error,
        )


def fit_memory(
    model: nn.Module,
    mb: MiniBatch,
    *,
    optimizer: str | torch.optim.Optimizer = "adam",
    in_dim: int,
    loss_fn: LossFunction = cross_entropy,
    recover: bool = False,
    seed: int = 0,
) -> TracedEstimator:
    """Learn from traced training steps on small sub-batches how much memory any micro-batch of a batch needs.

    Copies of the model and the optimizer run a step on a few sub-batches, on the model's device and in its mode. The
    bytes of every storage are regressed on the sizes of the sub-batches' blocks: most are found to be an exact integer
    multiple of one size, and the estimate is exact to the byte. Seven sub-batches are enough if all storages are
    (the largest is predicted from the others), and two more that find gradients. Otherwise one or two dozen are traced,
    each with and without gradients. If the order of allocations differs between them (a loop over the distinct
    in-degrees, for example), sub-batches with all in-degrees are traced as well, and peaks are regressed on the sizes.

    The regressors are the sizes of each block (`workbench.memory.traced.predictor.size_vector`): sources,
    destinations, edges, in-degrees, and products of two of sources and destinations. Bytes that follow another product
    (edges times destinations, for example) are underestimated for larger batches.

    `error` is measured on the larger sub-batches, each held out from a fit to the others: a step added at most the
    estimate / (1 − `error`). Not covered are
    (1) extrapolation: if bytes follow none of the sizes, which a large error shows, the estimate of a much larger batch
    is too low by more than `error`;
    (2) randomness: sub-batches see few draws of random choices (of dropped edges, for example); an error of 0.0 has
    occurred with a true error of 1 %;
    (3) overlap: peaks of batches whose neighbourhoods overlap far more than those of the sub-batches (most of a dense
    graph, for example) have been underestimated by a fifth if the order of allocations varies.

    Not modelled: state that a model keeps between batches, seeds without labels (the loss then gathers the labelled
    rows), and code paths that only batches far larger than the sub-batches take.

    Args:
        model: a module that `workbench.accumulate` can call.
        mb: the batch that the micro-batches are split from.
        optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer of the model's parameters.
        in_dim: channels of the features, which are random, in the dtype of the model.
        loss_fn: a loss function that `workbench.train_step` accepts; labels are classes, or else values per output or
            per seed.
        recover: estimate `workbench.train_step(recover=…)`.
        seed: seed of the choice of sub-batches, the features and the model's own randomness; torch's random state is
            restored.

    Returns:
        The estimator; model, gradients, optimizer and random state are unchanged.

    Raises:
        ValueError: The model can't be copied, a step on a sub-batch fails, or an option is invalid.
    """
    dry_run = DryRun(model, optimizer=optimizer, in_dim=in_dim, loss_fn=loss_fn, seed=seed)
    parts, target = sub_batches(mb, seed=seed), _sizes(mb)
    dry_run.warm_up(parts[0])
    fresh, accumulating, error = _fit_exactly(dry_run, parts, target) or _fit_all(dry_run, parts, mb, seed)
    return TracedEstimator(
        fresh=fresh,
        accumulating=accumulating,
        fixed_terms=dry_run.fixed_bytes(),
        gradient_bytes=dry_run.gradient_bytes,
        update_bytes=dry_run.update_bytes,
        backup_bytes=dry_run.backup_bytes() if recover else (0, 0),
        recover=recover,
        kept_labels=mb.num_seeds if dry_run.keeps_labels else 0,
        backend=f"{dry_run.device.type} (traced)",
        error=error,
    )


_Fitted = tuple[PhaseTerms, PhaseTerms, float]
"""Predictors of the first and of later micro-batches, and their error."""


def _fit_exactly(dry_run: DryRun, parts: Sequence[MiniBatch], target: np.ndarray) -> _Fitted | None:
    """Fit to few sub-batches, evenly spaced by size; None if bytes or the order of allocations vary otherwise.

    Gradients that exist change when storages are freed, not which are allocated, so two steps that find some tell the
    order for all sizes.
    """
    few = [parts[round(at)] for at in np.linspace(0, len(parts) - 1, min(_FEW, len(parts)))]
    traces = [dry_run.record(part, accumulating=False) for part in few]
    fresh = ReplayPredictor.exactly(np.stack([_sizes(part) for part in few]), traces, target)
    if fresh is None:
        return None
    later = [dry_run.record(few[at], accumulating=True) for at in (0, -1)]
    same_bytes = all(np.array_equal(traces[at].nbytes, later[at].nbytes) for at in (0, -1))
    if not same_bytes or later[0].program != later[1].program:
        return None
    return fresh, replace(fresh, program=later[0].program), 0.0


def _fit_all(dry_run: DryRun, parts: Sequence[MiniBatch], mb: MiniBatch, seed: int) -> _Fitted:
    """Fit to all sub-batches, and to those with all in-degrees if the order of allocations varies."""
    traces = [dry_run.record(part, accumulating=False) for part in parts]
    if len({trace.program for trace in traces}) > 1:
        more = batches_of_all_degrees(mb, seed=seed)
        parts, traces = [*parts, *more], traces + [dry_run.record(part, accumulating=False) for part in more]
    later = [dry_run.record(part, accumulating=True) for part in parts]
    sizes, target = np.stack([_sizes(part) for part in parts]), _sizes(mb)
    fresh, error = fit_predictor(sizes, traces, target)
    accumulating, error_accumulating = fit_predictor(sizes, later, target)
    return fresh, accumulating, max(error, error_accumulating)


def _sizes(mb: MiniBatch) -> np.ndarray:
    return size_vector(BatchSizes.of(mb, degrees=True))


def _sum_terms(a: Terms, b: Terms) -> Terms:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
