"""`Batches`: an iterable over the mini-batches of an epoch, whose epochs differ."""

import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, is_dataclass
from itertools import chain, islice, repeat
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_seed
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream

T = TypeVar("T")


@dataclass(frozen=True)
class EpochOrder:
    """How an epoch over `count` items is cut into batches; the arguments are those of `workbench.batches`."""

    count: int
    batch_size: int
    shuffle: bool = True
    drop_last: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size, 1)
        check_seed(self.seed)

    def __len__(self) -> int:
        return len(self._starts())

    def positions(self, epoch: int, skip: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Yield (step, positions of the batch's items) for an epoch, after its first `skip` batches.

        The order depends on (seed, epoch) alone. Steps are numbered through all epochs.
        """
        order = self._permutation(epoch) if self.shuffle else torch.arange(self.count)
        starts = self._starts()[skip:]
        first = epoch * len(self) + skip
        return ((step, order[start : start + self.batch_size]) for step, start in enumerate(starts, first))

    def _permutation(self, epoch: int) -> Tensor:
        return permutation(stream(self.seed, Purpose.SHUFFLE, epoch), self.count)

    def _starts(self) -> range:
        return range(0, self.count - self.batch_size + 1 if self.drop_last else self.count, self.batch_size)


class Order(Protocol):
    """How an epoch is cut into batches: `EpochOrder`, or what replaces it."""

    @property
    def count(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    def __len__(self) -> int: ...

    def positions(self, epoch: int, skip: int = 0) -> Iterator[tuple[int, Tensor]]: ...


def one_by_one(sample: Callable[[int, Tensor], T]) -> Callable[[Iterator[tuple[int, Tensor]]], Iterator[T]]:
    """Return the function that samples every batch when the loop asks for it.

    Args:
        sample: maps a step and the positions of its items to what the loop receives.
    """
    return lambda positions: (sample(step, chosen) for step, chosen in positions)


class Batches(Generic[T]):
    """The mini-batches of an epoch, as `workbench.batches` and `workbench.edge_batches` return them.

    Each `for` loop over it is a new epoch (0, 1, 2, …): order and neighbours differ, and steps are numbered through all
    epochs, so that no two batches of a run share random variates. `len` is the number of batches per epoch. Epoch e is
    the same batches in every process, whatever was iterated before.

    Create it once, before the loop over epochs.

    Args:
        order: how an epoch is cut into batches.
        sample: maps the steps and the positions of their items, int64 [batch size], to what the loop receives;
            `one_by_one` makes it of a function of one of them.
        epoch: the only epoch, so that every loop over the object sees the same batches; None: a new one per loop.
        on_epoch: called with the epoch's number when a loop begins whose epoch nobody chose.
    """

    def __init__(
        self,
        order: Order,
        sample: Callable[[Iterator[tuple[int, Tensor]]], Iterator[T]],
        *,
        epoch: int | None = None,
        on_epoch: Callable[[int], object] | None = None,
    ) -> None:
        if epoch is not None:
            check_at_least("epoch", epoch, 0)
        self._order, self._sample = order, sample
        self._on_epoch = on_epoch if epoch is None else None
        self._pinned, self._next, self._skip = epoch, 0, 0

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[T]:
        epoch, skip = self.next_epoch, self._skip
        if self._pinned is None:
            self._next += 1
        self._skip = 0
        if self._on_epoch is not None:
            self._on_epoch(epoch)
        return self._sample(self._order.positions(epoch, skip))

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next loop runs through."""
        return self._next if self._pinned is None else self._pinned

    def set_epoch(self, epoch: int, *, skip: int = 0) -> None:
        """Choose the epoch of the next loop; later loops go on from there.

        Together with `skip` this resumes a run from a checkpoint in the middle of an epoch.

        Args:
            epoch: number of the epoch, from 0.
            skip: number of batches of that epoch to leave out, without sampling them.

        Raises:
            ValueError: a number is out of range, or the object has one epoch only (`epoch=` was given).
        """
        check_at_least("epoch", epoch, 0)
        check_at_least("skip", skip, 0, most=len(self))
        if self._pinned is not None:
            raise ValueError(
                f"these batches are those of epoch {self._pinned} alone, which epoch={self._pinned} chose; omit epoch= "
                "where they are created, or call .epoch(e) for another one"
            )
        self._next, self._skip, self._on_epoch = epoch, skip, None

    def epoch(self, epoch: int) -> "Batches[T]":
        """Return the batches of one epoch: every loop over them sees the same ones.

        Args:
            epoch: number of the epoch, from 0.

        Raises:
            ValueError: the number is below 0.
        """
        return Batches(self._order, self._sample, epoch=epoch)

    def steps(self, count: int) -> Iterator[T]:
        """Iterate over a number of batches, epoch after epoch; an epoch that is left early counts as begun.

        Args:
            count: number of batches.

        Raises:
            ValueError: a number below 0, or more batches than there are: an epoch is empty, or the only one.
        """
        check_at_least("count", count, 0)
        if count > len(self) and (self._pinned is not None or not len(self)):
            one = "the only epoch" if self._pinned is not None else "an epoch"
            raise ValueError(f"count is {count}, but {one} has {len(self)} batches; omit epoch=, or lower batch_size")
        self._on_epoch = None  # who counts batches through the epochs has chosen these
        return islice(chain.from_iterable(repeat(self)), count)

    def __repr__(self) -> str:
        which = f"next is epoch {self.next_epoch}" if self._pinned is None else f"epoch {self._pinned}"
        return f"Batches({len(self)} per epoch, {self._order.count} ids, batch_size={self._order.batch_size}; {which})"


_MOST_REPEATS = 2

_repeats: WeakKeyDictionary[Graph, dict[Hashable, int]] = WeakKeyDictionary()


def repeat_warner(graph: Graph, *configuration: object) -> Callable[[int], None]:
    """Return a function to call when a loop over a loader begins; it warns if equal loaders repeat epoch 0.

    The same batches in every epoch raise no error, and training goes worse. A loader that reaches epoch 1 resets the
    count, so that a notebook's cell may run again.
    """

    def note(epoch: int) -> None:
        counts = _repeats.setdefault(graph, {})
        key = tuple(map(_key, configuration))
        repeats = counts.pop(key, 0)
        if epoch:
            return
        counts[key] = repeats + 1
        if repeats == _MOST_REPEATS:
            warnings.warn(
                f"{repeats + 1} loaders with the same arguments were iterated from epoch 0, so all of them gave the "
                "same batches: same order, same neighbours. Create the loader once, before the loop over epochs (each "
                "loop over it is a new epoch), or pass epoch=: the number of the epoch, or 0 to repeat it on purpose",
                RuntimeWarning,
                stacklevel=3,
            )

    return note


def _key(value: object) -> Hashable:
    """Return a key that is equal for values that give the same batches: by contents, or else by identity."""
    if isinstance(value, Tensor):
        return tuple(value.shape), hash(value.cpu().numpy().tobytes())
    try:
        hash(value)
    except TypeError:
        return repr(value) if is_dataclass(value) else _Identity(value)
    return value


class _Identity:
    """Equal to itself alone, as long as it is kept: an `id` serves again when its object is gone."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
