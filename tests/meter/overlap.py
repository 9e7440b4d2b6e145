"""A second thread under the test's control, and a clock that moves only by hand."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager


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
