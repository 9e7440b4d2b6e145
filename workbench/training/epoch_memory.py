"""Metered peak memory of an epoch, by phase and by micro-batch."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import nn

from workbench.core.minibatch import MiniBatch
from workbench.meter.peak import PeakMeter
from workbench.meter.stopwatch import Phase
from workbench.meter.training_state import allocated_bytes, parameter_tensors, state_tensors
from workbench.nn.gnn import GNN
from workbench.nn.signature import model_device

PHASES: tuple[str, ...] = ("fetch", "transfer", "forward", "backward", "step")
"""Phases of a training step, in order."""

_ON_DEVICE = PHASES[1:4]

Steps = Sequence[Sequence[MiniBatch]]


@dataclass(frozen=True)
class EpochMemory:
    """Peak device memory of an epoch's steps, including parameters, optimizer state and batches.

    Args:
        by_phase: peak bytes of each phase of `PHASES`.
        by_part: peak bytes of each micro-batch before the optimizer step, in the order of the steps.
    """

    by_phase: dict[str, int]
    by_part: tuple[int, ...]

    @property
    def peak_bytes(self) -> int:
        return max(self.by_phase.values())


def meter_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: Steps,
    run: Callable[[Sequence[MiniBatch], Phase], object],
) -> EpochMemory:
    """Run an epoch under the memory meter.

    Counts everything that `workbench.profile_epoch` documents.

    Args:
        model: a module without gradients.
        optimizer: an optimizer of its parameters; existing and newly created state counts.
        steps: the micro-batches of each optimizer step.
        run: takes one step with the micro-batches given, entering the phases of `workbench.train_step`.
    """
    device = model_device(model) or torch.device("cpu")
    fixed_bytes = _fixed_bytes(model, optimizer, device)
    micro = [mb for step in steps for mb in step]
    with PeakMeter(device) as meter:
        marker = _PhaseMarker(meter)
        for step in steps:
            run(step, marker)
    by_phase, by_part = dict.fromkeys(PHASES, 0), [0] * len(micro)
    for mark, peak in meter.phase_peak_bytes.items():
        phase, part = _PhaseMarker.parse(mark)
        resident = _resident_bytes(micro[part], device) if phase in _ON_DEVICE else 0
        peak += fixed_bytes + resident
        by_phase[phase] = max(by_phase[phase], peak)
        if phase != "step":
            by_part[part] = max(by_part[part], peak)
    return EpochMemory(by_phase, tuple(by_part))


class _PhaseMarker:
    """Marks phase and micro-batch for the meter; "fetch" starts a new micro-batch."""

    def __init__(self, meter: PeakMeter) -> None:
        self._meter = meter
        self._part = -1

    def __call__(self, phase: str) -> AbstractContextManager[None]:
        self._part += phase == "fetch"
        self._meter.mark(f"{phase} {self._part}")
        return nullcontext()

    @staticmethod
    def parse(mark: str) -> tuple[str, int]:
        phase, part = mark.split()
        return phase, int(part)


def _resident_bytes(mb: MiniBatch, device: torch.device) -> int:
    """Bytes of a micro-batch that is on the device already, so that the meter does not see it arrive; else 0."""
    return allocated_bytes(replace(mb, parent=None).to("meta")._tensors().values()) if mb.device == device else 0


def _fixed_bytes(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Parameters, buffers and optimizer state, and the buffers that layers reuse."""
    reused = [t for m in model.modules() if isinstance(m, GNN) and m.workspace for t in m.workspace.tensors()]
    tensors = [*parameter_tensors(model, optimizer), *state_tensors(optimizer), *reused]
    return allocated_bytes(t for t in tensors if t.device == device)
