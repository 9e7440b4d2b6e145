"""`measure_epoch`, counted by hand on a clock that the epochs move."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.meter.overlap import Clock, OtherThread
from workbench.core.machine import Traffic
from workbench.meter.epoch_passes import measure_epoch


class Epoch:
    """Two steps; in the first pass after a reset rows come from disk, later from the cache."""

    def __init__(self) -> None:
        self.clock, self.links, self.other = Clock(), Traffic(), OtherThread()
        self.resets = self.passes = 0
        self.links.add("disk", "rows", 0, 0)

    def __call__(self, phase: Callable[[str], Any]) -> Iterator[float]:
        self.passes += 1
        for step in range(2):
            self.clock.now += 1  # other
            with self.other.phase(phase, "stage"):
                with phase("forward"):
                    self.clock.now += 10 * self.passes
                self.clock.now += 2  # other and stage
            self.links.add("disk", "rows", 3, 24)
            yield 0.5 + step

    def reset(self) -> None:
        self.resets += 1
        self.clock.now += 1000
        self.links.add("disk", "rows", 77, 77)  # what a reset moves is not part of the pass


@pytest.fixture
def epoch() -> Iterator[Epoch]:
    made = Epoch()
    yield made
    made.other.close()


def test_sums_and_wall_times_by_hand(epoch: Epoch) -> None:
    one = measure_epoch(epoch, reset=epoch.reset, traffic=epoch.links, warm_up=False, clock=epoch.clock).passes[0]
    assert one.row() == {
        "epoch_seconds": 2 * (1 + 10 + 2),
        "epoch_thread_seconds": 2 * (1 + 10 + 2 + 12),
        "num_steps": 2,
        "loss": 1.0,
        "other_seconds": 6,
        "other_wall_seconds": 6,
        "forward_seconds": 20,
        "forward_wall_seconds": 20,
        "stage_seconds": 24,
        "stage_wall_seconds": 24,
        "disk_rows": 6,
        "disk_rows_bytes": 48,
    }


def test_every_pass_starts_with_a_reset_and_rows_are_medians(epoch: Epoch) -> None:
    measured = measure_epoch(epoch, reset=epoch.reset, traffic=epoch.links, repetitions=3, clock=epoch.clock)
    assert epoch.resets == epoch.passes == 4 and len(measured.passes) == 3  # the first one warms up
    row = measured.row()
    assert row["forward_seconds"] == 2 * 10 * 3 and row["disk_rows"] == 6
    assert (row["epoch_seconds_min"], row["epoch_seconds_max"]) == (6 + 2 * 10 * 2, 6 + 2 * 10 * 4)


def test_a_phase_of_one_pass_alone_does_not_vanish() -> None:
    clock, seconds = Clock(), iter([0, 0, 9])

    def epoch(phase: Callable[[str], Any]) -> Iterator[None]:
        if taken := next(seconds):
            with phase("evict"):
                clock.now += taken
        yield None

    row = measure_epoch(epoch, repetitions=3, warm_up=False, clock=clock).row()
    assert row["evict_seconds"] == 0 and row["epoch_seconds_max"] == 9
    assert row["loss"] is None and row["num_steps"] == 1


@pytest.mark.parametrize(
    ("epoch", "options", "error", "message"),
    [
        (lambda phase: [], {}, ValueError, "the epoch has no steps"),
        (lambda phase: None, {}, TypeError, "the result of epoch is a NoneType; yield the loss of each step"),
        ([0.5], {}, TypeError, "epoch is a list; pass a function from phase"),
        (lambda phase: [0.5], {"reset": 1}, TypeError, "reset is an int"),
        (lambda phase: [0.5], {"repetitions": 0}, ValueError, "repetitions is 0"),
    ],
)
def test_what_is_no_epoch_is_refused(epoch: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        measure_epoch(epoch, **options)


def test_a_phase_must_not_hide_a_total() -> None:
    def epoch(phase: Callable[[str], Any]) -> Iterator[None]:
        with phase("epoch"):
            yield None

    with pytest.raises(ValueError, match="a phase is called 'epoch', the name of a total"):
        measure_epoch(epoch)
