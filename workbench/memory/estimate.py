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
"""Names of the terms, in order. parameters: including buffers. optimizer: its state. inputs: gathered features. blocks:
the batch's arrays and the arrays that layers derive from them. hidden: outputs of layers and of the activations, norms
and dropouts between them. aggregator: everything else that layers allocate in the forward pass. loss: log-probabilities
and losses. gradients: of parameters. workspace: gradients of activations, and the optimizer step's temporaries."""

PHASES: tuple[str, ...] = ("forward", "backward", "step")


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Estimated peak device memory of one micro-batch's training step.

    Args:
        terms: bytes by term, in the order of `TERMS`, at the peak; they add up to `peak_bytes`.
        phase_bytes: peak bytes of each phase of `PHASES`; fetching features counts as forward.
        fixed_bytes: parameters, buffers and optimizer state, allocated before the step.
        backend: name of the backend whose kernels are modelled.
        error: for a traced module, the largest relative error over the sub-batches held out from the fit; None for the
            analytic model.
    """

    terms: Mapping[str, int]
    phase_bytes: Mapping[str, int]
    fixed_bytes: int
    backend: str
    error: float | None = None

    @property
    def peak_bytes(self) -> int:
        return sum(self.terms.values())

    @property
    def step_bytes(self) -> int:
        """Bytes that the step needs on top of `fixed_bytes`."""
        return self.peak_bytes - self.fixed_bytes

    @property
    def phase(self) -> str:
        """The phase in which the peak occurs."""
        return max(self.phase_bytes, key=lambda phase: self.phase_bytes[phase])

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.terms.items() if size)
        return f"MemoryEstimate({format_bytes(self.peak_bytes)} in {self.phase} on {self.backend}: {shares})"
