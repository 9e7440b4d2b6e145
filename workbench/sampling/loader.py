"""The loader: `batches` samples the mini-batches of an epoch, `prefetch` computes them ahead in a background thread."""

import queue
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids, check_seed
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.sampling.sampler import Sampler

T = TypeVar("T")

_JOIN_SECONDS = 5.0
_POLL_SECONDS = 1.0


def batches(
    graph: Graph,
    ids: Tensor,
    *,
    sampler: Sampler,
    batch_size: int,
    epoch: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
) -> Iterator[tuple[int, MiniBatch]]:
    """Sample one epoch of mini-batches.

    The order depends on (seed, epoch) alone. Steps are numbered through all epochs, so that no two batches of a run
    over the same number of ids share random variates.

    Args:
        graph: the graph to sample from.
        ids: int64 or int32 [n], training node ids, each once.
        sampler: has `sample(graph, seeds, step=…)`.
        batch_size: seeds per batch, at least 1.
        epoch: number of the epoch, from 0.
        shuffle: permute the ids in every epoch.
        drop_last: drop the last batch if it is smaller.
        seed: seed of the permutations, a 64-bit integer.

    Yields:
        (step, batch).

    Raises:
        TypeError: ids of another dtype.
        ValueError: duplicate ids, or `batch_size` or `epoch` below its minimum; raised by the call, not by the first
            batch, as all errors here.
        IndexError: an id out of range.
    """
    slices = epoch_slices(len(ids), batch_size, epoch=epoch, shuffle=shuffle, drop_last=drop_last, seed=seed)
    ids = check_ids("ids", ids, graph.num_nodes, unique=True)
    return ((step, sampler.sample(graph, ids[chosen.to(ids.device)], step=step)) for step, chosen in slices)


def epoch_slices(
    count: int, batch_size: int, *, epoch: int, shuffle: bool, drop_last: bool, seed: int
) -> Iterator[tuple[int, Tensor]]:
    """Yield (step, positions of the batch's items) for an epoch over `count` items, with the arguments of `batches`."""
    check_at_least("batch_size", batch_size, 1)
    check_at_least("epoch", epoch, 0)
    check_seed(seed)
    order = permutation(stream(seed, Purpose.SHUFFLE, epoch), count) if shuffle else torch.arange(count)
    starts = range(0, count - batch_size + 1 if drop_last else count, batch_size)
    return ((step, order[start : start + batch_size]) for step, start in enumerate(starts, epoch * len(starts)))


class _End:
    """Marks the end of the queue, with the producer's error if there was one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch(iterable: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Prefetch the items of an iterable in a background thread, up to `depth` ahead.

    Samplers release the GIL, so sampling overlaps with training. The order is kept; an error in the iterable is raised
    in place of its item; leaving the loop early ends the thread after its current item. The thread does not inherit
    `torch.no_grad()`.

    Args:
        iterable: the iterable to prefetch.
        depth: size of the queue of finished items, at least 1.

    Yields:
        The items, in order.

    Raises:
        ValueError: `depth` below 1.
        RuntimeError: the process was forked, so the thread does not exist.

    Warns:
        RuntimeWarning: the loop was left early, and the iterable did not finish its current item within 5 seconds; the
            thread runs in the background until it does.
    """
    check_at_least("depth", depth, 1)
    return _prefetched(iter(iterable), depth)


def _prefetched(iterator: Iterator[T], depth: int) -> Iterator[T]:
    ready: queue.Queue[T | _End] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: T | _End) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.05)
            except queue.Full:
                continue
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
    thread.start()
    try:
        while not isinstance(item := _next(ready, thread), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        thread.join(_JOIN_SECONDS)
        if thread.is_alive():
            warnings.warn(
                f"the loop over prefetch ended, but its iterable has not returned for {_JOIN_SECONDS:g} s; its thread "
                "keeps running until it does",
                RuntimeWarning,
                stacklevel=2,
            )


def _next(ready: "queue.Queue[T | _End]", thread: threading.Thread) -> T | _End:
    while True:
        try:
            return ready.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            if not thread.is_alive() and ready.empty():
                raise RuntimeError(
                    "the thread of prefetch does not exist, as after a fork; call prefetch in the process that iterates"
                ) from None
