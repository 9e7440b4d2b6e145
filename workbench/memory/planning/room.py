"""The room that a micro-batch's step has on the device, and what is said where no number of parts helps."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.memory.record import MemoryEstimate


@dataclass(frozen=True)
class Room:
    """What estimates are held against.

    Args:
        capacity_bytes: of the device.
        margin: share by which an estimate may be too low.
    """

    capacity_bytes: int
    margin: float

    @property
    def nbytes(self) -> int:
        """The largest estimate that fits."""
        return math.floor(self.capacity_bytes / (1 + self.margin))

    def fits(self, estimate: MemoryEstimate) -> bool:
        return estimate.peak_bytes <= self.nbytes

    def load(self, estimate: MemoryEstimate) -> float:
        """What parts share among them, over the room there is for it: fits if at most 1."""
        return estimate.step_bytes / (self.nbytes - estimate.fixed_bytes)

    def lacks(self, what: str, needed: int, remedy: str) -> CapacityError:
        """The error that `what` needs more than there is."""
        capacity = math.ceil(needed * (1 + self.margin))
        return CapacityError(
            f"{what} {_exact(needed)}, more than the {_exact(self.nbytes)} that a capacity of "
            f"{_exact(self.capacity_bytes)} leaves after a margin of {self.margin:.1%}: {remedy}, or a capacity of "
            f"{_exact(capacity)}"
        )

    def check_fixed(self, whole: MemoryEstimate) -> None:
        """Refuse a capacity that no number of parts makes suffice, whatever the batch.

        Raises:
            CapacityError: with what parameters and optimizer take.
        """
        remedy = "use a narrower model or optimizer='sgd'"
        if whole.fixed_bytes >= self.nbytes:
            raise self.lacks("parameters and optimizer state alone take", whole.fixed_bytes, remedy)
        step = whole.phase_bytes["step"]
        if step > self.nbytes:
            what = "the optimizer's step takes, into however many parts the batch is cut,"
            raise self.lacks(what, step, remedy)


def _exact(nbytes: int) -> str:
    return f"{nbytes:,} bytes ({format_bytes(nbytes)})"


def tree_edges(mb: MiniBatch) -> Tensor:
    """float64 [num_seeds]: edges of each seed's tree, those that are reached twice counted twice.

    >>> from workbench.core.block import Block
    >>> block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1], dtype=torch.int32), num_src=2, num_dst=2)
    >>> tree_edges(MiniBatch(torch.tensor([7, 8]), (block, block))).tolist()
    [5.0, 2.0]
    """
    below = torch.zeros(mb.num_inputs, dtype=torch.float64)
    for block in mb.blocks:
        ends = torch.zeros(block.num_edges + 1, dtype=torch.float64)
        torch.cumsum(1 + below[block.indices.cpu().long()], 0, out=ends[1:])
        below = ends[block.indptr.cpu()].diff()
    return below
