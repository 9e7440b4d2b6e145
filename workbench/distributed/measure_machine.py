"""`measure_machine`: the speeds of this machine's ranks, for cost models."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from workbench.core.errors import check_at_least
from workbench.core.machine import Machine
from workbench.distributed.group import all_to_all, gather_numbers, get_world_size
from workbench.distributed.rank_pool import run_ranks
from workbench.kernels.gather import gather_rows

_WIDTH = 128  # float32 values of a row
_MATRIX = 512  # rows and columns of the matrices that are multiplied


def measure_machine(
    num_ranks: int = 2, *, num_bytes: int = 1 << 26, repeats: int = 5, timeout_seconds: float = 120.0
) -> Machine:
    """Measure what every rank on this machine's CPU copies, exchanges, gathers and multiplies, all ranks at once.

    γ counts the bytes that a copy reads and writes, α those that a rank receives from others in an all-to-all exchange,
    β those of rows gathered at random from host memory, and `flops` the operations of products of float32 matrices.

    Args:
        num_ranks: number of ranks, which share the cores; at least 2, as one exchanges nothing.
        num_bytes: bytes of a rank's array, larger than its caches.
        repeats: times that each is measured; the median counts, and the mean over ranks.
        timeout_seconds: after which the ranks are killed.

    Returns:
        The speeds of one rank.

    Raises:
        ValueError: fewer than 2 ranks, or sizes out of range.
        RankError: a rank failed.

    Source: Cooperative Minibatching in GNNs, section 3.1: γ, α, β of Table 1.
    """
    check_at_least("num_ranks", num_ranks, 2)
    check_at_least("num_bytes", num_bytes, 1 << 12)
    check_at_least("repeats", repeats, 1)
    sizes = {"num_bytes": num_bytes, "repeats": repeats}
    (row,) = run_ranks(on_rank, sizes, num_ranks, timeout_seconds=timeout_seconds)
    return Machine(**row)


def on_rank(sizes: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """The work of one rank; every rank yields the means over ranks.

    Args:
        sizes: `num_bytes` and `repeats`.
    """
    repeats, size = sizes["repeats"], get_world_size()
    rows = torch.rand(sizes["num_bytes"] // (4 * _WIDTH), _WIDTH)
    target, ids = torch.empty_like(rows), torch.randperm(len(rows))
    counts = [len(rows) // size] * size
    sent = rows[: sum(counts)]
    a, b = torch.rand(2, _MATRIX, _MATRIX)
    work: dict[str, tuple[float, Callable[[], Any]]] = {
        "gamma": (2 * rows.nbytes, lambda: target.copy_(rows)),
        "alpha": (sent.nbytes * (size - 1) / size, lambda: all_to_all(sent, counts, counts, out=target[: len(sent)])),
        "beta": (rows.nbytes, lambda: gather_rows(rows, ids, out=target)),
        "flops": (2 * _MATRIX**3, lambda: torch.mm(a, b)),
    }
    speeds = {name: _speed(amount, do, repeats) for name, (amount, do) in work.items()}
    yield {name: statistics.fmean(gather_numbers(speed)) for name, speed in speeds.items()}


def _speed(amount: float, do: Callable[[], Any], repeats: int) -> float:
    """Amount per second of the median run; one before warms up."""
    do()
    seconds = []
    for _ in range(repeats):
        gather_numbers(0)  # starts the ranks together
        begin = time.perf_counter()
        do()
        seconds.append(time.perf_counter() - begin)
    return amount / statistics.median(seconds)
