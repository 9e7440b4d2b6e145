"""A second thread and a GPU's stream under the test's control, and a clock that moves only by hand."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class OtherThread:
    """Enters and leaves phases in a thread of its own, when the test says so."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    @contextmanager
    def phase(self, phase: Callable[[str], AbstractContextManager[None]], name: str) -> Iterator[None]:
        context = self._pool.submit(phase, name).result()
        self._pool.submit(context.__enter__).result()
        yield
        self._pool.submit(context.__exit__, None, None, None).result()

    def close(self) -> None:
        self._pool.shutdown()


class Stream:
    busy_until = 0.0


class Queue:
    """A GPU on whose current stream the host queues work: `torch.cuda` as far as stopwatches use it.

    Args:
        clock: the time of host and GPU.
        monkeypatch: replaces functions of torch.
    """

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self._clock = clock
        self.waited: list[float] = []
        self.current = self.default = Stream()
        queue = self

        class Event:
            at = 0.0

            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing

            def record(self, stream: Stream) -> None:
                self.at = max(stream.busy_until, clock.now)

            def synchronize(self) -> None:
                if clock.now < self.at:
                    clock.now = self.at
                    queue.waited.append(self.at)

            def elapsed_time(self, end: "Event") -> float:
                return 1000 * (end.at - self.at)

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        monkeypatch.setattr(torch.cuda, "default_stream", lambda device: self.default)

    def run(self, seconds: float) -> None:
        """Queue work."""
        self.current.busy_until = max(self.current.busy_until, self._clock.now) + seconds
