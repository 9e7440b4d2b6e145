"""Two sides timed in turn in one process, so that both meet the same machine."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

_SETTLE_SECONDS = 0.02  # OpenMP threads spin for some milliseconds after their work: let the other side's go to sleep
_LONG_SECONDS = 0.1  # a call that warms its own caches


def _seconds(call: Callable[[], Any]) -> float:
    """Seconds of a call; a short one follows one just like it, as in a loop, so that caches and threads are warm."""
    time.sleep(_SETTLE_SECONDS)
    elapsed = _once(call)
    return elapsed if elapsed > _LONG_SECONDS else _once(call)


def _once(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - start
    del result  # freeing what a side returns is not its work
    return elapsed


def interleaved(
    ours: Callable[[], Any], theirs: Callable[[], Any], *, repeats: int = 7, warmup: int = 2
) -> dict[str, float]:
    """Time two calls alternately; each round gives one ratio theirs / ours.

    Args:
        ours: call to be timed.
        theirs: call to be timed against it.
        repeats: rounds counted; the order within a round alternates.
        warmup: rounds run before (compilation, caches, allocator).

    Returns:
        `ours_seconds` and `theirs_seconds` (best of the rounds), `ratio_best` (of those two), `ratio_median`, and the
        quartiles `ratio_low` and `ratio_high` of the rounds' ratios.

    Raises:
        ValueError: `repeats` is below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; at least one round must be counted")
    for _ in range(warmup):
        ours()
        theirs()
    times: list[tuple[float, float]] = []
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(repeats):
            if turn % 2:
                second = _seconds(theirs)
                times.append((_seconds(ours), second))
            else:
                times.append((_seconds(ours), _seconds(theirs)))
    finally:
        if collecting:
            gc.enable()
    return _summary(times)


def _summary(times: list[tuple[float, float]]) -> dict[str, float]:
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
