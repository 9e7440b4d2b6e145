"""Time by phase of work that several threads do at once: summed over the threads, and as wall time."""

import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch

from workbench.meter.stopwatch import Stopwatch

Interval = tuple[float, float]


class ThreadStopwatch:
    """A stopwatch per thread, so that phases of different threads may overlap; within a thread they nest.

    Args:
        device: device of the measured work; on CUDA, a phase ends when the work on its thread's current stream is
            complete, so that threads with streams of their own do not wait for each other.
        clock: function that returns seconds since an arbitrary origin, the same for all threads.
    """

    def __init__(self, device: torch.device | str = "cpu", *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._device, self._clock = device, clock
        self._of_thread = threading.local()
        self._watches: list[_IntervalStopwatch] = []

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Attribute the time of a `with` block to a phase of the current thread."""
        if not hasattr(self._of_thread, "watch"):
            self._of_thread.watch = _IntervalStopwatch(self._device, clock=self._clock)
            self._watches.append(self._of_thread.watch)
        return self._of_thread.watch.phase(name)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase, summed over the threads."""
        return {name: sum(end - start for start, end in times) for name, times in self._intervals().items()}

    @property
    def wall_seconds(self) -> dict[str, float]:
        """Seconds by phase in which at least one thread was in it."""
        return {name: _covered(times) for name, times in self._intervals().items()}

    @property
    def elapsed_seconds(self) -> float:
        """Seconds in which at least one thread was in any phase."""
        return _covered(interval for times in self._intervals().values() for interval in times)

    def _intervals(self) -> dict[str, list[Interval]]:
        """The intervals by phase, of all threads."""
        joined: dict[str, list[Interval]] = {}
        for watch in list(self._watches):
            for name, start, end in list(watch.intervals):
                joined.setdefault(name, []).append((start, end))
        return joined


class _IntervalStopwatch(Stopwatch):
    """Keeps when its phases ran."""

    def __init__(self, device: torch.device | str, *, clock: Callable[[], float]) -> None:
        super().__init__(device, clock=clock)
        self.intervals: list[tuple[str, float, float]] = []

    def _synchronize(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()

    def _add(self, name: str, start: float, end: float) -> None:
        self.intervals.append((name, start, end))


def _covered(intervals: Iterable[Interval]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
