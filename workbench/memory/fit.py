"""The memory of a module that the analytic model does not know, fitted from traces on small sub-batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from workbench.core.cpu_gauge import rounded_bytes
from workbench.core.minibatch import MiniBatch
from workbench.memory.record import TERMS, MemoryEstimate
from workbench.memory.rehearse import Rehearsal
from workbench.memory.phases import PhaseTerms, fit_phases
from workbench.memory.relation import size_vector
from workbench.memory.sample import batches_of_all_degrees, sub_batches, work
from workbench.memory.sizes import BatchSizes
from workbench.memory.trace import Recording, Terms
from workbench.nn.losses import LossFunction

_RUNNING_LOSS_BYTES = 512


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
    rehearsal = Rehearsal(model, optimizer=optimizer, in_dim=in_dim, loss_fn=loss_fn, seed=seed)
    parts = sub_batches(mb, seed=seed)
    rehearsal.warm_up(parts[0])
    fresh = [rehearsal.record(part, accumulating=False) for part in parts]
    if len({recording.script for recording in fresh}) > 1:
        more = batches_of_all_degrees(mb, seed=seed)
        parts = parts + more
        fresh += [rehearsal.record(part, accumulating=False) for part in more]
    later = [rehearsal.record(part, accumulating=True) for part in parts]
    whole = size_vector(BatchSizes.of(mb, degrees=True))
    sizes = np.stack([size_vector(BatchSizes.of(part, degrees=True)) for part in parts])
    (fresh_fit, error), (later_fit, later_error) = (fit_phases(sizes, r, whole) for r in (fresh, later))
    return Fitted(
        fresh=fresh_fit,
        accumulating=later_fit,
        held=rehearsal.held_bytes(),
        gradient_bytes=rehearsal.gradient_bytes,
        update_bytes=rehearsal.update_bytes,
        recover=recover,
        kernels="cpu (traced)",
        error=float(max(error, later_error)),
    )


def _added(a: Terms, b: Terms) -> Terms:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
