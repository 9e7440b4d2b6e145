"""`profile_epoch`: peak memory and time of a training epoch, by phase."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_at_least, check_type, complete_despite_interrupt, deferred_interrupt
from workbench.core.minibatch import MiniBatch
from workbench.features.memory_rows import check_covers, read_rows
from workbench.memory.estimator import refuse_compiled
from workbench.memory.training_setup import TrainingSetup
from workbench.meter.allocation_tracker import allocated_bytes, parameter_tensors, state_tensors
from workbench.meter.epoch_passes import OTHER, EpochPass, measure_epoch
from workbench.meter.peak import PeakMeter
from workbench.meter.stopwatch import Phase
from workbench.nn.gnn import GNN
from workbench.nn.losses import LossFunction, SeedLoss
from workbench.nn.signature import Forward, model_device
from workbench.training.aggregated_rows import sources_of
from workbench.training.arguments import as_batches, check_halo, check_model, check_optimizer, check_trains
from workbench.training.oom import random_state, restore_random_state, snapshot_of_buffers
from workbench.training.step import as_stores, train_step_with

_WARM_UP_SEEDS = 64


@dataclass(frozen=True)
class EpochProfile:
    """Peak memory and time of an epoch.

    Args:
        peak_bytes: device memory of the epoch's most expensive step; None if it was not measured.
        phase_peak_bytes: peak bytes by phase; empty if not measured.
        part_peak_bytes: peak bytes of each micro-batch, in the order of the steps; empty if not measured.
        seconds: seconds by phase, and under "other" outside of all phases; medians over the repetitions.
        epoch_seconds: seconds of the epoch, median over the repetitions.
        epoch_seconds_spread: minimum and maximum over the repetitions.
        loss: mean over the steps of the loss before each step.
        reserved_bytes: most that torch's allocator had reserved of a GPU in the metered run, all in all, after it gave
            back what was unused (`PeakMeter.reserved_bytes`); None on the CPU, or if not measured.
    """

    peak_bytes: int | None
    phase_peak_bytes: Mapping[str, int]
    part_peak_bytes: tuple[int, ...]
    seconds: Mapping[str, float]
    epoch_seconds: float
    epoch_seconds_spread: tuple[float, float]
    loss: float
    reserved_bytes: int | None = None

    def row(self) -> dict[str, float | int | None]:
        """A table row: `peak_bytes`, `epoch_seconds` (also `_min`, `_max`), `…_seconds` per phase, `loss`."""
        shortest, longest = self.epoch_seconds_spread
        return {
            "peak_bytes": self.peak_bytes,
            "epoch_seconds": self.epoch_seconds,
            "epoch_seconds_min": shortest,
            "epoch_seconds_max": longest,
            **{f"{phase}_seconds": self.seconds[phase] for phase in PHASES},
            "loss": self.loss,
        }


Steps = Sequence[Sequence[MiniBatch]]


def profile_epoch(
    model: nn.Module,
    steps: Steps,
    x: Any,
    y: Any,
    loss_fn: LossFunction,
    optimizer: torch.optim.Optimizer,
    *,
    forward: Forward | None = None,
    repetitions: int = 1,
    warm_up: bool = True,
    measure_memory: bool = True,
) -> EpochProfile:
    """Measure one epoch of stateless reads: once under the memory meter, then repeatedly under the stopwatch.

    Every timed run starts from the parameters, buffers, optimizer state and random state at the call, so all do the
    same work. The metered run starts from the same parameters, but with the optimizer state created by the warm-up, as
    in every epoch but the first. Everything is restored at the end; gradients are None then.

    Peak bytes are the memory that the step needs on the device: parameters, buffers and optimizer state (but Adam's
    step counts, which are on the host), and, as metered, gradients, gathered features and labels, activations and
    workspace. The blocks of the current micro-batch count by their size if they are on the device already (always, on
    the CPU). `x` and `y` themselves do not count.

    Args:
        model: a module that `workbench.train_step` can call.
        steps: the micro-batches of each optimizer step: `[[m1, …, mK]]` for micro-batch training of one batch,
            `[[b1], [b2], …]` for mini-batch training.
        x: features [num_nodes, …] by raw-graph id: a tensor, an array or an object with `.read(ids)`, or `Inputs` of
            two such sources. The meter counts the rows that torch allocates, as the stores of this library do, but not
            those of a store that uses NumPy.
        y: labels by raw-graph id, in one of the same forms.
        loss_fn: a loss function that `workbench.train_step` accepts.
        optimizer: an optimizer of the model's parameters.
        forward: calls the model with a micro-batch and its `Inputs`, as for `workbench.train_step`; None for the
            default call.
        repetitions: number of timed runs, at least 1.
        warm_up: first take a step on up to 64 seeds of the smallest micro-batch, to create optimizer state, compile
            kernels and fill memory pools.
        measure_memory: do the metered run.

    Raises:
        ValueError: `repetitions` is below 1, there are no steps or one without micro-batches, `workbench.train_step`
            refuses its arguments, or memory would be measured of a module on the CPU that `torch.compile` compiled.
    """
    check_at_least("repetitions", repetitions, 1)
    check_type("steps", steps, Sequence, "pass a list of steps, each a list of micro-batches: [[mb1, mb2], …]")
    steps = [as_batches(step) for step in steps]
    if not steps or not all(steps):
        empty = sum(not step for step in steps)
        raise ValueError(f"{empty} of {len(steps)} steps have no micro-batch; pass at least one step, none empty")
    check_model(model)
    check_optimizer(optimizer)
    micro = [mb for step in steps for mb in step]
    check_halo(micro, forward)
    check_trains(optimizer, model, micro, sources_of(x), loss_fn)
    as_stores(sources_of(x), micro)
    for mb in micro:
        check_covers("y", y, mb.seeds)
    device = model_device(model) or torch.device("cpu")
    if measure_memory and device.type == "cpu":
        refuse_compiled(model, "the CPU's meter can't see what it allocates", "; or pass measure_memory=False")
    restore, setup = _snapshot(model, optimizer, device), TrainingSetup(model, loss_fn, optimizer, forward=forward)

    def run(step: Sequence[MiniBatch], phase: Phase | None = None) -> Tensor:
        return train_step_with(setup, step, x, y, phase=phase, verify=False)  # nothing is trained here

    with _finally(restore):
        if warm_up:
            run([_small_batch(steps, y, loss_fn)])
            restore(keep_optimizer=True)
        memory = meter_epoch(model, optimizer, steps, run) if measure_memory else None
        timed = measure_epoch(
            lambda phase: (run(step, phase) for step in steps),
            reset=restore,
            repetitions=repetitions,
            warm_up=False,
            device=device,
        )
    return _profile(memory, timed.passes)


@dataclass(frozen=True)
class EpochMemory:
    """Peak device memory of an epoch's steps, including parameters, optimizer state and batches.

    Args:
        by_phase: peak bytes of each phase of `PHASES`.
        by_part: peak bytes of each micro-batch before the optimizer step, in the order of the steps.
        reserved_bytes: most that torch's allocator had reserved of a GPU; None on the CPU.
    """

    by_phase: dict[str, int]
    by_part: tuple[int, ...]
    reserved_bytes: int | None = None

    @property
    def peak_bytes(self) -> int:
        return max(self.by_phase.values())


def _profile(memory: EpochMemory | None, passes: Sequence[EpochPass]) -> EpochProfile:
    totals = [one.epoch_seconds for one in passes]
    by_phase = {phase: median(one.seconds[phase] for one in passes) for phase in (*PHASES, OTHER)}
    loss = passes[-1].loss
    assert loss is not None
    return EpochProfile(
        peak_bytes=None if memory is None else memory.peak_bytes,
        phase_peak_bytes={} if memory is None else memory.by_phase,
        part_peak_bytes=() if memory is None else memory.by_part,
        seconds=by_phase,
        epoch_seconds=median(totals),
        epoch_seconds_spread=(min(totals), max(totals)),
        loss=loss,
        reserved_bytes=None if memory is None else memory.reserved_bytes,
    )


def _small_batch(steps: Steps, y: Any, loss_fn: LossFunction) -> MiniBatch:
    """A batch of a few labelled seeds of the smallest micro-batch that has any.

    Batches with exchanges can't be split, and the same one must run on all ranks: the first.
    """
    if any(mb.exchanges is not None for step in steps for mb in step):
        return steps[0][0]
    labelled_of = SeedLoss.of(loss_fn, "mean").labelled
    smallest = sorted((mb for step in steps for mb in step), key=lambda mb: mb.num_edges)
    for mb in smallest:
        labelled = labelled_of(read_rows(y, mb.seeds))
        rows = torch.arange(mb.num_seeds) if labelled is None else labelled.nonzero()[:, 0].cpu()
        if rows.numel() == 1:
            return mb  # BatchNorm needs two rows
        if rows.numel():
            part = torch.ones(mb.num_seeds, dtype=torch.int64)
            part[rows[:_WARM_UP_SEEDS]] = 0
            return mb.split(part)[0]
    return smallest[0]  # train_step raises the error


def _snapshot(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> Callable[..., None]:
    """Copy parameters, buffers, optimizer state and random state; returns a function that restores them.

    Restoring also drops gradients.
    """
    model_state, optimizer_state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    restore_buffers, random = snapshot_of_buffers(model), random_state(device)

    def restore(*, keep_optimizer: bool = False) -> None:
        with deferred_interrupt():
            model.load_state_dict(model_state)
            restore_buffers()
            if not keep_optimizer:
                optimizer.load_state_dict(copy.deepcopy(optimizer_state))  # the optimizer would modify the snapshot
            optimizer.zero_grad()
            model.zero_grad()
            restore_random_state(random, device)

    return restore


@contextmanager
def _finally(restore: Callable[..., None]) -> Iterator[None]:
    try:
        yield
    finally:
        complete_despite_interrupt(restore)


PHASES: tuple[str, ...] = ("fetch", "transfer", "forward", "backward", "step")
"""Phases of a training step, in order."""

_ON_DEVICE = PHASES[1:4]


def meter_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: Steps,
    run: Callable[[Sequence[MiniBatch], Phase], object],
) -> EpochMemory:
    """Run an epoch under the memory meter, which counts what `workbench.profile_epoch` documents.

    Args:
        model: a module without gradients.
        optimizer: an optimizer of its parameters; existing and newly created state counts.
        run: takes one step with the micro-batches given, entering the phases of `workbench.train_step`.
    """
    device = model_device(model) or torch.device("cpu")
    fixed_bytes = _fixed_bytes(model, optimizer, device)
    micro = [mb for step in steps for mb in step]
    if device.type == "cuda":
        torch.cuda.empty_cache()  # of what the warm-up and the caller left
    with PeakMeter(device) as meter:
        marker = _PhaseMarker(meter)
        for step in steps:
            run(step, marker)
    by_phase, by_part = dict.fromkeys(PHASES, 0), [0] * len(micro)
    for mark, peak in meter.phase_peak_bytes.items():
        phase, number = mark.split()
        part = int(number)
        resident = _resident_bytes(micro[part], device) if phase in _ON_DEVICE else 0
        peak += fixed_bytes + resident
        by_phase[phase] = max(by_phase[phase], peak)
        if phase != "step":
            by_part[part] = max(by_part[part], peak)
    return EpochMemory(by_phase, tuple(by_part), meter.reserved_bytes)


class _PhaseMarker:
    """Marks phase and micro-batch for the meter; "fetch" starts a new micro-batch."""

    def __init__(self, meter: PeakMeter) -> None:
        self._meter = meter
        self._part = -1

    def __call__(self, phase: str) -> AbstractContextManager[None]:
        self._part += phase == "fetch"
        self._meter.mark(f"{phase} {self._part}")
        return nullcontext()


def _resident_bytes(mb: MiniBatch, device: torch.device) -> int:
    """Bytes of a micro-batch that is on the device already, so that the meter does not see it arrive; else 0."""
    return allocated_bytes(replace(mb, parent=None).to("meta")._tensors().values()) if mb.device == device else 0


def _fixed_bytes(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Parameters, buffers and optimizer state, and the buffers that layers reuse."""
    reused = [t for m in model.modules() if isinstance(m, GNN) and m.workspace for t in m.workspace.tensors()]
    tensors = [*parameter_tensors(model, optimizer), *state_tensors(optimizer), *reused]
    return allocated_bytes(t for t in tensors if t.device == device)
