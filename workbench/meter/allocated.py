"""Bytes that a call allocates on the CPU, freed or not: what reusing memory saves."""

from collections.abc import Callable
from contextlib import ExitStack

from workbench.core.interrupts import complete_despite_interrupt, deferred_interrupt
from workbench.meter.allocation_tracker import AllocationTracker
from workbench.meter.frozen_garbage import paused_collection


def measure_allocated(fn: Callable[[], object]) -> int:
    """Measure the sum of all allocations of a call, each storage rounded up to 512 bytes.

    Args:
        fn: function to call once, without arguments. Results of PyTorch operators and buffers from `torch.empty` are
            counted; workspace inside operators and NumPy arrays are not.

    Returns:
        Bytes, including those that were freed during the call.
    """
    requests: list[int] = []
    tracker, block = AllocationTracker(lambda requested, live: requests.append(requested)), ExitStack()
    try:
        with deferred_interrupt(), paused_collection():
            tracker.start()
            block.callback(tracker.stop)
        fn()
    finally:
        complete_despite_interrupt(block.close)
    return sum(requests)
