"""The memory budget of a micro-batch's step, and the error raised when no number of parts meets it."""

import math
from dataclasses import dataclass

from workbench.core.errors import CapacityError
from workbench.core.units import format_bytes
from workbench.memory.estimate import MemoryEstimate


@dataclass(frozen=True)
class Budget:
    """The capacity that estimates must fit into, with a safety margin.

    Args:
        capacity_bytes: memory of the device.
        margin: fraction of an estimate by which it may be too low.
        error: relative error, in [0, 1), of the estimated bytes that a step adds to the fixed bytes.
    """

    capacity_bytes: int
    margin: float
    error: float = 0.0

    def required_bytes(self, peak_bytes: int, fixed_bytes: int) -> int:
        """Capacity required by an estimated peak: the measured step may need estimate / (1 − error).

        Args:
            peak_bytes: estimated peak.
            fixed_bytes: the part of it that is allocated before the step.
        """
        worst_step_bytes = math.ceil((peak_bytes - fixed_bytes) / (1 - self.error))
        return max(math.ceil(peak_bytes * (1 + self.margin)), fixed_bytes + worst_step_bytes)

    def required(self, estimate: MemoryEstimate) -> int:
        """Capacity in bytes required by an estimate."""
        return self.required_bytes(estimate.peak_bytes, estimate.fixed_bytes)

    def fits(self, estimate: MemoryEstimate) -> bool:
        return self.required(estimate) <= self.capacity_bytes

    def utilization(self, estimate: MemoryEstimate) -> float:
        """Required bytes over available bytes, both without the fixed bytes: the step fits if it is at most 1."""
        fixed = self.required_bytes(estimate.fixed_bytes, estimate.fixed_bytes)
        return (self.required(estimate) - fixed) / (self.capacity_bytes - fixed)

    def capacity_error(
        self, subject: str, peak_bytes: int, fixed_bytes: int, remedy: str, sufficient: MemoryEstimate
    ) -> CapacityError:
        """Build the error for a peak that exceeds the capacity.

        Args:
            subject: start of the message, up to and including the verb ("one seed alone needs").
            peak_bytes: estimated peak of the subject.
            fixed_bytes: the part of it that is allocated before the step.
            remedy: what to change other than the capacity.
            sufficient: the estimate whose required capacity is the smallest for which a plan exists.
        """
        required = self.required_bytes(peak_bytes, fixed_bytes)
        with_margin = f", or {required:,} with {self._reserve()}" if required > peak_bytes else ""
        return CapacityError(
            f"{subject} {_exact(peak_bytes)}{with_margin}, more than the capacity of {_exact(self.capacity_bytes)}: "
            f"{remedy}, or a capacity of {_exact(self.required(sufficient))}"
        )

    def _reserve(self) -> str:
        margin = f"a margin of {self.margin:.1%}"
        return f"{margin} and an error of up to {self.error:.0%} of the traced estimate" if self.error else margin


def _exact(nbytes: int) -> str:
    return f"{nbytes:,} bytes ({format_bytes(nbytes)})"
