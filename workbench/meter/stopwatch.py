"""Time by phase; on a GPU a phase lasts as long as its work, which is not waited for."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.machine import MACHINES, Machine
from workbench.kernels.gather import gather_rows

T = TypeVar("T")

Phase = Callable[[str], AbstractContextManager[Any]]
"""Times or meters work: maps a phase's name to a context that is entered while it runs (`Stopwatch.phase`, say)."""

_UNMEASURED = nullcontext()


Mark = Any
"""A moment: seconds of the host's clock, or an event of a GPU's stream."""

_MOST_PENDING = 1024


class Stopwatch:
    """Accumulates seconds by phase.

        watch = Stopwatch()
        with watch.phase("forward"):
            out = model(blocks, x)
        watch.seconds["forward"]

    Phases nest: an inner phase pauses the outer one, so that no second counts twice and the phases add up to the time
    spent in them. A stopwatch is not thread-safe.

    On a GPU a phase lasts, on the current stream, from the end of the work that was queued before it to the end of its
    own: events are recorded, and nothing waits for them until `seconds` is read. Work of the host counts as far as the
    stream is idle meanwhile: what overlaps with earlier phases costs nothing. Phases therefore add up to the time of a
    loop that runs as fast as without a stopwatch.

    Args:
        device: device of the measured work.
        clock: function that returns seconds since an arbitrary origin; on a GPU, of the first phase's begin.
    """

    def __init__(self, device: torch.device | str = "cpu", *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device = torch.device(device)
        self._clock = clock
        self._totals: dict[str, float] = {}
        self._pending: list[tuple[str, Mark, Mark]] = []
        self._origin: tuple[float, Any] | None = None
        self._open: list[str] = []
        self._since: Mark = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase, up to the last begin or end of one; waits for a GPU to come that far."""
        for name, start, end in self._pending:
            self._totals[name] = self._totals.get(name, 0.0) + self._time_of(end) - self._time_of(start)
        self._pending.clear()
        return self._totals

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Attribute the time of a `with` block to a phase; entering the phase again adds to its time.

        Args:
            name: key of `seconds`.
        """
        self._credit()
        self._open.append(name)
        try:
            yield
        finally:
            self._credit()
            self._open.pop()

    def _credit(self) -> None:
        """Add the time since the last change of phase to the innermost phase."""
        now = self._now()
        if self._open:
            self._add(self._open[-1], self._since, now)
        self._since = now

    def _now(self) -> Mark:
        """Return this moment: of the clock, or of the current stream."""
        if self.device.type != "cuda":
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        if self._origin is None:
            event.synchronize()
            self._origin = self._clock(), event
        return event

    def _time_of(self, mark: Mark) -> float:
        """Return the clock's time of a moment, in seconds."""
        if isinstance(mark, float | int):
            return mark
        assert self._origin is not None
        mark.synchronize()
        return self._origin[0] + self._origin[1].elapsed_time(mark) / 1000

    def _add(self, name: str, start: Mark, end: Mark) -> None:
        self._pending.append((name, start, end))
        if self.device.type != "cuda" or len(self._pending) >= _MOST_PENDING:
            _ = self.seconds


def unmeasured(name: str) -> AbstractContextManager[Any]:
    """A phase that is not measured."""
    return _UNMEASURED


def timed(iterable: Iterable[T], phase: Phase, name: str) -> Iterator[T]:
    """Attribute the time in which an iterable produces its items to a phase; the loop's body is outside of it.

        for step, batch in timed(batches(…), watch.phase, "sample"): …

    Args:
        iterable: produces items when asked for them, in the thread that asks.
        phase: `Stopwatch.phase`, for example.
        name: name of the phase.

    Yields:
        The items.
    """
    iterator, end = iter(iterable), object()
    while True:
        with phase(name):
            item: Any = next(iterator, end)
        if item is end:
            return
        yield item


Interval = tuple[float, float]


class ThreadStopwatch:
    """A stopwatch per thread, so that phases of different threads may overlap; within a thread they nest.

    On a GPU the phases of the thread that made the stopwatch, and of threads with a stream of their own, last as long
    as their work on the thread's current stream (`Stopwatch`). Other threads' phases last as long as on the host: what
    they queue runs between the work of the first thread.

    Args:
        device: device of the measured work.
        clock: function that returns seconds since an arbitrary origin, the same for all threads.
    """

    def __init__(self, device: torch.device | str = "cpu", *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._device, self._clock, self._maker = torch.device(device), clock, threading.get_ident()
        self._of_thread = threading.local()
        self._watches: list[_IntervalStopwatch] = []

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Attribute the time of a `with` block to a phase of the current thread."""
        if not hasattr(self._of_thread, "watch"):
            is_maker = threading.get_ident() == self._maker
            self._of_thread.watch = _IntervalStopwatch(self._device, clock=self._clock, is_maker=is_maker)
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
            for name, start, end in watch.intervals():
                joined.setdefault(name, []).append((start, end))
        return joined


class _IntervalStopwatch(Stopwatch):
    """Keeps when its phases ran; other threads may read it."""

    def __init__(self, device: torch.device, *, clock: Callable[[], float], is_maker: bool) -> None:
        super().__init__(device, clock=clock)
        self._is_maker = is_maker
        self._ran: list[tuple[str, Mark, Mark]] = []

    def intervals(self) -> list[tuple[str, float, float]]:
        """The phases with their begin and end."""
        return [(name, self._time_of(start), self._time_of(end)) for name, start, end in list(self._ran)]

    def _now(self) -> Mark:
        if self.device.type != "cuda" or self._is_maker:
            return super()._now()
        is_default = torch.cuda.current_stream(self.device) == torch.cuda.default_stream(self.device)
        return self._clock() if is_default else super()._now()

    def _add(self, name: str, start: Mark, end: Mark) -> None:
        self._ran.append((name, start, end))


def _covered(intervals: Iterable[Interval]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


_ROUNDS = 9


def measure_machine(
    device: str | torch.device, *, row_bytes: int = 512, num_rows: int = 200_000, base: Machine = MACHINES["V100"]
) -> Machine:
    """Measure how many bytes per second a GPU gets of random rows, as a feature store reads them.

    Host rows are gathered into page-locked memory and copied; rows of a peer are gathered on the peer and copied.

    Args:
        device: a CUDA device.
        row_bytes: bytes of a row, rounded up to a multiple of 4.
        num_rows: rows per read, of four times as many.
        base: what is not measured: `alpha` where there is one GPU, and `flops`.

    Raises:
        ValueError: a device that is not a GPU, or a number below 1.
    """
    check_at_least("row_bytes", row_bytes, 1)
    check_at_least("num_rows", num_rows, 1)
    device = torch.device(device)
    if device.type != "cuda":
        raise ValueError(f"device is {str(device)!r}, which has no links to measure; pass a GPU, or use MACHINES")
    host = torch.zeros(4 * num_rows, -(-row_bytes // 4))
    ids = torch.randint(len(host), (num_rows,))
    pinned = torch.empty(num_rows, host.shape[1], pin_memory=True)
    own, own_ids, nbytes = host.to(device), ids.to(device), pinned.nbytes
    speeds = {
        "gamma": _speed(lambda: gather_rows(own, own_ids), nbytes, device),
        "beta": _speed(lambda: gather_rows(host, ids, out=pinned).to(device, non_blocking=True), nbytes, device),
        "alpha": base.alpha,
    }
    others = [number for number in range(torch.cuda.device_count()) if number != own.get_device()]
    if others:
        peer, peer_ids = own.to(f"cuda:{others[0]}"), ids.to(f"cuda:{others[0]}")
        speeds["alpha"] = _speed(lambda: gather_rows(peer, peer_ids).to(device), nbytes, device)
    return Machine(**speeds, flops=base.flops)


def _speed(read: Callable[[], Tensor], nbytes: int, device: torch.device) -> float:
    """Median bytes per second of several reads, after a first that is not timed."""
    seconds = []
    for _ in range(_ROUNDS + 1):
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        read()
        torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return nbytes / median(seconds[1:])
