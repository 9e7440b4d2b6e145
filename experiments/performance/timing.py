"""Times two implementations alternately in one process, so that both see the same load of the machine."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from workbench.kernels.threads import get_num_threads, set_num_threads

_SETTLE_SECONDS = 0.02  # OpenMP threads spin for some milliseconds after their work: wait until they sleep
_LONG_SECONDS = 0.1  # a call that warms its own caches


def import_dgl() -> Any:
    """DGL, imported only when a benchmark runs; type checkers don't see its modules as attributes.

    Raises:
        ModuleNotFoundError: DGL is not installed.
    """
    try:
        return import_module("dgl")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this benchmark needs DGL ({error}); install gnn-workbench[dgl] on Python 3.11, the last version that DGL "
            "has a wheel for"
        ) from None


def beside_dgl(ours: Callable[[], Any], dgl: Callable[[], Any], *, repeats: int) -> dict[str, float]:
    """Columns of a benchmark against DGL: thread counts, and the times of `interleaved`.

    Args:
        ours: call of this library.
        dgl: call of DGL that computes the same.
        repeats: number of rounds that count.
    """
    threads = {"num_threads": get_num_threads(), "dgl_threads": torch.get_num_threads()}  # DGL uses torch's number
    times = interleaved(ours, dgl, repeats=repeats)
    return threads | {name.replace("theirs", "dgl"): value for name, value in times.items()}


@contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Give both sides that many threads, or as many as they have.

    Args:
        count: threads of the library's kernels and of torch, whose number DGL uses; None: unchanged.
    """
    before = get_num_threads(), torch.get_num_threads()
    try:
        if count is not None:
            set_num_threads(count)
            torch.set_num_threads(count)
        yield
    finally:
        set_num_threads(before[0])
        torch.set_num_threads(before[1])


def interleaved(
    ours: Callable[[], Any], theirs: Callable[[], Any], *, repeats: int = 7, warmup: int = 2
) -> dict[str, float]:
    """Time two calls alternately; each round gives one ratio theirs / ours.

    Args:
        ours: first call.
        theirs: second call.
        repeats: number of rounds that count; the order within a round alternates.
        warmup: number of rounds before them (compilation, caches, allocator).

    Returns:
        `ours_seconds` and `theirs_seconds` (the shortest of the rounds), `ratio_best` (of those two), `ratio_median`,
        and the quartiles `ratio_low` and `ratio_high` of the rounds' ratios.

    Raises:
        ValueError: `repeats` is below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; it must be at least 1")
    for _ in range(warmup):
        ours()
        theirs()
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        return summarized([_round(ours, theirs, flipped=turn % 2 == 1) for turn in range(repeats)])
    finally:
        if collecting:
            gc.enable()


def _round(ours: Callable[[], Any], theirs: Callable[[], Any], *, flipped: bool) -> tuple[float, float]:
    """Seconds of both calls; flipped, the second runs first."""
    if flipped:
        second = _seconds(theirs)
        return _seconds(ours), second
    return _seconds(ours), _seconds(theirs)


def _seconds(call: Callable[[], Any]) -> float:
    """Seconds of a call; a short one is run twice and the second run counts, so that caches and threads are warm."""
    time.sleep(_SETTLE_SECONDS)
    elapsed = _once(call)
    return elapsed if elapsed > _LONG_SECONDS else _once(call)


def _once(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - start
    del result  # only now: freeing the result is not part of the call
    return elapsed


def summarized(times: list[tuple[float, float]]) -> dict[str, float]:
    """Columns of `interleaved`, from the seconds (ours, theirs) of every round."""
    ratios = [theirs / ours for ours, theirs in times]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    best_ours, best_theirs = (min(side) for side in zip(*times, strict=True))
    return {
        "ours_seconds": best_ours,
        "theirs_seconds": best_theirs,
        "ratio_best": best_theirs / best_ours,
        "ratio_median": median,
        "ratio_low": low,
        "ratio_high": high,
    }
