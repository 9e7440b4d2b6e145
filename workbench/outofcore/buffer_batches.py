"""`outofcore.batches`: node classification from disk, batches of the training nodes that are in the buffer
(MariusGNN).
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids, check_seed
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.links.edge_batch import EdgeBatch
from workbench.links.negatives import Negatives
from workbench.meter.stopwatch import Phase, timed, unmeasured
from workbench.outofcore.bucket_order import BucketOrder, NodeOrder
from workbench.outofcore.buffer_state import takes_any_ids
from workbench.sampling.batches import Batches, repeat_warner
from workbench.sampling.edge_batches import PairSampling
from workbench.sampling.loader import prefetch
from workbench.sampling.sampler import Sampler, check_sampler

_REMEDY = (
    "pass wb.outofcore.node_order(p, c, k), lambda epoch: wb.outofcore.node_order(p, c, k, epoch=epoch), or call "
    "wb.outofcore.edge_batches"
)


@dataclass(frozen=True)
class BatchCut:
    """How the items of a state are cut into batches; the arguments are those of `workbench.outofcore.batches`."""

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


Orders = Callable[[int], Any]
"""The order of an epoch, by the epoch's number."""

T = TypeVar("T")


@dataclass(frozen=True)
class StateEpoch(Generic[T]):
    """What an epoch trains.

    Args:
        counts: number of items that each state trains.
        sampler_of: maps a state to the function that samples one of its batches, from the batch's step and slice.
    """

    counts: list[int]
    sampler_of: Callable[[Any], Callable[[int, slice], T]]


class StateBatches(Batches[T]):
    """The batches of an epoch from a buffer, as `workbench.outofcore.batches` and `workbench.outofcore.edge_batches`
    return.

    As for `workbench.sampling.Batches`, each `for` loop over it is a new epoch, which passes its states through the
    buffer: whatever ends the loop ends the buffer's epoch too. As the number of batches differs between epochs, some
    numbers of steps are left out. With one state, steps are those of `workbench.batches`. `len` is the number of
    batches of the next epoch.

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
        check_at_least("sample_ahead", sample_ahead, 0)
        order: Any = self  # the states decide how an epoch is cut
        drawn: Any = iter  # `positions` yields batches
        super().__init__(order, drawn, epoch=epoch, on_epoch=on_epoch)
        self._buffer, self._orders, self._work, self._cut, self._ahead = buffer, orders, work, cut, sample_ahead
        self._phase = phase
        first = orders(0)
        self._num_states = first.num_states
        self._stride = cut.most_batches(sum(work(first, 0).counts), first.num_states)

    def __len__(self) -> int:
        return sum(len(self._cut.slices(count)) for count in self._begin(self.next_epoch)[1].counts)

    def set_epoch(self, epoch: int, *, skip: int = 0) -> None:
        """Choose the epoch of the next loop, and how many of its batches are left out without sampling them."""
        before = self._next, self._skip, self._on_epoch
        try:
            super().set_epoch(epoch)  # whose number of batches is the most that may be left out
            super().set_epoch(epoch, skip=skip)
        except BaseException:
            self._next, self._skip, self._on_epoch = before
            raise

    def epoch(self, epoch: int) -> "StateBatches[T]":
        """Return the batches of one epoch: every loop over them sees the same ones."""
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

    def positions(self, epoch: int, skip: int = 0) -> Iterator[T]:
        """Yield the batches of an epoch after its first `skip`; every state passes through the buffer."""
        order, work = self._begin(epoch)
        step = epoch * self._stride
        with closing(self._buffer.epoch(order)) as states:
            for number, count in enumerate(work.counts):
                with self._phase("load" if number else "fill"):
                    state = next(states)
                slices, sample = self._cut.slices(count), work.sampler_of(state)
                batches = (sample(step + i, slices[i]) for i in range(skip, len(slices)))
                yield from timed(prefetch(batches, self._ahead) if self._ahead else batches, self._phase, "sample")
                step, skip = step + len(slices), max(0, skip - len(slices))
            with self._phase("flush"):
                next(states, None)

    def __repr__(self) -> str:
        which = f"next is epoch {self.next_epoch}" if self._pinned is None else f"epoch {self._pinned}"
        return f"StateBatches({self._num_states} states, batch_size={self._cut.batch_size}; {which})"


def batches(
    buffer: Any,
    order: NodeOrder | Callable[[int], NodeOrder],
    ids: Tensor,
    *,
    sampler: Sampler,
    batch_size: int,
    epoch: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
    sample_ahead: int = 0,
    phase: Phase = unmeasured,
) -> StateBatches[tuple[Any, int, MiniBatch]]:
    """Sample mini-batches of node ids while partitions pass through a buffer, epoch by epoch.

    Create the object once; each loop over it is a new epoch:

        loader = wb.outofcore.batches(buffer, order, train_ids, sampler=sampler, batch_size=1000)
        for epoch in range(10):
            for state, step, batch in loader:
                wb.train_step(model, batch, state.rows, y, cross_entropy, optimizer)

    Every node is trained once per epoch, in a random state of those with its partition, and its neighbours are drawn
    from the edges in the buffer alone. With all partitions in the buffer, batches and steps are those of
    `workbench.batches` on the store's graph. Orders over all partitions (`wb.outofcore.node_order(p, c, p)`) give
    batches of any nodes, to evaluate a model.

    A state's rows are in memory until the loop asks for the next batch, so don't pass the object to `wb.prefetch`; to
    sample ahead, set `sample_ahead`.

    Args:
        buffer: the `PartitionBuffer`.
        order: of the epoch, or a function from an epoch's number to its order, so that epochs differ.
        ids: int64 or int32 [n], training nodes, each once, as ids of the store; their partitions are those of training
            nodes in the order.
        sampler: has `sample(graph, seeds, step=…)`.
        batch_size: seeds per batch, at least 1; the last one of a state may be smaller.
        epoch: number of the only epoch, from 0: every loop sees the same batches. None: a new epoch per loop.
        shuffle: permute the ids in every epoch.
        drop_last: drop the last batch of a state if it is smaller.
        seed: seed of the permutations and of the nodes' states, a 64-bit integer.
        sample_ahead: number of batches of a state that a background thread samples ahead; 0: none.
        phase: entered around what the loop waits for: "fill" (the first state), "load" (every other), "sample" (each
            batch) and "flush" (the end of the buffer's epoch).

    Returns:
        `StateBatches` of (state of the buffer, step, batch).

    Raises:
        TypeError: ids of another dtype, or an order of another type.
        ValueError: duplicate ids, ids of partitions without training nodes, or a number out of range.
        IndexError: an id out of range.

    Warns:
        RuntimeWarning: the third object with the same arguments is iterated from epoch 0.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.3.
    """
    check_sampler(sampler)
    store = store_of(buffer)
    ids = check_ids("ids", ids, store.num_nodes, unique=True).cpu()
    partition, cut = ids // store.partition_rows, BatchCut(batch_size, shuffle, drop_last, seed)
    orders = orders_of(order, NodeOrder, _REMEDY)
    _check_trained(ids, partition, orders(0))

    def work(order: NodeOrder, epoch: int) -> StateEpoch[tuple[Any, int, MiniBatch]]:
        at = order.states_of(ids, partition, seed=seed, epoch=epoch)
        counts = at.bincount(minlength=order.num_states).tolist()
        sequence = permutation(stream(seed, Purpose.SHUFFLE, epoch), len(ids)) if shuffle else torch.arange(len(ids))
        seeds = ids[sequence[at[sequence].argsort(stable=True)]].split(counts)

        def sampler_of(state: Any) -> Callable[[int, slice], tuple[Any, int, MiniBatch]]:
            of_state = seeds[state.number]
            return lambda step, chosen: (state, step, state.sample(sampler, of_state[chosen], step=step))

        return StateEpoch(counts, sampler_of)

    warner = repeat_warner(buffer, cut, sampler, ids) if shuffle else None
    options: dict[str, Any] = {"epoch": epoch, "sample_ahead": sample_ahead, "phase": phase}
    return StateBatches(buffer, orders, work, cut, on_epoch=warner, **options)


def _check_trained(ids: Tensor, partition: Tensor, order: NodeOrder) -> None:
    """Check that an order visits the partitions of all nodes."""
    visited = len(order.first)
    if len(ids) and int(partition.max()) >= visited:
        worst = int(partition.argmax())
        raise ValueError(
            f"ids contains {int(ids[worst])}, which is in partition {int(partition[worst])}, but only the first "
            f"{visited} have training nodes in the order; pass num_train_partitions={int(partition.max()) + 1} to "
            "wb.outofcore.node_order"
        )


PairBatch = tuple[Any, int, EdgeBatch, MiniBatch]

_EDGE_REMEDY = (
    "pass wb.outofcore.comet_order(p, c), lambda epoch: wb.outofcore.comet_order(p, c, epoch=epoch), or call "
    "wb.outofcore.batches"
)


def edge_batches(
    buffer: Any,
    order: BucketOrder | Callable[[int], BucketOrder],
    *,
    sampler: Sampler | None,
    batch_size: int,
    negatives: Negatives | None = None,
    exclude: str = "both",
    epoch: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
    sample_ahead: int = 0,
    phase: Phase = unmeasured,
) -> StateBatches[PairBatch]:
    """Sample batches of a store's edges while partitions pass through a buffer, epoch by epoch.

    Create the object once; each loop over it is a new epoch, as for `workbench.outofcore.batches`. Every edge is
    trained once per epoch, in the state of its bucket; its neighbours and its negatives are nodes and edges in the
    buffer. With all partitions in the buffer, batches and steps are those of `workbench.edge_batches` on the store's
    graph and edges. A state's rows are in memory until the loop asks for the next batch, so don't pass the object to
    `wb.prefetch`; to sample ahead, set `sample_ahead`.

    Args:
        buffer: the `PartitionBuffer`.
        order: of the epoch, or a function from an epoch's number to its order, so that epochs differ.
        sampler: has `sample(graph, seeds, step=…, exclude_edges=…)`; None: batches without blocks, for decoders alone.
        batch_size: pairs per batch, at least 1; the last one of a state may be smaller.
        negatives: how to draw negatives, from the nodes and edges in the buffer; None: no negatives.
        exclude: edges that are not sampled, as for `workbench.edge_batches`.
        epoch: number of the only epoch, from 0: every loop sees the same batches. None: a new epoch per loop.
        shuffle: permute the edges of every state in every epoch.
        drop_last: drop the last batch of a state if it is smaller.
        seed: seed of the permutations, a 64-bit integer.
        sample_ahead: number of batches of a state that a background thread samples ahead; 0: none.
        phase: entered around what the loop waits for: "fill" (the first state), "load" (every other), "sample" (each
            batch) and "flush" (the end of the buffer's epoch).

    Returns:
        `StateBatches` of (state of the buffer, step, pairs with negatives, the sampled batch).

    Raises:
        TypeError: an order or negatives of another type.
        ValueError: an option or a number out of range.

    Warns:
        RuntimeWarning: the third object with the same arguments is iterated from epoch 0.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.1.
    """
    drawing, cut = PairSampling(sampler, negatives, exclude), BatchCut(batch_size, shuffle, drop_last, seed)
    store = store_of(buffer)

    def work(order: BucketOrder, epoch: int) -> StateEpoch[PairBatch]:
        edges = torch.zeros(order.num_states, dtype=torch.int64)
        edges.index_add_(0, order.state_of_bucket.flatten().long(), store.bucket_edges.flatten())
        counts = edges.tolist()

        def sampler_of(state: Any) -> Callable[[int, slice], PairBatch]:
            return _sampler_of(state, drawing, _sequence(counts[state.number], state.number, epoch, cut))

        return StateEpoch(counts, sampler_of)

    warner = repeat_warner(buffer, cut, sampler, negatives, exclude) if shuffle else None
    orders = orders_of(order, BucketOrder, _EDGE_REMEDY)
    options: dict[str, Any] = {"epoch": epoch, "sample_ahead": sample_ahead, "phase": phase}
    return StateBatches(buffer, orders, work, cut, on_epoch=warner, **options)


def _sequence(count: int, state: int, epoch: int, cut: BatchCut) -> Tensor:
    """The order in which a state trains its edges; of the first state, that of an epoch in memory."""
    return permutation(stream(cut.seed, Purpose.SHUFFLE, epoch, state), count) if cut.shuffle else torch.arange(count)


def _sampler_of(state: Any, drawing: PairSampling, sequence: Tensor) -> Callable[[int, slice], PairBatch]:
    """How a state's batches are drawn: if the sampler permits, in compact ids, from a graph as small as the buffer."""
    if drawing.sampler is not None and not takes_any_ids(drawing.sampler):
        edges, nodes = state.edges(), state.ids.to_store(torch.arange(state.ids.num_nodes))
        return lambda step, chosen: (state, step, *_drawn(drawing, state.graph, edges[sequence[chosen]], step, nodes))
    ids, edges = state.ids, state.edges()
    for end in edges[:, :2].unbind(1):
        end.copy_(ids.of("edges", end))

    def sample(step: int, chosen: slice) -> PairBatch:
        graph = state.compact_graph if drawing.reads_edges else ids.num_nodes  # to build a graph takes time
        pairs, mb = _drawn(drawing, graph, edges[sequence[chosen]], step)
        seeds, node_ids = ids.to_store(pairs.seeds), ids.to_store(mb.node_ids)
        return state, step, replace(pairs, seeds=seeds), replace(mb, node_ids=node_ids)

    return sample


def _drawn(
    drawing: PairSampling, graph: Graph | int, picked: Tensor, step: int, nodes: Tensor | None = None
) -> tuple[EdgeBatch, MiniBatch]:
    relation = picked[:, 2] if picked.shape[1] == 3 else None
    return drawing.sample(graph, picked[:, 0], picked[:, 1], relation, step=step, nodes=nodes)


def store_of(buffer: Any) -> Any:
    """Return the store of a partition buffer.

    Args:
        buffer: a `PartitionBuffer`, or an object with its `store` and `epoch`.
    """
    if not (hasattr(buffer, "store") and hasattr(buffer, "epoch")):
        raise TypeError(f"buffer is a {type(buffer).__name__}; pass wb.outofcore.PartitionBuffer(store, capacity=c)")
    return buffer.store


def orders_of(order: Any, kind: type, remedy: str) -> Orders:
    """Return the function from epochs to orders that a caller passed, or one that returns the same order each time.

    Args:
        order: an order, or a function from an epoch's number to one.
        kind: type of the order.
        remedy: what to pass instead.
    """

    def checked(found: Any) -> Any:
        if not isinstance(found, kind):
            raise TypeError(f"order is a {type(found).__name__}, not a {kind.__name__}; {remedy}")
        return found

    if callable(order):
        return lambda epoch: checked(order(epoch))
    checked(order)
    return lambda _: order
