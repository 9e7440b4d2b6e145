"""What an epoch of training takes: peak bytes and seconds, by phase."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median

import torch
from torch import Tensor, nn

from workbench.core.errors import check_at_least, check_type
from workbench.core.interrupts import deferred_interrupt, surely
from workbench.core.minibatch import MiniBatch
from workbench.core.stopwatch import Stopwatch
from workbench.nn.call import model_device
from workbench.nn.losses import LossFunction, SeedLoss
from workbench.training.accumulate import Phase
from workbench.training.arguments import as_batches, check_model, check_optimizer, check_trains
from workbench.training.epoch_memory import PHASES, EpochMemory, Steps, meter_epoch
from workbench.training.rows import check_covers, read_rows
from workbench.training.step import train_step

_OTHER = "other"
_WARM_UP_SEEDS = 64


@dataclass(frozen=True)
class EpochProfile:
    """Peak memory and time of an epoch.

    Args:
        peak_bytes: everything the epoch's most demanding step needs on the device; None where it was not measured.
        phase_peak_bytes: the same by phase.
        part_peak_bytes: the same for each micro-batch, in the order of the steps.
        seconds: by phase, and "other" for what lies between phases; medians over the repetitions.
        epoch_seconds: median over the repetitions.
        epoch_seconds_spread: least and most of the repetitions.
        loss: mean over the steps of the loss before each.
    """

    peak_bytes: int | None
    phase_peak_bytes: Mapping[str, int]
    part_peak_bytes: tuple[int, ...]
    seconds: Mapping[str, float]
    epoch_seconds: float
    epoch_seconds_spread: tuple[float, float]
    loss: float

    def row(self) -> dict[str, float | int | None]:
        """Columns of a table: `peak_bytes`, `epoch_seconds` (also `_min`, `_max`), a `…_seconds` each phase, `loss`."""
        least, most = self.epoch_seconds_spread
        return {
            "peak_bytes": self.peak_bytes,
            "epoch_seconds": self.epoch_seconds,
            "epoch_seconds_min": least,
            "epoch_seconds_max": most,
            **{f"{phase}_seconds": self.seconds[phase] for phase in PHASES},
            "loss": self.loss,
        }


def profile_epoch(
    model: nn.Module,
    steps: Steps,
    x: Tensor,
    y: Tensor,
    loss_fn: LossFunction,
    optimizer: torch.optim.Optimizer,
    *,
    repetitions: int = 1,
    warm_up: bool = True,
    measure_memory: bool = True,
) -> EpochProfile:
    """Measure one epoch: a pass under the memory meter, then passes under the stopwatch without it.

    Every timed pass starts from the parameters, buffers, optimizer state and random numbers that were there at the
    call, so all do the same work. The metered pass starts from the same parameters, but with the optimizer state that
    the warm-up made, as in every epoch but the first. All of it ends as it began; gradients end as None.

    Peak bytes are what the step needs on the device, there or not: parameters, buffers and optimizer state (Adam's
    step counts live on the host), and, from the meter, gradients, gathered features and labels, activations and
    workspace. Blocks of the micro-batch in work are counted by their size where moving it to the device copies nothing:
    on the CPU, or where it is on the device already. `x` and `y` themselves don't count.

    Args:
        model: see `workbench.accumulate`.
        steps: for each optimizer step its micro-batches: `[[m1, …, mK]]` for micro-batch training of one batch,
            `[[b1], [b2], …]` for mini-batch training.
        x: features [num_nodes, …] by raw-graph id. The meter sees rows of a tensor; those that NumPy or a store of its
            own allocates on the CPU it does not.
        y: labels by raw-graph id.
        loss_fn: see `workbench.train_step`.
        optimizer: of the model's parameters.
        repetitions: timed passes, at least 1.
        warm_up: first take a step on up to 64 seeds of the smallest micro-batch, for what only a first step does:
            optimizer state, machine code, memory pools.
        measure_memory: make the metered pass.

    Raises:
        ValueError: no repetitions, no micro-batches, a step without any, or what `workbench.train_step` refuses.
    """
    check_at_least("repetitions", repetitions, 1)
    check_type("steps", steps, Sequence, "pass a list of steps, each a list of micro-batches: [[mb1, mb2], …]")
    steps = [as_batches(step) for step in steps]
    if not steps or not all(steps):
        empty = sum(not step for step in steps)
        raise ValueError(f"{empty} of {len(steps)} steps have no micro-batch; pass at least one step, none empty")
    check_model(model)
    check_optimizer(optimizer)
    check_trains(optimizer, model, [mb for step in steps for mb in step], x, loss_fn)
    for mb in (mb for step in steps for mb in step):
        check_covers("x", x, mb.node_ids)
        check_covers("y", y, mb.seeds)
    device = model_device(model) or torch.device("cpu")
    restore = _snapshot(model, optimizer, device)

    def run(step: Sequence[MiniBatch], phase: Phase | None = None) -> Tensor:
        return train_step(model, step, x, y, loss_fn, optimizer, phase=phase)

    with _end_with(restore):
        if warm_up:
            run([_small_batch(steps, y, loss_fn)])
            restore(keep_optimizer=True)
        memory = meter_epoch(model, optimizer, steps, run) if measure_memory else None
        timed = []
        for _ in range(repetitions):
            restore()
            timed.append(_timed(steps, run, device))
    return _profile(memory, [seconds for seconds, _ in timed], timed[-1][1])


def _profile(memory: EpochMemory | None, seconds: Sequence[Mapping[str, float]], loss: float) -> EpochProfile:
    totals = [sum(s.values()) for s in seconds]
    by_phase = {phase: median(s[phase] for s in seconds) for phase in (*PHASES, _OTHER)}
    return EpochProfile(
        peak_bytes=None if memory is None else memory.peak_bytes,
        phase_peak_bytes={} if memory is None else memory.by_phase,
        part_peak_bytes=() if memory is None else memory.by_part,
        seconds=by_phase,
        epoch_seconds=median(totals),
        epoch_seconds_spread=(min(totals), max(totals)),
        loss=loss,
    )


def _timed(steps: Steps, run: Callable[..., Tensor], device: torch.device) -> tuple[dict[str, float], float]:
    """Seconds by phase and the mean loss."""
    watch = Stopwatch(device)
    with watch.phase(_OTHER):
        losses = [run(step, watch.phase) for step in steps]
    return watch.seconds, fmean(float(loss) for loss in losses)


def _small_batch(steps: Steps, y: Tensor, loss_fn: LossFunction) -> MiniBatch:
    """A few labelled seeds of the smallest micro-batch that has any."""
    labelled_of = SeedLoss.of(loss_fn, "mean").labelled
    smallest = sorted((mb for step in steps for mb in step), key=lambda mb: mb.num_edges)
    for mb in smallest:
        labelled = labelled_of(read_rows(y, mb.seeds))
        rows = torch.arange(mb.num_seeds) if labelled is None else labelled.nonzero()[:, 0].cpu()
        if rows.numel():
            part = torch.ones(mb.num_seeds, dtype=torch.int64)
            part[rows[:_WARM_UP_SEEDS]] = 0
            return mb.split(part)[0]
    return smallest[0]  # which train_step refuses, saying why


def _snapshot(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> Callable[..., None]:
    """A function that puts parameters, buffers, optimizer state and random numbers back, and drops gradients."""
    before, random = copy.deepcopy((model.state_dict(), optimizer.state_dict())), torch.get_rng_state()
    random_there = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(*, keep_optimizer: bool = False) -> None:
        with deferred_interrupt():
            model.load_state_dict(before[0])
            if not keep_optimizer:
                optimizer.load_state_dict(copy.deepcopy(before[1]))  # which else would hold the snapshot and change it
            optimizer.zero_grad()
            model.zero_grad()
            torch.set_rng_state(random)
            if random_there is not None:
                torch.cuda.set_rng_state(random_there, device)

    return restore


@contextmanager
def _end_with(restore: Callable[..., None]) -> Iterator[None]:
    try:
        yield
    finally:
        surely(restore)
