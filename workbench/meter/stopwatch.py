"""Time by phase; on CUDA a phase ends when its work is complete, not when it is queued."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


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
            torch.cuda.synchronize(self.device)
        now = self._clock()
        if self._open:
            name = self._open[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now
