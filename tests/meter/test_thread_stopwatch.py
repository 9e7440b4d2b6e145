"""Overlapping phases, counted by hand on a clock that the test moves."""

from collections.abc import Iterator

import pytest
import torch

from tests.meter.overlap import Clock, OtherThread
from workbench.meter.stopwatch import ThreadStopwatch


@pytest.fixture
def other() -> Iterator[OtherThread]:
    thread = OtherThread()
    yield thread
    thread.close()


def test_phases_of_two_threads_overlap(other: OtherThread) -> None:
    clock = Clock()
    watch = ThreadStopwatch(clock=clock)
    with watch.phase("train"):
        clock.now += 2  # train
        with other.phase(watch.phase, "stage"):
            clock.now += 3  # train and stage
            with watch.phase("stage"):
                clock.now += 4  # stage in both
            clock.now += 5  # train and stage
    clock.now += 50  # nothing
    with other.phase(watch.phase, "stage"):
        clock.now += 6  # stage
    assert watch.seconds == {"train": 2 + 3 + 5, "stage": (3 + 4 + 5) + 4 + 6}
    assert watch.wall_seconds == {"train": 10, "stage": 3 + 4 + 5 + 6}
    assert watch.elapsed_seconds == 2 + 3 + 4 + 5 + 6


def test_no_phase() -> None:
    watch = ThreadStopwatch()
    assert watch.seconds == watch.wall_seconds == {} and watch.elapsed_seconds == 0


def test_a_thread_waits_for_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = Clock(), []

    class Stream:
        def synchronize(self) -> None:
            clock.now += 4  # queued work that ends only now

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: asked.append(str(device)) or Stream())
    watch = ThreadStopwatch("cuda:1", clock=clock)
    with watch.phase("forward"):
        pass
    assert asked == ["cuda:1", "cuda:1"] and watch.seconds == {"forward": 4.0}
