"""Ctrl-C that waits: some changes must happen together or not at all."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class deferred_interrupt:
    """Delays KeyboardInterrupt until the end of a `with` block, so that state is never left half changed.

        with deferred_interrupt():
            optimizer.step()

    An interrupt that arrives in the block is raised when the block is left; an error of the block's own becomes its
    context. A second interrupt is raised at once, so a block that hangs can still be stopped. Blocks nest. In threads
    other than the main one, which Python never interrupts, and where SIGINT calls no Python function, nothing changes.
    """

    def __enter__(self) -> Self:
        self._received: tuple[int, FrameType | None] | None = None
        self._before: Any = None
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self._received is not None:
            self._before(*self._received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            self._before(number, frame)
        self._received = number, frame


def surely(work: Callable[[], object]) -> None:
    """Do what must be done at the end of a block, such as restoring state, even if an interrupt arrives just then.

    An interrupt before the deferral is in place would skip the work: it is then done all the same, and the interrupt
    raised afterwards.

    Args:
        work: short, and harmless when done twice.
    """
    try:
        with deferred_interrupt():
            work()
    except KeyboardInterrupt:
        with deferred_interrupt():
            work()
        raise
