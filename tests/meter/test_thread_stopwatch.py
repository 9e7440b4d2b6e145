"""Overlapping phases, counted by hand on a clock that the test moves."""

from collections.abc import Iterator

import pytest

from tests.meter.overlap import Clock, OtherThread, Queue, Stream
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


def test_threads_with_and_without_a_stream_of_their_own(other: OtherThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a thread on the default stream is timed on the host; the stopwatch's own thread on its stream."""
    clock = Clock()
    queue = Queue(clock, monkeypatch)
    for own, seconds in ((Stream(), 7), (queue.default, 1)):
        watch = ThreadStopwatch("cuda:1", clock=clock)
        queue.current = own
        with other.phase(watch.phase, "sample"):
            queue.run(7)
            clock.now += 1
        queue.current = queue.default
        with watch.phase("train"):
            queue.run(10)
        assert not queue.waited or own is queue.default
        assert watch.seconds == {"sample": seconds, "train": 10}
