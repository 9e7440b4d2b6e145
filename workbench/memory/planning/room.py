"""The room that a micro-batch's step has on the device, and what is said where no number of parts helps."""

import math
from dataclasses import dataclass

from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes
from workbench.memory.record import MemoryEstimate


@dataclass(frozen=True)
class Room:
    """What estimates are held against.

    Args:
        capacity_bytes: of the device.
        margin: share of an estimate by which it may be too low.
        error: share of what a step adds by which its estimate may differ from what is measured, in [0, 1).
    """

    capacity_bytes: int
    margin: float
    error: float = 0.0

    def claim(self, peak_bytes: int, fixed_bytes: int) -> int:
        """The capacity that a peak takes: what is measured may be estimate / (1 − error), fixed bytes apart.

        Args:
            peak_bytes: estimated.
            fixed_bytes: of these, what is there before the step.
        """
        unsure = math.ceil((peak_bytes - fixed_bytes) / (1 - self.error))
        return max(math.ceil(peak_bytes * (1 + self.margin)), fixed_bytes + unsure)

    def claim_of(self, estimate: MemoryEstimate) -> int:
        return self.claim(estimate.peak_bytes, estimate.fixed_bytes)

    def fits(self, estimate: MemoryEstimate) -> bool:
        return self.claim_of(estimate) <= self.capacity_bytes

    def load(self, estimate: MemoryEstimate) -> float:
        """What parts share among them, over the room there is for it: fits if at most 1."""
        fixed = self.claim(estimate.fixed_bytes, estimate.fixed_bytes)
        return (self.claim_of(estimate) - fixed) / (self.capacity_bytes - fixed)

    def lacks(self, what: str, needed: int, fixed: int, remedy: str, enough: MemoryEstimate) -> CapacityError:
        """The error that `what` needs more than there is.

        Args:
            what: with a verb.
            needed: bytes at its peak.
            fixed: of these, what is there before the step.
            remedy: without a larger capacity.
            enough: the estimate that must fit for a plan to be found.
        """
        claim = self.claim(needed, fixed)
        with_margin = f", or {claim:,} with {self._reserve()}" if claim > needed else ""
        return CapacityError(
            f"{what} {_exact(needed)}{with_margin}, more than the capacity of {_exact(self.capacity_bytes)}: {remedy}, "
            f"or a capacity of {_exact(self.claim_of(enough))}"
        )

    def _reserve(self) -> str:
        margin = f"a margin of {self.margin:.1%}"
        return f"{margin} and an error of up to {self.error:.0%} of what was traced" if self.error else margin


def _exact(nbytes: int) -> str:
    return f"{nbytes:,} bytes ({format_bytes(nbytes)})"
