"""`MemoryEstimate`: the bytes that a training step is expected to need, by term and by phase."""

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.core.units import format_bytes

TERMS: tuple[str, ...] = (
    "parameters",
    "optimizer",
    "inputs",
    "blocks",
    "labels",
    "hidden",
    "aggregator",
    "loss",
    "gradients",
    "workspace",
)
"""Names of the terms, in order. parameters: with buffers. optimizer: its state. inputs: gathered features. blocks: the
batch's arrays and what layers derive from them. hidden: outputs of layers and what lies between layers. aggregator: all
else that a layer holds in its forward pass. loss: log-probabilities and losses. gradients: of parameters. workspace:
gradients of activations, and what the optimizer's step makes."""

PHASES: tuple[str, ...] = ("forward", "backward", "step")


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """What one micro-batch's training step needs on the device, at its peak.

    Args:
        terms: bytes by name, in the order of `TERMS`, at the moment of the peak; they add up to `peak_bytes`.
        phase_bytes: peak bytes of each of `PHASES`; reading the features belongs to forward.
        fixed_bytes: parameters, buffers and optimizer state, there before the step.
        kernels: which kernels are priced.
        error: for a module that had to be traced, the largest relative error over the sub-batches held out from the
            fit; None for the analytic model.
    """

    terms: Mapping[str, int]
    phase_bytes: Mapping[str, int]
    fixed_bytes: int
    kernels: str
    error: float | None = None

    @property
    def peak_bytes(self) -> int:
        return sum(self.terms.values())

    @property
    def step_bytes(self) -> int:
        """What the step adds to `fixed_bytes`."""
        return self.peak_bytes - self.fixed_bytes

    @property
    def phase(self) -> str:
        """The phase of the peak."""
        return max(self.phase_bytes, key=lambda phase: self.phase_bytes[phase])

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.terms.items() if size)
        return f"MemoryEstimate({format_bytes(self.peak_bytes)} in {self.phase} on {self.kernels}: {shares})"
