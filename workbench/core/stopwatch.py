"""Seconds by phase; on CUDA the device's own, since a phase ends when its work is done, not when it is queued."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Adds up seconds by phase.

        watch = Stopwatch()
        with watch.phase("forward"):
            out = model(blocks, x)
        watch.seconds["forward"]

    Phases nest: while an inner one runs the outer one stands still, so no second counts twice and the sum over phases
    is the time within them. One thread at a time.

    Args:
        device: a CUDA device is synchronized at both ends of a phase; others are not.
        clock: seconds since any moment.
    """

    def __init__(self, device: torch.device | str = "cpu", *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device = torch.device(device)
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What runs inside belongs to `name`; a phase entered again goes on adding up.

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
        """Give the time since the last change to the innermost phase."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = self._clock()
        if self._open:
            name = self._open[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now
