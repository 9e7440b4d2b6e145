"""How many input nodes micro-batches load more often than the batch would."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.core.minibatch import MiniBatch


@dataclass(frozen=True)
class Redundancy:
    """Input nodes of the micro-batches of a batch.

    Args:
        total_inputs: input nodes of all micro-batches together.
        full_inputs: input nodes of the batch.
        ratio: total over full, 1 where nothing is loaded twice.
        largest: input nodes of the largest micro-batch.
    """

    total_inputs: int
    full_inputs: int
    ratio: float
    largest: int


def redundancy(micro: Sequence[MiniBatch], mb: MiniBatch) -> Redundancy:
    """Compare the input nodes of micro-batches with those of the batch they are parts of.

    Args:
        micro: all micro-batches of `mb`.
        mb: the batch.

    Raises:
        ValueError: the micro-batches have more or fewer seeds than the batch.

    Source: Betty (ASPLOS 2023), section 6.5, figure 16.
    """
    seeds = sum(m.num_seeds for m in micro)
    if seeds != mb.num_seeds:
        raise ValueError(
            f"the micro-batches have {seeds} seeds and the batch {mb.num_seeds}; pass all parts of one split"
        )
    inputs = [m.num_inputs for m in micro]
    total, full = sum(inputs), mb.num_inputs
    return Redundancy(total, full, total / full if full else 1.0, max(inputs, default=0))
