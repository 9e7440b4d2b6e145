"""One small thread pool for all CPU kernels.

Numba's own parallel loops abort when a process forks after using them (DataLoader workers) and break with a second
Python thread, so kernels are plain functions over a row range that release the interpreter lock.
"""

import os
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

from torch import Tensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

MIN_ROWS_PER_THREAD = 2048
_MIN_WORK_PER_THREAD = 1 << 16
_PIECES_PER_THREAD = 4
_local = threading.local()
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _default_threads() -> int:
    asked = os.environ.get("WORKBENCH_NUM_THREADS")
    if asked is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not asked.isdigit() or int(asked) < 1:
        raise ValueError(f"WORKBENCH_NUM_THREADS is {asked!r}; it must be a whole number of threads, at least 1")
    return int(asked)


_threads = _default_threads()


def get_num_threads() -> int:
    """Number of threads that CPU kernels use: WORKBENCH_NUM_THREADS, else the cores this process may run on."""
    return _threads


def set_num_threads(count: int) -> None:
    """Set the number of threads that CPU kernels use; results do not depend on it.

    Args:
        count: threads, at least 1.

    Raises:
        ValueError: `count` is below 1.
    """
    global _threads
    if count < 1:
        raise ValueError(f"number of threads is {count}; it must be at least 1")
    _threads = int(count)
    _drop_pool()


def _drop_pool() -> None:
    global _pool
    with _lock:
        old, _pool = _pool, None
    if old is not None:
        old.shutdown(wait=False)


def _forget_pool() -> None:
    """In a forked child the parent's threads do not exist, and its lock may be held for ever."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()
    _local.__dict__.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _submit(work: Callable[[], object], helpers: int) -> list[Future[None]]:
    """Queue `work` for up to `helpers` pool threads; fewer where the system starts no more threads."""
    global _pool
    futures: list[Future[None]] = []
    with _lock, suppress(RuntimeError):  # held until all are queued: another thread may be replacing the pool
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, _threads - 1), thread_name_prefix="workbench")
        modes = _get_current_dispatch_mode_stack()
        for _ in range(helpers):
            futures.append(_pool.submit(_in_worker, work, modes))
    return futures


def _in_worker(work: Callable[[], object], modes: Sequence[TorchDispatchMode]) -> None:
    """Modes, such as the memory meter, belong to a thread: they follow the work, to see the tensors that it makes."""
    _local.is_worker = True
    pushed = 0
    try:
        for mode in modes:
            _push_mode(mode)
            pushed += 1
        work()
    finally:
        for _ in range(pushed):
            _pop_mode()


def _taken(waiting: "deque[Callable[[], object]]") -> Iterator[Callable[[], object]]:
    """The tasks that this thread gets; others may take from the same ones."""
    while True:
        try:
            task = waiting.popleft()
        except IndexError:
            return
        yield task


def run_tasks(tasks: Sequence[Callable[[], object]]) -> None:
    """Run the tasks in the calling thread and the pool's; return when all are done.

    Every thread takes the next task when it is free, so the call succeeds with however many threads the system starts.
    A task that starts tasks runs them in its own thread, so that the pool can't wait for itself. After an error or an
    interrupt no further task starts.
    """
    waiting = deque(tasks)

    def work() -> None:
        try:
            for task in _taken(waiting):
                task()
        except BaseException:
            waiting.clear()
            raise

    if len(tasks) <= 1 or _threads == 1 or getattr(_local, "is_worker", False):
        work()
        return
    futures = _submit(work, min(len(tasks), _threads) - 1)
    try:
        work()
    finally:
        waiting.clear()
        for future in futures:
            if not future.cancel():
                future.exception()  # wait for those that run: their kernels use the caller's arrays
    for future in futures:
        if not future.cancelled():
            future.result()


def num_chunks(rows: int, min_rows: int = MIN_ROWS_PER_THREAD) -> int:
    """Number of row ranges to cut `rows` into: one per thread, but none smaller than `min_rows`."""
    return max(1, min(_threads, rows // max(1, min_rows)))


def parallel_rows(kernel: Callable[[int, int], object], rows: int, min_rows: int = MIN_ROWS_PER_THREAD) -> None:
    """Run `kernel(lo, hi)` over ranges that cover `range(rows)`, one range per thread.

    Args:
        kernel: called with a half-open row range; must release the interpreter lock to run at once.
        rows: number of rows.
        min_rows: rows below which another thread costs more than it saves.
    """
    chunks = num_chunks(rows, min_rows)
    _run_ranges(kernel, [rows * i // chunks for i in range(chunks + 1)])


def parallel_edges(kernel: Callable[[int, int], object], indptr: Tensor, work_per_edge: int = 2) -> None:
    """Run `kernel(lo, hi)` over row ranges of about equal numbers of edges; threads take the next range when free.

    Args:
        kernel: called with a half-open row range; must release the interpreter lock to run at once.
        indptr: int64 [rows + 1].
        work_per_edge: values read per edge, or as much work; below a threshold one thread does all.
    """
    rows, starts = len(indptr) - 1, indptr.numpy()
    work = int(starts[rows]) + rows
    threads = max(1, min(_threads, work * work_per_edge // _MIN_WORK_PER_THREAD))
    pieces = threads * _PIECES_PER_THREAD if threads > 1 else 1
    targets = [work * i // pieces for i in range(1, pieces)]
    bounds = [0, *(bisect_left(range(rows), t, key=lambda row: int(starts[row]) + row) for t in targets), rows]
    _run_ranges(kernel, bounds)


def _run_ranges(kernel: Callable[[int, int], object], bounds: list[int]) -> None:
    run_tasks([lambda lo=lo, hi=hi: kernel(lo, hi) for lo, hi in pairwise(bounds) if lo < hi])
