"""Blocks of work, each in a process of its own: `python -m tests.meter.host_peak_scenarios NAME …` prints `nbytes`.

A process as large as that of the tests may lose cold pages to the system in the middle of a block. The processes are
forked from one that has done the imports, and has no threads.
"""

import os
import sys
from contextlib import suppress

import numpy as np

from workbench.meter.limit import HostPeak

MIB = 1 << 20


def touched(nbytes: int) -> np.ndarray:
    return np.ones(nbytes, dtype=np.uint8)


def relative_to_entry() -> int | None:
    """60 MiB, after 40 MiB were freed, beside 64 MiB from before."""
    before = touched(64 * MIB)
    with HostPeak() as peak:
        first = touched(40 * MIB)
        del first
        second = touched(60 * MIB)
    assert len(before) and len(second)
    return peak.nbytes


def after_freed_memory() -> int | None:
    """50 MiB of small blocks, which the C library has cached, below an earlier peak of 250 MiB."""
    huge = touched(200 * MIB)
    small = [touched(32 << 10) for _ in range(1600)]
    del huge, small
    with HostPeak() as peak:
        again = [touched(32 << 10) for _ in range(1600)]
    assert len(again)
    return peak.nbytes


def empty() -> int | None:
    with HostPeak() as peak:
        pass
    return peak.nbytes


def failing() -> int | None:
    """30 MiB, then an error."""
    peak = HostPeak()
    with suppress(KeyError), peak:
        kept = touched(30 * MIB)
        raise KeyError(len(kept))
    return peak.nbytes


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if not (child := os.fork()):
            print(globals()[name](), flush=True)  # noqa: T201
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} failed")
