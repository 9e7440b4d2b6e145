"""The thread pool that all CPU kernels share.

Numba's parallel loops abort in a process that forks after using them (DataLoader workers) and break with a second
Python thread. Kernels are therefore plain functions over a row range that release the interpreter lock.
"""

import os
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

MIN_ROWS_PER_THREAD = 2048
_MIN_WORK_PER_THREAD = 1 << 22  # a millisecond: a thread takes 60 to 80 µs to wake, and displaces one of torch's
_CHUNKS_PER_THREAD = 4
_local = threading.local()
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _default_threads() -> int:
    setting = os.environ.get("WORKBENCH_NUM_THREADS")
    if setting is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not setting.isdigit() or int(setting) < 1:
        raise ValueError(f"WORKBENCH_NUM_THREADS is {setting!r}; it must be a whole number of threads, at least 1")
    return int(setting)


_threads = _default_threads()


def get_num_threads() -> int:
    """Return the number of threads of CPU kernels: by default WORKBENCH_NUM_THREADS, or the cores of this process."""
    return _threads


def set_num_threads(count: int) -> None:
    """Set the number of threads of CPU kernels; results do not depend on it.

    Args:
        count: number of threads, at least 1.

    Raises:
        ValueError: if `count` is below 1.
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


def _reset_pool() -> None:
    """Reset the pool in a forked child, where its threads do not exist and the lock may never be released."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()
    _local.__dict__.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_pool)


def _start_pool(size: int) -> ThreadPoolExecutor:
    """Start all threads of a pool of `size`, or as many as the system can, with one thread for torch's operations each.

    In every thread that runs an operation in parallel, OpenMP keeps a team of its own. As soon as the teams have more
    threads than the machine has cores, their threads sleep between operations instead of spinning, and each operation
    of the *main* thread pays 50 µs to wake its team: steps on small micro-batches took twice as long. Torch's number
    also becomes that of all threads that start later, so it is set back before the pool is used.
    """
    pool = ThreadPoolExecutor(size, thread_name_prefix="workbench")
    ready, go = threading.Semaphore(0), threading.Event()
    torch_threads, started = torch.get_num_threads(), 0

    def start() -> None:
        torch.get_num_threads()  # a thread's first use of its number would overwrite it
        torch.set_num_threads(1)
        ready.release()
        go.wait()  # so that each thread runs this once

    try:
        with suppress(RuntimeError):  # the system can't start more threads
            while started < size:
                pool.submit(start)
                started += 1
        for _ in range(started):
            ready.acquire()
    finally:
        go.set()
        torch.set_num_threads(torch_threads)
    if started == size:
        return pool
    pool.shutdown(cancel_futures=True)
    if not started:
        raise RuntimeError("can't start a thread")
    return _start_pool(started)


def _submit(work: Callable[[], object], helpers: int) -> list[Future[None]]:
    """Submit `work` to up to `helpers` pool threads, fewer if the system can't start more threads."""
    global _pool
    futures: list[Future[None]] = []
    with _lock, suppress(RuntimeError):  # held until all are queued: another thread may be replacing the pool
        if _pool is None:
            _pool = _start_pool(max(1, _threads - 1))
        modes = _get_current_dispatch_mode_stack()
        for _ in range(helpers):
            futures.append(_pool.submit(_in_worker, work, modes))
    return futures


def _in_worker(work: Callable[[], object], modes: Sequence[TorchDispatchMode]) -> None:
    """Run `work` under the caller's dispatch modes, such as the memory meter, which otherwise apply to one thread."""
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


def _next_tasks(waiting: "deque[Callable[[], object]]") -> Iterator[Callable[[], object]]:
    """Yield tasks from a queue that several threads share."""
    while True:
        try:
            task = waiting.popleft()
        except IndexError:
            return
        yield task


def run_tasks(tasks: Sequence[Callable[[], object]]) -> None:
    """Run tasks in the calling thread and the pool's threads, and return when all are done.

    Each thread fetches the next task when it is free, so the call succeeds with any number of pool threads. Nested
    calls run their tasks in the current thread, so that the pool can't deadlock. After an error or an interrupt no
    further task starts.
    """
    waiting = deque(tasks)

    def work() -> None:
        try:
            for task in _next_tasks(waiting):
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
                future.exception()  # wait for running tasks, whose kernels use the caller's arrays
    for future in futures:
        if not future.cancelled():
            future.result()


def num_chunks(rows: int, min_rows: int = MIN_ROWS_PER_THREAD) -> int:
    """Return the number of ranges to divide `rows` into: one per thread, each of at least `min_rows` rows."""
    return max(1, min(_threads, rows // max(1, min_rows)))


def parallel_rows(kernel: Callable[[int, int], object], rows: int, min_rows: int = MIN_ROWS_PER_THREAD) -> None:
    """Run `kernel(lo, hi)` over ranges that cover `range(rows)`, one range per thread.

    Args:
        kernel: function of a half-open row range; it runs in parallel only if it releases the interpreter lock.
        rows: number of rows.
        min_rows: minimum number of rows per thread, below which another thread costs more than it saves.
    """
    chunks = num_chunks(rows, min_rows)
    _run_ranges(kernel, [rows * i // chunks for i in range(chunks + 1)])


def parallel_edges(kernel: Callable[[int, int], object], indptr: Tensor, work_per_edge: int = 2) -> None:
    """Run `kernel(lo, hi)` over row ranges with about the same number of edges, which threads fetch dynamically.

    Args:
        kernel: function of a half-open row range; it runs in parallel only if it releases the interpreter lock.
        indptr: int64 [rows + 1].
        work_per_edge: number of values read per edge, or equivalent work; small totals run in one thread.
    """
    starts = indptr.numpy()
    rows = len(starts) - 1
    work = int(starts[rows]) + rows
    threads = min(_threads, work * work_per_edge // _MIN_WORK_PER_THREAD)
    if threads <= 1:
        if rows:
            kernel(0, rows)
        return
    chunks = threads * _CHUNKS_PER_THREAD
    targets = [work * i // chunks for i in range(1, chunks)]
    bounds = [0, *(bisect_left(range(rows), t, key=lambda row: int(starts[row]) + row) for t in targets), rows]
    _run_ranges(kernel, bounds)


def _run_ranges(kernel: Callable[[int, int], object], bounds: list[int]) -> None:
    if len(bounds) == 2:
        if bounds[0] < bounds[1]:
            kernel(*bounds)
        return
    run_tasks([lambda lo=lo, hi=hi: kernel(lo, hi) for lo, hi in pairwise(bounds) if lo < hi])
