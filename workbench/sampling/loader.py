"""The loader: `batches` samples the mini-batches of an epoch, `prefetch` computes them ahead in a background thread."""

import atexit
import queue
import threading
import time
import warnings
import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_device, check_ids, check_type
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.kernels.buffers import copy_stream, to_device
from workbench.sampling.batches import Batches, EpochOrder, one_by_one, repeat_warner
from workbench.sampling.sampler import Sampler, check_graph, check_sampler

T = TypeVar("T")

_JOIN_SECONDS = 3.0
_EXIT_SECONDS = 2.0  # for all threads together
_POLL_SECONDS = 1.0


def batches(
    graph: Graph,
    ids: Tensor,
    *,
    sampler: Sampler,
    batch_size: int,
    epoch: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
) -> Batches[tuple[int, MiniBatch]]:
    """Sample mini-batches of node ids, epoch by epoch.

    Create the object once; each loop over it is a new epoch (0, 1, 2, …), whose order and neighbours differ:

        loader = batches(graph, ids, sampler=sampler, batch_size=1024)
        for epoch in range(15):
            for step, batch in loader: …

    The order depends on (seed, epoch) alone. Steps are numbered through all epochs, so that no two batches of a run
    over the same number of ids share random variates. `len(loader)` is the number of batches per epoch,
    `loader.epoch(3)` are the batches of epoch 3, and `loader.set_epoch(3, skip=100)` resumes a run.

    Args:
        graph: the graph to sample from.
        ids: int64 or int32 [n], training node ids, each once.
        sampler: has `sample(graph, seeds, step=…)`. Its fanouts are those of the layers, input layer first.
        batch_size: seeds per batch, at least 1.
        epoch: number of the only epoch, from 0: every loop sees the same batches. None: a new epoch per loop.
        shuffle: permute the ids in every epoch.
        drop_last: drop the last batch if it is smaller.
        seed: seed of the permutations, a 64-bit integer. Neighbours depend on the sampler's own seed and on the step.

    Returns:
        `Batches` of (step, batch).

    Raises:
        TypeError: ids of another dtype.
        ValueError: duplicate ids, or `batch_size` or `epoch` below its minimum; raised by the call, not by the first
            batch, as all errors here.
        IndexError: an id out of range.

    Warns:
        RuntimeWarning: the third object with the same arguments is iterated from epoch 0, as happens if it is created
            inside the loop over epochs: all of them yield the same batches.
    """
    check_graph(graph)
    check_sampler(sampler)
    ids = check_ids("ids", ids, graph.num_nodes, unique=True)
    order = EpochOrder(len(ids), batch_size, shuffle, drop_last, seed)

    def sample(step: int, positions: Tensor) -> tuple[int, MiniBatch]:
        return step, sampler.sample(graph, ids[positions.to(ids.device)], step=step)

    # An evaluation, which usually does not shuffle, may want the same neighbours each time.
    warner = repeat_warner(graph, order, sampler, ids) if shuffle else None
    return Batches(order, one_by_one(sample), epoch=epoch, on_epoch=warner)


_running: "weakref.WeakKeyDictionary[threading.Thread, threading.Event]" = weakref.WeakKeyDictionary()
"""The event that stops each thread of `prefetch`."""


def _stop_all() -> None:
    """Stop the threads of loops that are open when the interpreter ends; one inside torch would abort the process."""
    running = list(_running.items())
    _running.clear()
    for _, stopped in running:
        stopped.set()
    until = time.monotonic() + _EXIT_SECONDS
    for thread, _ in running:
        thread.join(max(0.0, until - time.monotonic()))


atexit.register(_stop_all)


class _End:
    """Marks the end of the queue, with the producer's error if there was one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch(iterable: Iterable[T], depth: int = 2, *, device: torch.device | str | None = None) -> "Prefetched[T]":
    """Prefetch the items of an iterable in a background thread, up to `depth` ahead.

    Samplers release the GIL, so sampling overlaps with training. The order is kept; an error in the iterable is raised
    in place of its item; leaving the loop early ends the thread after its current item. The thread does not inherit
    `torch.no_grad()`.

    With a GPU as `device`, the thread also copies items there, on a stream of its own from pinned memory: each copy
    overlaps with the steps before, and the loop's stream waits for it on the GPU, the host never. Combine it with
    `workbench.training.fetch_rows`, which reads the features and labels of each batch.

    Args:
        iterable: the iterable to prefetch. For a GPU it produces on the thread's stream; what it reads there (a graph,
            a cache) must not be written by the loop.
        depth: size of the queue of finished items, at least 1; up to `depth` + 1 are in memory besides the loop's.
        device: where the tensors, batches and other records of an item are copied, also in tuples, lists and
            dictionaries; None leaves items as they are.

    Returns:
        An iterable of the items, in order, with the length of `iterable` if it has one. Each loop over it is a loop
        over `iterable`: prefetched `Batches` too are a new epoch per loop.

    Raises:
        TypeError: `iterable` is not iterable.
        ValueError: `depth` below 1, or a device that this process can't use.
        RuntimeError: the process was forked, so the thread does not exist.

    Warns:
        RuntimeWarning: the loop was left early, and the iterable did not finish its current item within 3 seconds; the
            thread runs in the background until it does.
    """
    check_at_least("depth", depth, 1)
    check_type("iterable", iterable, Iterable, "which is not iterable; pass batches(…), a list or a generator")
    return Prefetched(iterable, depth, None if device is None else check_device("device", device))


class Prefetched(Generic[T]):
    """The items of an iterable, which a background thread produces; see `workbench.prefetch`.

    Args:
        iterable: the iterable to prefetch.
        depth: size of the queue of finished items.
        device: where items are copied; None leaves them as they are.
    """

    def __init__(self, iterable: Iterable[T], depth: int, device: torch.device | None = None) -> None:
        self._iterable, self._depth, self._device = iterable, depth, device

    def __iter__(self) -> Iterator[T]:
        if self._device is None:
            return _prefetched(iter(self._iterable), self._depth)
        if self._device.type != "cuda":
            return _prefetched((_copied(item, self._device) for item in self._iterable), self._depth)
        return _prefetched_to_gpu(self._iterable, self._depth, self._device)

    def __len__(self) -> int:
        sized: Any = self._iterable
        return len(sized)


def _prefetched(iterator: Iterator[T], depth: int) -> Generator[T, None, None]:
    # An interrupt of `queue.Queue.get` may end in a RuntimeError; a simple queue waits in one step of the interpreter.
    ready, room, stopped = queue.SimpleQueue[T | _End](), queue.SimpleQueue[None](), threading.Event()
    for _ in range(depth):
        room.put(None)

    def put(item: T | _End) -> bool:
        while not stopped.is_set():
            try:
                room.get(timeout=0.05)
            except queue.Empty:
                continue
            ready.put(item)
            return True
        return False

    def produce() -> None:
        try:
            for item in iterator:
                if not put(item):
                    break
            put(_End())
        except BaseException as error:  # raised again in the consumer
            put(_End(error))
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=produce, name="workbench-prefetch", daemon=True)
    _running[thread] = stopped
    thread.start()
    try:
        while not isinstance(item := _next(ready, thread), _End):
            room.put(None)
            yield item
            del item  # only the loop needs its memory while the next one is awaited
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        if _running.pop(thread, None) is not None:  # else the interpreter ends, and the thread was waited for
            _join(thread)


def _prefetched_to_gpu(iterable: Iterable[T], depth: int, device: torch.device) -> Iterator[T]:
    stream = copy_stream(device, "to")
    stream.wait_stream(torch.cuda.current_stream(device))  # what the iterable reads may just have been written

    def produce() -> Iterator[tuple[T, Any]]:
        iterator, end = iter(iterable), object()
        while True:
            with torch.cuda.stream(stream):  # of this thread, and not while the generator is suspended
                if (item := next(iterator, end)) is end:
                    return
                copied: Any = _copied(item, device)
            yield copied, stream.record_event()

    try:
        with closing(_prefetched(produce(), depth)) as items:
            for item, ready in items:
                current = torch.cuda.current_stream(device)
                current.wait_event(ready)
                _record_stream(item, current)
                yield item
                del item
    finally:
        torch.cuda.current_stream(device).wait_stream(stream)


def _copied(item: Any, device: torch.device) -> Any:
    """Copy the tensors and records of an item to a device."""
    if isinstance(item, Tensor):
        return to_device(item, device, non_blocking=device.type == "cuda")
    if _is_record(item):
        return item.to(device, non_blocking=device.type == "cuda")  # the host would not know when a copy is complete
    if isinstance(item, dict):
        return {key: _copied(value, device) for key, value in item.items()}
    if isinstance(item, list | tuple):
        copied = [_copied(value, device) for value in item]
        return type(item)(*copied) if hasattr(item, "_fields") else type(item)(copied)
    return item


def _record_stream(item: Any, stream: torch.cuda.Stream) -> None:
    """Keep an item's memory, of another stream, from being reused before this stream has read it."""
    if isinstance(item, Tensor) or _is_record(item):
        item.record_stream(stream)
    elif isinstance(item, dict | list | tuple):
        for value in item.values() if isinstance(item, dict) else item:
            _record_stream(value, stream)


def _is_record(item: Any) -> bool:
    return hasattr(item, "to") and hasattr(item, "record_stream")


def _join(thread: threading.Thread) -> None:
    thread.join(_JOIN_SECONDS)
    if thread.is_alive():
        warnings.warn(
            f"the loop over prefetch ended, but its iterable has not returned for {_JOIN_SECONDS:g} s; its thread "
            "keeps running until it does",
            RuntimeWarning,
            stacklevel=3,
        )


def _next(ready: "queue.SimpleQueue[T | _End]", thread: threading.Thread) -> T | _End:
    while True:
        try:
            return ready.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            if not thread.is_alive() and ready.empty():
                raise RuntimeError(
                    "the thread of prefetch does not exist, as after a fork; call prefetch in the process that iterates"
                ) from None
