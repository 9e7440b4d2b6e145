"""Deferred KeyboardInterrupt and termination, for changes that must be atomic."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(SystemExit):
    """Raised by a handler of SIGTERM that lets the process save what is in memory."""


class deferred_interrupt:
    """Defers KeyboardInterrupt to the end of a `with` block, so that state is never left half changed.

        with deferred_interrupt():
            optimizer.step()

    An interrupt that arrives inside the block is raised when the block exits; an exception raised by the block becomes
    its `__context__`. A second interrupt is raised immediately, so that a block that hangs can still be stopped. Blocks
    nest. The block does nothing in threads other than the main one, which Python never interrupts. SIGTERM is deferred
    likewise. A signal whose handler is not a Python function keeps its effect.
    """

    def __enter__(self) -> Self:
        self._received: tuple[int, FrameType | None] | None = None
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if callable(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._received is not None:
            self._before[self._received[0]](*self._received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            self._before[number](number, frame)
        self._received = number, frame


def complete_despite_interrupt(work: Callable[[], object]) -> None:
    """Run cleanup to its end, even if an interrupt arrives meanwhile; the interrupt is raised afterwards.

    An interrupt that arrives before it can be deferred would skip the cleanup, so the cleanup is then run again.

    Args:
        work: short and idempotent, such as restoring state.

    Raises:
        KeyboardInterrupt, Terminated: after `work` has completed.
    """
    try:
        with deferred_interrupt():
            work()
    except (KeyboardInterrupt, Terminated):
        with deferred_interrupt():
            work()
        raise
