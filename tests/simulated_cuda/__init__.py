"""A simulated CUDA device: the code that would run on a GPU runs on the CPU, and what CUDA refuses is refused.

See README.md for what it shows, and for what it can't show.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from tests.simulated_cuda.device import Counts, SimulatedDevice
from tests.simulated_cuda.tensor import active, in_this_thread, set_active
from tests.simulated_cuda.torch_cuda import patched_torch
from workbench.kernels.buffers import constants

__all__ = ["Counts", "SimulatedDevice", "counting", "environment", "simulated_cuda"]


@contextmanager
def simulated_cuda(total_bytes: int = 8 << 30) -> Iterator[SimulatedDevice]:
    """Have a simulated GPU, cuda:0, in a `with` block, in all threads; afterwards torch is as before.

    Args:
        total_bytes: its memory.

    Raises:
        RuntimeError: There is a GPU, or a simulated one. At the end: memory was freed while another stream used it, or
            pinned memory overwritten while it was copied.
    """
    if torch.cuda.is_available():
        raise RuntimeError("a GPU is there already; tests that need one can use it")
    device = SimulatedDevice(total_bytes)
    with ExitStack() as stack:
        stack.enter_context(patched_torch(device))
        set_active(device)
        stack.callback(constants.clear)
        stack.callback(set_active, None)
        stack.enter_context(in_this_thread())
        yield device
        device.finish()


@contextmanager
def counting() -> Iterator[Counts]:
    """Count what the device does in a `with` block."""
    device = active()
    outer, device.counts = device.counts, Counts()
    try:
        yield device.counts
    finally:
        inner, device.counts = device.counts, outer
        outer.copies += inner.copies
        outer.syncs += inner.syncs
        outer.launches.update(inner.launches)


def environment() -> dict[str, str]:
    """Environment variables that give a Python program, and those that it starts, a simulated GPU from its start."""
    root, site = Path(__file__).parents[2], Path(__file__).parent / "site"
    path = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "WORKBENCH_SIMULATED_CUDA": "1",
        "WORKBENCH_SIMULATED_CUDA_ROOT": str(root),
    }
