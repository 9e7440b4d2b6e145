"""The memory of a module that the analytic model does not know, learnt from traced steps on small sub-batches."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from workbench.core.cpu_gauge import rounded_bytes
from workbench.core.minibatch import MiniBatch
from workbench.memory.record import TERMS, MemoryEstimate
from workbench.memory.sizes import BatchSizes
from workbench.memory.traced.peaks import PhaseTerms, fit_peaks
from workbench.memory.traced.rehearse import Rehearsal
from workbench.memory.traced.relation import size_vector
from workbench.memory.traced.sample import batches_of_all_degrees, sub_batches
from workbench.memory.traced.trace import Recording, Terms
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
        backup_bytes: of what is copied before a micro-batch, and before the optimizer's step, where memory may run out.
        recover: gradients of a micro-batch are kept apart until they are complete.
        kernels: which were traced.
        error: largest relative error of what a step adds, over the sub-batches held out from the fit.
    """

    fresh: PhaseTerms
    accumulating: PhaseTerms
    held: Terms
    gradient_bytes: int
    update_bytes: int
    backup_bytes: tuple[int, int]
    recover: bool
    kernels: str
    error: float

    def __call__(self, batch: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        """What the training step of a micro-batch needs.

        Args:
            batch: a micro-batch.
            accumulating: gradients of earlier micro-batches of the same batch are there.
        """
        sizes = BatchSizes.of(batch, degrees=True)
        made = (self.accumulating if accumulating and not self.recover else self.fresh)(size_vector(sizes))
        there = {
            **self.held,
            "blocks": sum(rounded_bytes(nbytes) for nbytes in sizes.array_bytes),
            "loss": _RUNNING_LOSS_BYTES,
            "gradients": self.gradient_bytes if accumulating else 0,
            "workspace": self.backup_bytes[0],
        }
        phases = {phase: _added(there, terms) for phase, terms in made.items()}
        phases["step"] = self._update_terms()
        return self._estimate(phases)

    def _update_terms(self) -> Terms:
        made = {"gradients": self.gradient_bytes, "loss": _RUNNING_LOSS_BYTES}
        return {**self.held, **made, "workspace": self.update_bytes + self.backup_bytes[1]}

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
    """Learn from traced training steps on small parts of a batch what any of its micro-batches needs.

    Copies of the model and the optimizer take a step on a dozen parts or two, where the model lives and in its mode.
    Every storage's bytes are matched to the sizes of the parts' blocks: mostly, each is found to be a whole multiple of
    one exactly, and the estimate is to the byte. If storages come in another order from part to part (a loop over the
    in-degrees that there are, say), parts that have all in-degrees are tried, and peaks are fitted to the sizes.

    The sizes tried are those of each block (`size_vector`): sources, destinations, edges, in-degrees, and products of
    two of sources and destinations. Bytes that follow another product (edges times destinations, say) are matched to a
    sum that is too low for larger batches.

    `error` is found on the larger parts, each held out from a fit to the others: what a step added was at most the
    estimate / (1 − `error`). It covers what the sizes of such parts do not tell. It does not cover what comes with
    size: where bytes follow no size tried, which a large error shows, a batch far larger than the parts lacks a larger
    share still. Nor does it cover chance: parts see a few draws of random choices (of edges that are dropped, say), so
    that an error of 0.0 has stood against 1 %; nor a batch whose neighbourhoods overlap far more than those of its
    parts (most of a dense graph, say), whose peaks have been missed by a fifth where storages come in no order.

    Not learnt: what a model keeps from batch to batch, seeds without labels (a loss then takes rows of the labelled
    ones), and paths that only batches far larger than the parts take.

    Args:
        model: called as `workbench.accumulate` does.
        mb: the batch that the micro-batches are cut from.
        optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer of the model's parameters.
        in_dim: channels of the features, made up at random in the dtype of the model.
        loss_fn: see `workbench.train_step`; labels are classes, or else values in the shape of the output.
        recover: see `workbench.accumulate`.
        seed: of the choice of parts, of features and of the model's own randomness; torch's random state stays.

    Returns:
        The estimator; model, gradients, optimizer and random numbers are as before.

    Raises:
        ValueError: the model can't be copied, a step on a part fails, or an option is refused.
    """
    rehearsal = Rehearsal(model, optimizer=optimizer, in_dim=in_dim, loss_fn=loss_fn, seed=seed)
    parts, fresh = _record(rehearsal, mb, seed)
    later = [rehearsal.record(part, accumulating=True) for part in parts]
    sizes, whole = np.stack([_sizes(part) for part in parts]), _sizes(mb)
    (fresh_fit, error), (later_fit, later_error) = (fit_peaks(sizes, made, whole) for made in (fresh, later))
    return Fitted(
        fresh=fresh_fit,
        accumulating=later_fit,
        held=rehearsal.held_bytes(),
        gradient_bytes=rehearsal.gradient_bytes,
        update_bytes=rehearsal.update_bytes,
        backup_bytes=rehearsal.backup_bytes() if recover else (0, 0),
        recover=recover,
        kernels=f"{rehearsal.device.type} (traced)",
        error=max(error, later_error),
    )


def _record(rehearsal: Rehearsal, mb: MiniBatch, seed: int) -> tuple[list[MiniBatch], list[Recording]]:
    """Parts of the batch and a first micro-batch's step on each."""
    parts = sub_batches(mb, seed=seed)
    rehearsal.warm_up(parts[0])
    made = [rehearsal.record(part, accumulating=False) for part in parts]
    if len({recording.script for recording in made}) > 1:
        more = batches_of_all_degrees(mb, seed=seed)
        return parts + more, made + [rehearsal.record(part, accumulating=False) for part in more]
    return parts, made


def _sizes(mb: MiniBatch) -> np.ndarray:
    return size_vector(BatchSizes.of(mb, degrees=True))


def _added(a: Terms, b: Terms) -> Terms:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
