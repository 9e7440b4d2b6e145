"""Time by phase; on CUDA a phase ends when its work is complete, not when it is queued."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch

T = TypeVar("T")
Phase = Callable[[str], AbstractContextManager[Any]]
"""Times or meters work: maps a phase's name to a context that is entered while it runs (`Stopwatch.phase`, say)."""

_UNMEASURED = nullcontext()


class Stopwatch:
    """Accumulates seconds by phase.

        watch = Stopwatch()
        with watch.phase("forward"):
            out = model(blocks, x)
        watch.seconds["forward"]

    Phases nest: an inner phase pauses the outer one, so that no second counts twice and the phases add up to the time
    spent in them. A stopwatch is not thread-safe.

    Args:
        device: device of the measured work; a CUDA device is synchronized at both ends of a phase.
        clock: function that returns seconds since an arbitrary origin.
    """

    def __init__(self, device: torch.device | str = "cpu", *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device = torch.device(device)
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._open: list[str] = []
        self._since = 0.0

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
        if self.device.type == "cuda":
            self._synchronize()
        now = self._clock()
        if self._open:
            self._add(self._open[-1], self._since, now)
        self._since = now

    def _synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def _add(self, name: str, start: float, end: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + end - start


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
