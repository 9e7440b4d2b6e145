"""The stopwatch with a simulated clock."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from tests.meter.overlap import Clock
from workbench.meter.stopwatch import Stopwatch, timed


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_repeated_phases_add_up_and_time_outside_is_not_counted(clock: Clock) -> None:
    watch = Stopwatch(clock=clock)
    for seconds in (2.0, 3.0):
        clock.now += 50
        with watch.phase("forward"):
            clock.now += seconds
    with watch.phase("backward"):
        clock.now += 7
    assert watch.seconds == {"forward": 5.0, "backward": 7.0}


def test_an_inner_phase_is_not_counted_in_the_outer_one(clock: Clock) -> None:
    watch = Stopwatch(clock=clock)
    with watch.phase("epoch"):
        clock.now += 1
        with watch.phase("forward"):
            clock.now += 10
            with watch.phase("epoch"):
                clock.now += 100
        clock.now += 1000
    assert watch.seconds == {"epoch": 1101.0, "forward": 10.0}


def test_time_until_an_error_counts_and_the_outer_phase_resumes(clock: Clock) -> None:
    watch = Stopwatch(clock=clock)
    with watch.phase("epoch"):
        with suppress(KeyError), watch.phase("forward"):
            clock.now += 3
            raise KeyError
        clock.now += 5
    assert watch.seconds == {"forward": 3.0, "epoch": 5.0}


def test_cuda_is_synchronized_before_the_clock_is_read(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []

    def synchronize(device: torch.device) -> None:
        waited.append(str(device))
        clock.now += 4  # queued work that ends only now

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    watch = Stopwatch("cuda:1", clock=clock)
    with watch.phase("forward"):
        pass
    assert waited == ["cuda:1", "cuda:1"]
    assert watch.seconds == {"forward": 4.0}


def test_an_iterable_is_timed_while_it_produces_items(clock: Clock) -> None:
    def produce() -> Iterator[str]:
        for item, seconds in (("a", 2), ("b", 3)):
            clock.now += seconds
            yield item
        clock.now += 10  # after the last item

    watch, items = Stopwatch(clock=clock), []
    with watch.phase("loop"):
        for item in timed(produce(), watch.phase, "sample"):
            items.append(item)
            clock.now += 100
    assert items == ["a", "b"] and watch.seconds == {"sample": 15.0, "loop": 200.0}
    assert list(timed([], watch.phase, "none")) == []
