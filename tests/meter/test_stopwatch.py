"""The stopwatch with a simulated clock."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.meter.overlap import Clock, Queue
from workbench.meter.stopwatch import Stopwatch, timed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A GPU's stream, on the clock."""
    return Queue(clock, monkeypatch)


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


def test_a_gpu_is_not_waited_for(clock: Clock, queue: Queue) -> None:
    """Host work that overlaps with queued work costs nothing; the phases add up to the time of the loop."""
    watch = Stopwatch("cuda:1", clock=clock)
    queue.run(2)  # before the first phase, which waits for it once
    began = 102
    for _ in range(2):
        with watch.phase("fetch"):
            clock.now += 3
        with watch.phase("forward"):
            queue.run(4)
            with watch.phase("backward"):
                queue.run(8)
            queue.run(1)
    assert clock.now == began + 6  # the host did not wait
    assert watch.seconds == {"fetch": 3, "forward": 10, "backward": 16}
    assert clock.now == began + 3 + 2 * (4 + 8 + 1)
    assert queue.waited[:1] == [102] and queue.waited[-1] == clock.now
    with watch.phase("fetch"):
        clock.now += 5
    assert watch.seconds["fetch"] == 3 + 5


def test_events_of_a_long_run_are_not_kept(clock: Clock, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.meter.stopwatch._MOST_PENDING", 3)
    watch = Stopwatch("cuda", clock=clock)
    for _ in range(10):
        with watch.phase("step"):
            queue.run(2)
    assert len(watch._pending) <= 3 and watch.seconds == {"step": 20}


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
