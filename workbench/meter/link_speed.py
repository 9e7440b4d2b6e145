"""Measure the speeds at which a GPU reads rows: of its own memory, of a peer's, and of the host."""

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.machine import MACHINES, Machine
from workbench.kernels.gather import gather_rows

_ROUNDS = 9


def measure_machine(
    device: str | torch.device, *, row_bytes: int = 512, num_rows: int = 200_000, base: Machine = MACHINES["V100"]
) -> Machine:
    """Measure how many bytes per second a GPU gets of random rows, as a feature store reads them.

    Host rows are gathered into page-locked memory and copied; rows of a peer are gathered on the peer and copied.

    Args:
        device: a CUDA device.
        row_bytes: bytes of a row, rounded up to a multiple of 4.
        num_rows: rows per read, of four times as many.
        base: what is not measured: `alpha` where there is one GPU, and `flops`.

    Raises:
        ValueError: a device that is not a GPU, or a number below 1.
    """
    check_at_least("row_bytes", row_bytes, 1)
    check_at_least("num_rows", num_rows, 1)
    device = torch.device(device)
    if device.type != "cuda":
        raise ValueError(f"device is {str(device)!r}, which has no links to measure; pass a GPU, or use MACHINES")
    host = torch.zeros(4 * num_rows, -(-row_bytes // 4))
    ids = torch.randint(len(host), (num_rows,))
    pinned = torch.empty(num_rows, host.shape[1], pin_memory=True)
    own, own_ids, nbytes = host.to(device), ids.to(device), pinned.nbytes
    speeds = {
        "gamma": _speed(lambda: gather_rows(own, own_ids), nbytes, device),
        "beta": _speed(lambda: gather_rows(host, ids, out=pinned).to(device, non_blocking=True), nbytes, device),
        "alpha": base.alpha,
    }
    others = [number for number in range(torch.cuda.device_count()) if number != own.get_device()]
    if others:
        peer, peer_ids = own.to(f"cuda:{others[0]}"), ids.to(f"cuda:{others[0]}")
        speeds["alpha"] = _speed(lambda: gather_rows(peer, peer_ids).to(device), nbytes, device)
    return Machine(**speeds, flops=base.flops)


def _speed(read: Callable[[], Tensor], nbytes: int, device: torch.device) -> float:
    """Median bytes per second of several reads, after a first that is not timed."""
    seconds = []
    for _ in range(_ROUNDS + 1):
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        read()
        torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return nbytes / median(seconds[1:])
