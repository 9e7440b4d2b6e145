"""From training ids to a stream of mini-batches: `batches` samples them in turn, `prefetch` ahead of the consumer."""

import queue
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from torch import Tensor

from workbench.core.errors import check_at_least, check_ids, check_seed
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream

T = TypeVar("T")

_LEAVE_SECONDS = 5.0
_LOOK_SECONDS = 1.0


class Sampler(Protocol):
    """What turns seeds into a batch."""

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0) -> MiniBatch: ...


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

    The order depends on (seed, epoch) alone. Steps count through all epochs, so that no two batches of a run over
    the same number of ids share variates.

    Args:
        graph: to sample from.
        ids: int64 or int32 training node ids, each once.
        sampler: has `sample(graph, seeds, step=…)`.
        batch_size: seeds a batch.
        epoch: number of the epoch.
        shuffle: take the ids in a new random order every epoch.
        drop_last: leave out a last batch that is smaller.
        seed: any whole number.

    Yields:
        (step, batch).

    Raises:
        TypeError, ValueError, IndexError: ids of another dtype, twice or out of range; sizes below their least. Raised
            at the call, not at the first batch.
    """
    check_at_least("batch_size", batch_size, 1)
    check_at_least("epoch", epoch, 0)
    check_seed(seed)
    ids = check_ids("ids", ids, graph.num_nodes, unique=True)
    order = ids[permutation(stream(seed, Purpose.SHUFFLE, epoch), len(ids)).to(ids.device)] if shuffle else ids
    starts = range(0, len(ids) - batch_size + 1 if drop_last else len(ids), batch_size)
    first_step = epoch * len(starts)

    def generate() -> Iterator[tuple[int, MiniBatch]]:
        for step, start in enumerate(starts, first_step):
            yield step, sampler.sample(graph, order[start : start + batch_size], step=step)

    return generate()


class _End:
    """Sent when the producer stops; carries its error if it had one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch(iterable: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Run an iterable in a thread of its own, up to `depth` items ahead.

    Samplers release the interpreter lock, so sampling overlaps with training. Order is kept; an error in the iterable
    comes out where its item would have; leaving the loop early ends the thread once its current item is there. The
    thread does not inherit `torch.no_grad()`.

    Args:
        iterable: what to run ahead.
        depth: items held ready, at least 1.

    Raises:
        ValueError: `depth` below 1.
        RuntimeError: the process was forked, so that the thread is gone.

    Warns:
        RuntimeWarning: the loop was left, and the iterable did not return from its current item within 5 seconds: the
            thread keeps running in the background until it does.
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
        except BaseException as error:  # handed to the consumer, whatever it is
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
        thread.join(_LEAVE_SECONDS)
        if thread.is_alive():
            warnings.warn(
                f"prefetch was left, but its iterable has not returned for {_LEAVE_SECONDS:g} s; its thread keeps "
                "running until it does",
                RuntimeWarning,
                stacklevel=2,
            )


def _next(ready: "queue.Queue[T | _End]", thread: threading.Thread) -> T | _End:
    while True:
        try:
            return ready.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            if not thread.is_alive() and ready.empty():
                raise RuntimeError(
                    "the thread of prefetch is gone, as after a fork; call prefetch in the process that iterates"
                ) from None
