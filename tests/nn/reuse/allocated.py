"""Counts the bytes that a call allocates."""

from collections.abc import Callable

from workbench.meter.allocation_tracker import AllocationTracker


def allocated_bytes(call: Callable[[], object]) -> int:
    """Return the bytes that the operators of a call allocate, freed ones included."""
    total = 0

    def add(nbytes: int, live: int) -> None:
        nonlocal total
        total += nbytes

    tracker = AllocationTracker(add)  # pyright: ignore[reportArgumentType]
    tracker.start()
    try:
        call()
    finally:
        tracker.stop()
    return total
