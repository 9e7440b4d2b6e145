"""The memory of a module that the analytic model does not know, fitted from traces on small sub-batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from workbench.core.cpu_gauge import rounded_bytes
from workbench.core.minibatch import MiniBatch
from workbench.memory.record import TERMS, MemoryEstimate
from workbench.memory.rehearse import Rehearsal
from workbench.memory.relation import Relation, fit_non_negative, fit_relation, size_vector
from workbench.memory.sample import sub_batches
from workbench.memory.sizes import BatchSizes
from workbench.memory.trace import Recording, Script, Terms
from workbench.nn.losses import LossFunction

_RUNNING_LOSS_BYTES = 512

PhaseTerms = Callable[[np.ndarray], Mapping[str, Terms]]
"""From the sizes of a batch, live bytes by term at the peak of "forward" and of "backward", what was there left out."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Estimates micro-batches from what was seen on small ones; called with one.

    Args:
        fresh: what a micro-batch makes where there are no gradients yet.
        accumulating: what it makes where there are.
        held: bytes by term of parameters and optimizer state.
        gradient_bytes: of all parameters.
        update_bytes: what the optimizer's step makes.
        recover: gradients of a micro-batch are kept apart until they are complete.
        kernels: which were traced.
        error: largest relative error of what a step adds, over the sub-batches held out from the fit.
    """

    fresh: PhaseTerms
    accumulating: PhaseTerms
    held: Terms
    gradient_bytes: int
    update_bytes: int
    recover: bool
    kernels: str
    error: float

    def __call__(self, batch: MiniBatch | BatchSizes, /, *, accumulating: bool = False) -> MemoryEstimate:
        """What the training step of a micro-batch needs.

        Args:
            batch: a micro-batch, or its sizes with in-degrees.
            accumulating: gradients of earlier micro-batches of the same batch are there.
        """
        sizes = batch if isinstance(batch, BatchSizes) else BatchSizes.of(batch, degrees=True)
        made = (self.accumulating if accumulating and not self.recover else self.fresh)(size_vector(sizes))
        there = {
            **self.held,
            "blocks": sum(rounded_bytes(nbytes) for nbytes in sizes.array_bytes),
            "loss": _RUNNING_LOSS_BYTES,
            "gradients": self.gradient_bytes if accumulating else 0,
        }
        phases = {phase: _added(there, terms) for phase, terms in made.items()}
        phases["step"] = self._update_terms()
        return self._estimate(phases)

    def _update_terms(self) -> Terms:
        terms = {"gradients": self.gradient_bytes, "loss": _RUNNING_LOSS_BYTES, "workspace": self.update_bytes}
        return {**self.held, **terms}

    def _estimate(self, phases: Mapping[str, Terms]) -> MemoryEstimate:
        totals = {phase: sum(terms.values()) for phase, terms in phases.items()}
        at_peak = phases[max(totals, key=lambda phase: totals[phase])]
        return MemoryEstimate(
            terms={name: at_peak.get(name, 0) for name in TERMS},
            phase_bytes=totals,
            fixed_bytes=sum(self.held.values()),
            kernels=self.kernels,
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
) -> Fitted:
    parts = sub_batches(mb, seed=seed)
    rehearsal = Rehearsal(model, optimizer=optimizer, in_dim=in_dim, loss_fn=loss_fn, seed=seed)
    rehearsal.warm_up(parts[0])
    both = [[rehearsal.record(part, accumulating=later) for later in (False, True)] for part in parts]
    sizes = np.array([size_vector(BatchSizes.of(part, degrees=True)) for part in parts])
    whole = size_vector(BatchSizes.of(mb, degrees=True))
    fresh, accumulating = (_fit(sizes, [pair[later] for pair in both], whole) for later in (0, 1))
    return Fitted(
        fresh=fresh[0],
        accumulating=accumulating[0],
        held=rehearsal.held_bytes(),
        gradient_bytes=rehearsal.gradient_bytes,
        update_bytes=rehearsal.update_bytes,
        recover=recover,
        kernels="cpu (traced)",
        error=max(fresh[1], accumulating[1]),
    )


def _fit(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> tuple[PhaseTerms, float]:
    """A fit to all, and the error of one that has not seen some."""
    held_out = np.zeros(len(sizes), dtype=bool)
    if len(sizes) > 1:
        held_out[-1::-4] = True
    kept = [r for r, out in zip(recordings, held_out, strict=True) if not out]
    trial = _fit_all(sizes[~held_out], kept, whole)
    error = max(
        (_error(trial(sizes[i]), recordings[i].peaks()) for i in np.flatnonzero(held_out)),
        default=0.0,
    )
    return _fit_all(sizes, recordings, whole), error


def _fit_all(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> PhaseTerms:
    scripts = {recording.script for recording in recordings}
    if len(scripts) == 1:
        values = np.stack([recording.nbytes for recording in recordings])
        return Replayed(recordings[0].script, fit_relation(sizes, values, whole))
    raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Replayed:
    """Every storage follows the sizes, in an order that does not depend on them."""

    script: Script
    relation: Relation

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        return self.script.replay(self.relation(sizes))


def _error(predicted: Mapping[str, Terms], measured: Mapping[str, Terms]) -> float:
    peaks = [max(sum(terms.values()) for terms in phases.values()) for phases in (predicted, measured)]
    return abs(peaks[0] - peaks[1]) / max(1, peaks[1])


def _added(a: Terms, b: Terms) -> Terms:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
