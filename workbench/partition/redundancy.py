"""Redundancy: input nodes that several micro-batches load, relative to the batch's input nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.core.errors import check_type
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch


@dataclass(frozen=True)
class Redundancy:
    """Input nodes of a batch's micro-batches.

    Args:
        total_inputs: input nodes summed over the micro-batches.
        full_inputs: input nodes of the batch.
        ratio: total_inputs / full_inputs; 1 if no input node is loaded twice.
        largest: input nodes of the largest micro-batch.
    """

    total_inputs: int
    full_inputs: int
    ratio: float
    largest: int


def redundancy(micro: Sequence[MiniBatch], mb: MiniBatch) -> Redundancy:
    """Compare the input nodes of all micro-batches with those of the batch they were split from.

    Args:
        micro: all micro-batches of `mb`.
        mb: the batch.

    Returns:
        The counts and their ratio.

    Raises:
        ValueError: the micro-batches have more or fewer seeds than the batch, or a batch has exchanges.

    Source: Betty (ASPLOS 2023), section 6.5, figure 16.
    """
    check_type("mb", mb, MiniBatch, "pass the micro-batches first, then the batch they were split from")
    check_type("micro", micro, Sequence, "pass the list of micro-batches first, then the batch")
    for batch in (mb, *micro):
        refuse_halo(batch.exchanges, "compared with its micro-batches")
    seeds = sum(m.num_seeds for m in micro)
    if seeds != mb.num_seeds:
        raise ValueError(
            f"the micro-batches have {seeds} seeds, but the batch has {mb.num_seeds}; pass all parts of one split"
        )
    inputs = [m.num_inputs for m in micro]
    total, full = sum(inputs), mb.num_inputs
    return Redundancy(total, full, total / full if full else 1.0, max(inputs, default=0))
