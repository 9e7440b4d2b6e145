"""`StateBatches`: an iterable over the batches of an epoch while partitions pass through a buffer."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from workbench.core.errors import check_at_least, check_seed
from workbench.meter.stopwatch import Phase, timed, unmeasured
from workbench.sampling.loader import prefetch

T = TypeVar("T")
Orders = Callable[[int], Any]
"""The order of an epoch, by the epoch's number."""


@dataclass(frozen=True)
class BatchCut:
    """How the items of a state are cut into batches; the arguments are those of `workbench.buffer_batches`."""

    batch_size: int
    shuffle: bool = True
    drop_last: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size, 1)
        check_seed(self.seed)

    def slices(self, count: int) -> list[slice]:
        """The batches of a state that trains `count` items."""
        end = count - self.batch_size + 1 if self.drop_last else count
        return [slice(start, start + self.batch_size) for start in range(0, end, self.batch_size)]

    def most_batches(self, count: int, num_states: int) -> int:
        """Batches of an epoch of `count` items at most, however they are divided among the states."""
        if self.drop_last:
            return count // self.batch_size
        return max(0, count - num_states) // self.batch_size + min(count, num_states)


@dataclass(frozen=True)
class StateEpoch(Generic[T]):
    """What an epoch trains.

    Args:
        counts: number of items that each state trains.
        sampler_of: maps a state to the function that samples one of its batches, from the batch's step and slice.
    """

    counts: list[int]
    sampler_of: Callable[[Any], Callable[[int, slice], T]]


class StateBatches(Generic[T]):
    """The batches of an epoch from a buffer, as `workbench.buffer_batches` and `workbench.buffer_edge_batches` return.

    Each `for` loop over it is a new epoch (0, 1, 2, …), and passes its states through the buffer: whatever ends the
    loop ends the buffer's epoch too. Steps are numbered through all epochs, so that no two batches of a run share
    random variates; as the number of batches differs between epochs, some numbers are left out. With one state they are
    those of `workbench.batches`. `len` is the number of batches of the next epoch.

    Create it once, before the loop over epochs.

    Args:
        buffer: the partition buffer.
        orders: maps an epoch's number to its order.
        work: maps an order and its epoch to what the epoch trains.
        cut: how the items of a state are cut into batches.
        epoch: the only epoch, so that every loop sees the same batches; None: a new one per loop.
        sample_ahead: number of batches of a state that a background thread samples ahead; 0: none.
        phase: entered around what the loop waits for: "fill" (the first state), "load" (every other), "sample" (each
            batch) and "flush" (the end of the buffer's epoch).
        on_epoch: called with the epoch's number when a loop begins whose epoch nobody chose.
    """

    def __init__(
        self,
        buffer: Any,
        orders: Orders,
        work: Callable[[Any, int], StateEpoch[T]],
        cut: BatchCut,
        *,
        epoch: int | None = None,
        sample_ahead: int = 0,
        phase: Phase = unmeasured,
        on_epoch: Callable[[int], object] | None = None,
    ) -> None:
        check_at_least("epoch", 0 if epoch is None else epoch, 0)
        check_at_least("sample_ahead", sample_ahead, 0)
        self._buffer, self._orders, self._work, self._cut, self._ahead = buffer, orders, work, cut, sample_ahead
        self._pinned, self._next, self._phase = epoch, 0, phase
        self._on_epoch = on_epoch if epoch is None else None
        first = orders(0)
        self._num_states = first.num_states
        self._stride = cut.most_batches(sum(work(first, 0).counts), first.num_states)

    def __len__(self) -> int:
        return sum(len(self._cut.slices(count)) for count in self._begin(self.next_epoch)[1].counts)

    def __iter__(self) -> Iterator[T]:
        epoch = self.next_epoch
        if self._pinned is None:
            self._next += 1
        if self._on_epoch is not None:
            self._on_epoch(epoch)
        return self._batches(epoch)

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next loop runs through."""
        return self._next if self._pinned is None else self._pinned

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next loop; later loops go on from there.

        Args:
            epoch: number of the epoch, from 0.

        Raises:
            ValueError: the number is below 0, or the object has one epoch only (`epoch=` was given).
        """
        check_at_least("epoch", epoch, 0)
        if self._pinned is not None:
            raise ValueError(
                f"these batches are those of epoch {self._pinned} alone; omit epoch= where they are created, or call "
                ".epoch(e) for another one"
            )
        self._next, self._on_epoch = epoch, None

    def epoch(self, epoch: int) -> "StateBatches[T]":
        """Return the batches of one epoch: every loop over them sees the same ones.

        Args:
            epoch: number of the epoch, from 0.

        Raises:
            ValueError: the number is below 0.
        """
        options: dict[str, Any] = {"epoch": epoch, "sample_ahead": self._ahead, "phase": self._phase}
        return StateBatches(self._buffer, self._orders, self._work, self._cut, **options)

    def _begin(self, epoch: int) -> tuple[Any, StateEpoch[T]]:
        order = self._orders(epoch)
        if order.num_states != self._num_states:
            raise ValueError(
                f"the order of epoch {epoch} has {order.num_states} states, that of epoch 0 has {self._num_states}; "
                "steps could not be numbered through all epochs: pass orders of the same numbers of partitions"
            )
        return order, self._work(order, epoch)

    def _batches(self, epoch: int) -> Iterator[T]:
        order, work = self._begin(epoch)
        step = epoch * self._stride
        with closing(self._buffer.epoch(order)) as states:
            for number, count in enumerate(work.counts):
                with self._phase("load" if number else "fill"):
                    state = next(states)
                slices, sample = self._cut.slices(count), work.sampler_of(state)
                batches = (sample(step + i, chosen) for i, chosen in enumerate(slices))
                yield from timed(prefetch(batches, self._ahead) if self._ahead else batches, self._phase, "sample")
                step += len(slices)
            with self._phase("flush"):
                next(states, None)

    def __repr__(self) -> str:
        which = f"next is epoch {self.next_epoch}" if self._pinned is None else f"epoch {self._pinned}"
        return f"StateBatches({self._num_states} states, batch_size={self._cut.batch_size}; {which})"


def store_of(buffer: Any) -> Any:
    """Return the store of a partition buffer.

    Args:
        buffer: a `PartitionBuffer`, or an object with its `store` and `epoch`.

    Raises:
        TypeError: another object.
    """
    if not (hasattr(buffer, "store") and hasattr(buffer, "epoch")):
        raise TypeError(f"buffer is a {type(buffer).__name__}; pass wb.PartitionBuffer(store, capacity=c)")
    return buffer.store


def orders_of(order: Any, kind: type, remedy: str) -> Orders:
    """Return the function from epochs to orders that a caller passed, or one that returns the same order each time.

    Args:
        order: an order, or a function from an epoch's number to one.
        kind: type of the order.
        remedy: what to pass instead.

    Raises:
        TypeError: neither is given.
    """

    def checked(found: Any) -> Any:
        if not isinstance(found, kind):
            raise TypeError(f"order is a {type(found).__name__}, not a {kind.__name__}; {remedy}")
        return found

    if callable(order):
        return lambda epoch: checked(order(epoch))
    checked(order)
    return lambda _: order
