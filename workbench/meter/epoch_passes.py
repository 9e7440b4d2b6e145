"""`measure_epoch`: time by phase, and traffic, of epochs whose stores have state and whose threads overlap."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import torch

from workbench.core.errors import check_at_least, check_type
from workbench.core.machine import Traffic, TrafficCounts
from workbench.meter.stopwatch import ThreadStopwatch

OTHER = "other"
"""Phase of the time that the main thread spends outside of all phases."""

_TOTALS = ("epoch", "epoch_thread")

Epoch = Callable[[Callable[[str], AbstractContextManager[Any]]], Iterable[Any]]


@dataclass(frozen=True)
class EpochPass:
    """One pass over an epoch.

    Args:
        epoch_seconds: wall time.
        seconds: seconds by phase, summed over the threads; includes "other".
        wall_seconds: seconds by phase in which at least one thread was in it.
        num_steps: number of steps.
        loss: mean of what the steps yielded, or None if they yielded None.
        traffic: what crossed the links during the pass.
    """

    epoch_seconds: float
    seconds: dict[str, float]
    wall_seconds: dict[str, float]
    num_steps: int
    loss: float | None
    traffic: TrafficCounts

    def row(self) -> dict[str, float | int | None]:
        """A table row: `epoch_seconds`, `epoch_thread_seconds` (the sum over all threads and phases), `num_steps`,
        `loss`, for each phase `…_seconds` and `…_wall_seconds`, and the columns of the traffic."""
        row: dict[str, float | int | None] = {
            "epoch_seconds": self.epoch_seconds,
            "epoch_thread_seconds": sum(self.seconds.values()),
            "num_steps": self.num_steps,
            "loss": self.loss,
        }
        for phase, seconds in self.seconds.items():
            row |= {f"{phase}_seconds": seconds, f"{phase}_wall_seconds": self.wall_seconds[phase]}
        return row | self.traffic.row()


@dataclass(frozen=True)
class EpochPasses:
    """Repeated passes over an epoch.

    Args:
        passes: the passes, in order.
    """

    passes: tuple[EpochPass, ...]

    def row(self) -> dict[str, float | int | None]:
        """A table row: the median of every column of the passes' rows, where a phase that a pass did not enter counts 0
        in it, and `epoch_seconds_min` and `epoch_seconds_max`."""
        rows = [one.row() for one in self.passes]
        columns: dict[str, float | int | None] = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name, 0) for row in rows]
            known = [value for value in values if value is not None]
            columns[name] = median(known) if len(known) == len(values) else None
        seconds = [one.epoch_seconds for one in self.passes]
        return columns | {"epoch_seconds_min": min(seconds), "epoch_seconds_max": max(seconds)}


def measure_epoch(
    epoch: Epoch,
    *,
    reset: Callable[[], object] | None = None,
    traffic: Traffic | None = None,
    repetitions: int = 1,
    warm_up: bool = True,
    device: torch.device | str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> EpochPasses:
    """Measure an epoch that reads through stores with state (caches, staged windows), in any number of threads.

        def epoch(phase):
            sampled = wb.meter.timed(wb.batches(graph, ids, sampler=sampler, batch_size=1024), phase, "sample")
            for step, batch in sampled:
                yield wb.train_step(model, batch, cache, y, cross_entropy, optimizer, phase=phase)

        wb.meter.measure_epoch(epoch, reset=cache.clear, traffic=links).row()

    Peak memory is measured apart, with `workbench.measure_peak`; epochs of stateless reads with
    `workbench.profile_epoch`.

    Args:
        epoch: called once per pass with `phase`, which names phases in any thread (`with phase("stage"): …`); returns
            an iterable that does one step per item and yields the step's loss, or None.
        reset: called before every pass, outside of the measurement: empties caches, restores parameters.
        traffic: what the stores of the epoch count on.
        repetitions: number of measured passes, at least 1.
        warm_up: do one more pass first that is not measured, to compile kernels and fill memory pools.
        device: device of the model. On a GPU a phase takes the time of its work on the thread's stream, which nothing
            waits for before the pass ends (`workbench.meter.ThreadStopwatch`).
        clock: function that returns seconds.

    Returns:
        The measured passes. Every phase that any thread entered is in their rows, each with its seconds summed over the
        threads and as wall time; the sums of concurrent phases exceed the epoch's wall time.

    Raises:
        TypeError: `epoch` or `reset` can't be called, or `epoch` returns no iterable.
        ValueError: `repetitions` is below 1, the epoch has no steps, or a phase has the name of a total ("epoch").
    """
    check_at_least("repetitions", repetitions, 1)
    check_type("epoch", epoch, Callable, "pass a function from phase to an iterable of steps")
    if reset is not None:
        check_type("reset", reset, Callable, "pass a function without arguments, or None")
    traffic = Traffic() if traffic is None else traffic
    passes = []
    for _ in range(repetitions + bool(warm_up)):
        if reset is not None:
            reset()
        passes.append(_measure_pass(epoch, traffic, ThreadStopwatch(device, clock=clock)))
    return EpochPasses(tuple(passes[-repetitions:]))


def _measure_pass(epoch: Epoch, traffic: Traffic, watch: ThreadStopwatch) -> EpochPass:
    before = traffic.snapshot()
    with watch.phase(OTHER):
        steps = epoch(watch.phase)
        check_type("the result of epoch", steps, Iterable, "yield the loss of each step")
        losses = list(steps)
    if not losses:
        raise ValueError("the epoch has no steps; yield the loss of each step, or None")
    if reserved := watch.seconds.keys() & set(_TOTALS):
        raise ValueError(f"a phase is called {min(reserved)!r}, the name of a total; choose another name")
    known = [float(loss) for loss in losses if loss is not None]
    return EpochPass(
        epoch_seconds=watch.elapsed_seconds,
        seconds=watch.seconds,
        wall_seconds=watch.wall_seconds,
        num_steps=len(losses),
        loss=fmean(known) if len(known) == len(losses) else None,
        traffic=traffic.snapshot() - before,
    )
